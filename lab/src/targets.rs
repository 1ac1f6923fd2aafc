//! The targets of a comparison. All are asked to cache what libfuse's server caches: names, attributes
//! and data, for a day.

use crate::peers;
use thrufs_bench::ROLE;
use thrufs_bench::results::Kind;
use thrufs_bench::setup::{Data, Mode, ServerSetup, TargetSetup, Transport};

/// Ours over one transport, with data going by the server or past it.
pub(crate) fn ours(transport: Transport, data: Data) -> TargetSetup {
    Mode { transport, data }.setup(Some("always"), false)
}

/// Ours, choosing transport and way of data by itself.
pub(crate) fn ours_by_itself(options: &str) -> TargetSetup {
    TargetSetup::Server(ServerSetup {
        name: "thrufs".to_owned(),
        title: "Thrufs".to_owned(),
        ..ServerSetup::thrufs(options)
    })
}

/// libfuse's server in the same modes. Without `--nosplice`, which its script says, it makes a pipe for each
/// request.
pub(crate) fn libfuse(transport: Transport, data: Data) -> TargetSetup {
    let mut name = "libfuse".to_owned();
    let mut title = "libfuse's passthrough_hp".to_owned();
    let mut options = Vec::new();
    if data != Data::Through {
        options.push("--nopassthrough");
    }
    if transport == Transport::Ring {
        name.push_str("-uring");
        title.push_str(" over io_uring");
        options.extend(["-o", "io_uring"]);
    }
    if data == Data::Through {
        name.push_str("+pt");
        title.push_str(", passthrough");
    }
    let shown = [&["--nosplice"], options.as_slice()].concat().join(" ");
    TargetSetup::Server(ServerSetup {
        name,
        title,
        options: shown,
        transport: Some(transport),
        data: Some(data),
        ..peers::server("passthrough_hp", &options)
    })
}

/// A server that answers from constants.
pub(crate) fn floor(transport: Transport) -> TargetSetup {
    let word = match transport {
        Transport::Dev => "dev",
        Transport::Ring => "uring",
    };
    let command = ["/proc/self/exe", ROLE, "floor", word];
    let command = command
        .into_iter()
        .chain([ServerSetup::PROCESSOR, ServerSetup::POINT]);
    TargetSetup::Server(ServerSetup {
        name: format!("floor-{word}"),
        title: format!("a server that answers from constants, floor-{word}"),
        kind: Kind::Floor,
        options: String::new(),
        command: command.map(str::to_owned).collect(),
        transport: Some(transport),
        data: None,
        each_job: true,
    })
}

/// One of the peers' table, with its own defaults.
pub(crate) fn peer(name: &str) -> TargetSetup {
    TargetSetup::Server(peers::server(name, &[]))
}

#[cfg(test)]
mod tests {
    use super::libfuse;
    use thrufs_bench::setup::{Mode, TargetSetup};

    #[test]
    fn libfuse_has_the_modes_that_ours_has() {
        let expected = [
            ("libfuse", "--nosplice --nopassthrough"),
            ("libfuse-uring", "--nosplice --nopassthrough -o io_uring"),
            ("libfuse+pt", "--nosplice"),
            ("libfuse-uring+pt", "--nosplice -o io_uring"),
        ];
        for (mode, (name, options)) in Mode::ALL.into_iter().zip(expected) {
            let TargetSetup::Server(server) = libfuse(mode.transport, mode.data) else {
                panic!("it is started");
            };
            assert_eq!(
                (server.name.as_str(), server.options.as_str()),
                (name, options)
            );
        }
    }
}
