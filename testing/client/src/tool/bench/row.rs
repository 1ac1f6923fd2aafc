//! The operations that are measured.

use crate::tool::ToolError;

/// Twice the largest READ or WRITE of any row.
pub(crate) const LARGEST_TRANSFER: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Getattr,
    /// One LOOKUP of a name that the server has seen.
    Lookup,
    OpenRelease,
    /// CREATE, RELEASE, UNLINK and FORGET of a file.
    CreateUnlink,
    /// One entry of a listing with attributes, from OPENDIR to RELEASEDIR.
    Readdirplus,
    /// A READ of so many bytes at a random offset.
    RandomRead(u32),
    /// A WRITE of so many bytes at a random offset.
    RandomWrite(u32),
    /// A sequential READ of so many bytes.
    SequentialRead(u32),
    /// A sequential WRITE of so many bytes.
    SequentialWrite(u32),
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Operations in flight on each queue.
    pub(crate) depth: usize,
}

impl Row {
    pub(crate) fn bytes(&self) -> u64 {
        match self.kind {
            Kind::RandomRead(bytes)
            | Kind::RandomWrite(bytes)
            | Kind::SequentialRead(bytes)
            | Kind::SequentialWrite(bytes) => bytes.into(),
            _ => 0,
        }
    }
}

const fn row(name: &'static str, kind: Kind, depth: usize) -> Row {
    Row { name, kind, depth }
}

const SMALL: u32 = 4 << 10;
const MIDDLE: u32 = 128 << 10;
const LARGE: u32 = 1 << 20;

/// Sequential READs in flight, as with the readahead of a guest.
const AHEAD: usize = 2;

pub(crate) const ROWS: &[Row] = &[
    row("getattr", Kind::Getattr, 1),
    row("getattr-d16", Kind::Getattr, 16),
    row("lookup", Kind::Lookup, 1),
    row("lookup-d16", Kind::Lookup, 16),
    row("open-release", Kind::OpenRelease, 1),
    row("create-unlink", Kind::CreateUnlink, 1),
    row("readdirplus", Kind::Readdirplus, 1),
    row("random-read-4k-d1", Kind::RandomRead(SMALL), 1),
    row("random-read-4k-d16", Kind::RandomRead(SMALL), 16),
    row("random-read-4k-d64", Kind::RandomRead(SMALL), 64),
    row("random-write-4k-d1", Kind::RandomWrite(SMALL), 1),
    row("random-write-4k-d16", Kind::RandomWrite(SMALL), 16),
    row("random-write-4k-d64", Kind::RandomWrite(SMALL), 64),
    row("read-128k", Kind::SequentialRead(MIDDLE), AHEAD),
    row("read-1m", Kind::SequentialRead(LARGE), AHEAD),
    row("write-128k", Kind::SequentialWrite(MIDDLE), AHEAD),
    row("write-1m", Kind::SequentialWrite(LARGE), AHEAD),
];

/// The names of all rows of `bench`.
#[must_use]
pub fn row_names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// The rows with these names or prefixes; all if none is given.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Row>, ToolError> {
    let is_meant = |row: &Row, name: &String| row.name.starts_with(name.as_str());
    if let Some(name) = names
        .iter()
        .find(|name| !ROWS.iter().any(|row| is_meant(row, name)))
    {
        return Err(ToolError::Usage(format!(
            "there is no row `{name}`; there are {}",
            row_names().join(", ")
        )));
    }
    let rows = ROWS.iter();
    Ok(rows
        .filter(|row| names.is_empty() || names.iter().any(|name| is_meant(row, name)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_by_prefix() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(chosen(&[]).unwrap().len(), ROWS.len());
        let two = chosen(&names(&["getattr"])).unwrap();
        assert_eq!(two.len(), 2);
        assert!(chosen(&names(&["getattr", "nothing"])).is_err());
    }

    #[test]
    fn every_row_fits_the_test_directory() {
        assert!(ROWS.iter().all(|row| row.bytes() <= LARGEST_TRANSFER));
    }
}
