//! `thrufs-client bench` against a served directory.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use thrufs_hostdir::{Config, HostDir, Resources};
use thrufs_virtio::{Device, DeviceConfig};

fn bench(socket: &Path, input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_thrufs-client"));
    program.arg("--socket").arg(socket);
    program.args(["bench", "--file-bytes", "1048576", "--entries", "100"]);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    program.wait_with_output().unwrap()
}

#[test]
fn every_row_is_measured_and_nothing_is_left() {
    let rows = [
        "getattr",
        "lookup",
        "open-release",
        "create-unlink",
        "readdirplus",
        "small-read",
        "read random 4096 4096 1048576",
        "write sequential 131072 131072 1048576",
        "read sequential 1048576 1048576 1048576",
    ];
    let (shared, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (directory, socket) = (shared.path().to_owned(), sockets.path().join("socket"));
    let make = move || {
        let host = HostDir::open(&directory, Config::default(), Resources::default());
        host.map(Arc::new).map_err(std::io::Error::other)
    };
    let device = Device::new(make, DeviceConfig::default()).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            device.serve(stream.unwrap()).unwrap();
        }
    });
    let input: String = rows.iter().map(|row| format!("10 {row}\n")).collect();
    let output = bench(&socket, &input);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((text.lines().count(), errors.as_str()), (rows.len(), ""));
    for line in text.lines() {
        let (operations, nanoseconds) = line.split_once(' ').unwrap();
        assert!(operations.parse::<u64>().unwrap() > 0, "{line}");
        assert!(nanoseconds.parse::<u64>().unwrap() >= 10_000_000, "{line}");
    }
    let wrong = bench(&socket, "10 getattr\n10 nothing\n");
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 0);
}
