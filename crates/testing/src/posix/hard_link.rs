//! link: several names of one file.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    two_names_of_one_file,
    link_counts_up_and_down,
    last_name_keeps_the_content,
    changes_ctime,
    of_a_symlink_is_a_link_to_the_symlink,
    of_a_directory_is_eperm,
    onto_an_existing_name,
    of_an_open_descriptor,
    of_nodes,
    rename_onto_own_link_does_nothing,
    between_directories,
    attributes_are_shared,
    follows_only_when_asked,
    many_links,
};

fn link(env: &Env, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::link(env.path(from), env.path(to))
}

fn two_names_of_one_file(env: &Env) {
    env.file("a", "one");
    link(env, "a", "b").unwrap();
    assert_eq!(env.stat("a").st_ino, env.stat("b").st_ino);
    env.file("b", "changed through b");
    assert_eq!(env.read("a"), b"changed through b");
    env.agree("a");
    env.agree("b");
}

fn link_counts_up_and_down(env: &Env) {
    env.file("a", "");
    assert_eq!(env.stat("a").st_nlink, 1);
    link(env, "a", "b").unwrap();
    link(env, "b", "c").unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(env.stat(name).st_nlink, 3, "{name}");
        env.agree(name);
    }
    fs::remove_file(env.path("b")).unwrap();
    assert_eq!(env.stat("a").st_nlink, 2);
    fs::rename(env.path("a"), env.path("moved")).unwrap();
    assert_eq!(env.stat("moved").st_nlink, 2);
    fs::remove_file(env.path("c")).unwrap();
    assert_eq!(env.stat("moved").st_nlink, 1);
    env.agree("moved");
}

fn last_name_keeps_the_content(env: &Env) {
    env.file("a", "content");
    link(env, "a", "b").unwrap();
    fs::remove_file(env.path("a")).unwrap();
    assert_eq!(env.read("b"), b"content");
    env.absent("a");
    env.agree("b");
}

fn changes_ctime(env: &Env) {
    env.file("a", "");
    env.stamp("a");
    let ctime = || {
        let stat = env.stat("a");
        (stat.st_ctime, stat.st_ctime_nsec)
    };
    let before = ctime();
    tick();
    link(env, "a", "b").unwrap();
    let linked = ctime();
    assert!(linked > before, "link must change ctime");
    tick();
    fs::remove_file(env.path("b")).unwrap();
    assert!(ctime() > linked, "unlink of another name must change ctime");
}

fn of_a_symlink_is_a_link_to_the_symlink(env: &Env) {
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    link(env, "link", "second").unwrap();
    assert_eq!(env.stat("second").st_ino, env.stat("link").st_ino);
    assert_eq!(env.stat("second").st_nlink, 2);
    env.agree("second");
}

fn of_a_directory_is_eperm(env: &Env) {
    env.dir("dir");
    fails(link(env, "dir", "second"), Errno::PERM);
    env.absent("second");
}

fn onto_an_existing_name(env: &Env) {
    env.file("a", "a");
    env.file("b", "b");
    env.dir("dir");
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    for name in ["a", "b", "dir", "link"] {
        fails(link(env, "a", name), Errno::EXIST);
    }
    assert_eq!(env.read("b"), b"b");
    assert_eq!(env.stat("a").st_nlink, 1);
}

fn of_an_open_descriptor(env: &Env) {
    let mut file = env.create("a");
    file.write_all(b"by descriptor").unwrap();
    let flags = AtFlags::SYMLINK_FOLLOW;
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let path = format!("/proc/thread-self/fd/{number}");
    rustix::fs::linkat(CWD, path, CWD, env.path("b"), flags).unwrap();
    assert_eq!(env.read("b"), b"by descriptor");
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    rustix::fs::linkat(&file, "", CWD, env.path("c"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 3);
    env.agree("c");
}

fn of_nodes(env: &Env) {
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let device = rustix::fs::makedev(1, 3);
    let kind = FileType::CharacterDevice;
    rustix::fs::mknodat(CWD, env.path("null"), kind, Mode::RWXU, device).unwrap();
    for name in ["fifo", "null"] {
        let second = format!("{name}2");
        link(env, name, &second).unwrap();
        assert_eq!(env.stat(&second).st_ino, env.stat(name).st_ino);
        env.agree(&second);
    }
}

fn rename_onto_own_link_does_nothing(env: &Env) {
    env.file("a", "same");
    link(env, "a", "b").unwrap();
    rustix::fs::rename(env.path("a"), env.path("b")).unwrap();
    assert_eq!(env.names(""), ["a", "b"]);
    assert_eq!(env.stat("a").st_nlink, 2);
    env.agree("a");
}

fn between_directories(env: &Env) {
    env.dir("x");
    env.dir("y");
    env.file("x/a", "shared");
    link(env, "x/a", "y/b").unwrap();
    fs::remove_file(env.path("x/a")).unwrap();
    fs::remove_dir(env.path("x")).unwrap();
    assert_eq!(env.read("y/b"), b"shared");
    env.agree("y/b");
}

fn attributes_are_shared(env: &Env) {
    env.file("a", "12345");
    link(env, "a", "b").unwrap();
    env.stat("b");
    env.chmod("a", 0o600);
    env.chown("a", 7, 8);
    let stat = env.stat("b");
    assert_eq!(
        (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid),
        (0o600, 7, 8)
    );
    rustix::fs::ftruncate(env.open("a", OFlags::WRONLY), 2).unwrap();
    assert_eq!(env.stat("b").st_size, 2);
    env.agree("b");
}

fn follows_only_when_asked(env: &Env) {
    env.file("file", "");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    let (link, hard) = (env.path("link"), env.path("hard"));
    rustix::fs::linkat(CWD, &link, CWD, &hard, AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(env.stat("hard").st_ino, env.stat("file").st_ino);
    env.agree("hard");
}

fn many_links(env: &Env) {
    env.file("file", "");
    for number in 0..300 {
        link(env, "file", &format!("l{number}")).unwrap();
    }
    assert_eq!(env.stat("l299").st_nlink, 301);
    env.agree("file");
}
