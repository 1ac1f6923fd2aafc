//! What is said of a draft at the end of a run.

use super::changes::{Kind, record_bases};
use super::{Draft, DraftError, Drafts};
use crate::lookup;
use crate::output::report;
use std::time::SystemTime;

impl Draft {
    /// Removes it if nothing is changed, after a run that began at `since`; otherwise says what there is.
    pub(crate) fn end(self, drafts: &Drafts, since: SystemTime) -> Result<(), DraftError> {
        let name = self.name.clone();
        let found = lookup::path_of(self.directory());
        if !found.as_deref().is_ok_and(|it| it == self.path()) {
            // It is covered in the sandbox, but a directory above may be renamed.
            return Err(DraftError::Moved(self.path().to_owned()));
        }
        let changes = record_bases(&self, Some(since))?;
        if changes.iter().all(|change| change.kind == Kind::Same) {
            drafts.discard_held(self)?;
            report(format_args!(
                "thrufs: nothing was changed; the draft {name} is removed"
            ));
            return Ok(());
        }
        report(format_args!(
            "thrufs: the draft {name} waits: `thrufs draft diff`, `thrufs draft apply`, `thrufs draft discard`"
        ));
        Ok(())
    }
}
