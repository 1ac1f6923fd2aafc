//! Test directories for mounts, and their processes.
#![allow(dead_code, reason = "each test program uses its own part")]

pub mod metrics;
pub mod prelude;
pub mod share;

pub use thrufs_testing::wait_until as wait_for;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub const THRUFS: &str = env!("CARGO_BIN_EXE_thrufs");

/// Limit for conditions that only a fault would prevent.
pub const LIMIT: Duration = thrufs_testing::PATIENCE;

/// The command, in a session of its own: without the terminal of the tests, where SIGHUP would end it.
pub fn without_terminal() -> Command {
    let mut command = Command::new("setsid");
    command.arg(THRUFS);
    command
}

/// Runs the command; arguments are strings or paths.
macro_rules! thrufs {
    ($($argument:expr),* $(,)?) => {
        crate::ground::run(std::process::Command::new(crate::ground::THRUFS)$(.arg($argument))*)
    };
}
pub(crate) use thrufs;

pub fn skipped(why: &str) {
    thrufs_test_report::skipped(why);
}

/// Source and mount point; unmounts on drop.
pub struct Ground {
    place: TempDir,
    pub src: PathBuf,
    pub mnt: PathBuf,
}

impl Ground {
    /// `None`, and a report, where mounting is not possible.
    pub fn new() -> Option<Ground> {
        if !rustix::process::geteuid().is_root() {
            skipped("mounting needs root");
            return None;
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            skipped(&format!("/dev/fuse: {error}"));
            return None;
        }
        let place = TempDir::with_prefix("thrufs-cli-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [src, mnt] = ["src", "mnt"].map(|name| place.path().join(name));
        fs::create_dir(&src).unwrap();
        fs::create_dir(&mnt).unwrap();
        fs::write(src.join("file"), "content").unwrap();
        Some(Ground { place, src, mnt })
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Makes the source a shared mount, as with systemd.
    pub fn propagating(self) -> Ground {
        rustix::mount::mount_bind(&self.src, &self.src).unwrap();
        self.propagates(MountPropagationFlags::SHARED);
        self
    }

    /// Sets the propagation of the source.
    pub fn propagates(&self, how: MountPropagationFlags) {
        rustix::mount::mount_change(&self.src, how).unwrap();
    }

    pub fn mount(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(THRUFS);
        command.arg("mount").args(arguments);
        run(command.args([&self.src, &self.mnt]))
    }

    /// Mounts in the foreground; returns when the server is ready. Before that, it treats signals and
    /// errors as a failed start.
    pub fn mount_in_foreground(&self, arguments: &[&str]) -> Foreground {
        let path = self.path().join("notified");
        let notified = UnixDatagram::bind(&path).unwrap();
        notified.set_nonblocking(true).unwrap();
        let mut command = self.in_foreground(arguments);
        let mut child = Foreground::of(command.env("NOTIFY_SOCKET", &path).spawn().unwrap());
        let (mut message, mut length) = ([0; 64], 0);
        wait_for("the mount to stand", || {
            assert!(!child.has_ended(), "{}", child.said());
            let received = notified.recv(&mut message);
            received.inspect(|bytes| length = *bytes).is_ok()
        });
        assert_eq!(&message[..length], b"READY=1\n", "readiness notification");
        fs::remove_file(&path).unwrap();
        assert!(self.is_mounted() && self.mnt.join("file").exists());
        child
    }

    pub fn start_in_foreground(&self, arguments: &[&str]) -> Foreground {
        Foreground::of(self.in_foreground(arguments).spawn().unwrap())
    }

    fn in_foreground(&self, arguments: &[&str]) -> Command {
        let mut command = without_terminal();
        command.args(["mount", "-f"]).args(arguments);
        command.args([&self.src, &self.mnt]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub fn is_mounted(&self) -> bool {
        is_mount(&self.mnt)
    }

    pub fn assert_serves(&self) {
        assert_eq!(fs::read(self.mnt.join("file")).unwrap(), b"content");
    }

    pub fn processes(&self, role: &str) -> Vec<Pid> {
        processes(role, &self.mnt)
    }

    pub fn process(&self, role: &str) -> Pid {
        let found = self.processes(role);
        assert_eq!(found.len(), 1, "one {role}");
        found[0]
    }

    pub fn wait_gone(&self) {
        wait_for("the mount to go", || !self.is_mounted());
        self.wait_ended();
    }

    pub fn wait_dead(&self) {
        wait_for("the mount to be dead", || {
            fs::read_dir(&self.mnt).is_err_and(|e| e.kind() == std::io::ErrorKind::NotConnected)
        });
        self.wait_ended();
        assert!(self.is_mounted());
    }

    pub fn wait_ended(&self) {
        wait_for("the processes to end", || {
            let roles = ["--supervisor", "--worker", "--auto-unmount"];
            roles.iter().all(|role| self.processes(role).is_empty())
        });
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = table
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(4));
        for path in ours.filter(|path| Path::new(path).starts_with(self.place.path())) {
            eprintln!("left mounted: {path}");
            let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
        }
    }
}

/// A server in the foreground, killed on drop. If its test fails, its log is printed.
pub struct Foreground {
    child: Child,
    /// The log file, unless it logs to a pipe.
    log: Option<PathBuf>,
}

impl Foreground {
    pub fn of(child: Child) -> Foreground {
        Foreground { child, log: None }
    }

    pub fn logging_to(mut self, log: PathBuf) -> Foreground {
        self.log = Some(log);
        self
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends a signal, and waits until it is no longer pending.
    pub fn signal_and_wait(&self, signal: Signal) {
        self.signal(signal);
        wait_for("the signal to be taken", || {
            let pending = ["SigPnd", "ShdPnd"].map(|field| status_set(self.pid(), field));
            (pending[0] | pending[1]) & 1 << (signal.as_raw() - 1) == 0
        });
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its log.
    fn said(&mut self) -> String {
        if let Some(log) = &self.log {
            return fs::read_to_string(log).unwrap();
        }
        let mut said = Vec::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_end(&mut said).unwrap();
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits for its end. A remaining worker may hold the pipe.
    pub fn wait_supervisor(&mut self) {
        wait_for("the server to end", || self.has_ended());
    }

    /// Exit status, if not killed, and log.
    pub fn wait(mut self) -> (Option<i32>, String) {
        self.wait_supervisor();
        let said = self.said();
        (self.child.wait().unwrap().code(), said)
    }

    /// Waits for this exit status; returns the log.
    pub fn ends(self, expected: i32) -> String {
        let (code, said) = self.wait();
        assert_eq!(code, Some(expected), "{said}");
        said
    }

    /// Sends the signal, and expects success.
    pub fn ends_by(self, signal: Signal) -> String {
        self.signal(signal);
        self.ends(0)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(log) = self.log.as_ref().filter(|_| std::thread::panicking()) {
            eprintln!("{}", fs::read_to_string(log).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// By `thrufs unmount`, repeated while in use: another server's clean-up may access the mount that has
/// reused its number.
pub fn unmount_by_command(path: &Path) {
    unmounts(|| thrufs!("unmount", path));
}

/// The same with another command.
pub fn unmounts(mut command: impl FnMut() -> Output) {
    wait_for("the command to unmount", || {
        let output = command();
        let is_in_use = stderr(&output).contains("in use");
        if !is_in_use {
            succeeded(&output);
        }
        !is_in_use
    });
}

/// As umount(8), repeated while a server in the foreground closes its descriptors.
pub fn unmount(path: &Path) {
    let unmounted = || rustix::mount::unmount(path, UnmountFlags::empty());
    wait_for("umount to succeed", || match unmounted() {
        Err(errno) => {
            assert_eq!(errno, rustix::io::Errno::BUSY);
            false
        }
        Ok(()) => true,
    });
}

pub fn mount_tmpfs(point: &Path) {
    mount("tmpfs", point, "tmpfs", MountFlags::empty(), None).unwrap();
}

pub fn detach(path: &Path) {
    rustix::mount::unmount(path, UnmountFlags::DETACH).unwrap();
}

pub fn is_mount(path: &Path) -> bool {
    !mount_line(path).is_empty()
}

pub fn mount_line(path: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .rev()
        .find(|l| l.split(' ').nth(4).is_some_and(|p| Path::new(p) == path));
    line.unwrap_or_default().to_owned()
}

pub fn processes(role: &str, mountpoint: &Path) -> Vec<Pid> {
    let mountpoint = mountpoint.to_str().unwrap();
    let mut all = command_lines();
    all.retain(
        |(_, line)| matches!(&line[..], [_, is, _, at, ..] if is == role && at == mountpoint),
    );
    all.into_iter().map(|(process, _)| process).collect()
}

/// All processes and their arguments.
pub fn command_lines() -> Vec<(Pid, Vec<String>)> {
    let process = |entry: fs::DirEntry| {
        let process = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        Some((process, line.split('\0').map(str::to_owned).collect()))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(process).collect()
}

/// A field of /proc/PID/status.
pub fn status(process: Pid, field: &str) -> String {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = fs::read_to_string(path).unwrap();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap().trim().to_owned()
}

/// The same for a set of signals or capabilities.
pub fn status_set(process: Pid, field: &str) -> u64 {
    u64::from_str_radix(&status(process, field), 16).unwrap()
}

/// A terminal: what controls it, and the end of programs.
pub fn terminal() -> (File, File) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let end = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    rustix::io::fcntl_setfd(&controller, FdFlags::CLOEXEC).unwrap();
    (controller.into(), end.into())
}

pub fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn succeeded(output: &Output) {
    fails(output, 0, "");
}

/// Checks exit status and a part of standard error; returns all of it.
pub fn fails(output: &Output, code: i32, part: &str) -> String {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{part} in {said}");
    said
}

/// The roles that are killed, together.
pub const VICTIMS: [&[&str]; 3] = [
    &["--worker"],
    &["--supervisor"],
    &["--supervisor", "--worker"],
];

pub fn kill_all(ground: &Ground, victims: &[&str]) {
    let victims: Vec<_> = victims.iter().map(|role| ground.process(role)).collect();
    // Stopped first, so that none reacts to the end of another. The worker is killed first: the end of its
    // parent would continue it, because that leaves its process group orphaned (setpgid(2)).
    let signals = [Signal::STOP, Signal::KILL];
    for signal in &signals[usize::from(victims.len() == 1)..] {
        for victim in victims.iter().rev() {
            kill_process(*victim, *signal).unwrap();
        }
    }
}

/// Stops a process, and waits until all its threads have stopped.
pub fn stop_process(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    wait_for("its threads to stop", || {
        fs::read_dir(&tasks).unwrap().all(|task| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.rsplit_once(')').unwrap().1.starts_with(" T"))
        })
    });
}

/// A copy of the command that any user can execute. Made by install(1): a writable descriptor of this
/// process, inherited by another test's child, would keep the copy from being executed (ETXTBSY).
pub fn copied_program(directory: &Path) -> PathBuf {
    copied(Path::new(THRUFS), directory)
}

pub fn copied_with_benchmark(directory: &Path) -> PathBuf {
    copied(&benchmark(), directory);
    copied_program(directory)
}

fn copied(program: &Path, directory: &Path) -> PathBuf {
    let copy = directory.join(program.file_name().unwrap());
    let mut install = Command::new("install");
    succeeded(&run(install.args(["-m", "755"]).arg(program).arg(&copy)));
    copy
}

/// The benchmark, which `cargo test` of this package does not build.
pub fn benchmark() -> PathBuf {
    let program = Path::new(THRUFS).with_file_name("thrufs-bench");
    let shown = program.display();
    assert!(program.is_file(), "{shown}: cargo build -p thrufs-bench");
    program
}

/// For a shell in its own mount namespace: detaches the FUSE mounts of other tests, whose servers would
/// run as long as it. The mount at `$1` stays.
pub const WITHOUT_OTHERS: &str = "\
    while read -r _ _ _ _ at rest; do \
      case $rest in *' - fuse '* | *' - fuse.'*) \
        [ \"$at\" = \"$1\" ] || umount -i -l \"$at\" 2>/dev/null;; \
      esac; \
    done </proc/self/mountinfo";

/// Whether ordinary users can mount. If `/dev/fuse` is closed to them, runs the test again in a mount
/// namespace where it is open.
pub fn users_can_mount(place: &Path, test: &str) -> bool {
    let fusermount = fs::metadata("/usr/bin/fusermount3");
    if !fusermount.is_ok_and(|program| program.mode() & 0o4000 != 0) {
        skipped("mounting as a user: no set-user-id fusermount3 (package fuse3)");
        return false;
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 == 0o006 {
        return true;
    }
    rerun_with_open_device(place, test);
    false
}

fn rerun_with_open_device(place: &Path, test: &str) {
    let script = "mount -t tmpfs none \"$1\" && mknod \"$1/fuse\" c 10 229 && \
                  chmod 666 \"$1/fuse\" && mount --bind \"$1/fuse\" /dev/fuse && \
                  exec \"$2\" --exact \"$3\" --nocapture";
    let script = format!("{WITHOUT_OTHERS}; {script}");
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    shell.arg("sh").arg(place.join("mnt"));
    let output = run(shell.arg(std::env::current_exe().unwrap()).arg(test));
    succeeded(&output);
    assert!(stdout(&output).contains("1 passed"), "{}", stdout(&output));
}
