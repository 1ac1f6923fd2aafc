//! What the sandbox is built of, decided before anything is started.

use super::arguments::RunArguments;
use super::error::RunError;
use super::standard_files;
use super::user::RunUser;
use crate::error::system;
use crate::lookup;
use rustix::fs::{Mode, OFlags, lstat};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Empty in the sandbox: sockets there lead to programs outside (the session bus, terminals of tmux, keys).
pub(super) const EMPTY: [&str; 3] = ["/run", "/tmp", "/var/tmp"];

/// For the processes in the sandbox. Paths are `OsString`s, which keep bytes that are not UTF-8.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SandboxPlan {
    /// The working directory.
    pub(super) directory: OsString,
    /// The home directory, if it is to be empty.
    pub(super) empty_home: Option<OsString>,
    /// What stays visible where the sandbox is empty.
    pub(super) shown: Vec<Shown>,
    /// The terminal, which `/dev/console` becomes.
    pub(super) terminal: Option<OsString>,
    pub(super) user: RunUser,
    /// No interface but a loopback of its own, and no sockets that lead out.
    pub(super) no_network: bool,
    /// What the command must not change: the audit log, the drafts.
    pub(super) covered: Vec<OsString>,
    /// The draft's directory, if the command writes to one.
    pub(super) draft: Option<OsString>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) path: OsString,
    pub(super) writable: bool,
}

impl SandboxPlan {
    pub(super) fn new(
        arguments: &RunArguments,
        tree: &Path,
        user: RunUser,
        covered: Vec<PathBuf>,
        draft: Option<&Path>,
    ) -> Result<SandboxPlan, RunError> {
        standard_files::refuse_directories()?;
        let directory = std::env::current_dir().map_err(system("find the working directory"))?;
        let home = match home_of(&user) {
            Some(home) if arguments.only || user.shown_uid != user.uid => Some(home),
            None if arguments.only => return Err(RunError::NoHome),
            _ => None,
        };
        let mut shown = Vec::new();
        for (paths, writable) in [(&arguments.also, false), (&arguments.also_write, true)] {
            for path in paths {
                let path = shown_path(path, tree)?.into_os_string();
                shown.push(Shown { path, writable });
            }
        }
        // The saved options, which decide what later runs hide.
        let mut saved_shown = Vec::new();
        let empty = |it: &Path| {
            let mut empty = EMPTY.iter().map(Path::new).chain(home.as_deref());
            empty.any(|empty| it.starts_with(empty))
                && !shown
                    .iter()
                    .any(|shown: &Shown| it.starts_with(&shown.path))
        };
        let saved = super::saved::places().into_iter();
        for path in saved.filter(|it| !it.starts_with(tree) && !empty(it)) {
            if user.change.is_none() {
                let path = path.into_os_string();
                saved_shown.push(Shown {
                    path,
                    writable: false,
                });
            }
        }
        shown.splice(0..0, saved_shown);
        // The name servers, where resolv.conf(5) is a link to a place in /run.
        if let Ok(path) = std::fs::canonicalize("/etc/resolv.conf")
            && path.starts_with("/run")
        {
            let path = path.into_os_string();
            shown.push(Shown {
                path,
                writable: false,
            });
        }
        shown.sort_by_key(|shown| Path::new(&shown.path).components().count());
        Ok(SandboxPlan {
            directory: directory.into_os_string(),
            empty_home: home.map(PathBuf::into_os_string),
            shown,
            terminal: standard_files::terminal().map(PathBuf::into_os_string),
            user,
            no_network: arguments.no_network,
            covered: covered.into_iter().map(PathBuf::into_os_string).collect(),
            draft: draft.map(|it| it.as_os_str().to_owned()),
        })
    }

    /// The directories that are empty, but for devices.
    pub(super) fn empty(&self) -> Vec<PathBuf> {
        let always = EMPTY.iter().filter_map(|it| std::fs::canonicalize(it).ok());
        let home = self.empty_home.iter().map(PathBuf::from);
        always.chain(home).collect()
    }

    /// Whether `place` or something in it was named, to be seen.
    pub(super) fn shows_in(&self, place: &Path) -> bool {
        let mut shown = self.shown.iter().map(|shown| Path::new(&shown.path));
        shown.any(|shown| shown.starts_with(place))
    }

    /// Whether the sandbox shows this path, outside of the tree, to a command that may change it.
    pub(super) fn lets_change(&self, path: &Path) -> bool {
        let holds = |place: &OsString| path.starts_with(place);
        let is_empty =
            || EMPTY.iter().any(|it| path.starts_with(it)) || self.empty_home.iter().any(holds);
        // The deepest is the last.
        let is_shown = match self.shown.iter().rfind(|shown| holds(&shown.path)) {
            Some(shown) => shown.writable,
            None => !is_empty() && !path.starts_with("/dev"),
        };
        // It, or where it would be made; or a directory above, in which another takes its place. Of ACLs, the mode
        // shows what they let anybody do at most.
        let found = path.ancestors().filter_map(|it| lstat(it).ok());
        let mut changeable = found.enumerate().map(|(above, it)| {
            let is_kept = above > 0 && it.st_mode & libc::S_ISVTX != 0;
            it.st_uid == self.user.uid || it.st_mode & 0o022 != 0 && !is_kept
        });
        is_shown && changeable.any(|it| it)
    }
}

fn home_of(user: &RunUser) -> Option<PathBuf> {
    let home = Path::new(user.home.as_ref()?);
    let opened = lookup::open(home, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    let home = lookup::path_of(opened.ok()?).ok()?;
    (home != Path::new("/")).then_some(home)
}

fn shown_path(path: &Path, tree: &Path) -> Result<PathBuf, RunError> {
    let opened = lookup::open(path, OFlags::PATH, Mode::empty());
    let found = opened.and_then(lookup::path_of);
    let canonical = found.map_err(|source| RunError::NotShown {
        path: path.into(),
        source,
    })?;
    if canonical == Path::new("/") {
        return Err(RunError::ShownWhole);
    }
    if canonical.starts_with(tree) {
        return Err(RunError::ShownInTree(path.into()));
    }
    Ok(canonical)
}
