//! The table of options.

mod server;
mod share;
mod using;

use super::row::MountOption;
use std::sync::LazyLock;

/// In the order of the manual within each group.
pub(crate) static OPTIONS: LazyLock<Vec<MountOption>> = LazyLock::new(|| {
    let files = [using::SECTIONS, share::SECTIONS, server::SECTIONS];
    files.concat().concat()
});
