//! How steps of a run fail.

/// Whatever stops a run, as a text for people.
pub type Outcome<T> = Result<T, String>;
