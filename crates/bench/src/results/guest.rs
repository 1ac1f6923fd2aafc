//! What `cargo xtask vm-bench` has found in a guest, as it keeps it.

use super::{Ending, FORMAT, Machine, Results};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A run in a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestRun {
    /// What belongs beside the figures, by name: `guest`, `lower`, `cache`, `with`, `seconds`, `commit`,
    /// `host_kernel`, `date`.
    #[serde(flatten)]
    pub about: BTreeMap<String, String>,
    /// What was measured.
    pub rows: Vec<GuestRow>,
}

/// A kind of work in a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestRow {
    /// `randread-psync-4`: what, by which engine, by how many jobs; or `linux-6.1-no-rseq-2`.
    #[serde(rename = "row")]
    pub name: String,
    /// What the figures are: `/s`, `KiB/s`.
    pub unit: String,
    /// By contestant: one of each round. The nth of all were measured one after the other.
    #[serde(flatten)]
    pub values: BTreeMap<String, Vec<f64>>,
}

impl GuestRun {
    /// Reads what vm-bench keeps.
    ///
    /// # Errors
    ///
    /// As a text, for a file that cannot be read or is no such file.
    pub fn read(file: &Path) -> Result<GuestRun, String> {
        let failed = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        GuestRun::parse(&text).map_err(failed)
    }

    /// The same from its text.
    ///
    /// # Errors
    ///
    /// As a text, for what is of another form.
    pub fn parse(text: &str) -> Result<GuestRun, String> {
        serde_json::from_str(text).map_err(|error| format!("no results of a guest: {error}"))
    }
}

impl GuestRow {
    /// What one of them did, by round.
    #[must_use]
    pub fn of(&self, contestant: &str) -> Option<&[f64]> {
        self.values.get(contestant).map(Vec::as_slice)
    }

    /// Of a name as `linux-6.1-rseq-2`, the kernel's version.
    #[must_use]
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let version = self.name.strip_prefix("linux-")?.split('-').next()?;
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

impl Results {
    /// Of a run that took place in guests alone, on a machine of which nothing is known.
    #[must_use]
    pub fn of_guests(suite: &str, guests: Vec<GuestRun>) -> Results {
        Results {
            format: FORMAT,
            suite: suite.to_owned(),
            command: Vec::new(),
            started: 0,
            seconds: 0.0,
            ending: Ending::Complete,
            machine: Machine::default(),
            contestants: Vec::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            remarks: Vec::new(),
            guests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GuestRun;
    use std::path::Path;

    #[test]
    fn other_files_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"rows": [1]}"#,
            r#"{"rows": [{"row": 1}]}"#,
            r#"{"rows": [{"row": "stat", "unit": "/s", "thrufs": ["many"]}]}"#,
        ] {
            assert!(GuestRun::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_run_in_a_guest_among_the_results_is_one() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
        let mut read = 0;
        for entry in std::fs::read_dir(results).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_one = name.contains("-guest-") || name.contains("-open1-");
            if is_one && name.ends_with(".json") {
                let run = GuestRun::read(&path).unwrap();
                assert!(!run.rows.is_empty() && run.about.contains_key("guest"));
                read += 1;
            }
        }
        assert!(read >= 4, "{read}");
    }
}
