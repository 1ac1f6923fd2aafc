//! O_TMPFILE: files without a name, and giving them one.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    has_no_name:
        "open @f . rw,tmpfile 640; write @f nameless; is . names; agree;
         is @f links 0 size 8 mode 640; pread @f 0 nameless",
    gets_a_name_by_proc:
        "open @f . rw,tmpfile 640; write @f named later; open @g @f rw; pwrite @g 0 N;
         linkfollow @f name; write @f , and longer; is @f links 1; open @n name rw;
         pwrite @n 23 !; close @{f,g,n}; is ^name text Named later, and longer!",
    gets_a_name_by_empty_path:
        "open @f . rw,tmpfile 640; write @f content; fdlink @f name; EEXIST fdlink @f name;
         is name text content",
    exclusive_never_gets_a_name:
        "open @f . rw,tmpfile,excl 640; ENOENT linkfollow @f name; absent name",
    owner_mode_and_umask:
        "shared dir; umask 77; alice: open @f dir rw,tmpfile 666;
         is @f owner alice alice mode 600",
    needs_write_access: "EINVAL open . r,tmpfile; dir closed; alice: EACCES open closed rw,tmpfile",
    needs_a_directory: "file file; ENOTDIR open file rw,tmpfile; ENOENT open missing rw,tmpfile",
    many_at_once,
};

fn tmpfile(env: &Env, dir: &str, more: OFlags) -> rustix::io::Result<File> {
    open_mode(&env.path(dir), OFlags::RDWR | OFlags::TMPFILE | more, 0o640)
}

fn many_at_once(env: &Env) {
    let files: Vec<File> = (0..50u8)
        .map(|byte| {
            let mut file = tmpfile(env, "", OFlags::empty()).unwrap();
            file.write_all(&[byte; 100]).unwrap();
            file
        })
        .collect();
    for (file, byte) in files.iter().zip(0u8..) {
        let mut buffer = [0; 100];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, [byte; 100]);
    }
    assert!(env.names("").is_empty());
}
