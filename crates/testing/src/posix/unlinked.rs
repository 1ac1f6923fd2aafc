//! Files and directories that are open but have no name any more.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    reads_and_writes_go_on:
        "file file before; open @f file rw; unlink file; absent file; is ^. names;
         fill @f 6 100000 7; pread @f 0 before; filled @f 6 100000 7; is @f links 0 size 100006",
    attributes_still_change:
        "open @f file rw,creat,excl; unlink file; chmod @f 4711; is @f mode 4711; chown @f 11 12;
         is @f owner 11 12; times @f - 1000; is @f mtime 1000",
    same_name_is_another_file:
        "file file old; open @old file r; note @old; unlink file; file file new; unlike file ino;
         read @old old; is file text new",
    room_comes_back_on_close [NotBtrfs],
    truncate_and_allocate:
        "file file 0123456789; open @f file rw; unlink file; truncate @f 4; allocate @f 0 8;
         is @f size 8; pread @f 0 0123; filled @f 4 4 0; fsync @f",
    is_copied_and_has_holes:
        "file file 0123; open @f file rw; unlink file; truncate @f 200000; pwrite @f 131072 data;
         fsync @f; seekdata @f 65536 131072; open @g file rw,creat,excl;
         copy @f 131072 @g 0 4; is file text data; copy @g 0 @f 4 4; pread @f 0 0123data",
    other_link_lives_on:
        "file file shared; link file other; open @f file rw; unlink file; is @f links 1;
         write @f SHARED and more; is other text SHARED and more",
    reopened_through_proc:
        "file file content; open @f file r; unlink file; open @g @f rw; write @g CONTENT;
         close @g; pread @f 0 CONTENT",
    locks_and_attributes_still_work:
        "open @f file rw,creat,excl; unlink file; flock @f write; setxattr @f user.it value;
         getxattr @f user.it value",
    many_at_once,
    opens_again_and_again:
        "file file content; open @a file rw; unlink file; is @a links 0; open @b @a rw;
         pwrite @b 0 C; close @a; open @c @b rw; pread @c 0 Content; close @b;
         truncate @c 100000; is @c size 100000; fsync @c; open @d @c r; pread @d 0 Content;
         filled @d 7 99993 0",
    replaced_ones_live_on:
        "open @0 new rw,creat,excl; fill @0 0 100 48; rename new file; filled file 0 100 48;
         open @1 new rw,creat,excl; fill @1 0 100 49; rename new file; filled file 0 100 49;
         open @2 new rw,creat,excl; fill @2 0 100 50; rename new file; filled file 0 100 50;
         open @a @0 rw; open @b @1 rw; filled @a 0 100 48; filled @b 0 100 49; open @c file rw;
         pwrite @2 95 still; pread @c 95 still",
};

fn unlink(env: &Env, name: &str) {
    rustix::fs::unlink(env.path(name)).unwrap();
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
