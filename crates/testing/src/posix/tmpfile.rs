//! O_TMPFILE: files without a name, and giving them one.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    has_no_name,
    gets_a_name_by_proc,
    gets_a_name_by_empty_path,
    exclusive_never_gets_a_name,
    owner_mode_and_umask,
    needs_write_access,
    needs_a_directory,
    many_at_once,
};

fn tmpfile(env: &Env, dir: &str, more: OFlags) -> rustix::io::Result<File> {
    open_mode(&env.path(dir), OFlags::RDWR | OFlags::TMPFILE | more, 0o640)
}

fn name_it(env: &Env, file: &File, name: &str) -> rustix::io::Result<()> {
    let number = std::os::fd::AsRawFd::as_raw_fd(file);
    let path = format!("/proc/thread-self/fd/{number}");
    rustix::fs::linkat(CWD, path, CWD, env.path(name), AtFlags::SYMLINK_FOLLOW)
}

fn has_no_name(env: &Env) {
    let mut file = tmpfile(env, "", OFlags::empty()).unwrap();
    file.write_all(b"nameless").unwrap();
    assert!(env.names("").is_empty());
    let meta = file.metadata().unwrap();
    assert_eq!(
        (meta.nlink(), meta.len(), meta.mode() & 0o7777),
        (0, 8, 0o640)
    );
    let mut buffer = [0; 8];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"nameless");
    assert_eq!(fs::read_dir(env.beneath("")).unwrap().count(), 0);
}

fn gets_a_name_by_proc(env: &Env) {
    let mut file = tmpfile(env, "", OFlags::empty()).unwrap();
    file.write_all(b"named later").unwrap();
    name_it(env, &file, "name").unwrap();
    file.write_all(b", and longer").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    drop(file);
    assert_eq!(env.read("name"), b"named later, and longer");
    env.agree("name");
}

fn gets_a_name_by_empty_path(env: &Env) {
    let mut file = tmpfile(env, "", OFlags::empty()).unwrap();
    file.write_all(b"content").unwrap();
    rustix::fs::linkat(&file, "", CWD, env.path("name"), AtFlags::EMPTY_PATH).unwrap();
    fails(
        rustix::fs::linkat(&file, "", CWD, env.path("name"), AtFlags::EMPTY_PATH),
        Errno::EXIST,
    );
    assert_eq!(env.read("name"), b"content");
    env.agree("name");
}

fn exclusive_never_gets_a_name(env: &Env) {
    let file = tmpfile(env, "", OFlags::EXCL).unwrap();
    fails(name_it(env, &file, "name"), Errno::NOENT);
    env.absent("name");
}

fn owner_mode_and_umask(env: &Env) {
    let dir = env.shared_dir("dir");
    let (uid, gid, mode) = ALICE.run(|| {
        rustix::process::umask(Mode::from_raw_mode(0o077));
        let file = open_mode(&dir, OFlags::RDWR | OFlags::TMPFILE, 0o666).unwrap();
        let meta = file.metadata().unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    });
    assert_eq!((uid, gid, mode), (ALICE.uid, ALICE.gid, 0o600));
}

fn needs_write_access(env: &Env) {
    fails(
        open_mode(&env.path(""), OFlags::RDONLY | OFlags::TMPFILE, 0o600),
        Errno::INVAL,
    );
    let closed = env.dir("closed");
    let flags = OFlags::RDWR | OFlags::TMPFILE;
    ALICE.run(|| fails(open_mode(&closed, flags, 0o600), Errno::ACCESS));
}

fn needs_a_directory(env: &Env) {
    env.file("file", "");
    fails(tmpfile(env, "file", OFlags::empty()), Errno::NOTDIR);
    fails(tmpfile(env, "missing", OFlags::empty()), Errno::NOENT);
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
