//! What a guest finds in a share, by the test client: through the socket, the supervisor and a worker
//! that is shut in.

use crate::ground::{Foreground, THRUFS, copied_program, skipped, wait_for};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thrufs::layout::SetattrIn;
use thrufs::{Errno, LockOwner, NodeId};
use thrufs_abi::SetattrValid;
use thrufs_client::tool::{self, Cat, Conform, Connection, Outcome};
use thrufs_client::{Client, FrontEnd, FrontEndConfig};

/// Longer than any one request.
const BIG_BYTES: usize = 5_000_001;
const REQUEST_BYTES: usize = 1 << 20;

const WRITE_ONLY: i32 = 1;
const CREATE: i32 = 0o100;

struct Share {
    place: TempDir,
    dir: PathBuf,
    socket: PathBuf,
}

impl Share {
    fn new() -> Share {
        let place = TempDir::with_prefix("thrufs-guest-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (dir, socket) = (place.path().join("dir"), place.path().join("socket"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
        Share { place, dir, socket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, options: &str) -> Command {
        self.command_of(Path::new(THRUFS), options)
    }

    fn command_of(&self, program: &Path, options: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(["share", "-o", "control=none", "-o", options, "--socket"])
            .arg(&self.socket)
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn serve(&self, options: &str) -> Foreground {
        self.begin(&mut self.command(options))
    }

    fn begin(&self, command: &mut Command) -> Foreground {
        let child = Foreground::of(command.spawn().unwrap());
        wait_for("the socket to appear", || self.socket.exists());
        child
    }

    /// What a command of the client prints, and whether it succeeds.
    fn ask(&self, command: &tool::Command) -> Result<(Outcome, Vec<u8>), String> {
        let mut out = Vec::new();
        let outcome = tool::run(&Connection::to(&self.socket), command, &mut out);
        let outcome = outcome.map_err(|error| error.to_string())?;
        Ok((outcome, out))
    }

    fn cat(&self, path: &str) -> Result<Vec<u8>, String> {
        let paths = vec![path.to_owned()];
        Ok(self.ask(&tool::Command::Cat(Cat { paths }))?.1)
    }

    /// Writes a file, as cp(1) in a guest does: an old one is emptied first.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let front_end = FrontEnd::connect(&self.socket, &FrontEndConfig::default()).unwrap();
        let client = Client::mount(front_end).unwrap();
        let root = client.root();
        let (node, fh) = match root.walk(name) {
            Ok(node) => {
                let fh = root.open(node, WRITE_ONLY)?.fh;
                let empty = SetattrIn {
                    valid: (SetattrValid::SIZE | SetattrValid::FH).bits(),
                    fh,
                    ..SetattrIn::default()
                };
                root.setattr(node, &empty)?;
                (node, fh)
            }
            Err(Errno::ENOENT) => {
                let flags = WRITE_ONLY | CREATE;
                let (entry, open) = root.create(NodeId::ROOT, name.as_bytes(), flags, 0o644)?;
                (NodeId(entry.nodeid), open.fh)
            }
            Err(errno) => return Err(errno),
        };
        for (number, part) in bytes.chunks(REQUEST_BYTES).enumerate() {
            let offset = (number * REQUEST_BYTES) as u64;
            let written = root.write(node, fh, offset, part, 0)?;
            assert_eq!(written as usize, part.len());
        }
        root.flush(node, fh, LockOwner(1))?;
        root.release(node, fh)?;
        root.forget(node, 1);
        client.unmount();
        Ok(())
    }
}

/// Everything but a period of its own.
fn big() -> Vec<u8> {
    (0..BIG_BYTES).map(|at| (at * at % 251) as u8).collect()
}

#[test]
fn files_come_and_go_whole() {
    let share = Share::new();
    for options in [
        "cache=auto",
        "cache=never,seccomp=kill",
        "cache=metadata,locks=shared",
    ] {
        let server = share.serve(options);
        assert_eq!(share.cat("/file").unwrap(), b"content", "{options}");
        assert_eq!(share.put("big", &big()), Ok(()), "{options}");
        assert!(
            fs::read(share.dir.join("big")).unwrap() == big(),
            "{options}"
        );
        assert!(share.cat("/big").unwrap() == big(), "{options}");
        server.signal(Signal::TERM);
        let (code, said) = server.wait();
        assert_eq!(code, Some(0), "{options}: {said}");
        assert!(!said.contains("died"), "{options}: {said}");
    }
}

#[test]
fn it_keeps_to_the_protocol_whatever_a_front_end_does() {
    let share = Share::new();
    let server = share.serve("seccomp=kill,queues=2");
    let conform = tool::Command::Conform(Conform::default());
    let (outcome, told) = share.ask(&conform).unwrap();
    let told = String::from_utf8_lossy(&told);
    assert!(outcome.is_success(), "{told}");
    assert_eq!(share.cat("/file").unwrap(), b"content", "afterwards");
    server.signal(Signal::TERM);
    let (code, said) = server.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("the worker died"), "{said}");
}

#[test]
fn what_is_read_only_stays() {
    let share = Share::new();
    let _server = share.serve("ro");
    assert_eq!(share.put("new", b"content"), Err(Errno::EROFS));
    assert!(!share.dir.join("new").exists());
    assert_eq!(share.cat("/file").unwrap(), b"content");
}

#[test]
fn a_policy_holds_and_is_read_again() {
    let share = Share::new();
    fs::write(share.dir.join("secret"), "secret").unwrap();
    let policy = share.path("policy.toml");
    let hiding = |name: &str| format!("[[rule]]\npath = \"{name}\"\naction = \"hide\"\n");
    fs::write(&policy, hiding("secret")).unwrap();
    let server = share.serve(&format!("policy={}", policy.display()));
    assert!(share.cat("/secret").is_err());
    assert_eq!(share.cat("/file").unwrap(), b"content");
    fs::write(&policy, hiding("file")).unwrap();
    server.signal(Signal::HUP);
    wait_for("the policy to be in force", || share.cat("/file").is_err());
    assert_eq!(share.cat("/secret").unwrap(), b"secret");
}

#[test]
fn an_ordinary_user_serves_a_guest() {
    if !rustix::process::geteuid().is_root() {
        return skipped("becoming an ordinary user");
    }
    const USER: u32 = 54_321;
    let share = Share::new();
    std::os::unix::fs::chown(&share.dir, Some(USER), Some(USER)).unwrap();
    let program = copied_program(share.place.path());
    let mut command = share.command_of(&program, "locks=shared");
    let _server = share.begin(command.uid(USER).gid(USER));
    assert_eq!(share.cat("/file").unwrap(), b"content");
    assert_eq!(share.put("new", b"content"), Ok(()));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(share.dir.join("new")).unwrap());
    assert_eq!(owner, USER);
}
