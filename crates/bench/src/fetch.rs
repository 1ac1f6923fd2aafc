//! What has to be there before anybody is started: programs and sources. It is fetched for the project's
//! own benchmark alone, which says where to; whatever a user's machine does not have is left out and said.

use crate::build::Project;
use crate::entrant::Entrant;
use crate::plan::Plan;
use crate::row::Work;
use crate::{Outcome, fio, peers};

/// Fetches what the plan needs.
///
/// # Errors
///
/// What could not be fetched.
pub(crate) fn fetch(plan: &Plan) -> Outcome<()> {
    for entrant in &plan.entrants {
        if let Entrant::Peer(name) = entrant {
            peers::install(name)?;
        }
    }
    if std::env::var_os("PEERS").is_none() {
        return Ok(());
    }
    let is_libfuse = |entrant: &Entrant| {
        matches!(
            entrant,
            Entrant::Libfuse | Entrant::LibfuseRing | Entrant::LibfuseThrough
        )
    };
    if plan.entrants.iter().any(is_libfuse) {
        peers::passthrough_hp()?;
    }
    let tasks = plan.tasks()?;
    if tasks
        .iter()
        .any(|task| matches!(task.row.work, Work::Fio(_)))
    {
        fio::install()?;
    }
    for project in [Project::C, Project::Cargo] {
        let is_it = |work: &Work| matches!(work, Work::Build(wanted) if *wanted == project);
        if tasks.iter().any(|task| is_it(&task.row.work)) {
            project.fetch()?;
        }
    }
    Ok(())
}
