//! Patterns of names.

use globset::{Error, Glob, GlobSet, GlobSetBuilder};

/// Compiles patterns of names.
pub(crate) fn compile(patterns: &[String]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern)?);
    }
    set.build()
}
