//! Both ways of behaving, with the test as the back end.

mod as_qemu;
mod as_specified;
pub(crate) mod back_end;
pub(crate) mod common;
mod handshake;
