//! mknod: devices, fifos, sockets.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    fifo: "fifo fifo 622; is fifo type fifo mode 600",
    fifo_carries_data_between_descriptors:
        "fifo fifo; open @f fifo rw,nonblock; write @f through the pipe;
         read @f through the pipe; EAGAIN read @f",
    socket: "node socket socket 700; is socket type socket mode 700 rdev 0 0; ENXIO open socket r",
    character_device: "node null char 600 1 3; is null type char mode 600 rdev 1 3",
    block_device: "node loop block 600 7 250; is loop type block mode 600 rdev 7 250",
    regular_file: "node file file 640; is file type file mode 640 rdev 0 0; file file content",
    devices_need_privilege:
        "shared dir; alice: EPERM node dir/c char 600 1 3; alice: EPERM node dir/b block 600 1 3;
         alice: fifo dir/fifo; alice: node dir/{socket,file} {socket,file} 600; absent dir/{b,c};
         is dir names fifo file socket",
    refuses_what_exists:
        "file file; symlink nowhere link; EEXIST fifo file; EEXIST node link file 600",
    large_device_numbers [NotXfs]:
        "node big char 600 2748 1043915; is big type char mode 600 rdev 2748 1043915",
    socket_connects,
};

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
