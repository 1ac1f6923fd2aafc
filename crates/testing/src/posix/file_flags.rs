//! The inode flags of chattr: `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.

use std::thread;
use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    are_those_beneath,
    set_and_clear:
        "file file x; chattr file +d; is {file,^file} flags d; chattr file -d;
         is {file,^file} flags",
    immutable_guards_a_file [AskedAtOpen]:
        "file file kept; chattr file +i; EPERM open file w; EPERM unlink file;
         EPERM link file link; EPERM chmod file 600; chattr file -i; is file text kept; agree;
         unlink file",
    append_only_guards_a_file [WriteThrough, AskedAtOpen]:
        "file file log; chattr file +a; EPERM open file w; EPERM open file w,append,trunc;
         open @f file w,append; write @f +; chattr file -a; close @f; is file text log+",
    append_only_is_written_at_its_end_alone [WriteThrough],
    append_only_leaves_open_descriptors_as_they_are [WriteThrough, AskedAtOpen]:
        "file file log; open @p file rw; open @e file w,append; chattr file +a; pwrite @p 0 L;
         write @e +; EPERM open file w; chattr file -a; close @{p,e}; is file text Log+",
    append_only_is_read_and_appended_to_by_many [WriteThrough],
    immutable_is_opened_for_writing_when_cleared [AskedAtOpen]:
        "file file kept; chattr file +i; open @r file r; EPERM open file w; EPERM open file rw;
         EPERM open file w,append; chattr file -i; open @w file rw; pwrite @w 0 K;
         pread @r 0 Kept",
    a_change_shows_in_the_times [Notifications],
    of_a_directory: "dir dir; chattr dir +i; EPERM file dir/file; chattr dir -i; file dir/file",
    immutable_needs_privilege:
        "file file x; chown file alice alice; alice: EPERM chattr file +i;
         bob: EPERM chattr file +d; is file flags",
};

#[track_caller]
fn flags(path: &Path) -> IFlags {
    ioctl_getflags(open(path, OFlags::RDONLY).unwrap()).unwrap()
}

fn are_those_beneath(env: &Env) {
    let path = env.file("file", "x");
    assert_eq!(flags(&path), flags(&env.beneath("file")));
    env.dir("dir");
    assert_eq!(flags(&env.path("dir")), flags(&env.beneath("dir")));
}

fn append_only_is_written_at_its_end_alone(env: &Env) {
    let path = env.file("file", "log");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::APPEND).unwrap();
    let tried = open(&path, OFlags::WRONLY | OFlags::APPEND).map(|end| {
        let appended = end.write_at(b"+", 0);
        let cut = end.set_len(1).map_err(|error| error.raw_os_error());
        // A file system of its own refuses this. FUSE does not know the flag and lets it pass; then
        // the write must fail, or still go to the end.
        let switched = rustix::fs::fcntl_setfl(&end, OFlags::empty());
        let overwritten = rustix::io::pwrite(&end, b"X", 0);
        (appended.unwrap(), cut, switched, overwritten)
    });
    let content = env.read("file");
    ioctl_setflags(&file, before).unwrap();
    let (appended, cut, switched, overwritten) = tried.unwrap();
    assert_eq!(appended, 1);
    assert_eq!(cut, Err(Some(Errno::PERM.raw_os_error())));
    match switched {
        Err(errno) => {
            assert_eq!((errno, overwritten), (Errno::PERM, Ok(1)));
            assert_eq!(content, b"log+X", "it still appends");
        }
        Ok(()) => match overwritten {
            Err(errno) => {
                assert_eq!(errno, Errno::PERM);
                assert_eq!(content, b"log+");
            }
            Ok(_) => assert_eq!(content, b"log+X", "it still appends"),
        },
    }
    env.agree("file");
}

fn append_only_is_read_and_appended_to_by_many(env: &Env) {
    // The order of opens does not matter.
    let appending = OFlags::WRONLY | OFlags::APPEND;
    let both = OFlags::RDWR | OFlags::APPEND;
    let path = env.file("file", "log");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::APPEND).unwrap();
    drop(file);
    // The server gets the last RELEASE later.
    thread::sleep(Duration::from_millis(100));
    let read_and_append = |first| {
        let first = open(&path, first)?;
        let second = open(&path, both)?;
        rustix::io::write(&second, b"+")?;
        let mut content = [0; 100];
        let count = rustix::io::pread(&second, &mut content, 0)?;
        drop((first, second));
        thread::sleep(Duration::from_millis(100));
        Ok(count)
    };
    let counts = [OFlags::RDONLY, appending, both].map(read_and_append);
    // Cleared first: a file that stays append-only could not be removed after a failure.
    ioctl_setflags(env.open("file", OFlags::RDONLY), before).unwrap();
    assert_eq!(counts, [Ok::<_, Errno>(4), Ok(5), Ok(6)]);
    assert_eq!(env.read("file"), b"log+++");
    env.agree("file");
}

fn a_change_shows_in_the_times(env: &Env) {
    env.file("file", "x");
    env.dir("dir");
    for name in ["file", "dir"] {
        let file = env.open(name, OFlags::RDONLY);
        let before = flags(&env.path(name));
        for round in 0..10 {
            let toggled = before
                | if round % 2 == 0 {
                    IFlags::NODUMP
                } else {
                    IFlags::empty()
                };
            let changed = |stat: rustix::fs::Stat| (stat.st_ctime, stat.st_ctime_nsec);
            let old = changed(env.stat(name));
            thread::sleep(Duration::from_millis(20));
            ioctl_setflags(&file, toggled).unwrap();
            let new = changed(env.stat(name));
            assert_ne!(old, new, "{name}, round {round}");
            let beneath = rustix::fs::lstat(env.beneath(name)).unwrap();
            assert_eq!(new, changed(beneath), "{name}, round {round}");
        }
    }
}
