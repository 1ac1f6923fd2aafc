//! The inode flags of chattr: `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`.

use std::thread;
use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    are_those_beneath,
    set_and_clear,
    immutable_guards_a_file,
    append_only_guards_a_file [WriteThrough],
    append_only_is_written_at_its_end_alone [WriteThrough],
    append_only_leaves_open_descriptors_as_they_are [WriteThrough],
    append_only_is_read_and_appended_to_by_many [WriteThrough],
    immutable_is_opened_for_writing_when_cleared,
    a_change_shows_in_the_times [Notifications],
    of_a_directory,
    immutable_needs_privilege,
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

fn set_and_clear(env: &Env) {
    let path = env.file("file", "x");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::NODUMP).unwrap();
    assert!(flags(&path).contains(IFlags::NODUMP));
    assert!(flags(&env.beneath("file")).contains(IFlags::NODUMP));
    ioctl_setflags(&file, before).unwrap();
    assert_eq!(flags(&path), before);
    assert_eq!(flags(&env.beneath("file")), before);
}

fn immutable_guards_a_file(env: &Env) {
    let path = env.file("file", "kept");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::IMMUTABLE).unwrap();
    let refused = [
        open(&path, OFlags::WRONLY).err(),
        rustix::fs::unlink(&path).err(),
        rustix::fs::link(&path, env.path("link")).err(),
        chmod(&path, 0o600).err(),
    ];
    // Cleared first: a file that stays immutable could not be removed after a failure.
    ioctl_setflags(&file, before).unwrap();
    assert_eq!(refused, [Some(Errno::PERM); 4]);
    assert_eq!(env.read("file"), b"kept");
    env.agree("file");
    rustix::fs::unlink(&path).unwrap();
}

fn append_only_guards_a_file(env: &Env) {
    let path = env.file("file", "log");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::APPEND).unwrap();
    let overwrite = open(&path, OFlags::WRONLY).err();
    let cut = open(&path, OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC).err();
    let append = open(&path, OFlags::WRONLY | OFlags::APPEND).map(|mut file| file.write_all(b"+"));
    ioctl_setflags(&file, before).unwrap();
    assert_eq!((overwrite, cut), (Some(Errno::PERM), Some(Errno::PERM)));
    append.unwrap().unwrap();
    assert_eq!(env.read("file"), b"log+");
    env.agree("file");
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

fn immutable_is_opened_for_writing_when_cleared(env: &Env) {
    let path = env.file("file", "kept");
    let file = env.open("file", OFlags::RDONLY);
    let before = flags(&path);
    ioctl_setflags(&file, before | IFlags::IMMUTABLE).unwrap();
    let reader = open(&path, OFlags::RDONLY);
    let appending = OFlags::WRONLY | OFlags::APPEND;
    let refused = [OFlags::WRONLY, OFlags::RDWR, appending].map(|access| open(&path, access).err());
    ioctl_setflags(&file, before).unwrap();
    assert_eq!(refused, [Some(Errno::PERM); 3]);
    // While it is open from before it could be written.
    let writer = env.open("file", OFlags::RDWR);
    writer.write_all_at(b"K", 0).unwrap();
    let mut content = [0; 4];
    reader.unwrap().read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"Kept");
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

fn append_only_leaves_open_descriptors_as_they_are(env: &Env) {
    // Linux checks the flag at open: files open for writing stay so.
    let path = env.file("file", "log");
    let plain = env.open("file", OFlags::RDWR);
    let mut end = env.open("file", OFlags::WRONLY | OFlags::APPEND);
    let before = flags(&path);
    ioctl_setflags(&plain, before | IFlags::APPEND).unwrap();
    let overwritten = plain.write_at(b"L", 0);
    let appended = end.write(b"+");
    let again = open(&path, OFlags::WRONLY).err();
    ioctl_setflags(&plain, before).unwrap();
    assert_eq!((overwritten.unwrap(), appended.unwrap()), (1, 1));
    assert_eq!(again, Some(Errno::PERM));
    assert_eq!(env.read("file"), b"Log+");
    drop((plain, end));
    env.agree("file");
}

fn of_a_directory(env: &Env) {
    let path = env.dir("dir");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    let before = flags(&path);
    ioctl_setflags(&dir, before | IFlags::IMMUTABLE).unwrap();
    let created = fs::write(path.join("file"), "");
    ioctl_setflags(&dir, before).unwrap();
    fails(created, Errno::PERM);
    env.file("dir/file", "");
    env.agree("dir/file");
}

fn immutable_needs_privilege(env: &Env) {
    let path = env.file("file", "x");
    env.chown("file", ALICE.uid, ALICE.gid);
    let before = flags(&path);
    ALICE.run(|| {
        let file = open(&path, OFlags::RDONLY).unwrap();
        fails(
            ioctl_setflags(&file, before | IFlags::IMMUTABLE),
            Errno::PERM,
        );
    });
    BOB.run(|| {
        // Only the owner may change flags.
        let file = open(&path, OFlags::RDONLY).unwrap();
        let result = ioctl_setflags(&file, before | IFlags::NODUMP);
        assert!(
            matches!(result, Err(Errno::PERM | Errno::ACCESS)),
            "{result:?}"
        );
    });
    assert_eq!(flags(&path), before);
}
