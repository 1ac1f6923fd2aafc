//! Settings of the server process, common to mounts and shares: foreground, log, policy file, control
//! socket, time to stop.

use crate::control::socket::ControlLocation;
use crate::options::{OptionError, OptionId, Setting, parse_seconds};
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait at the end for users of a mount, or for requests of a guest.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    pub(crate) foreground: bool,
    pub(crate) stop_timeout: Duration,
    /// Directives; `THRUFS_LOG` unless given.
    pub(crate) log: Option<String>,
    pub(crate) log_file: Option<PathBuf>,
    /// Log to syslog(3).
    pub(crate) syslog: bool,
    pub(crate) policy: Option<PathBuf>,
    pub(crate) control: ControlLocation,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            foreground: false,
            stop_timeout: STOP_TIMEOUT,
            log: None,
            log_file: None,
            syslog: false,
            policy: None,
            control: ControlLocation::Usual,
        }
    }
}

impl ServerConfig {
    /// Whether SIGHUP ends the server: in the foreground, on a terminal or without a policy. Otherwise it
    /// reloads the policy, if there is one.
    pub(crate) fn ends_on_hangup(&self) -> bool {
        self.foreground && (self.policy.is_none() || rustix::termios::isatty(std::io::stdin()))
    }

    /// Returns whether the setting was one of these.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, OptionError> {
        let value = setting.text();
        match setting.option.id {
            OptionId::Foreground => self.foreground = true,
            OptionId::StopTimeout => self.stop_timeout = setting.read(parse_seconds)?,
            OptionId::Log => self.log = Some(value.to_owned()),
            OptionId::LogFile => self.log_file = Some(value.into()),
            OptionId::Syslog => self.syslog = true,
            OptionId::Policy => self.policy = Some(value.into()),
            OptionId::Control if value == "none" => self.control = ControlLocation::None,
            OptionId::Control => self.control = ControlLocation::At(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
