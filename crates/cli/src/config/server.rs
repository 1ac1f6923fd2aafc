//! What the settings mean for the life of a server, whatever it serves by.

use crate::control::place::Control;
use crate::options::{OptionError, OptionId, Setting, parse_seconds};
use std::path::PathBuf;
use std::time::Duration;

/// How long users of a mount have to leave, or requests of a guest to be answered, when the server
/// is asked to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    pub(crate) foreground: bool,
    pub(crate) stop_timeout: Duration,
    /// Directives for the log; the environment decides when there are none.
    pub(crate) log: Option<String>,
    pub(crate) log_file: Option<PathBuf>,
    /// Log to the system's log instead.
    pub(crate) syslog: bool,
    /// The rules to serve by.
    pub(crate) policy: Option<PathBuf>,
    pub(crate) control: Control,
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
            control: Control::Usual,
        }
    }
}

impl ServerConfig {
    /// Whether a hangup ends the server: when it runs on a terminal, which has gone away. Otherwise
    /// it is how a server is told to read its policy again.
    pub(crate) fn ends_on_hangup(&self) -> bool {
        self.foreground && (self.policy.is_none() || rustix::termios::isatty(std::io::stdin()))
    }

    /// Tells whether the setting was one of these.
    ///
    /// # Errors
    ///
    /// A value that cannot be.
    pub(super) fn apply(&mut self, setting: &Setting) -> Result<bool, OptionError> {
        let value = setting.text();
        match setting.option.id {
            OptionId::Foreground => self.foreground = true,
            OptionId::StopTimeout => self.stop_timeout = setting.read(parse_seconds)?,
            OptionId::Log => self.log = Some(value.to_owned()),
            OptionId::LogFile => self.log_file = Some(value.into()),
            OptionId::Syslog => self.syslog = true,
            OptionId::Policy => self.policy = Some(value.into()),
            OptionId::Control if value == "none" => self.control = Control::None,
            OptionId::Control => self.control = Control::At(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
