//! Settings of the server process, common to mounts and shares: foreground, log, policy file, control
//! socket, time to stop, placement of threads.

use super::path;
use crate::error::{StartupError, system};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How long to wait at the end for users of a mount, or for requests of a guest.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the control socket is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlLocation {
    /// In the user's directory.
    Usual,
    At(#[serde(with = "path")] PathBuf),
    None,
}

impl ControlLocation {
    /// As the option says.
    pub(crate) fn named(path: PathBuf) -> ControlLocation {
        match path.as_os_str() == "none" {
            true => ControlLocation::None,
            false => ControlLocation::At(path),
        }
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MetricsAddress {
    /// Of the loopback interface.
    Tcp(SocketAddr),
    Socket(#[serde(with = "path")] PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<MetricsAddress, &'static str> {
        if text.contains('/') {
            return Ok(MetricsAddress::Socket(text.into()));
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| "it is neither IP:PORT nor the path of a socket")?;
        match address.ip().is_loopback() {
            true => Ok(MetricsAddress::Tcp(address)),
            false => Err(
                "it is no loopback address (127.0.0.1, [::1]), and others could read paths of this host",
            ),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    pub(crate) foreground: bool,
    pub(crate) stop_timeout: Duration,
    /// Directives; `THRUFS_LOG` unless given.
    pub(crate) log: Option<String>,
    /// Whether each line of the log is a JSON object.
    pub(crate) log_json: bool,
    #[serde(with = "path::optional")]
    pub(crate) log_file: Option<PathBuf>,
    /// Log to syslog(3).
    pub(crate) syslog: bool,
    #[serde(with = "path::optional")]
    pub(crate) policy: Option<PathBuf>,
    pub(crate) control: ControlLocation,
    pub(crate) metrics: Option<MetricsAddress>,
    /// Whether a lone caller, or virtual CPU, may be served on its own CPU.
    pub(crate) pairing: bool,
    /// Deaths of the workers of a session within a minute after which another goes on with it.
    pub(crate) deaths_max: usize,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            foreground: false,
            stop_timeout: STOP_TIMEOUT,
            log: None,
            log_json: false,
            log_file: None,
            syslog: false,
            policy: None,
            control: ControlLocation::Usual,
            metrics: None,
            pairing: true,
            deaths_max: 0,
        }
    }
}

impl ServerConfig {
    /// Makes its paths absolute: the server's working directory is `/`.
    ///
    /// # Errors
    ///
    /// Those of getcwd(2).
    pub(crate) fn make_absolute(&mut self) -> Result<(), StartupError> {
        let control = match &mut self.control {
            ControlLocation::At(path) => Some(path),
            ControlLocation::Usual | ControlLocation::None => None,
        };
        let metrics = match &mut self.metrics {
            Some(MetricsAddress::Socket(path)) => Some(path),
            Some(MetricsAddress::Tcp(_)) | None => None,
        };
        for path in [&mut self.log_file, &mut self.policy]
            .into_iter()
            .flatten()
            .chain(control)
            .chain(metrics)
        {
            let absolute = std::path::absolute(&*path);
            *path = absolute.map_err(system("resolve the path of an option"))?;
        }
        Ok(())
    }
}
