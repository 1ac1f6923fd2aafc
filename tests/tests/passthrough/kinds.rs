//! I/O on the lower file and through the mount, with the same results, where the POSIX cases have no such call, or it
//! depends on the data path.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use rustix::pipe::{SpliceFlags, pipe};
use thrufs_tests::lower::Lower;
use thrufs_tests::transport::{Transport, over_each};

use crate::ground::{LOWERS, Place, WAYS, on, on_each, pattern, same};

/// Over every data path and file system.
fn over_all(body: impl Fn(&mut Place)) {
    over_each(|transport| {
        for way in WAYS {
            let lowers = lowers_for(transport, way);
            on(lowers, transport, way, &|mounted| {
                same(mounted, &body);
            });
        }
    });
}

/// All where passthrough is concerned, one where it is only the comparison.
fn lowers_for(transport: Transport, way: &str) -> &'static [Lower] {
    if way == "passthrough" && transport == Transport::Dev {
        &LOWERS
    } else {
        &[Lower::Ext4]
    }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(path)
}

/// What is appended beneath in between is not lost.
fn appends_beneath(place: &mut Place) {
    fs::write(place.path("log"), "").unwrap();
    let append = |path: &Path| OpenOptions::new().append(true).open(path).unwrap();
    let (one, beneath) = (append(&place.path("log")), append(&place.beneath("log")));
    for _ in 0..20 {
        place.note("beneath", (&beneath).write(b"from beneath\n"));
        place.note("and again", (&one).write(b"after that\n"));
        let position = (&one).stream_position();
        place.note("position", position);
        place.look("log");
    }
}

fn splices(place: &mut Place) {
    let mut source = open(&place.path("from"), 0).unwrap();
    source.write_all(&pattern(200_000)).unwrap();
    let target = open(&place.path("to"), 0).unwrap();
    let (reader, writer) = pipe().unwrap();
    let (mut offset, mut at) = (0, 0);
    let mut moved = 0;
    while moved < 200_000 {
        let flags = SpliceFlags::empty();
        let count =
            rustix::pipe::splice(&source, Some(&mut offset), &writer, None, 65_536, flags).unwrap();
        let mut left = count;
        while left > 0 {
            left -=
                rustix::pipe::splice(&reader, None, &target, Some(&mut at), left, flags).unwrap();
        }
        moved += count;
    }
    place.look("to");
    source.seek(SeekFrom::Start(0)).unwrap();
    let mut position = 7;
    let copy = open(&place.path("sent"), 0).unwrap();
    let sent = rustix::fs::sendfile(&copy, &source, Some(&mut position), 100_000);
    place.note("sendfile", sent);
    place.look("sent");
}

/// The errors of direct I/O are the lower file's where the kernel does it.
fn direct_unaligned(place: &mut Place) {
    let file = match open(&place.path("direct"), libc::O_DIRECT) {
        Ok(file) => file,
        Err(_) => return,
    };
    let block = Aligned([7; 4096]);
    place.note("unaligned offset", file.write_at(&block.0, 3));
    place.note("unaligned length", file.write_at(&block.0[..100], 0));
    place.note("unaligned memory", file.write_at(&block.0[1..513], 0));
    place.look("direct");
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// On other paths, the client's kernel decides where the end is before it asks.
#[test]
fn appending_above_and_beneath() {
    on_each(&LOWERS, "", |mounted| same(mounted, appends_beneath));
}

#[test]
fn unaligned_direct_io() {
    on_each(&LOWERS, "", |mounted| same(mounted, direct_unaligned));
}

#[test]
fn splice_and_sendfile() {
    over_all(splices);
}

/// FUSE has no `FICLONE`: the client's kernel refuses it. `copy_file_range` shares extents where the lower
/// file system does.
#[test]
fn clones_are_refused_and_copies_share() {
    on_each(&[Lower::Xfs, Lower::Btrfs, Lower::Tmpfs], "", |mounted| {
        let mnt = mounted.mnt();
        let mut from = open(&mnt.join("from"), 0).unwrap();
        from.write_all(&pattern(16 << 20)).unwrap();
        from.sync_all().unwrap();
        let to = open(&mnt.join("to"), 0).unwrap();
        let error = rustix::fs::ioctl_ficlone(&to, from.as_fd()).unwrap_err();
        assert_eq!(error, rustix::io::Errno::OPNOTSUPP);
        let free = || rustix::fs::statvfs(mounted.outside()).unwrap().f_bfree;
        let before = free();
        let copied = fs::copy(mnt.join("from"), mnt.join("copy")).unwrap();
        assert_eq!(copied, 16 << 20);
        File::open(mnt.join("copy")).unwrap().sync_all().unwrap();
        let block = rustix::fs::statvfs(mounted.outside()).unwrap().f_frsize;
        let taken = (before - free().min(before)) * block;
        if taken < 8 << 20 {
            eprintln!("a copy of 16 MiB took {taken} bytes");
        } else {
            let magic = rustix::fs::statfs(mounted.outside()).unwrap().f_type;
            assert_eq!(
                magic, 0x0102_1994,
                "only tmpfs shares nothing: {taken} bytes"
            );
        }
    });
}

/// Asynchronous I/O by libaio and io_uring, checked by fio where it is installed.
#[test]
fn asynchronous_io() {
    if Command::new("fio").arg("--version").output().is_err() {
        thrufs_test_report::skipped("no fio");
        return;
    }
    on_each(&[Lower::Ext4], "", |mounted| {
        for engine in ["libaio", "io_uring"] {
            let output = Command::new("fio")
                .args(["--name=verified", "--rw=randwrite", "--bs=4k", "--size=2m"])
                .args([
                    "--direct=1",
                    "--iodepth=16",
                    "--verify=crc32c",
                    "--verify_fatal=1",
                ])
                .args(["--fallocate=none", "--overwrite=0", "--minimal"])
                .arg(format!("--ioengine={engine}"))
                .arg(format!(
                    "--filename={}",
                    mounted.mnt().join(engine).display()
                ))
                .current_dir(mounted.outside())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{engine}: {text}");
            let path = mounted.source().join(engine);
            assert_eq!(fs::metadata(path).unwrap().len(), 2 << 20);
        }
    });
}
