//! Other servers: scripts in `bench/peers` install and start each in the same way, for us and by hand.

use std::process::{Command, Stdio};
use thrufs_bench::results::Kind;
use thrufs_bench::setup::{Data, ServerSetup, TargetSetup};

/// Those that show a directory at a mount point, with a title for people. virtiofsd and 9p are measured
/// in guests.
pub(crate) const PEERS: [(&str, &str); 6] = [
    ("passthrough", "libfuse's passthrough (high-level)"),
    ("passthrough_ll", "libfuse's passthrough_ll (low-level)"),
    ("passthrough_hp", "libfuse's passthrough_hp"),
    ("bindfs", "bindfs"),
    ("mergerfs", "mergerfs, one branch"),
    ("go-fuse", "go-fuse's loopback"),
];

/// A peer, started by its script with its own defaults and these options. It has no options about transport
/// and passthrough.
pub(crate) fn server(name: &str, options: &[&str]) -> ServerSetup {
    let title = PEERS.iter().find(|(known, _)| *known == name);
    let script = script(name);
    let words = [
        script.as_str(),
        "start",
        ServerSetup::SOURCE,
        ServerSetup::POINT,
    ];
    let words = words.into_iter().chain(options.iter().copied());
    ServerSetup {
        name: name.to_owned(),
        title: title.map_or(name, |(_, title)| title).to_owned(),
        kind: Kind::Other,
        options: format!("bench/peers/{name} start"),
        command: words.map(str::to_owned).collect(),
        transport: None,
        data: Some(Data::Any),
        each_job: false,
    }
}

/// Installs the peers that are missing, which may take minutes. One that cannot be installed fails to mount, with the
/// reason.
pub(crate) fn fetch(setups: &[TargetSetup]) {
    let programs = setups.iter().filter_map(|setup| match setup {
        TargetSetup::Server(server) => server.command.first(),
        _ => None,
    });
    let known = |program: &&String| PEERS.iter().any(|(name, _)| script(name) == **program);
    let mut scripts: Vec<&String> = programs.filter(known).collect();
    scripts.dedup();
    for script in scripts {
        // What it does, and which version it finds, is for people.
        let install = Command::new(script)
            .arg("install")
            .stdin(Stdio::null())
            .status();
        if !install.is_ok_and(|status| status.success()) {
            eprintln!("{script}: it could not be installed");
        }
    }
}

/// `cargo xtask bench` says where the sources are.
fn script(name: &str) -> String {
    let project = std::env::var("PROJECT").unwrap_or_else(|_| ".".to_owned());
    format!("{project}/bench/peers/{name}")
}

#[cfg(test)]
mod tests {
    use super::PEERS;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn every_peer_has_its_script() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers");
        for (name, _) in PEERS {
            let script = std::fs::metadata(scripts.join(name)).unwrap();
            assert_eq!(script.permissions().mode() & 0o111, 0o111, "{name}");
        }
    }
}
