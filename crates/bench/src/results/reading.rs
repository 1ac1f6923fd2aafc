//! Reads and writes `results.json`, and says what is wrong with a file that is none.

use super::{FORMAT, Results};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a file is not one of results.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not JSON, or lacks something.
    #[error("{}: these are not results of a run: {source}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// It is of another form than [`FORMAT`].
    #[error("{}: results of form {found}, and this program reads form {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
    },
}

/// What every form has in common.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl Results {
    /// Reads what [`to_json`](Self::to_json) has made.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, or is of another form.
    pub fn read(path: &Path) -> Result<Results, ReadError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        let form = |source| ReadError::Form {
            path: path.to_owned(),
            source,
        };
        // The number first: of another form, nothing else need be as it is here.
        let Head { format } = serde_json::from_str(&text).map_err(form)?;
        if format != FORMAT {
            return Err(ReadError::Format {
                path: path.to_owned(),
                found: format,
            });
        }
        serde_json::from_str(&text).map_err(form)
    }

    /// As JSON: a line for each target, row and cell, so that it is short and versions can be compared.
    ///
    /// # Errors
    ///
    /// None that is known of: a figure that JSON cannot express is one that no clock shows.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let one = |name: &str, value: String| format!("\"{name}\": {value}");
        let parts = [
            one("format", json(&self.format)?),
            one("suite", json(&self.suite)?),
            one("command", json(&self.command)?),
            one("started", json(&self.started)?),
            one("seconds", json(&self.seconds)?),
            one("ending", json(&self.ending)?),
            one("machine", json(&self.machine)?),
            one("contestants", lines(&self.targets)?),
            one("rows", lines(&self.rows)?),
            one("cells", lines(&self.cells)?),
            one("remarks", lines(&self.remarks)?),
        ];
        Ok(format!("{{\n{}\n}}\n", parts.join(",\n")))
    }
}

fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value)
}

/// A list with a line for each.
fn lines(values: &[impl Serialize]) -> serde_json::Result<String> {
    if values.is_empty() {
        return Ok("[]".to_owned());
    }
    let values = values.iter().map(json).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]", values.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::ReadError;
    use crate::report::sample;
    use crate::results::Results;

    #[test]
    fn results_survive_writing_and_reading() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        let results = sample::usual();
        std::fs::write(&path, results.to_json().unwrap()).unwrap();
        assert_eq!(Results::read(&path).unwrap(), results);
    }

    #[test]
    fn other_forms_are_refused_by_their_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        std::fs::write(&path, "{\"format\":2,\"what\":[]}").unwrap();
        let refused = Results::read(&path).unwrap_err();
        assert!(matches!(refused, ReadError::Format { found: 2, .. }));
        // The form before had no number.
        std::fs::write(&path, "{\"rounds\":5,\"series\":[]}").unwrap();
        let refused = Results::read(&path).unwrap_err();
        assert!(matches!(refused, ReadError::Form { .. }), "{refused}");
        let nowhere = Results::read(&directory.path().join("none")).unwrap_err();
        assert!(matches!(nowhere, ReadError::Io { .. }));
    }
}
