//! Files and directories that are open but have no name any more.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    reads_and_writes_go_on,
    attributes_still_change:
        "open @f file rw,creat,excl; unlink file; chmod @f 4711; is @f mode 4711; chown @f 11 12;
         is @f owner 11 12; times @f - 1000; is @f mtime 1000",
    same_name_is_another_file:
        "file file old; open @old file r; note @old; unlink file; file file new; unlike file ino;
         read @old old; is file text new",
    room_comes_back_on_close [NotBtrfs],
    truncate_and_allocate,
    other_link_lives_on:
        "file file shared; link file other; open @f file rw; unlink file; is @f links 1;
         write @f SHARED and more; is other text SHARED and more",
    reopened_through_proc:
        "file file content; open @f file r; unlink file; open @g @f rw; write @g CONTENT;
         close @g; pread @f 0 CONTENT",
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
