//! mknod: devices, fifos, sockets.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    fifo,
    fifo_carries_data_between_descriptors,
    socket,
    character_device,
    block_device,
    regular_file,
    devices_need_privilege,
    refuses_what_exists,
    large_device_numbers [NotXfs],
    socket_connects,
};

fn mknod(path: &Path, kind: FileType, mode: u32, device: u64) -> rustix::io::Result<()> {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)
}

#[track_caller]
fn is_node(env: &Env, name: &str, kind: FileType, mode: u32, device: u64) {
    let stat = env.stat(name);
    assert_eq!(FileType::from_raw_mode(stat.st_mode), kind);
    assert_eq!(stat.st_mode & 0o7777, mode);
    assert_eq!(stat.st_rdev, device);
    env.agree(name);
}

fn fifo(env: &Env) {
    mknod(&env.path("fifo"), FileType::Fifo, 0o622, 0).unwrap();
    // Less the umask of 022.
    is_node(env, "fifo", FileType::Fifo, 0o600, 0);
}

fn fifo_carries_data_between_descriptors(env: &Env) {
    mknod(&env.path("fifo"), FileType::Fifo, 0o600, 0).unwrap();
    let mut both = env.open("fifo", OFlags::RDWR | OFlags::NONBLOCK);
    both.write_all(b"through the pipe").unwrap();
    let mut buffer = [0; 32];
    let len = both.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"through the pipe");
    // Empty now, and not to be waited for.
    fails(rustix::io::read(&both, &mut buffer), Errno::AGAIN);
}

fn socket(env: &Env) {
    mknod(&env.path("socket"), FileType::Socket, 0o700, 0).unwrap();
    is_node(env, "socket", FileType::Socket, 0o700, 0);
    fails(env.try_open("socket", OFlags::RDONLY), Errno::NXIO);
}

fn character_device(env: &Env) {
    let device = rustix::fs::makedev(1, 3);
    mknod(&env.path("null"), FileType::CharacterDevice, 0o600, device).unwrap();
    is_node(env, "null", FileType::CharacterDevice, 0o600, device);
}

fn block_device(env: &Env) {
    let device = rustix::fs::makedev(7, 250);
    mknod(&env.path("loop"), FileType::BlockDevice, 0o600, device).unwrap();
    is_node(env, "loop", FileType::BlockDevice, 0o600, device);
}

fn regular_file(env: &Env) {
    mknod(&env.path("file"), FileType::RegularFile, 0o640, 0).unwrap();
    is_node(env, "file", FileType::RegularFile, 0o640, 0);
    fs::write(env.path("file"), "content").unwrap();
    env.agree("file");
}

fn devices_need_privilege(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| {
        let device = rustix::fs::makedev(1, 3);
        fails(
            mknod(&dir.join("c"), FileType::CharacterDevice, 0o600, device),
            Errno::PERM,
        );
        fails(
            mknod(&dir.join("b"), FileType::BlockDevice, 0o600, device),
            Errno::PERM,
        );
        mknod(&dir.join("fifo"), FileType::Fifo, 0o600, 0).unwrap();
        mknod(&dir.join("socket"), FileType::Socket, 0o600, 0).unwrap();
        mknod(&dir.join("file"), FileType::RegularFile, 0o600, 0).unwrap();
    });
    env.absent("dir/c");
    env.absent("dir/b");
    assert_eq!(env.names("dir").len(), 3);
}

fn refuses_what_exists(env: &Env) {
    env.file("file", "");
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    fails(
        mknod(&env.path("file"), FileType::Fifo, 0o600, 0),
        Errno::EXIST,
    );
    fails(
        mknod(&env.path("link"), FileType::RegularFile, 0o600, 0),
        Errno::EXIST,
    );
}

fn large_device_numbers(env: &Env) {
    // 12 bits of major and 20 of minor are what the kernel keeps.
    let device = rustix::fs::makedev(0xabc, 0xf_edcb);
    mknod(&env.path("big"), FileType::CharacterDevice, 0o600, device).unwrap();
    is_node(env, "big", FileType::CharacterDevice, 0o600, device);
}

fn socket_connects(env: &Env) {
    // Through a descriptor's path, as a socket address has room for 107 bytes only.
    let dir = env.open("", OFlags::PATH | OFlags::DIRECTORY);
    let number = std::os::fd::AsRawFd::as_raw_fd(&dir);
    let path = format!("/proc/thread-self/fd/{number}/s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    let mut buffer = [0; 5];
    server.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"hello");
    env.agree("s");
}
