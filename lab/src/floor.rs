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

use std::path::Path;
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
        "dev" => dev::serve(Path::new(point)),
        "uring" => uring::serve(Path::new(point)),
        _ => Err(format!("floor {transport}: dev, uring")),
    }
}
