//! Every option of virtiofsd 1.14, and what becomes of it.

use super::{Collected, VirtiofsdError};
use crate::options;
use std::ffi::OsStr;

/// What follows an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    Nothing,
    /// A value; the last counts.
    One(&'static str),
    /// A value; all count.
    Many(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words after an equals sign, or nothing, which is `always`.
    WordOrNot(&'static [&'static str]),
}

/// Puts what it asks for among the rest.
pub(super) type Act = fn(&mut Collected, &OsStr) -> Result<(), VirtiofsdError>;

/// What becomes of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The option of ours that has its name, with the value that it has.
    Same,
    Done(Act),
    /// What it asks for is so, for this reason.
    AlreadySo(&'static str),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct VirtiofsdOption {
    /// The long form without its hyphens; or what stands for an option without one.
    pub(super) name: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Taken,
    /// Of opposites, the last counts.
    pub(super) overrides: &'static [&'static str],
    pub(super) outcome: Outcome,
    pub(super) help: &'static str,
}

impl VirtiofsdOption {
    pub(super) fn is_long(&self) -> bool {
        self.short.is_none()
    }

    /// The name of our option that is called as this one.
    pub(super) fn same_of_ours(&self) -> String {
        self.name.replace('-', "_")
    }

    /// As it is written.
    pub(super) fn shown(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.name),
        }
    }
}

const MODES: &[&str] = &["never", "auto", "always"];

const fn row(
    name: &'static str,
    takes: Taken,
    outcome: Outcome,
    help: &'static str,
) -> VirtiofsdOption {
    VirtiofsdOption {
        name,
        short: None,
        takes,
        overrides: &[],
        outcome,
        help,
    }
}

const fn same(name: &'static str, takes: Taken, help: &'static str) -> VirtiofsdOption {
    row(name, takes, Outcome::Same, help)
}

const fn short(letter: char, row: VirtiofsdOption) -> VirtiofsdOption {
    VirtiofsdOption {
        short: Some(letter),
        ..row
    }
}

const fn opposite(other: &'static [&'static str], row: VirtiofsdOption) -> VirtiofsdOption {
    VirtiofsdOption {
        overrides: other,
        ..row
    }
}

use Outcome::{AlreadySo, Done};
use Taken::{Many, Nothing, One, Word, WordOrNot};

pub(super) const OPTIONS: &[VirtiofsdOption] = &[
    row(
        "shared-dir",
        One("DIR"),
        Done(|all, value| {
            all.shared_dir = Some(value.into());
            Ok(())
        }),
        "The directory to share",
    ),
    row(
        "socket-path",
        One("PATH"),
        Done(socket),
        "The socket to make and listen at; its process stands in PATH.pid",
    ),
    row("socket", One("PATH"), Done(socket), "As --socket-path"),
    row(
        "socket-group",
        One("GROUP"),
        Done(|all, value| {
            let parsed = options::parse_group(text("--socket-group", value)?);
            all.group = Some(parsed.map_err(|problem| bad("--socket-group", value, problem))?);
            Ok(())
        }),
        "The group that may connect besides the user",
    ),
    row(
        "fd",
        One("N"),
        Done(|all, value| {
            let number = text("--fd", value)?
                .parse()
                .ok()
                .filter(|number| *number >= 0);
            let problem = || bad("--fd", value, "it must be a number".to_owned());
            all.descriptor = Some(number.ok_or_else(problem)?);
            Ok(())
        }),
        "The number of a socket that listens already, instead of --socket-path",
    ),
    same(
        "tag",
        One("TAG"),
        "What the guest mounts it by, for machines that ask the server",
    ),
    same(
        "cache",
        Word(&["never", "metadata", "auto", "always"]),
        "What the guest may keep [default: auto]",
    ),
    same(
        "writeback",
        Nothing,
        "Let the guest keep written data and write them later",
    ),
    same(
        "allow-mmap",
        Nothing,
        "Let files be mapped shared with --cache=never and metadata",
    ),
    same(
        "allow-direct-io",
        Nothing,
        "Open files on the host with O_DIRECT when the guest does",
    ),
    same(
        "no-readdirplus",
        Nothing,
        "Give names of a directory without attributes",
    ),
    opposite(
        &["no-announce-submounts"],
        same(
            "announce-submounts",
            Nothing,
            "Show mounts in the directory as devices of their own [the default]",
        ),
    ),
    opposite(
        &["announce-submounts"],
        same(
            "no-announce-submounts",
            Nothing,
            "Show one device for everything",
        ),
    ),
    row(
        "inode-file-handles",
        Word(&["never", "prefer", "fallback", "mandatory"]),
        Done(|all, value| {
            let value = match value.to_str() {
                Some("fallback") => Some("prefer"),
                other => other,
            };
            all.set("inode_file_handles", value)
        }),
        "Find files again by handle, which a guest that takes the server over can use too [default: never]",
    ),
    row(
        "readonly",
        Nothing,
        Done(|all, _| all.set("ro", None)),
        "Refuse every change",
    ),
    same("xattr", Nothing, "Serve extended attributes"),
    row(
        "posix-acl",
        WordOrNot(MODES),
        Done(|all, value| {
            if value == "never" {
                return all.set("noacl", None);
            }
            // Every guest since Linux 4.9 knows them: none that asks always has to be refused.
            all.set("xattr", None)?;
            all.set("acl", None)
        }),
        "Serve POSIX ACLs, which implies --xattr [default: never]",
    ),
    row(
        "security-label",
        WordOrNot(MODES),
        Done(|all, value| {
            if value == "never" {
                return all.set("no_security_label", None);
            }
            // Every guest since Linux 5.17 says them, if it has any.
            all.set("xattr", None)?;
            all.set("security_label", None)
        }),
        "Give files the label that the guest says, which implies --xattr [default: never]",
    ),
    row(
        "xattrmap",
        One("RULES"),
        Done(|all, value| {
            all.set("xattr", None)?;
            all.set("xattrmap", Some(text("--xattrmap", value)?))
        }),
        "Other names on the host for extended attributes, as in :map::user.virtiofs.:",
    ),
    opposite(
        &["no-killpriv-v2"],
        same(
            "killpriv-v2",
            Nothing,
            "Take set-id bits and capabilities away from files that are written to, instead of the guest",
        ),
    ),
    opposite(
        &["killpriv-v2"],
        same(
            "no-killpriv-v2",
            Nothing,
            "Leave that to the guest [the default]",
        ),
    ),
    row(
        "preserve-noatime",
        Nothing,
        AlreadySo("O_NOATIME is always passed on"),
        "Pass O_NOATIME on to the host",
    ),
    same(
        "translate-uid",
        Many("RULE"),
        "Translate user ids: guest:, host:, squash-guest:, squash-host: or map:FROM:TO:COUNT, or \
         forbid-guest:FROM:COUNT; ACLs are translated too",
    ),
    same(
        "translate-gid",
        Many("RULE"),
        "As --translate-uid, for groups",
    ),
    row(
        "uid-map",
        Many(":INSIDE:OUTSIDE:COUNT:"),
        Done(|all, value| range(all, "--uid-map", "namespace_uidmap", value)),
        "Map user ids by a user namespace, for a server that is not root's; --gid-map is needed too",
    ),
    row(
        "gid-map",
        Many(":INSIDE:OUTSIDE:COUNT:"),
        Done(|all, value| range(all, "--gid-map", "namespace_gidmap", value)),
        "Map group ids by a user namespace",
    ),
    same(
        "sandbox",
        Word(&["namespace", "chroot", "none"]),
        "Where the process is shut in [default: namespace, if it can be had]",
    ),
    same(
        "seccomp",
        Word(&["none", "kill", "log", "trap"]),
        "What a system call meets with that serving does not need [default: it fails]",
    ),
    same(
        "modcaps",
        One("CHANGES"),
        "Capabilities to keep or to drop besides, as in --modcaps=+sys_admin:-chown",
    ),
    same(
        "rlimit-nofile",
        One("N"),
        "The limit on open files; 0 leaves it [default: the hard limit]",
    ),
    row(
        "thread-pool-size",
        One("N"),
        AlreadySo("each queue has a thread, and requests that wait leave it for another"),
        "Threads that serve",
    ),
    row(
        "log-level",
        Word(&["error", "warn", "info", "debug", "trace", "off"]),
        Done(|all, value| all.set("log", value.to_str())),
        "What to log [default: info]",
    ),
    same("syslog", Nothing, "Log to the system's log (syslog(3))"),
    row(
        "print-capabilities",
        Nothing,
        Done(|_, _| Ok(())),
        "Print what managers want to know as JSON, and end",
    ),
    same(
        "migration-mode",
        Word(&["find-paths", "file-handles"]),
        "How to tell another server which files the guest has",
    ),
    same(
        "migration-on-error",
        Word(&["abort", "guest-error"]),
        "What becomes of files that are not found again",
    ),
    same(
        "migration-verify-handles",
        Nothing,
        "Look whether the same files were found",
    ),
    same(
        "migration-confirm-paths",
        Nothing,
        "Look at paths again before the guest moves",
    ),
    // The older forms.
    short(
        'o',
        row(
            "options",
            Many("LIST"),
            // Where the lists stand among the flags does not matter.
            Done(|_, _| Ok(())),
            "Options in the form of the older program, as in -o source=DIR,cache=none",
        ),
    ),
    short(
        'd',
        row(
            "debug",
            Nothing,
            Done(|all, _| all.set("log", Some("debug"))),
            "As --log-level=debug",
        ),
    ),
    short(
        'f',
        row(
            "foreground",
            Nothing,
            AlreadySo("it stays in the foreground"),
            "Stay in the foreground",
        ),
    ),
];

fn socket(all: &mut Collected, value: &OsStr) -> Result<(), VirtiofsdError> {
    all.socket = Some(value.into());
    Ok(())
}

/// Three numbers with the same character before, between and after them.
fn range(
    all: &mut Collected,
    option: &'static str,
    name: &'static str,
    value: &OsStr,
) -> Result<(), VirtiofsdError> {
    let text = text(option, value)?;
    let separator = text.chars().next().filter(|c| !c.is_alphanumeric());
    let numbers = separator.and_then(|separator| {
        let inner = text.strip_prefix(separator)?.strip_suffix(separator)?;
        Some(inner.split(separator).collect::<Vec<_>>().join(":"))
    });
    let problem = || "it must be three numbers as in :0:100000:65536:".to_owned();
    let numbers = numbers.ok_or_else(|| bad(option, value, problem()))?;
    all.set(name, Some(&numbers))
}

fn text<'a>(option: &'static str, value: &'a OsStr) -> Result<&'a str, VirtiofsdError> {
    value
        .to_str()
        .ok_or_else(|| VirtiofsdError::NotText(option.to_owned()))
}

fn bad(option: &str, value: &OsStr, problem: String) -> VirtiofsdError {
    VirtiofsdError::Value {
        option: option.to_owned(),
        value: value.to_string_lossy().into_owned(),
        problem,
    }
}
