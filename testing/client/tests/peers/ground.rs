//! Servers under test, each with its own socket.

use std::num::NonZeroU16;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs_hostdir::{Config, HostDir, Resources};
use thrufs_virtio::{Device, DeviceConfig, DeviceHandle, Tag};

/// A server that runs until this is dropped.
pub struct Running {
    /// The vhost-user socket.
    pub socket: PathBuf,
    /// Ends the server when dropped.
    _guard: Box<dyn std::any::Any>,
}

pub struct Server {
    pub name: &'static str,
    /// Serves a directory on a socket in another; the error names what this machine lacks.
    start: fn(&Path, &Path) -> Result<Running, String>,
}

pub const SERVERS: &[Server] = &[
    Server {
        name: "virtiofsd",
        start: virtiofsd,
    },
    Server {
        name: "thrufs",
        start: thrufs,
    },
];

/// A server with its directories.
pub struct Ground {
    // Dropped before its directories.
    running: Running,
    pub server: &'static Server,
    shared: tempfile::TempDir,
    _sockets: tempfile::TempDir,
}

impl Ground {
    pub fn shared(&self) -> &Path {
        self.shared.path()
    }

    pub fn socket(&self) -> &Path {
        &self.running.socket
    }
}

/// Thrufs with an empty directory; before it, in the full tier, virtiofsd if installed.
pub fn grounds() -> impl Iterator<Item = Ground> {
    let servers = SERVERS.iter();
    let servers = servers.filter(|it| it.name == "thrufs" || thrufs_test_report::is_full());
    servers.filter_map(|server| match ground(server) {
        Ok(ground) => Some(ground),
        Err(missing) => {
            thrufs_test_report::skipped(format!("{}: {missing}", server.name));
            None
        }
    })
}

fn ground(server: &'static Server) -> Result<Ground, String> {
    let shared = tempfile::tempdir().unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let running = (server.start)(shared.path(), sockets.path())?;
    Ok(Ground {
        running,
        server,
        shared,
        _sockets: sockets,
    })
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The device of Thrufs, in this process.
struct Serving {
    socket: PathBuf,
    device: DeviceHandle,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.device.shutdown();
        // `accept` must not block for ever.
        let _ = UnixStream::connect(&self.socket);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn thrufs(shared: &Path, sockets: &Path) -> Result<Running, String> {
    let directory = shared.to_owned();
    let make = move || {
        let host = HostDir::open(&directory, Config::default(), Resources::default());
        host.map(Arc::new).map_err(std::io::Error::other)
    };
    let config = DeviceConfig {
        tag: Some(Tag::new("peer").unwrap()),
        request_queues: NonZeroU16::new(2).unwrap(),
        ..DeviceConfig::default()
    };
    let device = Device::new(make, config).unwrap();
    let socket = sockets.join("thrufs.socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let serving = Serving {
        socket: socket.clone(),
        device: device.handle(),
        stopped: Arc::clone(&stopped),
        thread: Some(std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                // A front end that misbehaves ends its own connection.
                let _ = device.serve(stream.unwrap());
            }
        })),
    };
    Ok(Running {
        socket,
        _guard: Box::new(serving),
    })
}

fn virtiofsd(shared: &Path, sockets: &Path) -> Result<Running, String> {
    let program = std::env::var_os("VIRTIOFSD").ok_or("VIRTIOFSD does not name it")?;
    let socket = sockets.join("virtiofsd.socket");
    let child = Command::new(program)
        .arg(format!("--socket-path={}", socket.display()))
        .arg(format!("--shared-dir={}", shared.display()))
        .args(["--sandbox=none", "--seccomp=none", "--tag=peer", "--xattr"])
        .args(["--log-level=off"])
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let process = Process(child);
    wait_for(&socket);
    Ok(Running {
        socket,
        _guard: Box::new(process),
    })
}

/// Waits until the socket listens, without a connection, which might be the only one that the server takes.
fn wait_for(socket: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_listened_to(socket) {
        assert!(Instant::now() < end, "no listener at {}", socket.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the socket listens, by /proc/net/unix (proc_pid_net(5)); its file exists earlier.
fn is_listened_to(socket: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().any(|line| {
        line.ends_with(socket.to_str().unwrap()) && line.split_whitespace().nth(3) == Some(ACCEPTS)
    })
}
