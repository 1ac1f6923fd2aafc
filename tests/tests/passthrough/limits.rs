//! What the kernel no longer checks under passthrough, and what it can only answer with EIO: both are
//! checked at the open, with the lower file's own error.

use crate::ground::{LOWERS, on_each};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Child;
use thrufs_tests::fence::lease::{ignore_lease_signal, take_write_lease};
use thrufs_tests::prelude::*;

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & !libc::O_ACCMODE)
        .open(path)
}

#[track_caller]
fn errno<T>(outcome: io::Result<T>) -> i32 {
    let error = outcome.map(drop).expect_err("it must be refused");
    error.raw_os_error().unwrap()
}

fn chattr(flag: &str, path: &Path) {
    let status = Command::new("chattr").arg(flag).arg(path).status().unwrap();
    assert!(status.success());
}

#[test]
fn append_only_files_are_only_appended_to() {
    on_each(&[Lower::Ext4], "", |mounted| {
        let path = mounted.mnt().join("log");
        let beneath = mounted.source().join("log");
        fs::write(&path, b"begin ").unwrap();
        chattr("+a", &beneath);
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
            assert_eq!(errno(open(&path, flags)), libc::EPERM, "{flags:#o}");
        }
        let appending = libc::O_WRONLY | libc::O_APPEND;
        assert_eq!(errno(open(&path, appending | libc::O_TRUNC)), libc::EPERM);
        let file = open(&path, appending).unwrap();
        file.write_all_at(b"end", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"begin end");
        // A shared map must not write into the middle.
        let both = open(&path, libc::O_RDWR | libc::O_APPEND);
        if let Ok(both) = both
            && let Ok(mut map) = Mapping::new(&both, 5, Sharing::Shared)
        {
            map.store(0, b"BEGIN");
        }
        assert_eq!(fs::read(&beneath).unwrap(), b"begin end");
        drop(file);
        chattr("-a", &beneath);
        let _reader = open(&path, libc::O_RDONLY).unwrap();
        chattr("+a", &beneath);
        assert_eq!(errno(open(&path, libc::O_WRONLY)), libc::EPERM, "in use");
        chattr("-a", &beneath);
        open(&path, libc::O_WRONLY).unwrap();
    });
}

fn make_read_only(at: &Path) {
    // The file system: flags of a mount alone do not propagate to the worker's. It is busy while a file
    // is open for writing, until RELEASE.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(errno) = rustix::mount::mount_remount(at, MountFlags::RDONLY, "") {
        assert!(errno == Errno::BUSY && Instant::now() < deadline, "{errno}");
        thread::sleep(Duration::from_millis(5));
    }
    // The server reads the flags of mounts every 10 ms; an open before that gets EIO.
    thread::sleep(Duration::from_millis(20));
}

#[test]
fn a_mount_beneath_that_became_read_only_is() {
    for way in ["passthrough", "nopassthrough"] {
        on_each(&[Lower::Tmpfs], way, |mounted| {
            let beneath = mounted.source().join("sub");
            fs::create_dir_all(&beneath).unwrap();
            let _submount = Detach::tmpfs(&beneath);
            let path = mounted.mnt().join("sub/file");
            fs::write(&path, b"content").unwrap();
            let reader = File::open(&path).unwrap();
            make_read_only(&beneath);
            let writing = [libc::O_WRONLY, libc::O_RDWR, libc::O_WRONLY | libc::O_TRUNC];
            for flags in writing.into_iter().chain([libc::O_RDONLY | libc::O_TRUNC]) {
                assert_eq!(errno(open(&path, flags)), libc::EROFS, "{flags:#o}");
            }
            assert_eq!(
                errno(File::create(mounted.mnt().join("sub/new"))),
                libc::EROFS
            );
            assert_eq!(fs::read(&path).unwrap(), b"content");
            drop(reader);
        });
    }
}

/// A copy of a program that sleeps, and a process that runs it.
struct Running(Child);

impl Running {
    fn start(program: &Path) -> Self {
        Self(Command::new(program).arg("60").spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn place_program(mounted: &Mounted) {
    let program = mounted.source().join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_running_program_is_busy() {
    for way in ["passthrough", "nopassthrough"] {
        on_each(&LOWERS, way, |mounted| {
            place_program(mounted);
            let (path, beneath) = (
                mounted.mnt().join("program"),
                mounted.source().join("program"),
            );
            let before = fs::read(&beneath).unwrap();
            for from in [&path, &beneath] {
                let running = Running::start(from);
                for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_WRONLY | libc::O_TRUNC] {
                    assert_eq!(errno(open(&path, flags)), libc::ETXTBSY, "{flags:#o}");
                }
                assert!(fs::read(&path).unwrap() == before);
                drop(running);
                // Whoever reads about the process in /proc keeps its memory, and its program busy, a moment longer.
                wait_until("the program's end", || open(&path, libc::O_WRONLY).is_ok());
            }
        });
    }
}

/// A non-blocking open is refused; it makes the holder give the lease up.
#[test]
fn a_lease_beneath_is_respected() {
    on_each(&[Lower::Ext4], "", |mounted| {
        let path = mounted.mnt().join("file");
        fs::write(&path, b"content").unwrap();
        let holder = File::open(mounted.source().join("file")).unwrap();
        ignore_lease_signal().unwrap();
        take_write_lease(&holder).unwrap();
        let error = open(&path, libc::O_RDWR | libc::O_NONBLOCK).expect_err("there is a lease");
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        let waiter = thread::spawn({
            let path = path.clone();
            move || open(&path, libc::O_RDWR)
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished(), "it waits for the lease");
        // Other requests are served meanwhile.
        fs::write(mounted.mnt().join("other"), b"x").unwrap();
        drop(holder);
        let mut file = waiter.join().unwrap().unwrap();
        file.write_all(b"CONTENT").unwrap();
    });
}

fn mount(arguments: &[&str], at: &Path) -> Detach<PathBuf> {
    let status = Command::new("mount").args(arguments).arg(at).status();
    assert!(status.unwrap().success());
    Detach(at.to_owned())
}

/// The number of a file's first block in an image of ext4.
fn first_block(image: &Path, name: &str) -> u64 {
    let mut debugfs = Command::new("debugfs");
    let output = debugfs.args(["-R", &format!("bmap {name} 0")]).arg(image);
    let output = String::from_utf8(output.output().unwrap().stdout).unwrap();
    // `1234`, or `1234 (uninit)` as long as ext4 has not noted that it was written.
    let number = output.split_whitespace().next();
    number
        .and_then(|number| number.parse().ok())
        .expect(&output)
}

/// The block of a file in an image on a full tmpfs gets lost, where only its data need it.
#[test]
fn each_open_file_hears_once_that_data_were_lost() {
    const BLOCK: u64 = 4096;
    on_each(&[Lower::Tmpfs], "", |mounted| {
        let [small, disk] = ["small", "disk"].map(|name| mounted.source().join(name));
        fs::create_dir(&small).unwrap();
        fs::create_dir(&disk).unwrap();
        let _small = mount(&["-t", "tmpfs", "-o", "size=24m", "tmpfs"], &small);
        let path = small.join("image");
        let image = File::create(&path).unwrap();
        image.set_len(16 << 20).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        let mkfs = mkfs.args(["-q", "-F", "-b", "4096", "-O", "^has_journal"]);
        assert!(mkfs.arg(&path).status().unwrap().success());
        let _disk = mount(&["-o", "loop", path.to_str().unwrap()], &disk);
        for place in [&disk, &mounted.mnt().join("disk")] {
            fs::write(disk.join("file"), [1; BLOCK as usize]).unwrap();
            // The error of the round before is its as well.
            let _ = rustix::fs::syncfs(File::open(&disk).unwrap());
            let at = first_block(&path, "file") * BLOCK;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&image, hole, at, BLOCK).unwrap();
            fs::write(small.join("rest"), vec![1; 24 << 20]).unwrap_err();
            let open = || open(&place.join("file"), libc::O_RDWR).unwrap();
            let (first, second) = (open(), open());
            first.write_all_at(&[2; BLOCK as usize], 0).unwrap();
            let sync = |file: &File| file.sync_data().err().and_then(|it| it.raw_os_error());
            let lost = Some(libc::ENOSPC);
            let said = [&first, &second, &first, &second].map(sync);
            assert_eq!(said, [lost, lost, None, None], "{place:?}");
            assert_eq!(sync(&open()), None, "{place:?}");
            fs::remove_file(small.join("rest")).unwrap();
        }
    });
}
