//! Every option of virtiofsd 1.14, and its effect here.

use super::collected::{Collected, VirtiofsdError};
use crate::options;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, value_parser};
use std::ffi::{OsStr, OsString};

type Act = fn(&mut Collected, &OsStr) -> Result<(), VirtiofsdError>;

pub(super) struct VirtiofsdOption {
    pub(super) argument: Arg,
    /// Otherwise as the common option of the same name, with the same value.
    act: Option<Act>,
}

impl VirtiofsdOption {
    pub(super) fn name(&self) -> &str {
        self.argument.get_id().as_str()
    }

    pub(super) fn shown(&self) -> String {
        match self.argument.get_short() {
            Some(short) => format!("-{short}"),
            None => format!("--{}", self.name()),
        }
    }

    /// As in the manual: `--sandbox=namespace|chroot|none`.
    pub(super) fn pattern(&self) -> String {
        let shown = self.shown();
        if !self.takes_value() {
            return shown;
        }
        let names = self.argument.get_value_names().unwrap_or_default();
        let words = self.argument.get_possible_values();
        let words: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
        let value = match words.is_empty() {
            true => names.concat(),
            false => words.join("|"),
        };
        match self.argument.get_short() {
            _ if self.argument.is_require_equals_set() => format!("{shown}[={value}]"),
            Some(_) => format!("{shown} {value}"),
            None => format!("{shown}={value}"),
        }
    }

    pub(super) fn takes_value(&self) -> bool {
        self.argument.get_action().takes_values()
    }

    /// Adds the settings for one value; for a switch the value does not matter.
    pub(super) fn collect(&self, value: &OsStr, all: &mut Collected) -> Result<(), VirtiofsdError> {
        let text = || {
            let text = value.to_str();
            text.ok_or_else(|| VirtiofsdError::NotText(self.shown()))
        };
        match self.act {
            Some(act) => act(all, value),
            None => {
                let value = self.takes_value().then(text).transpose()?;
                all.set(&self.name().replace('-', "_"), value)
            }
        }
    }

    fn with(self, change: impl FnOnce(Arg) -> Arg) -> VirtiofsdOption {
        VirtiofsdOption {
            argument: change(self.argument),
            ..self
        }
    }

    fn help(self, help: &'static str) -> VirtiofsdOption {
        self.with(|it| it.help(help))
    }

    fn does(self, act: Act) -> VirtiofsdOption {
        let act = Some(act);
        VirtiofsdOption { act, ..self }
    }

    /// It requests the default, for this reason.
    fn already_so(self, why: &str) -> VirtiofsdOption {
        let help = self.argument.get_help().cloned().unwrap_or_default();
        let help = format!("{help} [no effect: {why}]");
        self.with(|it| it.help(help)).does(|_, _| Ok(()))
    }

    fn overrides(self, other: &'static str) -> VirtiofsdOption {
        self.with(|it| it.overrides_with(other))
    }

    /// Its only form.
    fn short(self, letter: char) -> VirtiofsdOption {
        self.with(|it| it.short(letter).long(None::<&str>))
    }
}

fn switch(name: &'static str) -> VirtiofsdOption {
    let argument = Arg::new(name).long(name);
    VirtiofsdOption {
        argument: argument.action(ArgAction::SetTrue),
        act: None,
    }
}

/// The last value counts.
fn one(name: &'static str, value_name: &'static str) -> VirtiofsdOption {
    switch(name).with(|it| {
        let parser = value_parser!(OsString);
        it.action(ArgAction::Set)
            .value_name(value_name)
            .value_parser(parser)
    })
}

/// All values count.
fn many(name: &'static str, value_name: &'static str) -> VirtiofsdOption {
    one(name, value_name).with(|it| it.action(ArgAction::Append))
}

fn word(name: &'static str, words: &'static [&'static str]) -> VirtiofsdOption {
    let words = PossibleValuesParser::new(words).map(OsString::from);
    one(name, "WORD").with(|it| it.value_parser(words))
}

/// Optional, after an equals sign; `always` without.
fn mode(name: &'static str) -> VirtiofsdOption {
    word(name, &["never", "auto", "always"]).with(|it| {
        let it = it.num_args(0..=1).require_equals(true);
        it.default_missing_value("always")
    })
}

pub(super) fn options() -> [VirtiofsdOption; 41] {
    [
        one("shared-dir", "DIR")
            .help("The directory to share")
            .does(|all, value| {
                all.shared_dir = Some(value.into());
                Ok(())
            }),
        one("socket-path", "PATH")
            .help("The socket to create and listen at; the process id is in PATH.pid")
            .does(socket),
        one("socket", "PATH").help("As --socket-path").does(socket),
        one("socket-group", "GROUP")
            .help("The group that may connect besides the user")
            .does(|all, value| {
                let group = text("--socket-group", value)?;
                let bad = |problem: String| VirtiofsdError::value("--socket-group", group, problem);
                all.group = Some(options::parse_group(group).map_err(bad)?);
                Ok(())
            }),
        one("fd", "N")
            .help("Number of a listening socket to use instead of --socket-path")
            .does(|all, value| {
                let text = text("--fd", value)?;
                let number = text.parse().ok().filter(|number| *number >= 0);
                let bad = || VirtiofsdError::value("--fd", text, "it must be a number");
                all.descriptor = Some(number.ok_or_else(bad)?);
                Ok(())
            }),
        one("tag", "TAG").help("The tag of the device, for machine monitors that ask the server"),
        word("cache", &["never", "metadata", "auto", "always"])
            .help("What the guest may cache [default: auto]"),
        switch("writeback").help("Let the guest cache written data and write them later"),
        switch("allow-mmap").help("Allow shared mappings with --cache=never and metadata"),
        switch("allow-direct-io").help("Open files on the host with O_DIRECT when the guest does"),
        switch("no-readdirplus").help("Return directory entries without attributes"),
        switch("announce-submounts")
            .help("Show mounts in the directory as separate devices [the default]")
            .overrides("no-announce-submounts"),
        switch("no-announce-submounts")
            .help("Show one device for everything")
            .overrides("announce-submounts"),
        word(
            "inode-file-handles",
            &["never", "prefer", "fallback", "mandatory"],
        )
        .help(
            "Find files again by handle, which an attacker in control of the server can use too \
             [default: never]",
        )
        .does(|all, value| {
            let value = match value.to_str() {
                Some("fallback") => Some("prefer"),
                other => other,
            };
            all.set("inode_file_handles", value)
        }),
        switch("readonly")
            .help("Refuse every change")
            .does(|all, _| all.set("ro", None)),
        switch("xattr").help("Serve extended attributes"),
        mode("posix-acl")
            .help("Serve POSIX ACLs, which implies --xattr [default: never]")
            // Every guest since Linux 4.9 supports them, so `auto` is `always`.
            .does(|all, value| by_mode(all, value, "acl", "noacl")),
        mode("security-label")
            .help("Set the label that the guest sends, which implies --xattr [default: never]")
            // Every guest since Linux 5.17 sends them, if it has any.
            .does(|all, value| by_mode(all, value, "security_label", "no_security_label")),
        one("xattrmap", "RULES")
            .help("Other names on the host for extended attributes, as in :map::user.virtiofs.:")
            .does(|all, value| {
                all.set("xattr", None)?;
                all.set("xattrmap", Some(text("--xattrmap", value)?))
            }),
        switch("killpriv-v2")
            .help(
                "Clear set-id bits and capabilities of files that are written, instead of \
                 the guest",
            )
            .overrides("no-killpriv-v2"),
        switch("no-killpriv-v2")
            .help("Leave that to the guest [the default]")
            .overrides("killpriv-v2"),
        switch("preserve-noatime")
            .help("Pass O_NOATIME on to the host")
            .already_so("O_NOATIME is always passed on"),
        many("translate-uid", "RULE").help(
            "Translate user ids: guest:, host:, squash-guest:, squash-host: or \
             map:FROM:TO:COUNT, or forbid-guest:FROM:COUNT; ACLs are translated too",
        ),
        many("translate-gid", "RULE").help("As --translate-uid, for groups"),
        many("uid-map", ":INSIDE:OUTSIDE:COUNT:")
            .help(
                "Map user ids by a user namespace, for an ordinary user's server; requires \
                 --gid-map",
            )
            .does(|all, value| range(all, "--uid-map", "namespace_uidmap", value)),
        many("gid-map", ":INSIDE:OUTSIDE:COUNT:")
            .help("Map group ids by a user namespace")
            .does(|all, value| range(all, "--gid-map", "namespace_gidmap", value)),
        word("sandbox", &["namespace", "chroot", "none"])
            .help("How the process is confined [default: namespace, if available]"),
        word("seccomp", &["none", "kill", "log", "trap"])
            .help("Action for system calls that serving does not need [default: they fail]"),
        one("modcaps", "CHANGES").help(
            "Capabilities to keep or to drop in addition, as in \
                 --modcaps=+sys_admin:-chown",
        ),
        one("rlimit-nofile", "N")
            .help("The limit on open files; 0 leaves it [default: the hard limit]"),
        one("thread-pool-size", "N")
            .help("Threads that serve")
            .already_so("each queue has a thread, and requests that block move to another"),
        word(
            "log-level",
            &["error", "warn", "info", "debug", "trace", "off"],
        )
        .help("What to log [default: info]")
        .does(|all, value| all.set("log", value.to_str())),
        switch("syslog").help("Log to syslog(3)"),
        switch("print-capabilities")
            .help("Print the supported features as JSON, and exit")
            .does(|_, _| Ok(())),
        word("migration-mode", &["find-paths", "file-handles"])
            .help("How files of the guest are sent to the destination of a migration"),
        word("migration-on-error", &["abort", "guest-error"])
            .help("What happens when files of the guest are not found"),
        switch("migration-verify-handles").help("Verify that the same files were found"),
        switch("migration-confirm-paths").help("Check paths again before the guest migrates"),
        many("options", "LIST")
            .short('o')
            .help("Options in the form of the older program, as in -o source=DIR,cache=none")
            // Their position among the flags does not matter.
            .does(|_, _| Ok(())),
        switch("debug")
            .short('d')
            .help("As --log-level=debug")
            .does(|all, _| all.set("log", Some("debug"))),
        switch("foreground")
            .short('f')
            .help("Stay in the foreground")
            .already_so("it stays in the foreground"),
    ]
}

fn socket(all: &mut Collected, value: &OsStr) -> Result<(), VirtiofsdError> {
    all.socket = Some(value.into());
    Ok(())
}

/// A [`mode`] of what requires extended attributes.
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
    let problem = "it must be three numbers as in :0:100000:65536:";
    let numbers = numbers.ok_or_else(|| VirtiofsdError::value(option, text, problem))?;
    all.set(name, Some(&numbers))
}

fn text<'a>(option: &'static str, value: &'a OsStr) -> Result<&'a str, VirtiofsdError> {
    value
        .to_str()
        .ok_or_else(|| VirtiofsdError::NotText(option.to_owned()))
}
