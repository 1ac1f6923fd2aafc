//! The statistics of a server as OpenMetrics text: by `thrufs ctl … metrics`, and by HTTP at the address of the option
//! `metrics`.
//!
//! | module | content |
//! |---|---|
//! | `text` | the text, of the reply to a query for statistics |
//! | `http` | a request for it, and the response |
//!
//! ```text
//! supervisor ── binds, removes ──► 127.0.0.1:9420 ◄── GET /metrics ── scraper
//!     └── passes the listening socket ──► worker: one thread, as for the control socket
//! ```
//!
//! What a scraper sends is parsed by the confined worker of a mount, and by the supervisor of a share, which alone knows all
//! machines. Each worker that goes on with a mount has the listener.

mod http;
mod text;

pub(crate) use text::{of, transport};

use crate::config::MetricsAddress;
use crate::control::connection::{Answer, Protocol};
use crate::control::protocol::{Command, Reply};
use crate::control::server::serve;
use crate::error::system_at;
use crate::listening::{NamedSocket, SocketError, SocketFile};
use crate::lookup;
use rustix::fs::{Mode, OFlags};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where scrapers connect. They wait until it is served.
pub(crate) struct Listening {
    pub(crate) listener: OwnedFd,
    pub(crate) file: Option<SocketFile>,
    /// For the log.
    pub(crate) at: String,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics: {0}; use metrics=ADDRESS for another address")]
pub(crate) struct MetricsError(#[from] SocketError);

pub(crate) fn listen(address: &MetricsAddress) -> Result<Listening, MetricsError> {
    Ok(bind(address)?)
}

fn bind(address: &MetricsAddress) -> Result<Listening, SocketError> {
    match address {
        MetricsAddress::Tcp(address) => {
            let shown = address.to_string();
            let failed = system_at("listen at", Path::new(&shown));
            let listener = TcpListener::bind(address).map_err(&failed)?;
            listener.set_nonblocking(true).map_err(&failed)?;
            let at = listener.local_addr().map_err(failed)?;
            Ok(Listening {
                listener: listener.into(),
                file: None,
                at: format!("metrics: http://{at}/metrics"),
            })
        }
        MetricsAddress::Socket(path) => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(SocketError::Occupied(path.clone()));
            };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = lookup::open(parent, flags, Mode::empty())
                .map_err(system_at("open the directory", parent))?;
            let passing = format!("metrics-{}.new", std::process::id());
            let (mut socket, listener) =
                NamedSocket::make(directory, parent.into(), passing.as_ref(), Some(name))?;
            socket.publish(name, true)?;
            Ok(Listening {
                listener,
                file: Some(socket.into_file()),
                at: format!("metrics: http at the socket {}", path.display()),
            })
        }
    }
}

/// Serves scrapers of what is at `place`, for ever.
pub(crate) fn answer_scrapers(listener: OwnedFd, place: &str, answer: &mut Answer<'_>) {
    let mut statistics = || match answer(&Command::Statistics) {
        Reply::Result(statistics) => Ok(of(place, &statistics)),
        Reply::Error(refusal) => Err(refusal.message),
    };
    let protocol = Protocol {
        end: b"\r\n\r\n",
        request_bytes_max: http::REQUEST_BYTES_MAX,
        is_for_one: true,
        // Whoever reaches the address, or may write to the file.
        is_for_all: true,
        reply: &mut |request| http::respond(request, &mut statistics),
    };
    let errno = serve(listener, protocol);
    tracing::warn!("metrics are no longer served: {errno}");
}
