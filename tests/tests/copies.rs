//! Two file systems that are copies of each other: their files have the same handles.
//!
//! It starts programs, so it is a program of its own (see `served/beneath.rs`).

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use thrufs_hostdir::{Config, HostDir, Resources};
use thrufs_testing::Client;
use thrufs_tests::prelude::*;

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

fn mount_image(image: &Path, at: &Path) -> Detach<PathBuf> {
    run(Command::new("mount").args(["-o", "loop"]).args([image, at]));
    Detach(at.to_owned())
}

/// A mount on the name to be replaced was once taken for a file of the mount around it.
#[test]
fn a_mount_of_a_copied_file_system_is_not_taken_for_the_original() {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    File::create(at("one")).unwrap().set_len(8 << 20).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(at("one")));
    for name in ["origin", "copy"] {
        fs::create_dir(at(name)).unwrap();
    }
    let filled = mount_image(&at("one"), &at("origin"));
    for name in ["origin/twin", "origin/on", "origin/victim"] {
        fs::create_dir(at(name)).unwrap();
    }
    // The image without the mount, as it will be read once more.
    rustix::fs::sync();
    drop(filled);
    fs::copy(at("one"), at("two")).unwrap();
    let one = mount_image(&at("one"), &at("origin"));
    let two = mount_image(&at("two"), &at("copy"));
    fs::write(at("copy/twin/theirs"), b"of the copy").unwrap();
    rustix::mount::mount_bind(at("copy/twin"), at("origin/on")).unwrap();
    let bound = Detach(at("origin/on"));
    let config = Config {
        descriptor_budget: Some(0),
        ..Config::default()
    };
    let host = HostDir::open(&at("origin"), config, Resources::default()).unwrap();
    let client = Client::connect(Arc::new(host)).unwrap();
    let root = client.root();
    let twin = root.walk("twin").unwrap();
    assert_eq!(
        root.rename((NodeId::ROOT, b"victim"), (NodeId::ROOT, b"on"), 0),
        Err(Errno::EBUSY)
    );
    let theirs = root.lookup(twin, b"theirs").map(|entry| entry.nodeid);
    assert_eq!(theirs, Ok(0), "it is in the copy");
    root.mkdir(twin, b"ours", 0o755).unwrap();
    assert!(at("origin/twin/ours").exists());
    drop(client);
    drop((bound, two, one));
}
