//! Creating files and directories: open with O_CREAT, mkdir; mode, umask and owner of what appears.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    new_file_is_empty_with_the_given_mode,
    existing_file_is_kept_without_excl,
    exclusive_refuses_what_exists,
    exclusive_refuses_a_dangling_symlink,
    through_a_dangling_symlink,
    read_only_mode_still_writable_by_the_creator,
    directory_where_a_file_is_wanted,
    with_directory_flag_is_einval,
    updates_the_directory_times,
    umask_applies_to_files_and_directories,
    owner_is_the_caller,
    owner_of_every_kind_is_the_caller,
    mkdir_gives_an_empty_directory,
    mkdir_refuses_what_exists,
    mkdir_link_counts [NotBtrfs],
    mkdir_keeps_the_sticky_bit,
    setgid_directory_gives_its_group,
    setgid_directory_gives_setgid_to_directories,
    setgid_bit_of_a_file_needs_the_group,
    many_files,
    mode_bits_of_create,
};

fn new_file_is_empty_with_the_given_mode(env: &Env) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = open_mode(&env.path("file"), flags, 0o640).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(
        (meta.len(), meta.nlink(), meta.mode() & 0o7777),
        (0, 1, 0o640)
    );
    assert_eq!((&file).read(&mut [0; 8]).unwrap(), 0);
    env.agree("file");
}

fn existing_file_is_kept_without_excl(env: &Env) {
    env.file("file", "kept");
    let before = env.stat("file");
    let file = open_mode(&env.path("file"), OFlags::RDWR | OFlags::CREATE, 0o777).unwrap();
    assert_eq!(file.metadata().unwrap().ino(), before.st_ino);
    assert_eq!(env.read("file"), b"kept");
    assert_eq!(env.mode("file"), 0o644);
    env.agree("file");
}

fn exclusive_refuses_what_exists(env: &Env) {
    env.file("file", "kept");
    env.dir("dir");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    for name in ["file", "dir", "link"] {
        fails(
            env.try_open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL),
            Errno::EXIST,
        );
    }
    assert_eq!(env.read("file"), b"kept");
}

fn exclusive_refuses_a_dangling_symlink(env: &Env) {
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    fails(
        env.try_open("link", OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL),
        Errno::EXIST,
    );
    env.absent("nowhere");
}

fn through_a_dangling_symlink(env: &Env) {
    rustix::fs::symlink("real", env.path("link")).unwrap();
    let mut file = env.open("link", OFlags::WRONLY | OFlags::CREATE);
    file.write_all(b"through").unwrap();
    drop(file);
    assert_eq!(env.read("real"), b"through");
    env.agree("real");
    env.agree("link");
}

fn read_only_mode_still_writable_by_the_creator(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| {
        let path = dir.join("file");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let mut file = open_mode(&path, flags, 0o400).unwrap();
        file.write_all(b"written").unwrap();
        drop(file);
        fails(open(&path, OFlags::WRONLY), Errno::ACCESS);
        assert_eq!(fs::read(&path).unwrap(), b"written");
        // Mode 0: even the creator's own next open is refused.
        let mut file = open_mode(&dir.join("none"), flags, 0).unwrap();
        file.write_all(b"x").unwrap();
        drop(file);
        fails(open(&dir.join("none"), OFlags::RDONLY), Errno::ACCESS);
    });
    env.agree("dir/file");
    env.agree("dir/none");
}

fn directory_where_a_file_is_wanted(env: &Env) {
    env.dir("dir");
    fails(env.try_open("dir", OFlags::WRONLY), Errno::ISDIR);
    fails(env.try_open("dir", OFlags::RDWR), Errno::ISDIR);
    fails(
        env.try_open("dir", OFlags::RDONLY | OFlags::CREATE),
        Errno::ISDIR,
    );
    fails(
        env.try_open("dir", OFlags::RDONLY | OFlags::TRUNC),
        Errno::ISDIR,
    );
    let dir = env.open("dir", OFlags::RDONLY);
    fails(rustix::io::read(&dir, &mut [0u8; 4]), Errno::ISDIR);
}

fn with_directory_flag_is_einval(env: &Env) {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::DIRECTORY;
    fails(env.try_open("new", flags), Errno::INVAL);
    env.absent("new");
}

fn updates_the_directory_times(env: &Env) {
    env.dir("dir");
    let stamp = |name: &str| {
        let stat = env.stat(name);
        (
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    let mut before = stamp("dir");
    let mut changed = |what: &str| {
        let after = stamp("dir");
        assert!(
            after.0 > before.0 && after.1 > before.1,
            "{what} must change mtime and ctime"
        );
        before = after;
        tick();
    };
    tick();
    env.file("dir/file", "");
    changed("create");
    env.dir("dir/sub");
    changed("mkdir");
    rustix::fs::symlink("x", env.path("dir/link")).unwrap();
    changed("symlink");
    rustix::fs::link(env.path("dir/file"), env.path("dir/hard")).unwrap();
    changed("link");
    fs::rename(env.path("dir/file"), env.path("dir/renamed")).unwrap();
    changed("rename");
    fs::remove_file(env.path("dir/renamed")).unwrap();
    changed("unlink");
    fs::remove_dir(env.path("dir/sub")).unwrap();
    changed("rmdir");
    env.agree("dir");
}

fn umask_applies_to_files_and_directories(env: &Env) {
    rustix::process::umask(Mode::from_raw_mode(0o027));
    drop(open_mode(&env.path("file"), OFlags::WRONLY | OFlags::CREATE, 0o666).unwrap());
    mkdir(&env.path("dir"), 0o777).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::from_raw_mode(0o666)).unwrap();
    rustix::process::umask(Mode::from_raw_mode(0o777));
    drop(open_mode(&env.path("nothing"), OFlags::WRONLY | OFlags::CREATE, 0o666).unwrap());
    rustix::process::umask(Mode::empty());
    drop(open_mode(&env.path("all"), OFlags::WRONLY | OFlags::CREATE, 0o777).unwrap());
    for (name, mode) in [
        ("file", 0o640),
        ("dir", 0o750),
        ("fifo", 0o640),
        ("nothing", 0),
        ("all", 0o777),
    ] {
        assert_eq!(env.mode(name), mode, "{name}");
        env.agree(name);
    }
}

fn owner_is_the_caller(env: &Env) {
    let dir = env.shared_dir("dir");
    for (caller, name) in [(ALICE, "alice"), (BOB, "bob"), (MEMBER, "member")] {
        let path = dir.join(name);
        caller.run(|| fs::write(&path, name).unwrap());
        let stat = rustix::fs::lstat(&path).unwrap();
        assert_eq!(
            (stat.st_uid, stat.st_gid),
            (caller.uid, caller.gid),
            "{name}"
        );
        env.agree(Path::new("dir").join(name));
    }
    let root = env.file("dir/root", "");
    let stat = rustix::fs::lstat(&root).unwrap();
    assert_eq!((stat.st_uid, stat.st_gid), (0, 0));
}

fn owner_of_every_kind_is_the_caller(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| {
        mkdir(&dir.join("dir"), 0o755).unwrap();
        rustix::fs::symlink("target", dir.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("fifo"), Mode::RWXU).unwrap();
        std::os::unix::net::UnixListener::bind(dir.join("s"))
            .map(drop)
            .unwrap_or_else(|error| {
                // A socket's address has room for 107 bytes; the tree may lie deeper.
                assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
                let kind = FileType::Socket;
                rustix::fs::mknodat(CWD, dir.join("s"), kind, Mode::RWXU, 0).unwrap();
            });
    });
    for name in ["dir/dir", "dir/link", "dir/fifo", "dir/s"] {
        let stat = env.stat(name);
        assert_eq!((stat.st_uid, stat.st_gid), (ALICE.uid, ALICE.gid), "{name}");
        env.agree(name);
    }
}

fn mkdir_gives_an_empty_directory(env: &Env) {
    mkdir(&env.path("dir"), 0o751).unwrap();
    assert_eq!(env.mode("dir"), 0o751);
    assert!(env.names("dir").is_empty());
    env.agree("dir");
}

fn mkdir_refuses_what_exists(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    for name in ["file", "dir", "link", "", "dir/.", "dir/.."] {
        fails(mkdir(&env.path(name), 0o755), Errno::EXIST);
    }
}

fn mkdir_link_counts(env: &Env) {
    env.dir("dir");
    assert_eq!(env.stat("dir").st_nlink, 2);
    env.dir("dir/a");
    env.dir("dir/b");
    env.file("dir/file", "");
    assert_eq!(env.stat("dir").st_nlink, 4);
    fs::remove_dir(env.path("dir/a")).unwrap();
    assert_eq!(env.stat("dir").st_nlink, 3);
    fs::rename(env.path("dir/b"), env.path("b")).unwrap();
    assert_eq!(env.stat("dir").st_nlink, 2);
    env.agree("dir");
}

fn mkdir_keeps_the_sticky_bit(env: &Env) {
    mkdir(&env.path("dir"), 0o1755).unwrap();
    assert_eq!(env.mode("dir"), 0o1755);
    env.agree("dir");
}

fn setgid_directory_gives_its_group(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    ALICE.run(|| {
        fs::write(dir.join("file"), "").unwrap();
        rustix::fs::symlink("x", dir.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("fifo"), Mode::RWXU).unwrap();
    });
    for name in ["dir/file", "dir/link", "dir/fifo"] {
        let stat = env.stat(name);
        assert_eq!((stat.st_uid, stat.st_gid), (ALICE.uid, TEAM), "{name}");
        env.agree(name);
    }
}

fn setgid_directory_gives_setgid_to_directories(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    ALICE.run(|| mkdir(&dir.join("sub"), 0o755).unwrap());
    let stat = env.stat("dir/sub");
    assert_eq!((stat.st_uid, stat.st_gid), (ALICE.uid, TEAM));
    assert_eq!(env.mode("dir/sub"), 0o2755);
    env.agree("dir/sub");
}

fn setgid_bit_of_a_file_needs_the_group(env: &Env) {
    // In a setgid directory of a foreign group an executable cannot be created with that group's
    // setgid bit; a member of the group can.
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    let create = |name: &str| {
        drop(open_mode(&dir.join(name), OFlags::WRONLY | OFlags::CREATE, 0o2755).unwrap());
    };
    ALICE.run(|| create("stranger"));
    MEMBER.run(|| create("member"));
    assert_eq!(env.mode("dir/stranger"), 0o755);
    assert_eq!(env.mode("dir/member"), 0o2755);
    env.agree("dir/stranger");
    env.agree("dir/member");
}

fn many_files(env: &Env) {
    for number in 0..500 {
        env.file(format!("f{number:03}"), format!("{number}"));
    }
    assert_eq!(env.names("").len(), 500);
    for number in (0..500).step_by(37) {
        assert_eq!(
            env.read(format!("f{number:03}")),
            format!("{number}").as_bytes()
        );
    }
    assert_eq!(fs::read_dir(env.beneath("")).unwrap().count(), 500);
}

fn mode_bits_of_create(env: &Env) {
    rustix::process::umask(Mode::empty());
    for mode in [
        0, 0o400, 0o222, 0o111, 0o777, 0o4755, 0o2755, 0o1644, 0o6777,
    ] {
        let name = format!("mode{mode:o}");
        drop(open_mode(&env.path(&name), OFlags::WRONLY | OFlags::CREATE, mode).unwrap());
        assert_eq!(env.mode(&name), mode, "{name}");
        env.agree(&name);
    }
}
