//! Every kind of I/O on the lower file and through the mount, with the same results.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::FallocateFlags;
use rustix::pipe::{SpliceFlags, pipe};
use thrufs_testing::fence::mapping::{Mapping, Sharing};
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

fn plain(place: &mut Place) {
    let file = open(&place.path("plain"), 0).unwrap();
    place.note("write", file.write_at(&pattern(10_000), 0));
    place.look("plain");
    place.note("write beyond the end", file.write_at(b"end", 100_000));
    place.look("plain");
    let mut buffer = [0; 64];
    place.note("read beyond the end", file.read_at(&mut buffer, 200_000));
    place.note("short read", file.read_at(&mut buffer, 100_000));
    let slices = [io::IoSlice::new(b"one"), io::IoSlice::new(b"two")];
    place.note("writev", (&file).write_vectored(&slices));
    place.look("plain");
    place.note("huge offset", file.write_at(b"x", i64::MAX as u64));
    place.note("truncate", file.set_len(5_000));
    place.look("plain");
    place.note("extend", file.set_len(50_000));
    place.look("plain");
    let read_only = File::open(place.path("plain")).unwrap();
    place.note("write without access", read_only.write_at(b"x", 0));
    place.note("fsync", read_only.sync_all());
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(-10));
    place.note("seek from the end", data);
}

fn appends(place: &mut Place) {
    let append = |path: &Path| OpenOptions::new().append(true).create(true).open(path);
    let one = append(&place.path("log")).unwrap();
    let other = append(&place.path("log")).unwrap();
    for round in 0..50 {
        place.note("one", (&one).write(format!("one {round}\n").as_bytes()));
        place.note(
            "other",
            (&other).write(format!("other {round}\n").as_bytes()),
        );
        place.note("at 0", one.write_at(b"still at the end\n", 0));
        place.look("log");
    }
}

/// What is appended beneath in between is not lost.
fn appends_beneath(place: &mut Place) {
    appends(place);
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

fn maps(place: &mut Place) {
    let mut file = open(&place.path("map"), 0).unwrap();
    file.write_all(&pattern(16_384)).unwrap();
    let mut shared = Mapping::new(&file, 16_384, Sharing::Shared).unwrap();
    let mut private = Mapping::new(&file, 16_384, Sharing::Private).unwrap();
    shared.store(4_000, b"shared store");
    private.store(8_000, b"private store");
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 4_000).unwrap();
    place.note("a store is read", Ok::<_, io::Error>(found));
    place.note("msync", shared.sync());
    file.write_all_at(b"written", 12_000).unwrap();
    place.note(
        "a write is in both maps",
        Ok::<_, io::Error>((shared.load(12_000, 7), private.load(12_000, 7))),
    );
    place.note(
        "a private store is private",
        Ok::<_, io::Error>((shared.load(8_000, 7), private.load(8_000, 7))),
    );
    // Truncated behind what is touched from now on, while both maps stand.
    place.note(
        "truncated by opening",
        File::create(place.path("map")).map(drop),
    );
    place.note("written anew", file.write_at(&pattern(4_096), 0));
    place.note("in the map", Ok::<_, io::Error>(shared.load(0, 16)));
    drop((shared, private));
    let read_only = File::open(place.path("map")).unwrap();
    let refused = Mapping::new(&read_only, 4096, Sharing::Shared).map(drop);
    place.note("map for writing without access", refused);
    drop(file);
    assert_eq!(
        fs::read(place.path("map")).unwrap(),
        fs::read(place.beneath("map")).unwrap()
    );
}

fn ranges(place: &mut Place) {
    let mut file = open(&place.path("ranges"), 0).unwrap();
    file.write_all(&pattern(65_536)).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    place.note("punch", rustix::fs::fallocate(&file, punch, 8_192, 16_384));
    place.look("ranges");
    let more = FallocateFlags::empty();
    place.note("allocate", rustix::fs::fallocate(&file, more, 0, 131_072));
    place.look("ranges");
    let keep = FallocateFlags::KEEP_SIZE;
    place.note("keep", rustix::fs::fallocate(&file, keep, 131_072, 65_536));
    place.look("ranges");
    let bad = FallocateFlags::PUNCH_HOLE;
    place.note("punch grows", rustix::fs::fallocate(&file, bad, 0, 4_096));
    // Whether a hole is found depends on the cache, where data are does not.
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
    place.note("data", data);
    let read_only = File::open(place.path("ranges")).unwrap();
    place.note(
        "without access",
        rustix::fs::fallocate(&read_only, punch, 0, 4_096),
    );
    place.note("written after it", file.write_at(b"again", 10_000));
    place.look("ranges");
}

fn copies(place: &mut Place) {
    let mut from = open(&place.path("from"), 0).unwrap();
    from.write_all(&pattern(100_000)).unwrap();
    let to = open(&place.path("copy"), 0).unwrap();
    let (mut offset, mut at) = (10, 20);
    let copied = rustix::fs::copy_file_range(&from, Some(&mut offset), &to, Some(&mut at), 50_000);
    place.note("copy", copied);
    place.look("copy");
    place.note("std", fs::copy(place.path("from"), place.path("std")));
    place.look("std");
    let (mut offset, mut at) = (0, 50);
    let over = rustix::fs::copy_file_range(&from, Some(&mut offset), &from, Some(&mut at), 1_000);
    place.note("onto itself, overlapping", over);
    let append = OpenOptions::new()
        .append(true)
        .open(place.path("copy"))
        .unwrap();
    let refused = rustix::fs::copy_file_range(&from, None, &append, None, 10);
    place.note("onto one that appends", refused);
}

fn truncating_opens(place: &mut Place) {
    let mut file = open(&place.path("short"), 0).unwrap();
    file.write_all(&pattern(9_000)).unwrap();
    let other = open(&place.path("short"), 0).unwrap();
    place.look("short");
    place.note(
        "O_TRUNC",
        open(&place.path("short"), libc::O_TRUNC).map(drop),
    );
    place.look("short");
    let mut rest = Vec::new();
    place.note("nothing left", (&other).read_to_end(&mut rest));
    place.note("on at its offset", file.write(b"beyond"));
    place.look("short");
    let read_only = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_TRUNC)
        .open(place.path("short"));
    place.note("O_RDONLY | O_TRUNC", read_only.map(drop));
    place.look("short");
    place.note("other extends", other.set_len(123));
    place.look("short");
}

fn direct(place: &mut Place) {
    let opened = open(&place.path("direct"), libc::O_DIRECT);
    place.note("O_DIRECT", opened.as_ref().map(drop).map_err(clone_of));
    let Ok(file) = opened else { return };
    let block = Aligned([7; 4096]);
    place.note("aligned", file.write_at(&block.0, 0));
    place.note("aligned, beyond", file.write_at(&block.0, 8_192));
    place.look("direct");
    let mut found = Aligned([0; 4096]);
    place.note("read", file.read_at(&mut found.0, 0));
    assert!(found.0 == [7; 4096] || place.path("direct") == place.beneath("direct"));
    place.note(
        "again",
        open(&place.path("direct"), libc::O_DIRECT).map(drop),
    );
    place.note(
        "beside one that is not",
        open(&place.path("direct"), 0).map(drop),
    );
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

fn clone_of(error: &io::Error) -> io::Error {
    io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

#[test]
fn reads_and_writes() {
    over_all(plain);
}

#[test]
fn appending_by_two_descriptors() {
    over_all(appends);
    // On the other paths, the client's kernel decides where the end is before it asks.
    on_each(&LOWERS, "", |mounted| same(mounted, appends_beneath));
}

#[test]
fn splice_and_sendfile() {
    over_all(splices);
}

#[test]
fn shared_and_private_maps() {
    over_all(maps);
}

#[test]
fn fallocate_and_holes() {
    over_all(ranges);
}

#[test]
fn copy_file_range() {
    over_all(copies);
}

#[test]
fn opens_that_truncate() {
    over_all(truncating_opens);
}

#[test]
fn direct_io() {
    over_all(direct);
    on_each(&LOWERS, "", |mounted| same(mounted, direct_unaligned));
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
