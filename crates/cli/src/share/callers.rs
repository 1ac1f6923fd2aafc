//! The threads of a front end, for pairing, opened for the worker, which cannot see them.
//!
//! The files show how a thread is scheduled, which every user may read, and lead nowhere else.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::sockopt::socket_peercred;
use std::os::fd::{BorrowedFd, OwnedFd};
use thrufs_virtio::CALLERS_MAX;

/// `stat` and `schedstat` of each thread of the peer. Empty on failure, which costs only speed.
pub(super) fn open(stream: BorrowedFd<'_>) -> Vec<OwnedFd> {
    let Ok(peer) = socket_peercred(stream) else {
        return Vec::new();
    };
    let tasks = format!("/proc/{}/task", peer.pid.as_raw_nonzero());
    let Ok(entries) = std::fs::read_dir(&tasks) else {
        return Vec::new();
    };
    let files = |thread: std::fs::DirEntry| {
        let open = |file| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(CWD, thread.path().join(file), flags, Mode::empty()).ok()
        };
        Some([open("stat")?, open("schedstat")?])
    };
    let threads = entries.filter_map(Result::ok).filter_map(files);
    threads.take(CALLERS_MAX).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn files_of_the_peer_s_threads_are_opened() {
        let (one, _other) = UnixStream::pair().unwrap();
        let files = open(one.as_fd());
        assert!(files.len() >= 4 && files.len() <= 2 * CALLERS_MAX);
        let mut ours = 0;
        for pair in files.chunks(2) {
            let mut bytes = [0; 64];
            let length = rustix::io::read(&pair[0], &mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let number = text.split(' ').next().unwrap();
            ours += usize::from(
                std::path::Path::new("/proc/self/task")
                    .join(number)
                    .exists(),
            );
            assert!(text.contains('('), "its name: {text}");
            let mut bytes = [0; 64];
            let length = rustix::io::read(&pair[1], &mut bytes).unwrap();
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            assert_eq!(text.split_whitespace().count(), 3, "{text}");
        }
        assert!(ours >= 2, "of this process, which has made both ends");
    }

    #[test]
    fn opened_threads_are_limited() {
        let (one, _other) = UnixStream::pair().unwrap();
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(CALLERS_MAX + 2));
        let threads: Vec<_> = (0..=CALLERS_MAX)
            .map(|_| {
                let barrier = std::sync::Arc::clone(&barrier);
                std::thread::spawn(move || {
                    barrier.wait();
                    barrier.wait();
                })
            })
            .collect();
        barrier.wait();
        let files = open(one.as_fd());
        barrier.wait();
        assert_eq!(files.len(), 2 * CALLERS_MAX);
        threads.into_iter().for_each(|it| it.join().unwrap());
    }
}
