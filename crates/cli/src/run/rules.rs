//! The policy of a run: one text, from options, policy files and built-in profiles.
//!
//! | module | content |
//! |---|---|
//! | `pattern` | patterns of options: what is beneath, and the directories above |
//! | `text` | writing TOML, and merging files into it |

mod error;
mod pattern;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use error::RuleError;

use super::git::{GitDirectory, GitPlaces};
use crate::policy_file;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum, ValueHint};
use pattern::{Pattern, Tree};
use std::path::{Path, PathBuf};
use text::Text;
pub(super) use text::quoted;
use thrufs_policy::{Policy, PolicyFileError};

/// A built-in profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    /// The policy.
    pub(crate) text: &'static str,
}

/// The first is the default.
pub(crate) const PROFILES: [Profile; 2] = [
    Profile {
        name: "workspace",
        text: include_str!("../../../../dist/policies/workspace.toml"),
    },
    Profile {
        name: "none",
        text: "",
    },
];

impl ValueEnum for Profile {
    fn value_variants<'a>() -> &'a [Profile] {
        &PROFILES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(self.name.into())
    }
}

// The options of `thrufs run` that make its policy, each in the order of the command line. A doc comment would
// describe the command.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RuleArguments {
    /// Exempt PATTERN from all other rules. What is beneath a directory is exempt only if the directory
    /// exists or PATTERN ends in /**: a directory that the command moves there shows its hidden files
    #[arg(long, value_name = "PATTERN", value_hint = ValueHint::AnyPath)]
    pub(crate) allow: Vec<String>,
    /// Refuse changes of PATTERN and of everything beneath
    #[arg(long, value_name = "PATTERN", value_hint = ValueHint::AnyPath)]
    pub(crate) read_only: Vec<String>,
    /// Refuse access to PATTERN and everything beneath; names stay visible
    #[arg(long, value_name = "PATTERN", value_hint = ValueHint::AnyPath)]
    pub(crate) deny: Vec<String>,
    /// Hide PATTERN and everything beneath: the name is absent
    #[arg(long, value_name = "PATTERN", value_hint = ValueHint::AnyPath)]
    pub(crate) hide: Vec<String>,
    /// Show photographs in PATTERN without their place, and refuse other files there
    #[arg(long, value_name = "PATTERN", value_hint = ValueHint::AnyPath)]
    pub(crate) redact: Vec<String>,
    /// Add the rules of a policy, in TOML
    #[arg(long = "policy", value_name = "FILE")]
    pub(crate) policies: Vec<PathBuf>,
    /// Add the rules of a built-in profile: workspace hides secrets and keeps read-only what the host
    /// executes, none has no rules [default: workspace]
    #[arg(long = "profile", value_name = "NAME")]
    pub(crate) profiles: Vec<Profile>,
}

impl RuleArguments {
    /// The policy for `tree`, and its text. A single profile is returned as it is, with its comments.
    ///
    /// The rules: `audit`, for `records` or an audit log; `--allow`; the directories above the patterns of the following
    /// options, read-only; `--read-only`; the paths in `git`, read-only; `--deny`, `--hide`, `--redact`; symbolic links in
    /// git directories of `git`, read-only; each file; each profile. Of a key at the top of several files, the first counts.
    /// Rules are renamed where their names collide.
    ///
    /// # Errors
    ///
    /// Bad patterns, with the option; faults of a file, with line and column; files with different audit
    /// logs, without `audit`; an audit log in the tree.
    pub(in crate::run) fn compose(
        &self,
        tree: &Path,
        git: &GitPlaces,
        records: bool,
        log: Option<&Path>,
    ) -> Result<(String, Policy), RuleError> {
        let profiles = self.profiles();
        let mut text = Text::default();
        for profile in &profiles {
            text.reserve_names(profile);
        }
        if records || log.is_some() {
            text.audit(log)?;
        }
        let tree = Tree::at(tree);
        self.add_options(&tree, git, &mut text)?;
        for path in &self.policies {
            let file = read(path)?;
            text.add_file(path, &file)?;
        }
        let text = text.with_profiles(&profiles);
        let policy = checked(Path::new("composed policy"), &text)?;
        match policy.audit_log() {
            Some(log) if tree.contains(log) => Err(RuleError::AuditLogInTree(log.into())),
            _ => Ok((text, policy)),
        }
    }

    pub(crate) fn has_workspace(&self) -> bool {
        self.profiles().contains(&PROFILES[0].text)
    }

    /// Their texts, each once.
    fn profiles(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for profile in &self.profiles {
            if !found.contains(&profile.text) {
                found.push(profile.text);
            }
        }
        if self.profiles.is_empty() {
            found.push(PROFILES[0].text);
        }
        found
    }

    fn add_options(&self, tree: &Tree, git: &GitPlaces, text: &mut Text) -> Result<(), RuleError> {
        let parse = |option, patterns: &[String]| -> Result<Vec<Pattern>, RuleError> {
            let parse = |pattern: &String| tree.pattern(option, pattern);
            patterns.iter().map(parse).collect()
        };
        let allow = parse("allow", &self.allow)?;
        let read_only = parse("read-only", &self.read_only)?;
        let elsewhere = git.inside.iter().map(|path| Pattern::of(path)).collect();
        let restricting = [
            ("option-read-only", "read-only", read_only),
            ("git-elsewhere", "read-only", elsewhere),
            ("option-deny", "deny", parse("deny", &self.deny)?),
            ("option-hide", "hide", parse("hide", &self.hide)?),
            ("option-redact", "redact", parse("redact", &self.redact)?),
        ];
        let exempt = |pattern: &Pattern| match tree.has_directory(pattern) {
            true => pattern.whole(),
            // Otherwise the command could make a directory of this name, and move others there.
            false => vec![pattern.text()],
        };
        text.add_rule(
            "option-allow",
            "passthrough",
            "",
            allow.iter().flat_map(exempt),
        );
        let all = || restricting.iter().flat_map(|(_, _, patterns)| patterns);
        let (named, matched): (Vec<Pattern>, Vec<Pattern>) =
            all().flat_map(Pattern::parents).partition(Pattern::is_name);
        text.add_rule(
            "option-parents",
            "read-only",
            "",
            named.iter().map(Pattern::text),
        );
        // Whatever else such a pattern matches has nothing beneath.
        let (name, keys) = (
            "option-parents-matched",
            "type = [\"directory\", \"symlink\"]\n",
        );
        text.add_rule(name, "read-only", keys, matched.iter().map(Pattern::text));
        for (name, action, patterns) in &restricting {
            let keys = match *action {
                "redact" => "redact = [\"gps\"]\n",
                _ => "",
            };
            text.add_rule(name, action, keys, patterns.iter().flat_map(Pattern::whole));
        }
        add_git_stores(git, text);
        Ok(())
    }
}

/// The profile's rules `links` and `moves` for git directories elsewhere, but for working trees in them.
fn add_git_stores(git: &GitPlaces, text: &mut Text) {
    const NEVER: &str = "**/.not-moved";
    let mut entered = vec![NEVER.to_owned()];
    let mut left = Vec::new();
    for store in &git.stores {
        let beneath = Pattern::of(store).beneath();
        entered.push(format!("!{beneath}"));
        let mut paths = vec![beneath];
        let is_within = |top: &&PathBuf| top.starts_with(store) && !git.stores.contains(*top);
        for top in git.tops.iter().filter(is_within) {
            let top = Pattern::of(top);
            paths.push(format!("!{}", top.beneath()));
            left.push(format!("{}/{NEVER}", top.text()));
        }
        text.add_rule(
            "links-elsewhere",
            "read-only",
            "type = \"symlink\"\n",
            paths,
        );
    }
    if !git.stores.is_empty() {
        for paths in [entered, left] {
            text.add_rule("moves-elsewhere", "hide", "", paths);
        }
    }
}

/// What linked working trees share, and change every day. `git gc` locks each HEAD and shortens its log. All else in the
/// directory is another working tree's, or decides what git executes.
const SHARED: &str = "\
    objects/** refs/** reftable/** packed-refs* shallow* gc.* info/refs* \
    logs logs/** HEAD.lock worktrees/*/logs/** worktrees/*/HEAD.lock \
    lost-found lost-found/** rr-cache rr-cache/** lfs lfs/**";

/// Read-only in the git directory of one working tree, besides what the configuration names.
const OF_ONE: &str = "info info/** !info/refs* !info/sparse-checkout* worktrees worktrees/**";

/// Other stores that git on the host would read from.
const STORES: &str = "objects objects/info objects/info/{alternates,http-alternates}";

/// The policy of a git directory outside of the tree.
pub(super) fn of_git_directory(directory: &GitDirectory) -> Result<(String, Policy), RuleError> {
    let mut text = Text::default();
    let words = |list: &'static str| list.split(' ').map(str::to_owned);
    let named: Vec<Pattern> = directory.inside.iter().map(|it| Pattern::of(it)).collect();
    let parents = named.iter().flat_map(Pattern::parents).map(|it| it.text());
    let mut kept: Vec<String> = named
        .iter()
        .flat_map(Pattern::whole)
        .chain(parents)
        .collect();
    kept.extend(words(STORES));
    if let Some(own) = directory.own.as_deref().map(Pattern::of) {
        let writable = words(SHARED).chain([own.beneath()]);
        let rest = ["**".to_owned()]
            .into_iter()
            .chain(writable.map(|it| format!("!{it}")));
        text.add_rule("git", "read-only", "", rest);
        let own = |name| format!("{}/{name}", own.text());
        kept.extend(
            [
                "{commondir,config.worktree,gitdir,locked,modules}",
                "modules/**",
            ]
            .map(own),
        );
    } else {
        text.add_rule("git", "read-only", "", words(OF_ONE));
    }
    text.add_rule("git-kept", "read-only", "", kept);
    text.add_rule("links", "read-only", "type = \"symlink\"\n", words("**"));
    let text = text.with_profiles(&[]);
    let policy = checked(&directory.path, &text)?;
    Ok((text, policy))
}

fn checked(path: &Path, text: &str) -> Result<Policy, PolicyFileError> {
    Policy::of_file(path, text.as_bytes())
}

/// The text of a valid policy file.
fn read(path: &Path) -> Result<String, PolicyFileError> {
    let text = policy_file::text_of(path)?;
    // A policy has the message for what is not UTF-8.
    Policy::of_file(path, &text)?;
    Ok(String::from_utf8(text).expect("a valid policy is UTF-8"))
}
