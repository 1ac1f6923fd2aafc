//! What a guest finds in a share, by `thrufs client`: through the socket, the supervisor and a worker
//! that is shut in.

use crate::ground::{Foreground, THRUFS, copied_program, run, skipped, stderr, wait_for};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Longer than any one request.
const BIG_BYTES: usize = 5_000_001;

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

    fn client(&self, arguments: &[&str]) -> Output {
        run(Command::new(THRUFS)
            .args(["client", "--socket"])
            .arg(&self.socket)
            .args(arguments))
    }

    fn cat(&self, path: &str) -> Result<Vec<u8>, String> {
        let output = self.client(&["cat", path]);
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(stderr(&output))
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
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
        let (out, back) = (share.path("out"), share.path("back"));
        fs::write(&out, big()).unwrap();
        let copied = share.client(&["cp", text(&out), ":/big"]);
        assert!(copied.status.success(), "{options}: {}", stderr(&copied));
        assert!(
            fs::read(share.dir.join("big")).unwrap() == big(),
            "{options}"
        );
        let copied = share.client(&["cp", ":/big", text(&back)]);
        assert!(copied.status.success(), "{options}: {}", stderr(&copied));
        assert!(fs::read(&back).unwrap() == big(), "{options}");
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
    let output = share.client(&["conform"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", stderr(&output));
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
    let copied = share.client(&["cp", text(&share.dir.join("file")), ":/new"]);
    assert_eq!(copied.status.code(), Some(1));
    assert!(stderr(&copied).contains("Read-only"), "{}", stderr(&copied));
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
    let copied = share.client(&["cp", ":/file", ":/new"]);
    assert!(copied.status.success(), "{}", stderr(&copied));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(share.dir.join("new")).unwrap());
    assert_eq!(owner, USER);
}
