//! What is to be done. It goes from process to process as JSON.

use crate::machine;
use crate::outcome::Outcome;
use crate::row::{Row, list};
use crate::target::Setup;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The command line, word by word.
    pub(crate) command: Vec<String>,
    /// In which the scratch folder is made; absolute.
    pub(crate) directory: PathBuf,
    /// The scratch folder's name, in `directory` and on mounts of others.
    pub(crate) scratch: String,
    pub(crate) rows: Vec<String>,
    /// How many processes measure at once, in every row; where there is none, each row says it.
    pub(crate) jobs: Vec<u32>,
    /// Work of a measurement, in hundredths of the usual.
    pub(crate) percent: Option<u32>,
    pub(crate) rounds: Option<u32>,
    pub(crate) seconds: u32,
    /// Native first.
    pub(crate) setups: Vec<Setup>,
    /// The folder of the report, which is not there yet; absolute.
    pub(crate) out: PathBuf,
    /// The results of an earlier run; absolute.
    pub(crate) compare: Option<PathBuf>,
}

/// A row by so many processes.
#[derive(Clone, Copy)]
pub(crate) struct PlannedRow {
    pub(crate) row: &'static Row,
    pub(crate) jobs: u32,
}

impl PlannedRow {
    /// For people.
    pub(crate) fn label(self) -> String {
        crate::report::label(self.row.name, self.jobs)
    }
}

/// How the scratch folder's name begins.
pub(crate) const SCRATCH: &str = ".thrufs-bench-";
/// Place that all rows take at a target, for each process and each percent of the work: at once, the file of 256 MiB,
/// kept trees, and what a row makes anew; and what is the same for all work.
const BYTES_OF_PERCENT: u64 = 7 << 20;
const BYTES_OF_RUN: u64 = 64 << 20;
/// Where the command line names none, and the directory is not slow.
pub(crate) const PERCENT: u32 = 50;

/// A name for a scratch folder.
pub(crate) fn scratch_name() -> Outcome<String> {
    let random = machine::random_name()?;
    Ok(format!("{SCRATCH}{}", &random[..8.min(random.len())]))
}

/// Where the report goes.
pub(crate) fn out(given: Option<PathBuf>) -> Outcome<PathBuf> {
    let out = given.unwrap_or_else(|| format!("thrufs-bench-{}", machine::date()).into());
    let out = std::path::absolute(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let shown = out.display();
    if out.symlink_metadata().is_ok() {
        return Err(format!(
            "{shown} is there already, and nothing is overwritten: name another with --out"
        ));
    }
    let parent = out.parent().filter(|_| out.file_name().is_some());
    let parent = parent.ok_or_else(|| format!("--out {shown}: not the name of a folder"))?;
    match rustix::fs::access(parent, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(out),
        Err(error) => Err(format!(
            "the report cannot be written to {}: {error}; name a folder with --out",
            parent.display()
        )),
    }
}

impl Plan {
    /// With absolute paths.
    pub(crate) fn checked(mut self) -> Outcome<Plan> {
        self.directory = absolute(&self.directory)?;
        self.compare = self.compare.as_deref().map(absolute).transpose()?;
        for setup in &mut self.setups {
            if let Setup::Against { point, .. } = setup {
                *point = absolute(point)?;
            }
        }
        let mut names: Vec<String> = self.setups.iter().map(Setup::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two targets are called {}", pair[0]));
        }
        match names.len() {
            1 => Err("no target to compare with: name a mode or a mount".to_owned()),
            _ => Ok(self),
        }
    }

    /// As another process has written it.
    pub(crate) fn parse(text: &str) -> Outcome<Plan> {
        serde_json::from_str(text).map_err(|error| format!("not a plan: {error}"))
    }

    /// For another process.
    pub(crate) fn text(&self) -> Outcome<String> {
        // Paths that are no text have no JSON.
        serde_json::to_string(self).map_err(|error| format!("cannot write the plan: {error}"))
    }

    /// The scratch folder.
    pub(crate) fn place(&self) -> PathBuf {
        self.directory.join(&self.scratch)
    }

    /// Where the report is written before it gets its name.
    pub(crate) fn unfinished_out(&self) -> PathBuf {
        self.out.with_file_name(format!("{}-report", self.scratch))
    }

    /// What is measured in a round, in the order in which it is to be shown.
    pub(crate) fn planned_rows(&self) -> Outcome<Vec<PlannedRow>> {
        let mut planned = Vec::new();
        for name in &self.rows {
            let row = list::by_name(name)?;
            let jobs = match &self.jobs[..] {
                [] => row.jobs,
                given => given,
            };
            planned.extend(jobs.iter().map(|&jobs| PlannedRow { row, jobs }));
        }
        Ok(planned)
    }

    /// Bytes that it takes, at most.
    pub(crate) fn bytes(&self) -> u64 {
        let percent = self.percent.unwrap_or(PERCENT);
        let processes = self.jobs.iter().copied().max().unwrap_or(1);
        BYTES_OF_PERCENT * u64::from(percent * processes) * self.setups.len() as u64 + BYTES_OF_RUN
    }

    /// Mounts of others.
    pub(crate) fn mounts_of_others(&self) -> impl Iterator<Item = &Path> {
        self.setups.iter().filter_map(|setup| match setup {
            Setup::Against { point, .. } => Some(point.as_path()),
            _ => None,
        })
    }
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
}
