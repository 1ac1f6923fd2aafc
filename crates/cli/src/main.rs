//! The `thrufs` command.
fn main() {}
