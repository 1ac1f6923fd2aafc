//! Every option of virtiofsd 1.14, and its effect here.

use super::collected::{Collected, VirtiofsdError};
use crate::options;
use Taken::{Many, Nothing, One, Word, WordOrNot};
use std::ffi::OsStr;

#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    Nothing,
    /// The last value counts.
    One(&'static str),
    /// All values count.
    Many(&'static str),
    Word(&'static [&'static str]),
    /// Optional, after an equals sign; `always` without.
    WordOrNot(&'static [&'static str]),
}

pub(super) type Act = fn(&mut Collected, &OsStr) -> Result<(), VirtiofsdError>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The option of the same name, with the same value.
    Same,
    Done(Act),
    /// It requests the default, for this reason.
    AlreadySo(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct VirtiofsdOption {
    /// The long form without hyphens; or a name for an option without one.
    pub(super) name: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Taken,
    pub(super) overrides: &'static [&'static str],
    pub(super) outcome: Outcome,
    pub(super) help: &'static str,
}

impl VirtiofsdOption {
    pub(super) fn is_long(&self) -> bool {
        self.short.is_none()
    }

    /// The name in the common table.
    pub(super) fn same_of_ours(&self) -> String {
        self.name.replace('-', "_")
    }

    pub(super) fn shown(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.name),
        }
    }
}

const MODES: &[&str] = &["never", "auto", "always"];

/// By default as the option of the same name.
const fn row(name: &'static str, takes: Taken) -> VirtiofsdOption {
    VirtiofsdOption {
        name,
        short: None,
        takes,
        overrides: &[],
        outcome: Outcome::Same,
        help: "",
    }
}

impl VirtiofsdOption {
    const fn help(self, help: &'static str) -> VirtiofsdOption {
        VirtiofsdOption { help, ..self }
    }

    const fn does(self, act: Act) -> VirtiofsdOption {
        let outcome = Outcome::Done(act);
        VirtiofsdOption { outcome, ..self }
    }

    const fn already_so(self, why: &'static str) -> VirtiofsdOption {
        let outcome = Outcome::AlreadySo(why);
        VirtiofsdOption { outcome, ..self }
    }

    const fn overrides(self, overrides: &'static [&'static str]) -> VirtiofsdOption {
        VirtiofsdOption { overrides, ..self }
    }

    const fn short(self, letter: char) -> VirtiofsdOption {
        let short = Some(letter);
        VirtiofsdOption { short, ..self }
    }
}

pub(super) const OPTIONS: &[VirtiofsdOption] = &[
    row("shared-dir", One("DIR"))
        .help("The directory to share")
        .does(|all, value| {
            all.shared_dir = Some(value.into());
            Ok(())
        }),
    row("socket-path", One("PATH"))
        .help("The socket to create and listen at; the process id is in PATH.pid")
        .does(socket),
    row("socket", One("PATH"))
        .help("As --socket-path")
        .does(socket),
    row("socket-group", One("GROUP"))
        .help("The group that may connect besides the user")
        .does(|all, value| {
            let parsed = options::parse_group(text("--socket-group", value)?);
            all.group = Some(parsed.map_err(|problem| bad("--socket-group", value, problem))?);
            Ok(())
        }),
    row("fd", One("N"))
        .help("Number of a listening socket to use instead of --socket-path")
        .does(|all, value| {
            let number = text("--fd", value)?
                .parse()
                .ok()
                .filter(|number| *number >= 0);
            let problem = || bad("--fd", value, "it must be a number".to_owned());
            all.descriptor = Some(number.ok_or_else(problem)?);
            Ok(())
        }),
    row("tag", One("TAG")).help("The tag of the device, for machine monitors that ask the server"),
    row("cache", Word(&["never", "metadata", "auto", "always"]))
        .help("What the guest may cache [default: auto]"),
    row("writeback", Nothing).help("Let the guest cache written data and write them later"),
    row("allow-mmap", Nothing).help("Allow shared mappings with --cache=never and metadata"),
    row("allow-direct-io", Nothing)
        .help("Open files on the host with O_DIRECT when the guest does"),
    row("no-readdirplus", Nothing).help("Return directory entries without attributes"),
    row("announce-submounts", Nothing)
        .help("Show mounts in the directory as separate devices [the default]")
        .overrides(&["no-announce-submounts"]),
    row("no-announce-submounts", Nothing)
        .help("Show one device for everything")
        .overrides(&["announce-submounts"]),
    row(
        "inode-file-handles",
        Word(&["never", "prefer", "fallback", "mandatory"]),
    )
    .help(
        "Find files again by handle, which an attacker in control of the server can use too [default: \
         never]",
    )
    .does(|all, value| {
        let value = match value.to_str() {
            Some("fallback") => Some("prefer"),
            other => other,
        };
        all.set("inode_file_handles", value)
    }),
    row("readonly", Nothing)
        .help("Refuse every change")
        .does(|all, _| all.set("ro", None)),
    row("xattr", Nothing).help("Serve extended attributes"),
    row("posix-acl", WordOrNot(MODES))
        .help("Serve POSIX ACLs, which implies --xattr [default: never]")
        // Every guest since Linux 4.9 supports them, so `auto` is `always`.
        .does(|all, value| by_mode(all, value, "acl", "noacl")),
    row("security-label", WordOrNot(MODES))
        .help("Set the label that the guest sends, which implies --xattr [default: never]")
        // Every guest since Linux 5.17 sends them, if it has any.
        .does(|all, value| by_mode(all, value, "security_label", "no_security_label")),
    row("xattrmap", One("RULES"))
        .help("Other names on the host for extended attributes, as in :map::user.virtiofs.:")
        .does(|all, value| {
            all.set("xattr", None)?;
            all.set("xattrmap", Some(text("--xattrmap", value)?))
        }),
    row("killpriv-v2", Nothing)
        .help(
            "Clear set-id bits and capabilities of files that are written, instead of the guest",
        )
        .overrides(&["no-killpriv-v2"]),
    row("no-killpriv-v2", Nothing)
        .help("Leave that to the guest [the default]")
        .overrides(&["killpriv-v2"]),
    row("preserve-noatime", Nothing)
        .help("Pass O_NOATIME on to the host")
        .already_so("O_NOATIME is always passed on"),
    row("translate-uid", Many("RULE")).help(
        "Translate user ids: guest:, host:, squash-guest:, squash-host: or \
         map:FROM:TO:COUNT, or forbid-guest:FROM:COUNT; ACLs are translated too",
    ),
    row("translate-gid", Many("RULE")).help("As --translate-uid, for groups"),
    row("uid-map", Many(":INSIDE:OUTSIDE:COUNT:"))
        .help(
            "Map user ids by a user namespace, for an ordinary user's server; requires --gid-map",
        )
        .does(|all, value| range(all, "--uid-map", "namespace_uidmap", value)),
    row("gid-map", Many(":INSIDE:OUTSIDE:COUNT:"))
        .help("Map group ids by a user namespace")
        .does(|all, value| range(all, "--gid-map", "namespace_gidmap", value)),
    row("sandbox", Word(&["namespace", "chroot", "none"]))
        .help("How the process is confined [default: namespace, if available]"),
    row("seccomp", Word(&["none", "kill", "log", "trap"]))
        .help("Action for system calls that serving does not need [default: they fail]"),
    row("modcaps", One("CHANGES"))
        .help("Capabilities to keep or to drop in addition, as in --modcaps=+sys_admin:-chown"),
    row("rlimit-nofile", One("N"))
        .help("The limit on open files; 0 leaves it [default: the hard limit]"),
    row("thread-pool-size", One("N"))
        .help("Threads that serve")
        .already_so("each queue has a thread, and requests that block move to another"),
    row(
        "log-level",
        Word(&["error", "warn", "info", "debug", "trace", "off"]),
    )
    .help("What to log [default: info]")
    .does(|all, value| all.set("log", value.to_str())),
    row("syslog", Nothing).help("Log to syslog(3)"),
    row("print-capabilities", Nothing)
        .help("Print the supported features as JSON, and exit")
        .does(|_, _| Ok(())),
    row("migration-mode", Word(&["find-paths", "file-handles"]))
        .help("How files of the guest are sent to the destination of a migration"),
    row("migration-on-error", Word(&["abort", "guest-error"]))
        .help("What happens when files of the guest are not found"),
    row("migration-verify-handles", Nothing).help("Verify that the same files were found"),
    row("migration-confirm-paths", Nothing).help("Check paths again before the guest migrates"),
    row("options", Many("LIST"))
        .short('o')
        .help("Options in the form of the older program, as in -o source=DIR,cache=none")
        // Their position among the flags does not matter.
        .does(|_, _| Ok(())),
    row("debug", Nothing)
        .short('d')
        .help("As --log-level=debug")
        .does(|all, _| all.set("log", Some("debug"))),
    row("foreground", Nothing)
        .short('f')
        .help("Stay in the foreground")
        .already_so("it stays in the foreground"),
];

fn socket(all: &mut Collected, value: &OsStr) -> Result<(), VirtiofsdError> {
    all.socket = Some(value.into());
    Ok(())
}

/// One of [`MODES`] for what requires extended attributes.
fn by_mode(all: &mut Collected, mode: &OsStr, on: &str, off: &str) -> Result<(), VirtiofsdError> {
    if mode == "never" {
        return all.set(off, None);
    }
    all.set("xattr", None)?;
    all.set(on, None)
}

/// Three numbers, with the same character before, between and after them.
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
