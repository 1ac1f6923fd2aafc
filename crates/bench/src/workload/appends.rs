//! Writing a new file from its start to its end.

use super::{BLOCK, Place};
use crate::clock::Clock;
use std::fs::File;
use std::io::{self, Write};

pub(crate) fn append_4k(place: &Place, clock: &mut Clock) -> io::Result<()> {
    append(BLOCK, place, clock)
}

pub(crate) fn append_1m(place: &Place, clock: &mut Clock) -> io::Result<()> {
    append(1 << 20, place, clock)
}

fn append(bytes: usize, place: &Place, clock: &mut Clock) -> io::Result<()> {
    let mut file = File::create_new(place.seen.join("new"))?;
    let buffer = vec![5; bytes];
    for _ in 0..place.operations {
        if !clock.more() {
            break;
        }
        file.write_all(&buffer)?;
    }
    Ok(())
}
