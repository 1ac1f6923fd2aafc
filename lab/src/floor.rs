//! The floor: a server that answers every request from constants. Its time for an operation is the
//! price of the protocol: what no server can be cheaper than that gets the same requests.
//!
//! It is one thread, on the processor of the client: a request then costs two switches between
//! processes and no waking of an idle processor, which costs more and varies. Of several clients,
//! each has a floor of its own on a processor of its own, so that they share nothing either.
//!
//! [`answers`] has what is answered and knows no transport; [`dev`] carries it over `/dev/fuse`,
//! [`uring`] over io_uring.

mod answers;
mod dev;
mod uring;

#[cfg(test)]
mod counted_tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thrufs::mount::{MountOptions, mount, open_device};
use thrufs_bench::Outcome;
use thrufs_bench::measurement::stay_on;

/// `floor TRANSPORT PROCESSOR MOUNTPOINT`: serves until it is unmounted.
pub(crate) fn serve_here(arguments: &[String]) -> Outcome<()> {
    let [transport, processor, point] = arguments else {
        return Err("floor TRANSPORT PROCESSOR MOUNTPOINT".to_owned());
    };
    // Before there is another thread: all of them stay there.
    let number = processor.parse();
    stay_on(number.map_err(|_| "PROCESSOR is a number".to_owned())?)?;
    match transport.as_str() {
        "dev" => serve(Path::new(point), dev::answer_all),
        "uring" => serve(Path::new(point), uring::answer_all),
        _ => Err(format!("floor {transport}: dev, uring")),
    }
}

/// Mounts on `point` and serves until it is unmounted.
fn serve(point: &Path, answer_all: fn(&OwnedFd) -> io::Result<()>) -> Outcome<()> {
    let (device, _) = open_device().map_err(|error| error.to_string())?;
    let served = device.try_clone().map_err(|error| error.to_string())?;
    // The mount call may wait until INIT is answered.
    let serving = std::thread::spawn(move || answer_all(&served));
    let options = MountOptions::new("thrufs-floor");
    mount(device.as_fd(), point, &options).map_err(|error| error.to_string())?;
    drop(device);
    serving
        .join()
        .map_err(|_| "the floor panicked".to_owned())?
        .map_err(|error| format!("the floor: {error}"))
}
