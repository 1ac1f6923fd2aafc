//! The file systems beneath, and who shows them.

use super::directory;
use super::record::Record;
use crate::Outcome;
use crate::contestant::{Contestant, Place};
use crate::entrant::Entrant;
use crate::ground::{self, Ground};
use crate::plan::Plan;
use crate::progress::Progress;
use std::path::PathBuf;

/// A file system beneath, with those who show it.
pub(super) struct Arena {
    /// Its type.
    pub(super) lower: String,
    /// Native first.
    pub(super) contestants: Vec<Contestant>,
}

/// Starts everybody on every file system. Who cannot take part is recorded, with the reason.
///
/// # Errors
///
/// A file system that cannot be made; nobody to compare with.
pub(super) fn set_up(
    plan: &Plan,
    ground: Ground,
    jobs: u32,
    record: &mut Record,
    progress: &mut Progress,
) -> Outcome<Vec<Arena>> {
    let mut arenas = Vec::new();
    for (lower, beneath) in lowers(plan)? {
        let place = Place {
            ground,
            beneath: directory(beneath.join("trees"))?,
            mounts: directory(plan.place().join(format!("mounts-{lower}")))?,
            scratch: plan.scratch.clone(),
            jobs: jobs as usize,
        };
        let mut contestants = Vec::new();
        for entrant in &plan.entrants {
            progress.say(&format!("starting {} on {lower}", entrant.name()), None);
            match Contestant::start(entrant, &place) {
                Ok(contestant) => contestants.push(contestant),
                Err(why) if *entrant == Entrant::Native => return Err(why),
                Err(why) => {
                    progress.line(&format!("{} does not take part: {why}", entrant.name()));
                    record.absent(entrant.name(), &why);
                }
            }
        }
        arenas.push(Arena { lower, contestants });
    }
    if arenas.iter().all(|arena| arena.contestants.len() < 2) {
        let reasons = record.reasons().join("\n");
        return Err(format!("there is nobody to compare with:\n{reasons}"));
    }
    Ok(arenas)
}

/// The file systems beneath, and where they are.
fn lowers(plan: &Plan) -> Outcome<Vec<(String, PathBuf)>> {
    let place = plan.place();
    if plan.lowers.is_empty() {
        let kind = ground::kind(&place).unwrap_or_else(|| "unknown".to_owned());
        return Ok(vec![(kind, place)]);
    }
    let lowers = plan.lowers.iter();
    lowers
        .map(|lower| Ok((lower.name().to_owned(), lower.set_up(&place)?)))
        .collect()
}
