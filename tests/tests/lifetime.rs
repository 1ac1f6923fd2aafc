//! The ends of a mount: killed servers, killed clients, a source that vanishes, a full disk, too few
//! descriptors. And file handles that outlive the kernel's caches. Over each transport.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use thrufs_sys::handle::{FileHandleBuf, name_to_handle, open_by_handle};
use thrufs_tests::acknowledged::{check_blocks, write_and_sync};
use thrufs_tests::mount_point::is_unmounted_within;
use thrufs_tests::prelude::*;
use thrufs_tests::server::END_TIMEOUT;

#[derive(Clone, Copy, Debug)]
enum Victim {
    Supervisor,
    Worker,
}

/// Publishes how much is acknowledged.
fn store(acknowledged: &AtomicU64) -> impl FnMut(u64) {
    |count| acknowledged.store(count, Ordering::SeqCst)
}

/// Whether a dead mount lies there, and not the directory beneath.
fn is_dead(mnt: &Path) -> bool {
    rustix::fs::statfs(mnt).err() == Some(Errno::NOTCONN)
}

/// Why a path cannot be looked at or listed.
fn refusal(path: &Path) -> Option<Errno> {
    let looked = rustix::fs::stat(path).err();
    let listed = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let listed = listed.err().and_then(|error| Errno::from_io_error(&error));
    assert_eq!(looked, listed, "{}", path.display());
    looked
}

fn killed_while_writing(victim: Victim, options: &str) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let mut server = Server::start(&ground, options, None);
    let acknowledged = AtomicU64::new(0);
    let path = ground.mnt().join("file");
    // What the kernel has cached, for an hour.
    let directory = ground.mnt().join("directory");
    fs::create_dir(&directory).unwrap();
    let look = || [ground.mnt(), &directory, &directory.join("absent")].map(refusal);
    let looked = look();
    assert_eq!(looked, [None, None, Some(Errno::NOENT)]);
    let error = thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_sync(&path, store(&acknowledged)));
        wait_until("some writes", || {
            acknowledged.load(Ordering::SeqCst) >= 20 || writer.is_finished()
        });
        look();
        let pid = match victim {
            Victim::Supervisor => server.pid(),
            Victim::Worker => server.worker(),
        };
        kill_process(pid, Signal::KILL);
        writer.join().unwrap()
    });
    assert_ne!(error.raw_os_error(), None, "{error}");
    let status = server.ended_within(END_TIMEOUT).expect("it ends");
    assert!(!status.success(), "a server that was killed is no success");
    wait_until("ENOTCONN", || is_dead(ground.mnt()));
    assert_eq!(look(), [Some(Errno::NOTCONN); 3]);
    rustix::mount::unmount(ground.mnt(), UnmountFlags::DETACH).unwrap();
    let count = acknowledged.load(Ordering::SeqCst);
    assert!(count >= 20, "the writer ended early: {error}");
    check_blocks(&ground.source().join("file"), count);

    let again = Server::start(&ground, options, None);
    check_blocks(&path, count);
    fs::write(ground.mnt().join("new"), b"works").unwrap();
    again.stop();
    assert_eq!(fs::read(ground.source().join("new")).unwrap(), b"works");
}

#[test]
fn a_killed_worker_leaves_enotconn_and_loses_nothing_synced() {
    over_each(|transport| {
        killed_while_writing(Victim::Worker, &transport.with(""));
        killed_while_writing(Victim::Worker, &transport.with("writeback"));
    });
}

#[test]
fn a_killed_supervisor_leaves_enotconn_and_loses_nothing_synced() {
    over_each(|transport| killed_while_writing(Victim::Supervisor, &transport.with("")));
}

#[test]
fn a_killed_program_of_the_library_leaves_enotconn_or_unmounts_as_configured() {
    skip_if!(must_skip());
    let ground = Ground::prepare(Lower::Default).unwrap();
    let (mnt, gate) = (ground.mnt(), ground.base().join("gate"));
    let start = |more: &[&str]| {
        let all = [mnt.to_str().unwrap(), gate.to_str().unwrap()];
        let started = Process::start(&programs::slow_files(), &[&all, more].concat());
        assert_eq!(started.line(), "ok");
        started
    };
    start(&[]).kill();
    assert!(is_dead(mnt));
    rustix::mount::unmount(mnt, UnmountFlags::DETACH).unwrap();
    // An orderly end unmounts.
    start(&[]).finish();
    assert!(!is_mounted(mnt));
    let helper = Command::new("fusermount3").arg("-V").output();
    if helper.is_err() {
        skipped("auto_unmount: no fusermount3 (package fuse3)");
        return;
    }
    start(&["auto_unmount"]).kill();
    assert!(is_unmounted_within(mnt, END_TIMEOUT), "it stays");
    start(&["auto_unmount"]).finish();
    assert!(!is_mounted(mnt));
}

#[test]
fn sigterm_while_busy_ends_in_time() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let options = transport.with("locks=shared,stop_timeout=1");
        let mut server = Server::start(&ground, &options, None);
        let mnt = ground.mnt();
        fs::write(mnt.join("locked"), b"x").unwrap();
        let locked = mnt.join("locked");
        let lock = [
            "lock-hold",
            "flock",
            "write",
            locked.to_str().unwrap(),
            "0",
            "0",
        ];
        let holder = programs::start_helper(&lock);
        assert_eq!(
            (holder.line(), holder.line()),
            ("waiting".to_owned(), "ok".to_owned())
        );
        let waiter = programs::start_helper(&lock);
        assert_eq!(waiter.line(), "waiting");
        assert_eq!(waiter.line_within(Duration::from_millis(200)), None);
        let open: Vec<File> = (0..10)
            .map(|at| File::create(mnt.join(format!("{at}"))).unwrap())
            .collect();
        let acknowledged: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for (at, count) in acknowledged.iter().enumerate() {
                scope.spawn(move || write_and_sync(&mnt.join(format!("busy-{at}")), store(count)));
            }
            let written = |count: &AtomicU64| count.load(Ordering::SeqCst) >= 5;
            wait_until("some writes", || acknowledged.iter().all(written));
            server.signal(Signal::TERM);
            let ended = server.ended_within(END_TIMEOUT);
            let left = is_mounted(mnt);
            if ended.is_none() {
                // So that the writers return.
                server.kill();
            }
            assert!(ended.is_some(), "it does not end in time after SIGTERM");
            assert!(!left, "its mount is left behind");
        });
        drop((open, holder, waiter));
        for (at, count) in acknowledged.iter().enumerate() {
            check_blocks(
                &ground.source().join(format!("busy-{at}")),
                count.load(Ordering::SeqCst),
            );
        }
    });
}

#[test]
fn a_vanished_source_gives_clean_errors() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let server = Server::start(&ground, &transport.with("cache=never"), None);
        let mnt = ground.mnt();
        fs::create_dir(mnt.join("dir")).unwrap();
        fs::write(mnt.join("dir/file"), b"content").unwrap();
        let mut open = File::open(mnt.join("dir/file")).unwrap();
        fs::remove_dir_all(ground.source()).unwrap();
        for path in [mnt.join("dir"), mnt.join("dir/file"), mnt.join("other")] {
            let errors = [
                fs::metadata(&path).map(drop),
                fs::write(&path, b"x"),
                fs::create_dir(&path),
                fs::remove_file(&path),
                fs::read_dir(&path).map(drop),
            ];
            for result in errors {
                let errno = result
                    .expect_err("nothing is there any more")
                    .raw_os_error();
                let clean = [libc::ENOENT, libc::ESTALE].map(Some);
                assert!(
                    clean.contains(&errno),
                    "{}: errno {errno:?}",
                    path.display()
                );
            }
        }
        // An open file stays readable after its name is gone, as natively.
        let mut content = String::new();
        open.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        drop(open);
        server.stop();
    });
}

#[test]
fn a_full_disk_is_reported_and_keeps_what_was_synced() {
    over_each(|transport| {
        for options in ["", "writeback", "opens=local"] {
            let ground = Ground::prepare(Lower::Ext4).unwrap();
            // Leaves some megabytes.
            let space = rustix::fs::statvfs(ground.outside()).unwrap();
            let ballast = File::create(ground.outside().join("ballast")).unwrap();
            // Blocks reserved for root are not for callers that write through the mount.
            let len = space.f_bavail * space.f_frsize - (12 << 20);
            rustix::fs::fallocate(&ballast, FallocateFlags::empty(), 0, len).unwrap();
            let server = Server::start(&ground, &transport.with(options), None);
            let acknowledged = AtomicU64::new(0);
            let error = write_and_sync(&ground.mnt().join("file"), store(&acknowledged));
            assert_eq!(
                error.raw_os_error(),
                Some(libc::ENOSPC),
                "options \"{options}\": {error}"
            );
            let count = acknowledged.into_inner();
            assert!(
                count > 100,
                "options \"{options}\": only {count} blocks before the disk was full"
            );
            check_blocks(&ground.mnt().join("file"), count);
            check_blocks(&ground.source().join("file"), count);
            fs::remove_file(ground.mnt().join("file")).unwrap();
            until_there_is_room(&ground);
            fs::write(ground.mnt().join("after"), vec![b'x'; 1 << 20]).unwrap();
            server.stop();
            assert_eq!(
                fs::metadata(ground.source().join("after")).unwrap().len(),
                1 << 20
            );
            drop(ballast);
        }
    });
}

/// RELEASE, which closes the file beneath, is asynchronous. With writeback, a write before there is room
/// fails without a report.
fn until_there_is_room(ground: &Ground) {
    wait_until("room again", || {
        let space = rustix::fs::statvfs(ground.outside()).unwrap();
        space.f_bavail * space.f_frsize >= 4 << 20
    });
}

#[test]
fn file_handles_outlive_the_kernels_memory() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Ext4).unwrap();
        let server = Server::start(&ground, &transport.with("export"), None);
        let mnt = ground.mnt();
        fs::create_dir(mnt.join("dir")).unwrap();
        let paths = [mnt.join("dir"), mnt.join("dir/file")];
        fs::write(&paths[1], b"content").unwrap();
        let handles: Vec<FileHandleBuf> = paths
            .iter()
            .map(|path| {
                let mut handle = FileHandleBuf::new();
                let path = CString::new(path.as_os_str().as_bytes()).unwrap();
                name_to_handle(CWD, &path, 0, &mut handle).unwrap();
                handle
            })
            .collect();
        // The kernel forgets dentries and inodes that are not in use.
        shrink_dcache(mnt).unwrap();
        let root = File::open(mnt).unwrap();
        let open = |handle| open_by_handle(AsFd::as_fd(&root), handle, libc::O_RDONLY);
        let mut content = String::new();
        File::from(open(&handles[1]).unwrap())
            .read_to_string(&mut content)
            .unwrap();
        assert_eq!(content, "content");
        // Also under its new name; and not when it is gone.
        fs::rename(&paths[1], mnt.join("moved")).unwrap();
        shrink_dcache(mnt).unwrap();
        content.clear();
        File::from(open(&handles[1]).unwrap())
            .read_to_string(&mut content)
            .unwrap();
        assert_eq!(content, "content");
        drop(open(&handles[0]).unwrap());
        fs::remove_file(mnt.join("moved")).unwrap();
        // The kernel keeps the file until RELEASE is answered.
        wait_until("ESTALE", || {
            shrink_dcache(mnt).unwrap();
            open(&handles[1]).err() == Some(Errno::STALE)
        });
        drop(root);
        server.stop();
    });
}

const FILES_MAX: u32 = 128;

#[test]
fn too_many_open_files_are_refused_and_the_mount_goes_on() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let options = transport.with("nopassthrough");
        let server = Server::start(&ground, &options, Some(FILES_MAX));
        let path = ground.mnt().join("file");
        fs::write(&path, b"content").unwrap();
        let mut open = Vec::new();
        let error = loop {
            assert!(open.len() <= FILES_MAX as usize);
            match File::open(&path) {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
        };
        let errno = error.raw_os_error();
        assert!(
            [libc::EMFILE, libc::ENFILE].map(Some).contains(&errno),
            "{error}"
        );
        assert!(
            open.len() >= 16,
            "only {} files could be opened",
            open.len()
        );
        // Open files work, and so does what needs none.
        let mut content = [0; 7];
        open[0].read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"content");
        assert_eq!(fs::metadata(&path).unwrap().len(), 7);
        drop(open);
        // RELEASE is asynchronous.
        wait_until("closed files to be released", || {
            fs::write(ground.mnt().join("new"), b"works").is_ok()
        });
        assert_eq!(fs::read(ground.source().join("new")).unwrap(), b"works");
        server.stop();
    });
}

/// The kernel holds the backing files: the server keeps no descriptor.
#[test]
fn passthrough_files_need_no_descriptors() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let server = Server::start(&ground, &transport.with(""), Some(FILES_MAX));
        let one = ground.mnt().join("one");
        fs::write(&one, b"content").unwrap();
        let count = 3 * FILES_MAX as usize;
        let same: Vec<File> = (0..count).map(|_| File::open(&one).unwrap()).collect();
        let many: Vec<File> = (0..count)
            .map(|at| {
                let mut file = File::create_new(ground.mnt().join(at.to_string())).unwrap();
                file.write_all(b"content").unwrap();
                file
            })
            .collect();
        let mut content = [0; 7];
        same[count - 1].read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"content");
        for (at, file) in many.iter().enumerate() {
            assert_eq!(file.metadata().unwrap().len(), 7);
            let beneath = fs::read(ground.source().join(at.to_string())).unwrap();
            assert_eq!(beneath, b"content");
        }
        drop((same, many));
        server.stop();
    });
}

/// The kernel reuses the number of a file system that is gone. A server that ends must not take the next
/// one for its own.
#[test]
fn a_server_that_ends_unmounts_no_other_mount() {
    over_each(|transport| {
        let others = tempfile::tempdir().unwrap();
        let places: Vec<_> = (0..20)
            .map(|at| others.path().join(at.to_string()))
            .collect();
        let (mut next, mut lost) = (places.iter().cycle(), 0);
        let mount = |place: &PathBuf| {
            let (flags, data) = (rustix::mount::MountFlags::empty(), None::<&std::ffi::CStr>);
            rustix::mount::mount("other", place, "tmpfs", flags, data).unwrap();
        };
        for place in &places {
            fs::create_dir(place).unwrap();
            mount(place);
        }
        // Each is there for a while.
        let others = || {
            let place = next.next().unwrap();
            lost += usize::from(rustix::mount::unmount(place, UnmountFlags::DETACH).is_err());
            mount(place);
            thread::sleep(Duration::from_micros(300));
        };
        while_repeating([others], || {
            for _ in 0..40 {
                let ground = Ground::prepare(Lower::Default).unwrap();
                Server::start(&ground, &transport.with(""), None).stop();
            }
        });
        for place in &places {
            lost += usize::from(rustix::mount::unmount(place, UnmountFlags::DETACH).is_err());
        }
        assert_eq!(lost, 0, "mounts of others were taken away");
    });
}
