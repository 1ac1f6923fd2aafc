//! What is said of a draft at the end of a run.

use super::change::{Change, Kind};
use super::changes::record_bases;
use super::{Draft, DraftError, DraftPlace, Drafts};
use crate::lookup;
use crate::output::{report, report_surely};
use rustix::fs::FileType;
use serde::Serialize;

impl Draft {
    /// Removes it if it changes nothing, which is said unless `is_quiet`; otherwise records what the tree has in the
    /// place of its changes, and says what there is, and what can be done with it. With `json` in an object on a line of
    /// its own.
    ///
    /// # Errors
    ///
    /// It is not where it was, or cannot be compared with its tree.
    pub(crate) fn end(
        self,
        drafts: &Drafts,
        place: &DraftPlace,
        (is_quiet, json): (bool, bool),
    ) -> Result<(), DraftError> {
        let name = self.name.clone();
        let found = lookup::path_of(self.directory());
        if !found.is_ok_and(|it| it == self.path()) {
            // It is covered in the sandbox, but a directory above may be renamed.
            return Err(DraftError::Moved(self.path().to_owned()));
        }
        let changes = record_bases(&self)?;
        let summary = Summary::of(&name, &changes);
        let is_empty = changes.iter().all(|it| it.kind == Kind::Same);
        if is_empty {
            drafts.discard_held(self)?;
        }
        if json && let Ok(text) = serde_json::to_string(&summary) {
            let _ = report_surely(&format!("{{\"draft\":{text}}}\n"));
        } else if !is_empty {
            report(format_args!("thrufs: the draft {name}: {}", summary.text()));
            let several = drafts.names()?.len() > 1;
            let option = several.then(|| format!(" --draft={name}"));
            let directory = place.draft_dir.as_ref();
            let directory = directory.map(|it| format!(" --draft-dir={}", it.display()));
            let options = option.unwrap_or_default() + &directory.unwrap_or_default();
            report(format_args!(
                "thrufs: next: `thrufs draft diff{options}`, `thrufs draft apply{options}` or `thrufs draft \
                 discard{options}`"
            ));
        } else if !is_quiet {
            report(format_args!(
                "thrufs: nothing was changed; the draft {name} is removed"
            ));
        }
        Ok(())
    }
}

/// Files and directories of a draft.
#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    created: usize,
    changed: usize,
    removed: usize,
    /// Of the files in the layer.
    bytes: u64,
    refused: usize,
    conflicts: usize,
}

impl Summary<'_> {
    fn of<'a>(name: &'a str, changes: &[Change]) -> Summary<'a> {
        let changed = || changes.iter().filter(|it| it.kind != Kind::Same);
        let count = |kind| changed().filter(|it| it.kind == kind).count();
        let files = changed().filter(|it| it.layer_type() == Some(FileType::RegularFile));
        let is_refused = |it: &&Change| it.refused.is_some();
        Summary {
            name,
            created: count(Kind::Created),
            changed: count(Kind::Changed),
            removed: count(Kind::Removed),
            bytes: files
                .filter_map(|it| u64::try_from(it.layer?.st_size).ok())
                .sum(),
            refused: changed().filter(is_refused).count(),
            conflicts: changed()
                .filter(|it| !is_refused(it) && it.conflict.is_some())
                .count(),
        }
    }

    /// `2 created, 1 changed, 1 removed; 12 KiB; 1 refused by the rules`
    fn text(&self) -> String {
        let counted = |all: &[(usize, &str)]| -> Vec<String> {
            let some = all.iter().filter(|(count, _)| *count > 0);
            some.map(|(count, what)| format!("{count} {what}"))
                .collect()
        };
        let kinds = counted(&[
            (self.created, "created"),
            (self.changed, "changed"),
            (self.removed, "removed"),
        ]);
        let left = counted(&[
            (self.refused, "refused by the rules"),
            (self.conflicts, "in conflict with the tree"),
        ]);
        [vec![kinds.join(", "), size(self.bytes)], left]
            .concat()
            .join("; ")
    }
}

fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (bytes >> (shift - 10)) * 10 / 1024;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}
