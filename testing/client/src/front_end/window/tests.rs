//! Both ways of behaving, with the test as the back end.

mod as_qemu;
mod as_specified;
mod back_end;
mod common;
mod handshake;
