//! The syslog(3) socket.
//!
//! Lines are sent by write(2), which a confined worker may call. It cannot reconnect, so after a failure
//! lines go to standard error.

use super::rate::LogRate;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Instant;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

const SOCKET: &str = "/dev/log";

/// `LOG_USER`
const FACILITY: u8 = 1 << 3;

pub(super) struct Syslog {
    socket: UnixDatagram,
    rate: Mutex<LogRate>,
}

impl Syslog {
    pub(super) fn connect() -> io::Result<Syslog> {
        Syslog::connect_to(SOCKET.as_ref())
    }

    fn connect_to(path: &Path) -> io::Result<Syslog> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        // A full socket must not block requests.
        socket.set_nonblocking(true)?;
        let rate = Mutex::new(LogRate::new(Instant::now()));
        Ok(Syslog { socket, rate })
    }
}

/// Levels of syslog(3).
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

pub(super) struct SyslogLine<'a> {
    syslog: &'a Syslog,
    severity: u8,
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = SyslogLine<'a>;

    fn make_writer(&'a self) -> SyslogLine<'a> {
        SyslogLine {
            syslog: self,
            severity: severity(Level::INFO),
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> SyslogLine<'a> {
        SyslogLine {
            syslog: self,
            severity: severity(*metadata.level()),
        }
    }
}

impl Write for SyslogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let admitted = self.syslog.rate.lock().admit(line, Instant::now());
        let priority = FACILITY | self.severity;
        let omitted = match admitted {
            None => return Ok(line.len()),
            Some(0) => String::new(),
            Some(lines) => format!("({lines} lines before this were left out) "),
        };
        let head = format!("<{priority}>thrufs[{}]: {omitted}", std::process::id());
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let whole = [head.as_bytes(), text].concat();
        match rustix::io::write(&self.syslog.socket, &whole) {
            Ok(_) => Ok(line.len()),
            Err(_) => io::stderr().write_all(line).map(|()| line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_arrive_with_their_severity() {
        let place = tempfile::TempDir::new().unwrap();
        let path = place.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Syslog::connect_to(&path).unwrap())
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("that was close");
            tracing::info!("done");
        });
        let mut bytes = [0; 200];
        let mut next = || {
            let length = log.recv(&mut bytes).unwrap();
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        let (first, second) = (next(), next());
        let name = format!("thrufs[{}]: ", std::process::id());
        assert!(first.starts_with(&format!("<12>{name}")), "{first}");
        assert!(first.ends_with("that was close"), "{first}");
        assert!(second.starts_with(&format!("<14>{name}")), "{second}");
        assert!(Syslog::connect_to(&place.path().join("none")).is_err());
    }
}
