//! One file that takes 5 ms to read, served by several libraries, and many threads that read it at once:
//! `bench/late.py` runs both.
//!
//!     thrufs-bench-late SERVER MOUNTPOINT
//!     thrufs-bench-late read FILE READS ROUNDS

mod client;
mod file;
mod fractal;
mod fuse3;
mod fuser;
mod thrufs;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["read", file, reads, rounds] => {
            client::read(file, reads.parse().unwrap(), rounds.parse().unwrap());
        }
        ["thrufs-async", target] => thrufs::serve_async(target),
        ["thrufs-late", target] => thrufs::serve_late(target),
        ["fuser-threads", target] => fuser::serve(target),
        ["fuse3", target] => fuse3::serve(target),
        ["fractal-fuse", target] => fractal::serve(target),
        _ => panic!("see the first lines of main.rs"),
    }
}
