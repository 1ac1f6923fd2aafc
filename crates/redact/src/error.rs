//! Why a file is refused.

use std::io;

/// Why there is no plan for a file.
#[derive(Debug, thiserror::Error)]
pub enum RedactError {
    /// The file may name a place, but is not understood. It is refused.
    #[error("metadata not understood: {0}")]
    Unparsable(&'static str),
    /// The file could not be read.
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
}

pub(super) type Result<T, E = RedactError> = std::result::Result<T, E>;

pub(super) fn refuse<T>(why: &'static str) -> Result<T> {
    Err(RedactError::Unparsable(why))
}

/// Refuses the file unless this holds.
pub(super) fn ensure(holds: bool, why: &'static str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => refuse(why),
    }
}
