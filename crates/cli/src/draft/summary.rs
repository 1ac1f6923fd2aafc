//! What is said of a draft at the end of a run.

use super::change::{Change, Kind};
use super::changes::record_bases;
use super::{Draft, DraftError, DraftPlace, Drafts};
use crate::lookup;
use crate::output::report;
use rustix::fs::FileType;

impl Draft {
    /// Removes it if it changes nothing, which is said unless `is_quiet`; otherwise records what the tree has in the
    /// place of its changes, and says what there is, and what can be done with it.
    ///
    /// # Errors
    ///
    /// It is not where it was, or cannot be compared with its tree.
    pub(crate) fn end(
        self,
        drafts: &Drafts,
        place: &DraftPlace,
        is_quiet: bool,
    ) -> Result<(), DraftError> {
        let name = self.name.clone();
        let found = lookup::path_of(self.directory());
        if !found.is_ok_and(|it| it == self.path()) {
            // It is covered in the sandbox, but a directory above may be renamed.
            return Err(DraftError::Moved(self.path().to_owned()));
        }
        let changes = record_bases(&self)?;
        if changes.iter().all(|it| it.kind == Kind::Same) {
            drafts.discard_held(self)?;
            if !is_quiet {
                report(format_args!(
                    "thrufs: nothing was changed; the draft {name} is removed"
                ));
            }
            return Ok(());
        }
        let several = drafts.names()?.len() > 1;
        report(format_args!(
            "thrufs: the draft {name}: {}",
            summary(&changes)
        ));
        report(next(&name, several, place));
        Ok(())
    }
}

/// `2 created, 1 changed, 1 removed; 12 KiB; 1 will not be applied (thrufs draft diff says why)`
fn summary(changes: &[Change]) -> String {
    let count = |is_meant: &dyn Fn(&Change) -> bool| {
        let meant = changes
            .iter()
            .filter(|it| it.kind != Kind::Same && is_meant(it));
        meant.count()
    };
    let kinds = [
        (Kind::Created, "created"),
        (Kind::Changed, "changed"),
        (Kind::Removed, "removed"),
    ];
    let kinds = kinds.map(|(kind, what)| (count(&|it| it.kind == kind), what));
    let kinds = kinds.iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<_> = kinds
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let changed = changes.iter().filter(|it| it.kind != Kind::Same);
    let files = changed.filter(|it| it.layer_type() == Some(FileType::RegularFile));
    let bytes = files
        .filter_map(|it| u64::try_from(it.layer?.st_size).ok())
        .sum();
    let mut text = format!("{}; {}", kinds.join(", "), size(bytes));
    let refused = count(&|it| it.refused.is_some());
    let conflicts = count(&|it| it.refused.is_none() && it.conflict.is_some());
    for (count, what) in [
        (refused, "refused by the rules"),
        (conflicts, "in conflict with the tree"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    text
}

fn next(name: &str, is_named: bool, place: &DraftPlace) -> String {
    let directory = place.draft_dir.as_ref();
    let directory = directory.map(|it| format!(" --draft-dir={}", it.display()));
    let directory = directory.unwrap_or_default();
    let (option, argument) = match is_named {
        true => (format!(" --draft={name}"), format!(" {name}")),
        false => Default::default(),
    };
    format!(
        "thrufs: next: `thrufs draft diff{option}{directory}`, `thrufs draft apply{option}{directory}` or \
         `thrufs draft discard{argument}{directory}`"
    )
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
