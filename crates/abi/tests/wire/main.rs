//! What is on the wire: the kernel's own structs and numbers, what comes in, and what must not.
#![allow(clippy::unwrap_used)]

mod hostile;
mod known_faults;
mod layout;
mod requests;
mod samples;
