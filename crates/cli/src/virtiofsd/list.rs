//! The older form of some options: a list after `-o`, without quotes.

use super::collected::{Collected, VirtiofsdError};

pub(super) fn collect(list: &str, all: &mut Collected) -> Result<(), VirtiofsdError> {
    list.split(',')
        .try_for_each(|item| match item.split_once('=') {
            Some((name, value)) => with_value(item, name, value, all),
            None => switch(item, all),
        })
}

fn with_value(
    item: &str,
    name: &str,
    value: &str,
    all: &mut Collected,
) -> Result<(), VirtiofsdError> {
    let bad = |problem: &str| VirtiofsdError::value(&format!("-o {name}"), value, problem);
    match (name, value) {
        ("source", _) => {
            all.shared_dir = Some(value.into());
            Ok(())
        }
        ("cache", "none") => all.set("cache", Some("never")),
        ("cache", "auto" | "always" | "metadata") => all.set("cache", Some(value)),
        ("cache", _) => Err(bad("it must be none, metadata, auto or always")),
        ("loglevel", "err") => all.set("log", Some("error")),
        ("loglevel", "debug" | "info" | "warn") => all.set("log", Some(value)),
        ("loglevel", _) => Err(bad("it must be err, warn, info or debug")),
        ("sandbox", "namespace" | "chroot") => all.set("sandbox", Some(value)),
        ("sandbox", _) => Err(bad("it must be namespace or chroot")),
        ("xattrmap", _) => {
            all.set("xattr", None)?;
            all.set("xattrmap", Some(value))
        }
        ("modcaps", _) => all.set("modcaps", Some(value)),
        _ => Err(VirtiofsdError::Unknown(item.to_owned())),
    }
}

fn switch(item: &str, all: &mut Collected) -> Result<(), VirtiofsdError> {
    match item {
        "xattr" | "no_xattr" | "readdirplus" | "no_readdirplus" | "writeback" | "no_writeback"
        | "allow_direct_io" | "no_allow_direct_io" | "announce_submounts" | "killpriv_v2"
        | "no_killpriv_v2" | "no_posix_acl" | "no_security_label" => {}
        "posix_acl" | "security_label" => all.set("xattr", None)?,
        // Local locks are the default.
        "no_posix_lock" | "no_flock" => return Ok(()),
        _ => return Err(VirtiofsdError::Unknown(item.to_owned())),
    }
    all.set(item, None)
}
