//! Killed servers, and servers whose source does not respond: pending requests fail, no program uses the
//! directory beneath, and the processes end in bounded time.

use crate::ground::prelude::*;
use crate::ground::share::{connect_to, mount_at, serves};
use crate::ground::{VICTIMS, kill_all};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use thrufs::{MountOptions, MountedSession, Opcode, SessionConfig};
use thrufs_client::FIRST_REQUEST_QUEUE;
use thrufs_testing::StopAll;
use thrufs_testing::memory::{File, Files, Settings};

/// A file, a directory, and in both directories a name whose LOOKUP blocks uninterruptibly.
fn silent() -> Arc<Files> {
    let files = Files::new(Settings {
        hook: Some(Box::new(|asked| match asked.is_about("silent") {
            true => asked.wait(),
            false => Ok(()),
        })),
        ..Settings::default()
    });
    for (name, mut file) in [("file", File::with(b"")), ("directory", File::directory())] {
        file.valid = Duration::ZERO;
        files.put(name, file);
    }
    files
}

struct Source {
    files: Arc<Files>,
    session: Option<MountedSession>,
    ground: Ground,
}

impl Source {
    fn new() -> Option<Source> {
        let ground = Ground::new()?;
        let (files, options) = (silent(), MountOptions::new("silent"));
        let config = SessionConfig::default();
        let session = thrufs::mount(files.serve(), &ground.src, &options, config);
        Some(Source {
            files,
            session: Some(session.unwrap()),
            ground,
        })
    }

    /// A client blocked in such a LOOKUP; returns when the source has the request.
    fn ask(&self) -> JoinHandle<io::Result<fs::Metadata>> {
        let path = self.ground.mnt.join("silent");
        let client = std::thread::spawn(move || fs::metadata(path));
        wait_for("the request to reach the source", || {
            self.files.gate.came() > 0
        });
        client
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.files.gate.open();
        // Busy while the worker exists.
        drop(self.session.take());
    }
}

/// The request failed with an error of the connection.
fn assert_aborted(client: JoinHandle<io::Result<fs::Metadata>>) {
    wait_for("the request to fail", || client.is_finished());
    let error = client.join().unwrap().unwrap_err();
    let known = [
        io::ErrorKind::NotConnected,
        io::ErrorKind::ConnectionAborted,
    ];
    assert!(known.contains(&error.kind()), "{error}");
}

#[test]
fn unanswered_requests_do_not_keep_the_mount() {
    let Some(source) = Source::new() else { return };
    let ground = &source.ground;
    let mut server = ground.mount_in_foreground(&["--stop-timeout=1", "-o", "cache=never"]);
    let client = source.ask();
    server.signal(Signal::TERM);
    server.wait_supervisor();
    assert_aborted(client);
    assert!(!ground.is_mounted());
    source.files.gate.open();
    let said = server.ends(1);
    assert!(said.contains("do not end"), "{said}");
    ground.wait_gone();
}

#[test]
fn callers_of_a_killed_worker_get_an_error() {
    let Some(source) = Source::new() else { return };
    let ground = &source.ground;
    let mut server = ground.mount_in_foreground(&["-o", "cache=never"]);
    let client = source.ask();
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    assert_aborted(client);
    server.wait_supervisor();
    assert!(ground.is_mounted());
    source.files.gate.open();
    let said = server.ends(1);
    assert!(said.contains("do not end"), "{said}");
    ground.wait_dead();
    ground::unmount_by_command(&ground.mnt);
}

/// The blocked worker cannot exit, and no other process is left.
#[test]
fn callers_get_an_error_when_the_supervisor_is_killed() {
    let unmounted = "cache=never,auto_unmount";
    for (options, worker_too, stays) in [
        ("cache=never", false, true),
        (unmounted, false, false),
        // None is left that could abort the connection but the process that unmounts.
        (unmounted, true, false),
    ] {
        let Some(source) = Source::new() else { return };
        let ground = &source.ground;
        let mut server = ground.mount_in_foreground(&["-o", options]);
        let client = source.ask();
        if worker_too {
            ground::stop_process(server.pid());
            kill_process(ground.process("--worker"), Signal::KILL).unwrap();
        }
        server.signal(Signal::KILL);
        assert_aborted(client);
        server.wait_supervisor();
        if !stays {
            wait_for("the mount to go", || !ground.is_mounted());
        }
        source.files.gate.open();
        if stays {
            ground.wait_dead();
            ground::unmount_by_command(&ground.mnt);
        }
        ground.wait_gone();
    }
}

/// While one worker is stuck, another machine is served.
#[test]
fn share_continues_with_a_stuck_worker() {
    let Some(source) = Source::new() else { return };
    let ground = &source.ground;
    let [socket, said] = ["socket", "said"].map(|name| ground.path().join(name));
    let mut command = Command::new(THRUFS);
    command.args(["share", "--log=debug", "--stop-timeout=1"]);
    command.args(["-o", "control=none,cache=never,resume=0,machines=2"]);
    command.args([Path::new("--socket"), &socket, &ground.src]);
    let log = fs::File::create(&said).unwrap();
    let mut server = serves(command.stderr(log), &socket);
    let says = |words: &str| fs::read_to_string(&said).unwrap().contains(words);
    // Not in the root directory: the next worker could not mount where a LOOKUP blocks.
    let guest = mount_at(&socket, &FrontEndConfig::default());
    let directory = guest.root().walk("directory").unwrap();
    let request = guest.root().request(Opcode::Lookup, directory);
    let request = request.name(b"silent").finish();
    let mut queue = guest.carrier().queue(FIRST_REQUEST_QUEUE).unwrap();
    queue.submit_request(&request).unwrap();
    queue.notify().unwrap();
    drop(queue);
    wait_for("the request to reach the source", || {
        source.files.gate.came() > 0
    });
    drop(guest);
    wait_for("the worker to be stuck", || says("the worker is stuck"));
    let mut next = connect_to(&socket);
    next.set_read_timeout(Some(LIMIT)).unwrap();
    next.read_exact(&mut [0; 12]).unwrap();
    wait_for("the message", || says("requests do not end"));
    source.files.gate.open();
    server.signal(Signal::TERM);
    server.wait_supervisor();
}

#[test]
fn no_write_reaches_the_directory_beneath_a_dead_mount() {
    let Some(ground) = Ground::new() else { return };
    for victims in VICTIMS {
        // Attributes of a dead mount may be cached.
        succeeded(&ground.mount(&["-o", "cache=always"]));
        let _open = fs::File::open(ground.mnt.join("file")).unwrap();
        // A writer by path: after the first error, no write succeeds.
        let [stop, failed] = [false; 2].map(AtomicBool::new);
        std::thread::scope(|scope| {
            let _stop = StopAll(&stop);
            scope.spawn(|| {
                for number in 0.. {
                    match fs::write(ground.mnt.join(format!("new {number}")), "x") {
                        Err(_) => failed.store(true, Ordering::SeqCst),
                        Ok(()) if failed.load(Ordering::SeqCst) => {
                            panic!("{number} was written after an error")
                        }
                        Ok(()) => {}
                    }
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            kill_all(&ground, victims);
            ground.wait_dead();
            wait_for("a write to fail", || failed.load(Ordering::SeqCst));
        });
        // The error names the remedy, which works also while in use.
        let said = fails(&ground.mount(&[]), 1, "dead FUSE mount");
        assert!(said.contains("thrufs unmount"), "{said}");
        succeeded(&thrufs!("unmount", &ground.mnt));
        assert!(!ground.is_mounted());
        let beneath = fs::read_dir(&ground.mnt).unwrap().count();
        assert_eq!(beneath, 0, "{victims:?}: files landed beneath");
    }
}

#[test]
fn supervisor_reports_the_remedy_when_the_worker_dies() {
    let Some(ground) = Ground::new() else { return };
    let server = ground.mount_in_foreground(&[]);
    kill_process(ground.process("--worker"), Signal::KILL).unwrap();
    let said = server.ends(1);
    for part in ["the server died", "SIGKILL", "ENOTCONN", "thrufs unmount"] {
        assert!(said.contains(part), "{said}");
    }
    ground.wait_dead();
    ground::unmount_by_command(&ground.mnt);
}

#[test]
fn auto_unmount_unmounts_after_the_server_is_killed() {
    let Some(ground) = Ground::new() else { return };
    for victims in VICTIMS {
        succeeded(&ground.mount(&["-o", "auto_unmount"]));
        let open = fs::File::open(ground.mnt.join("file")).unwrap();
        kill_all(&ground, victims);
        ground.wait_gone();
        assert!(open.metadata().is_err(), "{victims:?}");
        fs::read_dir(&ground.mnt).expect("the directory beneath is back");
    }
    // Regular unmounts work too.
    succeeded(&ground.mount(&["-o", "auto_unmount"]));
    kill_process(ground.process("--supervisor"), Signal::TERM).unwrap();
    ground.wait_gone();
    succeeded(&ground.mount(&["-o", "auto_unmount"]));
    ground::unmount_by_command(&ground.mnt);
    ground.wait_gone();
}
