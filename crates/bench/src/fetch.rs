//! What has to be there before anybody is started: programs and sources. It is fetched for the project's
//! own benchmark alone, which says where to; whatever a user's machine does not have is left out and said.

use crate::entrant::Entrant;
use crate::plan::Plan;
use crate::{Outcome, peers, row};

/// Fetches what the plan needs.
///
/// # Errors
///
/// What could not be fetched.
pub(crate) fn fetch(plan: &Plan) -> Outcome<()> {
    if std::env::var_os("PEERS").is_none() {
        return Ok(());
    }
    let is_libfuse = |entrant: &Entrant| matches!(entrant, Entrant::Libfuse(_));
    if plan.entrants.iter().any(is_libfuse) {
        peers::passthrough_hp()?;
    }
    for entrant in &plan.entrants {
        if let Entrant::Peer(name) = entrant {
            peers::install(name)?;
        }
    }
    for name in &plan.rows {
        row::named(name)?.fetch()?;
    }
    Ok(())
}
