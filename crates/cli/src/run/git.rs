//! What git executes on the host later: hooks, configuration, and programs that the configuration names.
//!
//! The profile has their usual places. Links, `gitdir:` files and variables lead elsewhere, and this follows them. It
//! reads the files itself: git executes what some variables name (`core.fsmonitor`), and is found by `$PATH`.
//!
//! Texts have a character for each byte ([`text_of`]), so that paths that are not UTF-8 stay what they are.

mod config;
mod directory;
mod index;
mod operations;

use super::user::Account;
use crate::lookup::{self, LINKS_MAX, descriptor_path};
pub(super) use directory::GitDirectory;
use operations::Operations;
use rustix::fs::{FileType, Mode, OFlags, fstat, lstat};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use thrufs_policy::{Access, Decision, Policy, Subject, Unknown};

const FILE_BYTES_MAX: u64 = 1 << 24;
/// Some million files.
const INDEX_BYTES_MAX: u64 = 1 << 27;
/// Names in one message.
const NAMED_MAX: usize = 8;
/// Of one repository.
const SUBMODULES_MAX: usize = 1000;
/// With further working trees, and what a tree claims to be one.
const REPOSITORIES_MAX: usize = 2000;

/// Of variables in the environment.
const VARIABLES_MAX: usize = 1 << 12;

/// Variables of the environment that name programs of git's.
const ENVIRONMENT: &str = "\
    EDITOR GIT_ASKPASS GIT_EDITOR GIT_EXTERNAL_DIFF GIT_PAGER GIT_PROXY_COMMAND GIT_SEQUENCE_EDITOR \
    GIT_SSH GIT_SSH_COMMAND SSH_ASKPASS VISUAL";

/// What the profile's rule `git` protects in a directory `.git`, but for its `worktrees`.
const NAMES: &str = "\
    hooks config config.worktree commondir modules remotes branches";

/// The ends of the names of variables that name programs.
const PROGRAMS: &str = "\
    askpass browser clean cmd command driver editor external filter fsmonitor helper hook httpd pack \
    pager path process program proxy smtpserver smudge textconv tunnel vcs";

#[derive(Debug, Default)]
pub(crate) struct GitPlaces {
    tree: PathBuf,
    home: Option<PathBuf>,
    /// In the tree, relative to it, without what the profile names.
    pub(super) inside: BTreeSet<PathBuf>,
    /// Git directories in the tree that are in no `.git`, relative to it.
    pub(super) stores: BTreeSet<PathBuf>,
    /// Working trees in the tree, relative to it.
    pub(super) tops: BTreeSet<PathBuf>,
    /// Of the tree, if it is outside.
    pub(super) directory: Option<GitDirectory>,
    /// Of the repository, not in the tree, or the tree itself.
    outside: BTreeSet<PathBuf>,
    /// Files in the tree, and variables there that have a password.
    passwords: BTreeSet<(PathBuf, String)>,
    repositories: BTreeSet<PathBuf>,
    /// Indexes, each with its working tree and what is in it.
    indexes: BTreeMap<PathBuf, (PathBuf, Vec<u8>)>,
    /// Git directories, and what operations had left there.
    operations: BTreeMap<PathBuf, Operations>,
}

/// What the command has left in git's directories.
#[derive(Default)]
struct Findings {
    /// In the index, what the command could not change itself.
    added: BTreeSet<PathBuf>,
    /// Marked in the index so that git does not look at them.
    overlooked: BTreeSet<PathBuf>,
    /// Submodules that are no longer in the index.
    removed: BTreeSet<PathBuf>,
    /// Of operations.
    unfinished: BTreeSet<PathBuf>,
}

impl Findings {
    fn warnings(&self) -> Vec<String> {
        let said = |paths: &BTreeSet<PathBuf>, before, after| {
            let named = paths.iter().take(NAMED_MAX);
            let named: Vec<_> = named.map(|it| it.display().to_string()).collect();
            let more = match paths.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let text = format!(
                "the command has {before}: {}{more} ({after})",
                named.join(", ")
            );
            (!paths.is_empty()).then_some(text)
        };
        let all = [
            said(
                &self.added,
                "put into git's index what it could not change itself, and `git restore` or `git stash` would write",
                "see `git diff --cached`; `git reset` undoes it",
            ),
            said(
                &self.overlooked,
                "marked files so that `git status` and `git diff` overlook what changes in them",
                "`git update-index --no-assume-unchanged --no-skip-worktree` undoes it",
            ),
            said(
                &self.removed,
                "taken submodules out of git's index, whose hooks a further run would not protect",
                "`git reset` undoes it",
            ),
            said(
                &self.unfinished,
                "left what git's --continue, --abort and the like, or later merges (rr-cache), execute or apply",
                "see these files first, use --quit, or remove them",
            ),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Whose a file is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The repository's: where it leads out of the tree is reported.
    Own,
    /// Another working tree's, or of all repositories of a user.
    Other,
}

/// The variables of one repository, and the files that have them.
#[derive(Default)]
struct Configuration {
    variables: Vec<(Scope, String, String)>,
    files: BTreeSet<PathBuf>,
}

impl GitPlaces {
    /// Of the repository to which `tree` belongs, an absolute path without symbolic links, with its submodules and
    /// working trees; and of the one that `$GIT_DIR` names.
    pub(crate) fn find(tree: &Path, home: Option<&OsStr>) -> GitPlaces {
        let mut places = GitPlaces {
            tree: tree.into(),
            home: home.map(PathBuf::from),
            ..GitPlaces::default()
        };
        places.directory = places.directory_outside();
        let owner = lstat(tree).map(|stat| stat.st_uid).ok();
        for place in tree.ancestors() {
            let is_own =
                |path: &Path| lstat(path).is_ok_and(|it| place == tree || Some(it.st_uid) == owner);
            let git = place.join(".git");
            let is_bare =
                ["HEAD", "objects", "refs"].map(|name| place.join(name).exists()) == [true; 3];
            if is_own(&git) {
                places.add_repository(&git, place, Scope::Own);
                break;
            }
            // An earlier run may have made it one.
            if is_bare && is_own(place) {
                places.add_repository(place, place, Scope::Own);
            }
        }
        let named = std::env::var_os("GIT_DIR").map(std::path::absolute);
        if let (Some(Ok(git)), Ok(here)) = (named, std::env::current_dir()) {
            let top = std::env::var_os("GIT_WORK_TREE").map_or(here.clone(), |top| here.join(top));
            places.add_repository(&git, &top, Scope::Own);
        }
        places
    }

    /// What the user should know, where `lets_change` says whether the command can change a file outside of the tree.
    pub(super) fn warnings(&self, lets_change: impl Fn(&Path) -> bool) -> Vec<String> {
        let is_in_another = |path: &Path| {
            let mut above = path.ancestors().skip(1);
            above.any(|above| self.outside.contains(above))
        };
        let open = self
            .outside
            .iter()
            .filter(|it| !is_in_another(it) && lets_change(it));
        let open: Vec<_> = open.map(|it| it.display().to_string()).collect();
        let unprotected = (!open.is_empty()).then(|| {
            let places = open.join(", ");
            format!(
                "the command can change what git executes on the host later: {places} (see --only)"
            )
        });
        let passwords = self.passwords.iter().map(|(file, key)| {
            format!(
                "the command can read the password of {key} in {}",
                file.display()
            )
        });
        unprotected.into_iter().chain(passwords).collect()
    }

    /// `git` is the directory, or a link or file that leads to it.
    fn add_repository(&mut self, git: &Path, top: &Path, scope: Scope) {
        let git = self.git_directory(git);
        if self.repositories.len() >= REPOSITORIES_MAX || !self.repositories.insert(git.clone()) {
            return;
        }
        let common = self.common_directory(&git);
        self.report(&common, scope);
        if let Ok(inside) = top.strip_prefix(&self.tree) {
            self.tops.insert(inside.to_owned());
        }
        for place in [&git, &common] {
            if let Ok(inside) = place.strip_prefix(&self.tree)
                && inside.iter().all(|name| name != ".git")
            {
                self.stores.insert(inside.to_owned());
            }
            for name in NAMES.split(' ') {
                self.reach(&place.join(name), scope);
            }
            self.add_submodules(&place.join("modules"), scope);
            let operations = Operations::in_directory(place);
            self.operations.insert(place.clone(), operations);
        }
        self.add_hooks(&common.join("hooks"), scope);
        self.add_configuration(&git, &common, top, scope);
        self.add_index(&git.join("index"), top, scope);
        for directory in directories(&common.join("worktrees")) {
            self.reach(&directory.join("gitdir"), Scope::Other);
            if let Some(text) = read(&directory.join("gitdir")) {
                let file = directory.join(trimmed_path(&text));
                self.add_repository(&directory, file.parent().unwrap_or(&file), Scope::Other);
            }
        }
        let main = common.parent().filter(|_| common.ends_with(".git"));
        // A working tree's directory is one of the repository, and that is none again.
        if common != git && !common.join("commondir").exists() {
            self.add_repository(&common, main.unwrap_or(&common), Scope::Other);
        }
    }

    /// Where a directory `.git`, or a link or file in its place, leads.
    fn git_directory(&mut self, git: &Path) -> PathBuf {
        let git = self.follow(git);
        let text = read(&git);
        match text.as_ref().and_then(|text| text.strip_prefix("gitdir:")) {
            Some(path) => self.follow(&git.parent().unwrap_or(&git).join(trimmed_path(path))),
            None => git,
        }
    }

    /// What a git directory shares with those of other working trees; or itself.
    fn common_directory(&mut self, git: &Path) -> PathBuf {
        let common = read(&git.join("commondir"));
        let common = common.map_or(git.into(), |text| git.join(trimmed_path(&text)));
        self.follow(&common)
    }

    /// The directory to which `.git` leads, if it names the tree in turn: a tree of a stranger must not choose what is
    /// shown.
    fn directory_outside(&mut self) -> Option<GitDirectory> {
        let (tree, mark) = (self.tree.clone(), self.tree.join(".git"));
        let git = self.git_directory(&mark);
        let common = self.common_directory(&git);
        let directory = GitDirectory::outside(&tree, &git, common)?;
        let (named, expected) = if directory.own.is_some() {
            (trimmed_path(&read(&git.join("gitdir"))?), mark)
        } else {
            let variables = config::entries(&read(&git.join("config"))?);
            let mut tops = variables.iter().rev();
            let (_, top) = tops.find(|(key, _)| key == "core.worktree")?;
            (path_of_text(top), tree)
        };
        (self.follow(&git.join(named)) == expected).then_some(directory)
    }

    /// Their names may have several components.
    fn add_submodules(&mut self, directory: &Path, scope: Scope) {
        for directory in directories(directory) {
            match directory.join("HEAD").exists() {
                true => self.add_repository(&directory, &directory, scope),
                false => self.add_submodules(&directory, scope),
            }
        }
    }

    /// Submodules may have their git directories elsewhere.
    fn add_index(&mut self, index: &Path, top: &Path, scope: Scope) {
        let bytes = read_bytes(index, INDEX_BYTES_MAX).unwrap_or_default();
        let entries = index::entries(&bytes).unwrap_or_default();
        let is_plain = |path: &Path| {
            path.components()
                .all(|it| matches!(it, Component::Normal(_)))
        };
        let submodules = entries.iter().filter(|entry| entry.is_submodule());
        let submodules = submodules.map(|entry| Path::new(OsStr::from_bytes(&entry.path)));
        let submodules = submodules.filter(|path| is_plain(path));
        let submodules = submodules.map(|path| top.join(path));
        let is_there = |top: &PathBuf| lstat(top.join(".git")).is_ok();
        for top in submodules.filter(is_there).take(SUBMODULES_MAX) {
            self.add_repository(&top.join(".git"), &top, scope);
        }
        self.indexes.insert(index.into(), (top.into(), bytes));
    }

    /// What the user should know of what the command has left for git to do.
    pub(crate) fn warnings_at_the_end(&self, policy: &Policy) -> Vec<String> {
        let mut found = Findings::default();
        for (directory, before) in &self.operations {
            let now = Operations::in_directory(directory);
            found.unfinished.extend(now.not_in(before));
        }
        for (index, (top, before)) in &self.indexes {
            self.compare_index(index, top, before, policy, &mut found);
        }
        found.warnings()
    }

    fn compare_index(
        &self,
        index: &Path,
        top: &Path,
        before: &[u8],
        policy: &Policy,
        found: &mut Findings,
    ) {
        let now = read_bytes(index, INDEX_BYTES_MAX).unwrap_or_default();
        if now == *before {
            return;
        }
        let (before, now) = match (index::entries(before), index::entries(&now)) {
            (before, Some(now)) => (before.unwrap_or_default(), now),
            (None, None) if !before.is_empty() => return,
            _ => {
                found.added.insert(index.into());
                return;
            }
        };
        let path = |entry: &index::Entry| top.join(OsStr::from_bytes(&entry.path));
        for entry in now.difference(&before) {
            let is_marked_alone = before.contains(&entry.marked_otherwise());
            if !is_marked_alone && self.is_protected(entry, top, policy) {
                found.added.insert(path(entry));
            }
            if entry.is_overlooked {
                found.overlooked.insert(path(entry));
            }
        }
        let now: BTreeSet<_> = now.iter().map(|entry| &entry.path).collect();
        let submodules = before.iter().filter(|entry| entry.is_submodule());
        let removed = submodules.filter(|entry| !now.contains(&entry.path));
        found.removed.extend(removed.map(path));
    }

    fn is_protected(&self, entry: &index::Entry, top: &Path, policy: &Policy) -> bool {
        let mut names = entry.path.split(|byte| *byte == b'/');
        // Git makes no such entries, and 2.39 checks none that it reads.
        if names.any(|it| matches!(it, b"" | b"." | b"..") || it.eq_ignore_ascii_case(b".git")) {
            return true;
        }
        let path = top.join(OsStr::from_bytes(&entry.path));
        let file_type = match entry.is_link() {
            true => FileType::Symlink,
            false => FileType::RegularFile,
        };
        let is_refused = |inside: &Path| {
            let decision = decision(policy, inside, file_type);
            decision.check(Access::Change).is_err()
        };
        // The server does not show what is in one that is hidden.
        let is_hidden = |above: &Path| {
            let decision = decision(policy, above, FileType::Directory);
            decision.check(Access::Read).is_err()
        };
        let is_in_hidden = |inside: &Path| {
            let mut above = inside.ancestors().skip(1);
            above.any(|above| !above.as_os_str().is_empty() && is_hidden(above))
        };
        // In place of a directory, with what is protected in it.
        let is_directory = || {
            lstat(&path).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
        };
        path.strip_prefix(&self.tree)
            .is_ok_and(|inside| is_refused(inside) || is_in_hidden(inside))
            || !entry.is_submodule() && is_directory()
    }

    fn add_configuration(&mut self, git: &Path, common: &Path, top: &Path, scope: Scope) {
        let mut found = Configuration::default();
        for file in self.files_of_user() {
            self.add_file(&file, Scope::Other, &mut found);
        }
        for file in [common.join("config"), git.join("config.worktree")] {
            self.add_file(&file, scope, &mut found);
        }
        let environment = config::of_environment(variable, VARIABLES_MAX);
        for (key, value) in environment {
            // Relative ones are an error there.
            if is_include(&key) {
                self.add_file(
                    &self.expand(Path::new("/"), &value),
                    Scope::Other,
                    &mut found,
                );
            }
            found.variables.push((Scope::Other, key, value));
        }
        let mut tops = found.variables.iter().rev();
        let top = match tops.find(|(_, key, _)| key == "core.worktree") {
            Some((_, _, value)) => git.join(path_of_text(value)),
            None => top.to_owned(),
        };
        for (scope, key, value) in found.variables {
            if key == "core.hookspath" {
                // For hooks of pushes into it, and git that is called there.
                for directory in [git, common] {
                    self.add_hooks(&self.expand(directory, &value), scope);
                }
                let hooks = self.expand(&top, &value);
                // Husky's, which execute those beside it.
                if let Some(beside) = hooks
                    .parent()
                    .filter(|it| *it != top && hooks.ends_with("_"))
                {
                    self.add_hooks(beside, scope);
                }
                self.add_hooks(&hooks, scope);
            } else if key == "init.templatedir" {
                // Hooks of repositories that are made later.
                self.add_hooks(&self.expand(&top, &value).join("hooks"), Scope::Other);
            } else if is_program(&key, &value) {
                self.add_program(&top, &value);
            }
        }
        for command in ENVIRONMENT.split(' ').filter_map(variable) {
            self.add_program(&top, &command);
        }
    }

    fn files_of_user(&self) -> Vec<PathBuf> {
        let variable = |name, rest| Some(PathBuf::from(std::env::var_os(name)?).join(rest));
        let home = |rest| Some(self.home.as_ref()?.join(rest));
        let all = [
            Some("/etc/gitconfig".into()),
            variable("XDG_CONFIG_HOME", "git/config"),
            home(".config/git/config"),
            home(".gitconfig"),
            variable("GIT_CONFIG_GLOBAL", ""),
            variable("GIT_CONFIG_SYSTEM", ""),
        ];
        let all = all.into_iter().flatten();
        all.filter_map(|file| std::path::absolute(file).ok())
            .collect()
    }

    /// Reads a file and those that it includes, under whichever condition.
    fn add_file(&mut self, file: &Path, scope: Scope, found: &mut Configuration) {
        let real = self.reach(file, scope);
        if !found.files.insert(file.to_owned()) {
            return;
        }
        let base = file.parent().unwrap_or(file);
        for (key, value) in config::entries(&read(&real).unwrap_or_default()) {
            if is_include(&key) {
                self.add_file(&self.expand(base, &value), scope, found);
                continue;
            }
            let is_shown = self.directory.as_ref().map(|it| &it.path);
            let mut is_shown = is_shown.into_iter().chain([&self.tree]);
            if has_password(&key, &value) && is_shown.any(|it| real.starts_with(it)) {
                // `url.<base>.insteadOf` has it in the name.
                let name = path_of_text(key.split("://").next().unwrap_or_default());
                let name = name.display().to_string();
                self.passwords.insert((real.clone(), name));
            }
            found.variables.push((scope, key, value));
        }
    }

    /// Adds where symbolic links lead that `policy` protects, at the top of the tree and in its directories that begin
    /// with a dot: programs of the host follow them. Returns whether there are any.
    pub(super) fn follow_protected_links(&mut self, policy: &Policy) -> bool {
        let is_dot = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.as_bytes().starts_with(b".")
        };
        let top: Vec<_> = match self.tree.as_os_str().is_empty() {
            true => Vec::new(),
            false => entries(&self.tree).collect(),
        };
        let beneath = top
            .iter()
            .filter(|(path, kind)| kind.is_dir() && is_dot(path));
        let beneath: Vec<_> = beneath.flat_map(|(path, _)| entries(path)).collect();
        let before = self.inside.len();
        for (path, _) in top
            .iter()
            .chain(&beneath)
            .filter(|(_, kind)| kind.is_symlink())
        {
            let Ok(inside) = path.strip_prefix(&self.tree) else {
                continue;
            };
            let decision = decision(policy, inside, FileType::Symlink);
            if decision.read_only.is_some() && !is_of_profile(inside) {
                let real = self.follow(path);
                self.add(&real);
            }
        }
        self.inside.len() > before
    }

    /// A directory of hooks, and where links in it lead.
    fn add_hooks(&mut self, directory: &Path, scope: Scope) {
        let directory = self.reach(directory, scope);
        for (path, _) in entries(&directory).filter(|(_, kind)| kind.is_symlink()) {
            self.reach(&path, scope);
        }
    }

    /// The files that a command line names.
    fn add_program(&mut self, top: &Path, command: &str) {
        let separates = |it: char| it.is_ascii_whitespace() || "!'\"`;|&()<>=$:".contains(it);
        let words = command.split(separates);
        let quotes = ['\'', '"'].into_iter();
        let quoted = quotes.flat_map(|quote| command.split(quote).skip(1).step_by(2));
        for word in words.chain(quoted).filter(|word| !word.is_empty()) {
            let path = self.expand(top, word);
            if path.is_file() {
                self.reach(&path, Scope::Other);
            }
        }
    }

    /// Git's value of the type `pathname`: `~/x`, `~user/x`, `:(optional)x`.
    fn expand(&self, base: &Path, value: &str) -> PathBuf {
        let value = value.strip_prefix(":(optional)").unwrap_or(value);
        let Some(of_user) = value.strip_prefix('~') else {
            return base.join(path_of_text(value));
        };
        let (name, rest) = of_user.split_once('/').unwrap_or((of_user, ""));
        let home = match name {
            "" => self.home.clone(),
            name => Account::named(name).map(|it| it.home.into()),
        };
        match home {
            Some(home) => home.join(path_of_text(rest)),
            None => base.join(path_of_text(value)),
        }
    }

    /// Adds `path`, its links and where it leads, also where nothing is yet.
    fn reach(&mut self, path: &Path, scope: Scope) -> PathBuf {
        let real = self.follow(path);
        self.add(&real);
        self.report(&real, scope);
        real
    }

    fn report(&mut self, real: &Path, scope: Scope) {
        let is_inside = real != self.tree && real.starts_with(&self.tree);
        if scope == Scope::Own && !is_inside {
            self.outside.insert(real.to_owned());
        }
    }

    /// Looks `path` up name by name, and adds its links. Returns where it leads.
    fn follow(&mut self, path: &Path) -> PathBuf {
        let mut at = PathBuf::from("/");
        let mut rest: Vec<_> = lookup::names_from_last(path).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(name);
            match fs::read_link(&next) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    self.add(&next);
                    if target.is_absolute() {
                        at = "/".into();
                    }
                    rest.extend(lookup::names_from_last(&target));
                }
                _ => at = next,
            }
        }
        at
    }

    fn add(&mut self, path: &Path) {
        if let Ok(inside) = path.strip_prefix(&self.tree)
            && !is_of_profile(inside)
        {
            self.inside.insert(inside.to_owned());
        } else if let Some(directory) = &mut self.directory {
            directory.add(path);
        }
    }
}

/// What `policy` says of a path in the tree, whoever asks.
fn decision(policy: &Policy, inside: &Path, file_type: FileType) -> Decision {
    policy.decide_for_all(&Subject {
        path: inside.as_os_str().as_bytes(),
        file_type,
        source: &Unknown,
    })
}

/// Or the tree itself.
fn is_of_profile(inside: &Path) -> bool {
    let mut names = inside.iter().skip_while(|name| *name != ".git");
    match names.next() {
        Some(_) => names
            .next()
            .is_none_or(|name| name == "worktrees" || NAMES.split(' ').any(|known| name == known)),
        None => inside.as_os_str().is_empty(),
    }
}

fn is_include(key: &str) -> bool {
    (key.starts_with("include.") || key.starts_with("includeif.")) && key.ends_with(".path")
}

fn is_program(key: &str, value: &str) -> bool {
    let is_section = |name| key.starts_with(name);
    value.starts_with('!')
        || value.starts_with("ext::")
        || ["alias.", "pager."].into_iter().any(is_section)
        || PROGRAMS.split(' ').any(|end| key.ends_with(end))
}

/// Whether it is a URL with a password, or with a user of the length of a token; or a header that logs in.
fn has_password(key: &str, value: &str) -> bool {
    let has_user = |text: &str| {
        let (_, rest) = text.split_once("://")?;
        let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
        Some(user.contains(':') || user.len() >= 20)
    };
    [key, value]
        .into_iter()
        .any(|it| has_user(it) == Some(true))
        || key.ends_with(".extraheader") && value.to_ascii_lowercase().starts_with("authorization")
}

/// A character for each byte.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn path_of_text(text: &str) -> PathBuf {
    let bytes = text.chars().map(|it| it as u8).collect();
    OsString::from_vec(bytes).into()
}

fn trimmed_path(text: &str) -> PathBuf {
    path_of_text(text.trim_ascii())
}

fn variable(name: &str) -> Option<String> {
    Some(text_of(std::env::var_os(name)?.as_bytes()))
}

fn read(path: &Path) -> Option<String> {
    Some(text_of(&read_bytes(path, FILE_BYTES_MAX)?))
}

/// What is in a regular file. Nothing else is opened: the tree may be another user's.
fn read_bytes(path: &Path, max: u64) -> Option<Vec<u8>> {
    let found = lookup::open(path, OFlags::PATH, Mode::empty()).ok()?;
    let stat = fstat(&found).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = File::open(descriptor_path(&found)).ok()?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, fs::FileType)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.file_type().ok()?)))
}

/// Without symbolic links to such.
fn directories(directory: &Path) -> impl Iterator<Item = PathBuf> {
    entries(directory)
        .filter(|(_, kind)| kind.is_dir())
        .map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_expanded_as_git_expands_them() {
        let places = GitPlaces {
            home: Some("/home/ann".into()),
            ..GitPlaces::default()
        };
        let root = Account::named("root").unwrap().home;
        let root = Path::new(&root);
        for (value, expected) in [
            ("x/y", "/base/x/y".into()),
            ("/x", "/x".into()),
            ("~/x", "/home/ann/x".into()),
            ("~", "/home/ann".into()),
            ("~root/x", root.join("x")),
            ("~root", root.to_owned()),
            (
                "~nobody-of-that-name/x",
                "/base/~nobody-of-that-name/x".into(),
            ),
            (":(optional)~/x", "/home/ann/x".into()),
        ] {
            let expanded = places.expand(Path::new("/base"), value);
            assert_eq!(
                expanded.components().collect::<PathBuf>(),
                expected as PathBuf,
                "{value}"
            );
        }
    }
}
