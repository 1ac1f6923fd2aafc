//! What operations leave in a git directory while they are not finished (rebase, merge, cherry-pick, bisect, …): git
//! executes or applies it when it goes on with them, or gives them up.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Beginnings of names. Of the directories, all that is in them counts; the last has resolutions of conflicts, which
/// git uses anew. Not MERGE_RR, which every commit may leave, empty.
const NAMES: &str = "sequencer rebase- BISECT_ MERGE_AUTOSTASH MERGE_HEAD MERGE_MODE MERGE_MSG CHERRY_PICK_HEAD \
                     REVERT_HEAD REBASE_HEAD rr-cache";

/// `rr-cache` has one directory more.
const DEPTH_MAX: u32 = 3;
const FILES_MAX: usize = 100_000;

/// Its inode, length, and time of the last change, which no program sets.
type State = (u64, u64, i64, i64);

#[derive(Debug, Default)]
pub(super) struct Operations(BTreeMap<PathBuf, State>);

impl Operations {
    pub(super) fn in_directory(directory: &Path) -> Operations {
        let mut found = Operations::default();
        found.add(directory, DEPTH_MAX, |name| {
            NAMES.split(' ').any(|begin| name.starts_with(begin))
        });
        found
    }

    fn add(&mut self, directory: &Path, depth: u32, counts: fn(&str) -> bool) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if !counts(&entry.file_name().to_string_lossy()) || self.0.len() >= FILES_MAX {
                continue;
            }
            if found.is_dir() && depth > 0 {
                self.add(&entry.path(), depth - 1, |_| true);
            } else {
                let state = (found.ino(), found.len(), found.ctime(), found.ctime_nsec());
                self.0.insert(entry.path(), state);
            }
        }
    }

    /// Those that were not there before, or have changed since.
    pub(super) fn not_in(self, before: &Operations) -> impl Iterator<Item = PathBuf> {
        let changed = self
            .0
            .into_iter()
            .filter(|(path, state)| before.0.get(path) != Some(state));
        changed.map(|(path, _)| path)
    }
}
