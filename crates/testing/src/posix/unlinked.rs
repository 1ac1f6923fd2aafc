//! Files and directories that are open but have no name any more.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    reads_and_writes_go_on,
    attributes_still_change,
    same_name_is_another_file,
    room_comes_back_on_close [NotBtrfs],
    truncate_and_allocate,
    directory_may_not_be_filled,
    other_link_lives_on,
    reopened_through_proc,
    locks_and_attributes_still_work,
    many_at_once,
};

fn unlink(env: &Env, name: &str) {
    rustix::fs::unlink(env.path(name)).unwrap();
}

fn reads_and_writes_go_on(env: &Env) {
    env.file("file", "before");
    let file = env.open("file", OFlags::RDWR);
    unlink(env, "file");
    env.absent("file");
    assert_eq!(
        fs::read_dir(env.beneath("")).unwrap().count(),
        0,
        "no other name in its stead"
    );
    file.write_all_at(&[7; 100_000], 6).unwrap();
    let mut content = vec![0; 100_006];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content[..6], b"before");
    assert!(content[6..].iter().all(|byte| *byte == 7));
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len()), (0, 100_006));
}

fn attributes_still_change(env: &Env) {
    let file = env.create("file");
    unlink(env, "file");
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o4711)).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o4711);
    std::os::unix::fs::fchown(&file, Some(11), Some(12)).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid()), (11, 12));
    let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    file.set_modified(when).unwrap();
    assert_eq!(file.metadata().unwrap().mtime(), 1000);
}

fn same_name_is_another_file(env: &Env) {
    env.file("file", "old");
    let mut old = env.open("file", OFlags::RDONLY);
    let ino = old.metadata().unwrap().ino();
    unlink(env, "file");
    env.file("file", "new");
    assert_ne!(env.stat("file").st_ino, ino);
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(env.read("file"), b"new");
    env.agree("file");
}

fn room_comes_back_on_close(env: &Env) {
    const LEN: u64 = 64 << 20;
    let free = || {
        let vfs = rustix::fs::statvfs(env.beneath("")).unwrap();
        vfs.f_bfree * vfs.f_frsize
    };
    let file = env.create("file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LEN).unwrap();
    unlink(env, "file");
    let held = free();
    drop(file);
    // RELEASE follows the close later, and other cases use space meanwhile.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while free() < held + LEN / 2 {
        assert!(
            std::time::Instant::now() < deadline,
            "held {held}, now {}",
            free()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn truncate_and_allocate(env: &Env) {
    env.file("file", "0123456789");
    let file = env.open("file", OFlags::RDWR);
    unlink(env, "file");
    file.set_len(4).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8).unwrap();
    let mut content = [9; 8];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"0123\0\0\0\0");
    file.sync_all().unwrap();
}

fn directory_may_not_be_filled(env: &Env) {
    env.dir("dir");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    rustix::fs::rmdir(env.path("dir")).unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY;
    fails(
        rustix::fs::openat(&dir, "file", flags, Mode::RWXU),
        Errno::NOENT,
    );
    fails(rustix::fs::mkdirat(&dir, "sub", Mode::RWXU), Errno::NOENT);
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
    env.absent("dir");
}

fn other_link_lives_on(env: &Env) {
    let path = env.file("file", "shared");
    rustix::fs::link(&path, env.path("other")).unwrap();
    let mut file = env.open("file", OFlags::RDWR);
    unlink(env, "file");
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    file.write_all(b"SHARED and more").unwrap();
    assert_eq!(env.read("other"), b"SHARED and more");
    env.agree("other");
}

fn reopened_through_proc(env: &Env) {
    env.file("file", "content");
    let file = env.open("file", OFlags::RDONLY);
    unlink(env, "file");
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let path = format!("/proc/thread-self/fd/{number}");
    let mut again = open(Path::new(&path), OFlags::RDWR).unwrap();
    again.write_all(b"CONTENT").unwrap();
    drop(again);
    let mut content = [0; 7];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"CONTENT");
}

fn locks_and_attributes_still_work(env: &Env) {
    let file = env.create("file");
    unlink(env, "file");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&file, "user.it", b"value", none).unwrap();
    let mut value = [0; 16];
    assert_eq!(
        rustix::fs::fgetxattr(&file, "user.it", &mut value[..]).unwrap(),
        5
    );
    assert!(rustix::fs::fstatvfs(&file).unwrap().f_blocks > 0);
}

fn many_at_once(env: &Env) {
    let files: Vec<File> = (0..200u32)
        .map(|number| {
            let name = format!("file{number}");
            let file = env.create(&name);
            unlink(env, &name);
            file.write_all_at(&number.to_le_bytes(), 0).unwrap();
            file
        })
        .collect();
    assert!(env.names("").is_empty());
    for (number, file) in files.iter().enumerate() {
        let mut content = [0; 4];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(u32::from_le_bytes(content) as usize, number);
    }
}
