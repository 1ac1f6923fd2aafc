//! An attacker in control of a worker: each test injects system calls with all descriptors of a running
//! worker, none of which may reach beyond the served directory.

use super::injected::Injected;
use super::{Share, with_policy};
use crate::ground::prelude::*;
use crate::ground::unmount;
use std::os::unix::ffi::OsStrExt;
use std::process::Child;

/// More levels than any directory here has above.
const CLIMB: usize = 24;

/// A file that no worker may open, and a process that none may signal.
struct Beyond {
    secret: PathBuf,
    victim: Child,
}

impl Beyond {
    /// Creates them in `place`, and links to them in `source`.
    fn new(place: &Path, source: &Path) -> Beyond {
        let secret = place.join("secret");
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, source.join("absolute")).unwrap();
        let up = "../".repeat(CLIMB) + secret.strip_prefix("/").unwrap().to_str().unwrap();
        symlink(up, source.join("relative")).unwrap();
        symlink("/proc/self/root", source.join("root")).unwrap();
        fs::create_dir(source.join("sub")).unwrap();
        fs::write(source.join("sub/inner"), "inner").unwrap();
        let mut victim = Command::new("sleep");
        let victim = victim.arg("600").stdin(Stdio::null()).spawn().unwrap();
        Beyond { secret, victim }
    }

    /// Paths that would reach the file from some directory.
    fn paths(&self, descriptors: &[i32]) -> Vec<String> {
        let secret = self.secret.to_str().unwrap();
        let below_root = secret.trim_start_matches('/');
        let mut starts: Vec<String> = (0..CLIMB).map(|levels| "../".repeat(levels)).collect();
        for start in ["", "../", "../../", "../../../", "/proc/", "proc/"] {
            for process in ["", "self/", "1/", "thread-self/", "self/task/1/"] {
                for link in ["root/", "cwd/", "cwd/../../../../../../"] {
                    starts.push(format!("{start}{process}{link}"));
                }
            }
        }
        let up = "../".repeat(CLIMB);
        for descriptor in descriptors {
            starts.push(format!("{descriptor}/"));
            starts.push(format!("{descriptor}/{up}"));
            starts.push(format!("/proc/self/fd/{descriptor}/{up}"));
        }
        let paths = starts.iter().map(|start| format!("{start}{below_root}"));
        let mut paths: Vec<String> = paths.collect();
        paths.extend(["absolute", "relative", "sub/../relative", secret].map(str::to_owned));
        paths
    }

    /// Attacks from within the worker, in whose tree the source is at `source`.
    fn attack(&mut self, worker: &Injected, source: &str, opens_by_handle: bool) {
        let inside = format!("{source}/sub/inner");
        let inside = worker.openat(libc::AT_FDCWD, &inside, libc::O_RDONLY);
        assert!(inside >= 0, "what is served is in reach: {inside}");
        worker.close(inside);
        let descriptors = worker.descriptors();
        let from = [&descriptors[..], &[libc::AT_FDCWD]].concat();
        let paths = self.paths(&descriptors);
        for directory in &from {
            if !self.is_directory(worker, *directory) {
                continue;
            }
            for path in &paths {
                self.must_not_open(worker, *directory, path);
            }
            self.no_setting_of_the_kernel(worker, *directory);
        }
        for directory in descriptors {
            let opened = self.open_by_handle(worker, directory, &self.secret);
            // Documented for the option.
            assert!(opened < 0 || opens_by_handle, "by handle from {directory}");
            if opened >= 0 {
                worker.close(opened);
            }
        }
        // Without a filter, the kernel checks the descriptor first.
        let nowhere = [u64::MAX, worker.put(&[0; 8]), 0];
        let opened = worker.call(libc::SYS_open_by_handle_at, &nowhere);
        let refused = opened == -i64::from(libc::EPERM);
        assert!(refused != opens_by_handle, "from nowhere: {opened}");
        assert_eq!(worker.may_read_and_search(), opens_by_handle);
        self.no_signals(worker, &from);
    }

    fn is_directory(&self, worker: &Injected, descriptor: i32) -> bool {
        let behind = worker.behind(descriptor.into());
        descriptor == libc::AT_FDCWD || fs::metadata(behind).is_ok_and(|it| it.is_dir())
    }

    fn must_not_open(&self, worker: &Injected, directory: i32, path: &str) {
        let secret = fs::metadata(&self.secret).unwrap();
        for flags in [libc::O_RDONLY | libc::O_NONBLOCK, libc::O_PATH] {
            let opened = worker.openat(directory, path, flags);
            if opened < 0 {
                continue;
            }
            let found = fs::metadata(worker.behind(opened)).unwrap();
            let behind = fs::read_link(worker.behind(directory.into()));
            assert_ne!(
                (found.dev(), found.ino()),
                (secret.dev(), secret.ino()),
                "opened by {path} from {directory} ({behind:?})"
            );
            worker.close(opened);
        }
    }

    fn no_setting_of_the_kernel(&self, worker: &Injected, directory: i32) {
        for levels in 0..6 {
            for way in ["sys/kernel/core_pattern", "proc/sys/kernel/core_pattern"] {
                let path = "../".repeat(levels) + way;
                let opened = worker.openat(directory, &path, libc::O_WRONLY);
                assert!(opened < 0, "{path} from {directory} is writable");
            }
        }
    }

    /// With the real handle, which an attacker could guess.
    fn open_by_handle(&self, worker: &Injected, mount: i32, path: &Path) -> i64 {
        let mut handle = thrufs_sys::handle::FileHandleBuf::new();
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        thrufs_sys::handle::name_to_handle(rustix::fs::CWD, &path, 0, &mut handle).unwrap();
        let length = u32::try_from(handle.bytes().len()).unwrap();
        let kind = handle.kind().cast_unsigned();
        let bytes = [&length.to_ne_bytes(), &kind.to_ne_bytes(), handle.bytes()].concat();
        let place = worker.put(&bytes);
        let flags = libc::O_RDONLY as u64;
        worker.call(libc::SYS_open_by_handle_at, &[mount as u64, place, flags])
    }

    fn no_signals(&mut self, worker: &Injected, descriptors: &[i32]) {
        let victim = u64::from(self.victim.id());
        let signal = libc::SIGKILL as u64;
        let refused = -i64::from(libc::EPERM);
        for (call, arguments) in [
            (libc::SYS_kill, [victim, signal, 0]),
            (libc::SYS_kill, [u64::MAX, signal, 0]),
            (libc::SYS_tkill, [victim, signal, 0]),
            (libc::SYS_tgkill, [victim, victim, signal]),
            (libc::SYS_rt_sigqueueinfo, [victim, signal, 0]),
            (libc::SYS_pidfd_open, [victim, 0, 0]),
        ] {
            assert_eq!(worker.call(call, &arguments), refused, "call {call}");
        }
        const F_SETSIG: u64 = 10;
        const F_SETOWN_EX: u64 = 15;
        let owner = worker.put(&[1_i32.to_ne_bytes(), (victim as i32).to_ne_bytes()].concat());
        for descriptor in descriptors.iter().filter(|number| **number >= 0) {
            for (command, argument) in [
                (libc::F_SETOWN as u64, victim),
                (F_SETOWN_EX, owner),
                (F_SETSIG, signal),
                (libc::F_SETFL as u64, libc::O_ASYNC as u64),
            ] {
                let arguments = [*descriptor as u64, command, argument];
                let answer = worker.call(libc::SYS_fcntl, &arguments);
                assert_eq!(answer, refused, "command {command} of {descriptor}");
            }
        }
        assert!(self.victim.try_wait().unwrap().is_none(), "it still runs");
    }
}

impl Drop for Beyond {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// `/dev/zero`, readable by every user, and a disk.
const DEVICES: [(u32, u64); 2] = [
    (libc::S_IFCHR, libc::makedev(1, 5)),
    (libc::S_IFBLK, libc::makedev(7, 0)),
];

/// Creates device nodes through each descriptor and in these directories, and opens them.
fn must_open_no_device(worker: &Injected, directories: &[&str]) {
    let mut number = 0;
    for descriptor in worker.descriptors() {
        for directory in directories.iter().chain([&""]) {
            for (kind, device) in DEVICES {
                number += 1;
                let path = format!("{directory}device-{number}");
                let made = worker.mknodat(descriptor, &path, kind, device);
                assert!(made == 0 || directory.is_empty(), "making {path}: {made}");
                if made == 0 {
                    let opened = worker.openat(descriptor, &path, libc::O_RDONLY);
                    let refused = -i64::from(libc::EACCES);
                    assert_eq!(opened, refused, "{path} from {descriptor}");
                }
            }
        }
    }
}

/// The created nodes are device nodes on the host. Returns the first.
fn has_devices(directory: &Path) -> PathBuf {
    let mut found = DEVICES.map(|_| None);
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let stat = entry.metadata().unwrap();
        let is_it = |it: &(u32, u64)| *it == (stat.mode() & libc::S_IFMT, stat.rdev());
        if let Some(at) = DEVICES.iter().position(is_it) {
            found[at] = Some(entry.path());
        }
    }
    let [zero, _disk] = found.map(|path| path.expect("a device node of each kind"));
    zero
}

/// Uses a share with these options as a guest, and attacks from its worker.
fn taken_over(options: &str, opens_by_handle: bool) {
    let share = Share::new(options);
    let mut beyond = Beyond::new(&share.place.path(""), &share.place.dir);
    let client = share.place.mount();
    let root = client.root();
    let [sub, inner] = ["sub", "sub/inner"].map(|path| root.walk(path).unwrap());
    let _open = root.open(inner, libc::O_RDWR).unwrap();
    root.opendir(sub).unwrap();
    root.opendir(NodeId::ROOT).unwrap();
    root.getattr(inner).unwrap();
    let worker = Injected::into(share.worker, "thrufs-watcher");
    beyond.attack(&worker, "", opens_by_handle);
    drop(worker);
    root.getattr(inner).unwrap();
}

#[test]
fn no_descriptor_of_a_share_worker_escapes_the_source() {
    if !rustix::process::geteuid().is_root() {
        return skipped("taking a worker over needs root");
    }
    for (options, opens_by_handle) in [
        ("", false),
        ("policy=POLICY,control=none,modcaps=+sys_admin", false),
        ("sandbox=chroot,cache=never", false),
        ("inode_file_handles=mandatory", true),
    ] {
        taken_over(options, opens_by_handle);
    }
}

#[test]
fn no_descriptor_of_a_mount_worker_escapes_the_source() {
    // With file handles, the whole file system is reachable (README).
    for (options, opens_by_handle) in [
        ("", true),
        ("policy=POLICY,control=none,threads=1", true),
        ("inode_file_handles=never", false),
        ("follow=auto,inode_file_handles=never", false),
        (
            "cache=never,transport=dev,ro,inode_file_handles=never",
            false,
        ),
    ] {
        let Some(ground) = Ground::new() else { return };
        let mut beyond = Beyond::new(ground.path(), &ground.src);
        let options = with_policy(options, ground.path());
        let _server = ground.mount_in_foreground(&["-o", &options]);
        assert_eq!(fs::read(ground.mnt.join("sub/inner")).unwrap(), b"inner");
        let _file = File::open(ground.mnt.join("sub/inner")).unwrap();
        let directory = File::open(ground.mnt.join("sub")).unwrap();
        let worker = Injected::into(ground.process("--worker"), "thrufs-worker");
        beyond.attack(&worker, "/source", opens_by_handle);
        drop(worker);
        drop((directory, _file));
        assert_eq!(fs::read(ground.mnt.join("sub/inner")).unwrap(), b"inner");
        unmount(&ground.mnt);
        ground.wait_gone();
    }
}

/// Where parts of /proc are hidden, the kernel mounts no other procfs for root of a user namespace.
#[test]
fn no_descriptor_of_a_worker_in_a_container_escapes_the_source() {
    let Some(ground) = Ground::new() else { return };
    let mut beyond = Beyond::new(ground.path(), &ground.src);
    let log = ground.path().join("log");
    let script = "mount -t tmpfs none /proc/irq && \
                  exec unshare --user --map-root-user --mount \"$@\"";
    let mut container = Command::new("unshare");
    container.args("--mount --propagation private sh -c".split(' '));
    container.args([script, "sh", THRUFS, "mount", "-f"]);
    container.args(["-o", "control=none,inode_file_handles=never"]);
    let paths = [&ground.src, &ground.mnt];
    container.args(paths).stdin(Stdio::null());
    let child = container.stderr(File::create(&log).unwrap()).spawn();
    let mut server = Foreground::of(child.unwrap()).logging_to(log.clone());
    let said = || fs::read_to_string(&log).unwrap();
    wait_for("the mount", || {
        server.has_ended() || said().contains("mounted")
    });
    if server.has_ended() {
        let why = format!("root of a user namespace cannot mount: {}", said());
        return skipped(&why);
    }
    let worker = Injected::into(ground.process("--worker"), "thrufs-worker");
    beyond.attack(&worker, "/source", false);
}

/// No descriptor of a worker that opens by handle, such as a log, opens files of another file system than
/// the source's; `/dev/fuse` is excepted. The source has its own file system, with `inner`.
fn stays_in_its_file_system(worker: &Injected, beyond: &Beyond, inner: &Path) {
    let is_device = |it: &i32| {
        let found = fs::metadata(worker.behind((*it).into()));
        found.is_ok_and(|found| found.rdev() == libc::makedev(10, 229))
    };
    let mut descriptors = worker.descriptors();
    descriptors.retain(|it| !is_device(it));
    let opens = |path: &Path| {
        let descriptors = descriptors.iter();
        let opened = descriptors.map(|it| beyond.open_by_handle(worker, *it, path));
        let opened = opened.filter(|opened| *opened >= 0);
        opened.inspect(|it| worker.close(*it)).count()
    };
    assert!(opens(inner) > 0, "what is served");
    assert_eq!(opens(&beyond.secret), 0, "of another file system");
}

fn logged_options(place: &Path) -> String {
    let log = place.join("log");
    with_policy(&format!("policy=POLICY,log_file={}", log.display()), place)
}

#[test]
fn no_log_descriptor_gives_a_worker_other_file_systems() {
    let Some(ground) = Ground::new() else { return };
    mount_tmpfs(&ground.src);
    let beyond = Beyond::new(ground.path(), &ground.src);
    let options = logged_options(ground.path());
    succeeded(&ground.mount(&["-o", &options]));
    let file = File::open(ground.mnt.join("sub/inner")).unwrap();
    let worker = Injected::into(ground.process("--worker"), "thrufs-worker");
    stays_in_its_file_system(&worker, &beyond, &ground.src.join("sub/inner"));
    drop((worker, file));
    for (log, part) in [("log", "mounted"), ("audit", "sub/inner")] {
        let written = fs::read_to_string(ground.path().join(log)).unwrap();
        assert!(written.contains(part), "{log}: {written}");
    }
    unmount(&ground.mnt);
    ground.wait_gone();
    unmount(&ground.src);

    let place = tempfile::tempdir().unwrap();
    let logged = logged_options(place.path());
    let options = format!("{logged},inode_file_handles=mandatory");
    let share = Share::prepared(&options, mount_tmpfs);
    let beyond = Beyond::new(&share.place.path(""), &share.place.dir);
    let client = share.place.mount();
    let inner = client.root().walk("sub/inner").unwrap();
    client.root().open(inner, libc::O_RDWR).unwrap();
    let worker = Injected::into(share.worker, "thrufs-watcher");
    stays_in_its_file_system(&worker, &beyond, &share.place.dir.join("sub/inner"));
    drop(worker);
    let audited = fs::read_to_string(place.path().join("audit")).unwrap();
    assert!(audited.contains("sub/inner"), "{audited}");
    drop(client);
    detach(&share.place.dir);
}

#[test]
fn injected_share_worker_opens_no_device() {
    if !rustix::process::geteuid().is_root() {
        return skipped("taking a worker over needs root");
    }
    let share = Share::new("");
    let client = share.place.mount();
    let worker = Injected::into(share.worker, "thrufs-watcher");
    must_open_no_device(&worker, &["/"]);
    drop(worker);
    has_devices(&share.place.dir);
    client.root().getattr(NodeId::ROOT).unwrap();
}

#[test]
fn injected_mount_worker_opens_no_device() {
    for is_within in [false, true] {
        let Some(mut ground) = Ground::new() else {
            return;
        };
        let below = ground.src.join("below");
        fs::create_dir(&below).unwrap();
        mount_tmpfs(&below);
        if is_within {
            ground.mnt = ground.src.join("mnt");
            fs::create_dir(&ground.mnt).unwrap();
        }
        let _server = ground.mount_in_foreground(&["-o", "dev"]);
        let _directory = File::open(ground.mnt.join("below")).unwrap();
        let worker = Injected::into(ground.process("--worker"), "thrufs-worker");
        must_open_no_device(&worker, &["/source/", "/source/below/"]);
        drop(worker);
        has_devices(&ground.mnt.join("below"));
        // Users of the mount can open it, by the flags of their mount.
        let zero = File::open(has_devices(&ground.mnt)).unwrap();
        let mut bytes = [1; 4];
        zero.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [0; 4]);
        drop((zero, _directory));
        unmount(&ground.mnt);
        unmount(&below);
        ground.wait_gone();
    }
}
