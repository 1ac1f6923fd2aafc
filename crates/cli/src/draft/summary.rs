//! What is said of a draft at the end of a run.

use super::{Draft, DraftError, Drafts};
use crate::error::system_at;
use crate::lookup;
use crate::output::report;
use rustix::fs::Dir;

impl Draft {
    /// Removes it if there is nothing in it; otherwise says what there is.
    pub(crate) fn end(self, drafts: &Drafts) -> Result<(), DraftError> {
        let name = self.name.clone();
        let found = lookup::path_of(self.directory());
        if !found.as_deref().is_ok_and(|it| it == self.path()) {
            // It is covered in the sandbox, but a directory above may be renamed.
            return Err(DraftError::Moved(self.path().to_owned()));
        }
        if self.is_empty()? {
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

    fn is_empty(&self) -> Result<bool, DraftError> {
        let is_empty = || -> rustix::io::Result<bool> {
            let upper = self.upper_or_errno()?;
            Ok(Dir::new(upper)?.filter_map(Result::ok).count() == 2)
        };
        Ok(is_empty().map_err(system_at("read the layer of", self.path()))?)
    }
}
