//! The project of the working directory: what `thrufs run` serves unless a directory is given.
//!
//! Secrets of a project are at its top (`.env`), where the command would find them from a subdirectory.

use crate::error::{StartupError, system};
use rustix::fs::{FileType, Stat, lstat};
use std::path::{Path, PathBuf};

/// Git's top level above the working directory, or that itself. From a submodule or a linked work tree, whose `.git` is
/// a file, that of the project around it, if any.
pub(super) fn directory() -> Result<PathBuf, StartupError> {
    let here = std::env::current_dir().map_err(system("find the working directory"))?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let found = top_of(&here, home.as_deref());
    Ok(found.unwrap_or(here))
}

/// Not the home directory, nor one above, which is no project, though it may be a repository of settings. Nor one of
/// another owner (as git's `safe.directory`): anybody makes `/tmp/.git`.
fn top_of(here: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let owner = lstat(here).ok()?.st_uid;
    let is_own = |stat: &Stat| stat.st_uid == owner;
    let mut found = None;
    for place in here.ancestors() {
        if home.is_some_and(|home| home.starts_with(place))
            || !lstat(place).is_ok_and(|it| is_own(&it))
        {
            break;
        }
        let Some(git) = lstat(place.join(".git")).ok().filter(is_own) else {
            continue;
        };
        found = Some(place.to_owned());
        if FileType::from_raw_mode(git.st_mode) == FileType::Directory {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn project_is_the_nearest_repository_or_the_one_around_a_submodule() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for directory in [
            "home/.git",
            "home/one/.git",
            "home/one/a/b",
            "home/one/sub/c",
            "home/none/d",
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("home/one/sub/.git"), "gitdir: ../.git/modules/sub\n").unwrap();
        fs::write(at("home/none/.git"), "gitdir: elsewhere\n").unwrap();
        for (here, top) in [
            ("home/one", Some("home/one")),
            ("home/one/a/b", Some("home/one")),
            ("home/one/sub/c", Some("home/one")),
            ("home/none/d", Some("home/none")),
            ("home", None),
        ] {
            let found = top_of(&at(here), Some(&at("home")));
            assert_eq!(found, top.map(at), "{here}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("home/one/.git"), Some(1), None).unwrap();
            assert_eq!(top_of(&at("home/one/a"), Some(&at("home"))), None);
        }
    }
}
