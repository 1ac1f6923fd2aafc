//! A request, checked and with everything in it that was left to the benchmark. It goes from process to
//! process as JSON.

use crate::extension::Suite;
use crate::lower::Lower;
use crate::request::Request;
use crate::row::{self, Needs, Row};
use crate::setup::{Mode, TargetSetup};
use crate::suite;
use crate::{Outcome, machine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) suite: String,
    /// The command line, word by word.
    pub(crate) command: Vec<String>,
    /// In which the scratch folder is made; absolute.
    pub(crate) directory: PathBuf,
    /// The scratch folder's name, in `directory` and on mounts of others.
    pub(crate) scratch: String,
    /// File systems that are made for the run; of none, it is about `directory`.
    pub(crate) lowers: Vec<Lower>,
    pub(crate) rows: Vec<String>,
    /// How many processes measure at once.
    pub(crate) jobs: Vec<u32>,
    /// The command line says how many: then it is for all rows.
    pub(crate) jobs_given: bool,
    pub(crate) rounds: Option<u32>,
    pub(crate) seconds: Option<u32>,
    /// Work of a measurement, in hundredths of the usual.
    pub(crate) percent: usize,
    /// Native first.
    pub(crate) setups: Vec<TargetSetup>,
    /// The folder of the report, which is not there yet; absolute.
    pub(crate) out: PathBuf,
    /// The results of the run that this one repeats; absolute.
    pub(crate) repeats: Option<PathBuf>,
}

/// A row by so many processes.
#[derive(Clone, Copy)]
pub(crate) struct PlannedRow {
    pub(crate) row: &'static Row,
    pub(crate) jobs: u32,
}

impl PartialEq for PlannedRow {
    fn eq(&self, other: &PlannedRow) -> bool {
        (self.row.name, self.jobs) == (other.row.name, other.jobs)
    }
}

/// How the scratch folder's name begins.
pub(crate) const SCRATCH: &str = ".thrufs-bench-";

impl Plan {
    /// What a request means.
    ///
    /// # Errors
    ///
    /// What makes no sense, or is not there.
    pub(crate) fn of(request: &Request) -> Outcome<Plan> {
        let suite = suite::named(&request.suite)?;
        let lowers = lowers(request, suite)?;
        let setups = setups(request, suite)?;
        let rows = match request.rows.as_deref().unwrap_or(suite.rows) {
            "" => Vec::new(),
            names => row::listed(names)?,
        };
        let directory = if lowers.is_empty() {
            request.directory.clone()
        } else {
            std::env::temp_dir()
        };
        let random = machine::random_name()?;
        let random = random.split('-').next().unwrap_or(&random);
        let plan = Plan {
            suite: suite.name.to_owned(),
            command: request.command.clone(),
            directory: absolute(&directory)?,
            scratch: format!("{SCRATCH}{random}"),
            lowers,
            rows: rows.iter().map(|row| row.name.to_owned()).collect(),
            jobs: if request.jobs.is_empty() {
                suite.jobs.to_vec()
            } else {
                request.jobs.clone()
            },
            jobs_given: !request.jobs.is_empty(),
            rounds: rounds(request, suite),
            seconds: request.seconds.or(suite.seconds),
            percent: request.percent.unwrap_or(suite.percent) as usize,
            setups,
            out: out(request)?,
            repeats: request.repeats.as_deref().map(absolute).transpose()?,
        };
        plan.check()?;
        Ok(plan)
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

    /// What is measured in a round, in the order in which it is to be shown: the rows that can be measured
    /// on this machine.
    pub(crate) fn planned_rows(&self) -> Outcome<Vec<PlannedRow>> {
        let mut planned_rows = Vec::new();
        for name in &self.rows {
            let row = row::named(name)?;
            if row.missing().is_some() {
                continue;
            }
            let jobs = self.jobs.iter().copied();
            let jobs = jobs.filter(|&jobs| self.is_usual(row, jobs));
            planned_rows.extend(jobs.map(|jobs| PlannedRow { row, jobs }));
        }
        Ok(planned_rows)
    }

    /// Whether a row is measured by so many processes.
    fn is_usual(&self, row: &Row, jobs: u32) -> bool {
        let asks = suite::named(&self.suite).ok().and_then(|suite| suite.asks);
        match asks {
            _ if self.jobs_given => true,
            Some(asks) => asks(row.name, TargetSetup::Native.name(), jobs),
            None => row.is_usual_for(jobs as usize),
        }
    }

    /// Whether a suite measures the row at this target. Targets that the command line names have all rows.
    pub(crate) fn asks(&self, planned: PlannedRow, setup: &TargetSetup) -> bool {
        let asks = suite::named(&self.suite).ok().and_then(|suite| suite.asks);
        let is_asked =
            |asks: fn(&str, &str, u32) -> bool| asks(planned.row.name, setup.name(), planned.jobs);
        let is_named = matches!(setup, TargetSetup::Against { .. });
        self.jobs_given || is_named || asks.is_none_or(is_asked)
    }

    /// The rows that cannot, each with the reason.
    pub(crate) fn missing_rows(&self) -> Vec<String> {
        let rows = self.rows.iter().filter_map(|name| row::named(name).ok());
        rows.filter_map(|row| Some(format!("not measured: {}: {}", row.name, row.missing()?)))
            .collect()
    }

    /// What it takes. Every target keeps what its rows do not use up: a file for those that read and
    /// write the same, a tree for each of the others.
    pub(crate) fn needs(&self) -> Outcome<Needs> {
        let mut files: BTreeMap<String, u64> = BTreeMap::new();
        let (mut others, mut inodes) = (0, 0);
        for planned in self.planned_rows()? {
            let jobs = u64::from(planned.jobs);
            let needs = planned.row.needs(self.percent);
            match planned.row.kept(self.percent) {
                Some(name) => {
                    let file = files.entry(name).or_default();
                    *file = (jobs * needs.bytes).max(*file);
                }
                None => others += jobs * needs.bytes,
            }
            inodes += jobs * needs.inodes;
        }
        let targets = self.setups.len() as u64;
        Ok(Needs {
            bytes: targets * (files.values().sum::<u64>() + others),
            inodes: targets * inodes,
        })
    }

    /// Mounts of others.
    pub(crate) fn mounts_of_others(&self) -> impl Iterator<Item = &Path> {
        self.setups.iter().filter_map(|setup| match setup {
            TargetSetup::Against { point, .. } => Some(point.as_path()),
            _ => None,
        })
    }

    fn check(&self) -> Outcome<()> {
        let mut names: Vec<&str> = self.setups.iter().map(TargetSetup::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two targets are called {}", pair[0]));
        }
        if !self.lowers.is_empty() && !rustix::process::geteuid().is_root() {
            return Err(
                "only root can make file systems for the run: name a directory instead".to_owned(),
            );
        }
        if self.setups.len() < 2 {
            return Err("no target to compare with: name a mode or a mount".to_owned());
        }
        for name in &self.rows {
            let row = row::named(name)?;
            if self.jobs_given && self.jobs != [1] && row.is_alone() {
                return Err(format!("{name} is measured by one process"));
            }
        }
        Ok(())
    }
}

/// Rounds that are asked for; as many as there is time for, where time is what is asked for.
fn rounds(request: &Request, suite: &Suite) -> Option<u32> {
    match request.seconds {
        Some(_) => request.rounds,
        None => request.rounds.or(suite.rounds),
    }
}

fn lowers(request: &Request, suite: &Suite) -> Outcome<Vec<Lower>> {
    let given = !request.lowers.is_empty();
    if given && (request.directory_given || !request.against.is_empty()) {
        return Err(
            "--lower makes file systems for the run: it goes neither with a directory nor with \
             --against"
                .to_owned(),
        );
    }
    let names: Vec<&str> = if given {
        request.lowers.iter().map(String::as_str).collect()
    } else if request.directory_given {
        Vec::new()
    } else {
        suite.lowers.to_vec()
    };
    names.into_iter().map(Lower::named).collect()
}

fn setups(request: &Request, suite: &Suite) -> Outcome<Vec<TargetSetup>> {
    let mut all = vec![TargetSetup::Native];
    match suite.setups {
        Some(_) if !(request.modes.is_empty() && request.cache.is_empty()) => {
            let name = suite.name;
            return Err(format!(
                "the suite {name} has its own targets: it goes without --modes and --cache"
            ));
        }
        Some(setups) => all.extend(setups()),
        None if request.modes == ["none"] => {}
        None => {
            let modes = Mode::named(&request.modes)?;
            for mode in modes {
                if request.cache.is_empty() {
                    all.push(mode.setup(None, false));
                }
                let caches = request.cache.iter();
                all.extend(caches.map(|cache| mode.setup(Some(cache), true)));
            }
        }
    }
    for (name, point) in &request.against {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_+.:".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(good) {
            return Err(format!(
                "--against {name}=…: a name is made of letters, digits, -, _, +, : and ."
            ));
        }
        all.push(TargetSetup::Against {
            name: name.clone(),
            point: absolute(point)?,
        });
    }
    Ok(all)
}

fn out(request: &Request) -> Outcome<PathBuf> {
    let out = match &request.out {
        Some(out) => out.clone(),
        None => PathBuf::from(format!("thrufs-bench-{}", machine::date())),
    };
    let out = std::path::absolute(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let shown = out.display();
    if out.symlink_metadata().is_ok() {
        return Err(format!(
            "{shown} is there already, and nothing is overwritten: name another with --out"
        ));
    }
    let parent = out.parent().filter(|_| out.file_name().is_some());
    let parent = parent.ok_or_else(|| format!("--out {shown}: not the name of a folder"))?;
    rustix::fs::access(parent, rustix::fs::Access::WRITE_OK)
        .map_err(|error| {
            let parent = parent.display();
            format!("the report cannot be written to {parent}: {error}; name a folder with --out")
        })
        .map(|()| out.clone())
}

fn absolute(path: &Path) -> Outcome<PathBuf> {
    let path =
        std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(format!("{}: a path that is no text", path.display())),
    }
}

#[cfg(test)]
mod tests;
