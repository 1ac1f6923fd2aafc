//! Sets up the file systems to measure on, and starts every target there. A target that cannot start is
//! recorded with its reason.

use super::record::Record;
use crate::Outcome;
use crate::isolation::{self, Privileges};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::setup::TargetSetup;
use crate::target::{Place, RunningTarget, directory};
use std::path::PathBuf;

/// A directory on a file system beneath, and the targets that show it.
pub(super) struct TestDirectory {
    /// Its type.
    pub(super) lower: String,
    /// Native first.
    pub(super) targets: Vec<RunningTarget>,
}

/// Starts every target on every file system. One that cannot start is recorded, with the reason.
///
/// # Errors
///
/// A file system that cannot be made; no target besides native.
pub(super) fn set_up(
    plan: &Plan,
    privileges: Privileges,
    jobs: u32,
    record: &mut Record,
    progress: &mut Progress,
) -> Outcome<Vec<TestDirectory>> {
    let mut test_directories = Vec::new();
    for (lower, beneath) in lowers(plan)? {
        let place = Place {
            privileges,
            beneath: directory(beneath.join("trees"))?,
            mounts: directory(plan.place().join(format!("mounts-{lower}")))?,
            scratch: plan.scratch.clone(),
            jobs: jobs as usize,
        };
        let mut targets = Vec::new();
        for setup in &plan.setups {
            progress.say(&format!("starting {} on {lower}", setup.name()), None);
            match RunningTarget::start(setup, &place) {
                Ok(target) => targets.push(target),
                Err(why) if *setup == TargetSetup::Native => return Err(why),
                Err(why) => {
                    progress.line(&format!("{} does not take part: {why}", setup.name()));
                    record.absent(setup.name(), &why);
                }
            }
        }
        test_directories.push(TestDirectory { lower, targets });
    }
    if test_directories
        .iter()
        .all(|test_directory| test_directory.targets.len() < 2)
    {
        let reasons = record.reasons().join("\n");
        return Err(format!("no target to compare with:\n{reasons}"));
    }
    Ok(test_directories)
}

/// The file systems beneath, and where they are.
fn lowers(plan: &Plan) -> Outcome<Vec<(String, PathBuf)>> {
    let place = plan.place();
    if plan.lowers.is_empty() {
        let kind = isolation::kind(&place).unwrap_or_else(|| "unknown".to_owned());
        return Ok(vec![(kind, place)]);
    }
    let lowers = plan.lowers.iter();
    lowers
        .map(|lower| Ok((lower.name().to_owned(), lower.set_up(&place)?)))
        .collect()
}
