//! Files with redacted content, in one process: when they are shown, and which callers may write.

use super::rules::{set, with};
use super::{Served, is_root, serve};
use crate::samples;
use thrufs::Result;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, SetattrIn};
use thrufs_abi::{LockOwner, SetattrValid};
use thrufs_tests::fence::seccomp::take_away;
use thrufs_tests::prelude::*;

/// Files of this age are shown.
const SETTLED: Duration = Duration::from_millis(20);

const NAME: &str = "photos/a.jpg";

fn redacting(rest: &str) -> Served {
    let rule = "[[rule]]\npath = 'photos/**'\naction = 'redact'\nredact = 'gps'\nerrno = 'EPERM'\n";
    let served = serve(with(&format!("{rule}{rest}")));
    fs::create_dir(served.path("photos")).unwrap();
    served
}

fn opened(served: &Served, content: &[u8], flags: i32) -> (NodeId, u64) {
    served.write(NAME, content);
    thread::sleep(SETTLED);
    let node = served.root().walk(NAME).unwrap();
    (node, served.root().open(node, flags).unwrap().fh)
}

fn read(served: &Served, (node, handle): (NodeId, u64)) -> Result<Vec<u8>> {
    served.root().read(node, handle, 0, 1 << 20)
}

fn read_anew(served: &Served, node: NodeId) -> Result<Vec<u8>> {
    let root = served.root();
    let handle = root.open(node, libc::O_RDONLY)?.fh;
    let seen = root.read(node, handle, 0, 1 << 20);
    root.release(node, handle).unwrap();
    seen
}

fn write(served: &Served, (node, handle): (NodeId, u64), at: u64, data: &[u8]) -> Result<()> {
    let root = served.root();
    root.write(node, handle, at, data, 0).map(drop)
}

fn beneath(served: &Served) -> File {
    let mut options = OpenOptions::new();
    options.write(true).open(served.path(NAME)).unwrap()
}

/// Asserts that it is this photograph, without its place.
#[track_caller]
fn is_view_of(seen: Result<Vec<u8>>, content: &[u8]) {
    let seen = seen.unwrap();
    assert_eq!(seen.len(), content.len());
    assert!(seen != content && samples::is_clean(&seen));
    let same = seen.iter().zip(content).filter(|(a, b)| a == b).count();
    assert!(same > content.len() * 3 / 4, "{same}");
}

#[test]
fn a_reader_sees_each_version_redacted_once_it_is_old_enough() {
    let served = redacting("");
    let old = samples::small_photograph(0);
    let file @ (node, _) = opened(&served, &old, libc::O_RDONLY);
    for number in 0..8 {
        let new = samples::small_photograph(500 * number);
        beneath(&served).write_all_at(&new, 0).unwrap();
        beneath(&served).set_len(new.len() as u64).unwrap();
        let seen = match number % 2 {
            0 => read(&served, file),
            _ => read_anew(&served, node),
        };
        let changed = fs::metadata(served.path(NAME)).unwrap();
        let age = changed.modified().unwrap().elapsed().unwrap();
        assert!(age >= SETTLED, "{age:?}");
        is_view_of(seen, &new);
        // Again, from the cache.
        is_view_of(read(&served, file), &new);
    }
}

#[test]
fn files_without_a_place_are_shown_whole_and_unparsable_ones_are_refused() {
    for rest in ["", "content = ['image/*', 'video/*']\n"] {
        let served = redacting(rest);
        let plain = samples::plain_photograph();
        let file @ (node, _) = opened(&served, &plain, libc::O_RDONLY);
        assert_eq!(read(&served, file), Ok(plain));
        for withheld in [&b"text"[..], &samples::broken_photograph()] {
            fs::write(served.path(NAME), withheld).unwrap();
            assert_eq!(read(&served, file), Err(Errno::EPERM), "{rest}");
        }
        assert_eq!(read_anew(&served, node), Err(Errno::EPERM), "{rest}");
        beneath(&served).set_len(0).unwrap();
        assert_eq!(read(&served, file), Ok(vec![]), "{rest}");
        let text = opened(&served, b"", libc::O_RDONLY);
        assert_eq!(read(&served, text), Ok(vec![]));
    }
    // Nor content of another type than the rule's.
    let served = redacting("content = ['image/png']\n");
    let root = served.root();
    served.write(NAME, &samples::photograph());
    let node = root.walk(NAME).unwrap();
    assert_eq!(root.open(node, libc::O_RDONLY).err(), Some(Errno::EPERM));
}

#[test]
fn a_film_is_refused() {
    for content in ["", "'image/*', 'video/*'", "'video/*'"] {
        let rest = match content {
            "" => String::new(),
            types => format!("content = [{types}]\n"),
        };
        let served = redacting(&rest);
        for film in samples::films() {
            served.write(NAME, &film);
            let node = served.root().walk(NAME).unwrap();
            assert_eq!(read_anew(&served, node), Err(Errno::EPERM), "{rest}");
        }
    }
}

#[test]
fn reads_are_refused_while_the_file_is_open_for_writing_beneath() {
    let served = redacting("");
    let photograph = samples::photograph();
    let file @ (node, _) = opened(&served, &photograph, libc::O_RDONLY);
    let writer = beneath(&served);
    assert_eq!(read(&served, file), Err(Errno::EBUSY));
    assert_eq!(read_anew(&served, node), Err(Errno::EBUSY));
    thread::scope(|scope| {
        let waits = scope.spawn(|| read(&served, file));
        thread::sleep(SETTLED);
        drop(writer);
        is_view_of(waits.join().unwrap(), &photograph);
    });
    is_view_of(read_anew(&served, node), &photograph);
}

#[test]
fn the_writer_of_an_empty_file_is_alone_and_reads_it_redacted() {
    let served = redacting("");
    let photograph = samples::photograph();
    let reader @ (node, _) = opened(&served, b"", libc::O_RDONLY);
    let root = served.root();
    let writer = (node, root.open(node, libc::O_RDWR).unwrap().fh);
    let other = (node, root.open(node, libc::O_RDWR).unwrap().fh);
    write(&served, other, 0, &photograph[..100]).unwrap();
    // It has content, from another writer.
    assert_eq!(write(&served, writer, 0, b"x"), Err(Errno::EPERM));
    assert_eq!(root.open(node, libc::O_WRONLY).err(), Some(Errno::EPERM));
    for (at, piece) in photograph.chunks(1000).enumerate() {
        write(&served, other, at as u64 * 1000, piece).unwrap();
    }
    is_view_of(read(&served, other), &photograph);
    assert_eq!(read(&served, reader), Err(Errno::EBUSY));
    assert_eq!(read_anew(&served, node), Err(Errno::EBUSY));
    root.release(node, other.1).unwrap();
    is_view_of(read(&served, reader), &photograph);
    is_view_of(read_anew(&served, node), &photograph);
    assert_eq!(write(&served, writer, 0, b"x"), Err(Errno::EPERM));
    // It reads as others do, and its open file keeps no reader away.
    is_view_of(read(&served, writer), &photograph);
    is_view_of(read_anew(&served, node), &photograph);
}

/// A further descriptor of the file beneath, even for a moment, would keep the lease from the writer.
#[test]
fn an_open_for_reading_opens_nothing_beneath_while_a_writer_has_the_file() {
    skip_if!(!is_root());
    let served = redacting("");
    let writer @ (node, _) = opened(&served, b"", libc::O_RDWR);
    write(&served, writer, 0, b"x").unwrap();
    let opened = thread::scope(|scope| {
        let open = || {
            take_away(&[libc::SYS_openat, libc::SYS_open_by_handle_at]).unwrap();
            served.root().open(node, libc::O_RDONLY)
        };
        scope.spawn(open).join().unwrap()
    });
    assert_eq!(opened.err(), Some(Errno::EBUSY));
}

/// A lower file of another open file would keep the lease from the writer.
#[test]
fn a_writer_reads_a_file_that_others_have_read_after_its_close() {
    let served = redacting("");
    let photograph = samples::photograph();
    let writer @ (node, handle) = opened(&served, b"", libc::O_RDWR);
    write(&served, writer, 0, &photograph).unwrap();
    let root = served.root();
    // As close(2) of a duplicated descriptor does.
    root.flush(node, handle, LockOwner(0)).unwrap();
    let readers = [(); 2].map(|()| (node, root.open(node, libc::O_RDONLY).unwrap().fh));
    for reader in readers {
        is_view_of(read(&served, reader), &photograph);
    }
    is_view_of(read(&served, writer), &photograph);
}

#[test]
fn a_writer_waits_for_openers_beneath() {
    let served = redacting("");
    let writer = opened(&served, b"", libc::O_RDWR);
    // To write as well.
    let holder = beneath(&served);
    assert_eq!(write(&served, writer, 0, b"x"), Err(Errno::EBUSY));
    drop(holder);
    let holder = File::open(served.path(NAME)).unwrap();
    assert_eq!(write(&served, writer, 0, b"x"), Err(Errno::EBUSY));
    thread::scope(|scope| {
        let waits = scope.spawn(|| write(&served, writer, 0, b"x"));
        thread::sleep(SETTLED);
        drop(holder);
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn the_right_to_write_ends_when_another_changes_the_file() {
    type Change = fn(&Served);
    let changes: [(&str, Change); 6] = [
        ("written", |at| beneath(at).write_all_at(b"y", 0).unwrap()),
        ("emptied", |at| beneath(at).set_len(0).unwrap()),
        ("emptied, and its time set back", |at| {
            let file = beneath(at);
            let modified = file.metadata().unwrap().modified().unwrap();
            file.set_len(0).unwrap();
            file.set_modified(modified).unwrap();
        }),
        ("mode beneath", |at| {
            fs::set_permissions(at.path(NAME), PermissionsExt::from_mode(0o600)).unwrap();
        }),
        ("name", |at| {
            let root = at.root();
            let photos = root.walk("photos").unwrap();
            let node = root.walk(NAME).unwrap();
            root.link(node, photos, b"b.jpg").unwrap();
        }),
        ("attributes through the server", |at| {
            let root = at.root();
            let node = root.walk(NAME).unwrap();
            for valid in [SetattrValid::MODE, SetattrValid::MTIME] {
                root.setattr(node, &set(valid, 0)).unwrap();
            }
            root.setxattr(node, b"user.by", b"me", 0).unwrap();
            root.removexattr(node, b"user.by").unwrap();
        }),
    ];
    for (what, change) in changes {
        let expected = match what {
            "attributes through the server" => Ok(()),
            _ => Err(Errno::EPERM),
        };
        let served = redacting("");
        let writer = opened(&served, b"", libc::O_RDWR);
        write(&served, writer, 0, b"x").unwrap();
        // A change has another time.
        thread::sleep(SETTLED);
        change(&served);
        assert_eq!(write(&served, writer, 0, b"z"), expected, "{what}");
        let root = served.root();
        let (node, fh) = writer;
        let cut = SetattrIn {
            fh,
            ..set(SetattrValid::SIZE | SetattrValid::FH, 0)
        };
        let punch = FallocateIn {
            fh,
            length: 4096,
            mode: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
            ..FallocateIn::default()
        };
        let free = served.file("free", b"words");
        let copy = CopyFileRangeIn {
            fh_in: root.open(free, libc::O_RDONLY).unwrap().fh,
            nodeid_out: node.0,
            fh_out: fh,
            len: 5,
            ..CopyFileRangeIn::default()
        };
        let answers = [
            root.fallocate(node, &punch),
            root.copy_file_range(free, &copy).map(drop),
            root.setattr(node, &cut).map(drop),
        ];
        assert_eq!(answers, [expected; 3], "{what}");
        if expected.is_err() {
            // Nor does it keep readers away, whatever it has open.
            let photograph = samples::photograph();
            fs::write(served.path(NAME), &photograph).unwrap();
            is_view_of(read_anew(&served, node), &photograph);
        }
    }
}

/// An empty file may change its names and attributes before the first write.
#[test]
fn an_empty_file_is_written_to_after_its_names_changed() {
    let served = redacting("");
    let writer = opened(&served, b"", libc::O_RDWR);
    fs::hard_link(served.path(NAME), served.path("photos/b.jpg")).unwrap();
    write(&served, writer, 0, b"x").unwrap();
}
