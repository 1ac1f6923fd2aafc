//! `mount.thrufs`, the helper of mount(8) and systemd.
//!
//! `mount.thrufs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE] [-N NAMESPACE]`, with the exit statuses
//! of mount(8). `-f` is "fake", not "foreground".
//!
//! mount.fuse(8) calls `thrufs SOURCE MOUNTPOINT -o OPTIONS`, for the type `fuse.thrufs` without a helper of that name,
//! and for the type `fuse` with the source `thrufs#SOURCE`.

use crate::arguments::Purpose;
use crate::command_line;
use crate::error::{CommandError, StartupError, USAGE};
use crate::launch::{self, MountArguments};
use crate::mounting::error::MountCommandError;
use crate::options::{self, OptionError};
use crate::output::report;
use crate::remount::{self, RemountError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thrufs::MountError;

/// Program names of the helper.
pub(crate) const NAMES: [&str; 2] = ["mount.thrufs", "mount.fuse.thrufs"];

#[derive(Debug)]
pub(crate) struct HelperArguments {
    pub(crate) mount: MountArguments,
    /// Whether it is mounted already, and flags are to change.
    pub(crate) remount: bool,
    /// Check, but do not mount.
    pub(crate) fake: bool,
    pub(crate) verbose: bool,
    /// Unknown options, ignored by `-s`.
    pub(crate) left_out: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HelperError {
    #[error("usage: mount.thrufs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]")]
    Usage,
    #[error("unknown flag {0:?}; mount.thrufs takes -s, -f, -n, -v, -o OPTIONS and -t TYPE")]
    UnknownFlag(OsString),
    #[error("mounting in another namespace (-N) is not supported: run it inside, with nsenter(1)")]
    Namespace,
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Mount(#[from] MountCommandError),
    #[error(transparent)]
    Remount(#[from] RemountError),
}

impl CommandError for HelperError {
    /// As of mount(8): 1 for the arguments, 2 for the system, 32 for the mount.
    fn status(&self) -> u8 {
        match self {
            HelperError::Mount(
                MountCommandError::Startup(StartupError::System { .. })
                | MountCommandError::Mount(MountError::Device(_)),
            ) => 2,
            HelperError::Mount(error) if error.status() != USAGE => 32,
            HelperError::Remount(RemountError::Option(_)) => 1,
            HelperError::Remount(_) => 32,
            _ => 1,
        }
    }
}

/// Whether the program is called as the helper, by mount(8) or by mount.fuse(8). Names of commands come first.
pub(crate) fn is_called(arguments: &[OsString]) -> bool {
    match arguments {
        [program, ..] if is_helper(program) => true,
        [_, source, _, flag, _] if flag == "-o" && !source.as_bytes().starts_with(b"-") => {
            let command = command_line::command(Purpose::Parsing);
            command.find_subcommand(source).is_none()
        }
        _ => false,
    }
}

fn is_helper(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    NAMES.iter().any(|helper| name == OsStr::new(helper))
}

/// Mounts, unless asked only to check.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<(), HelperError> {
    let helper = parse(arguments.into_iter().skip(1))?;
    for option in &helper.left_out {
        report(format_args!(
            "mount.thrufs: ignored the unknown option `{option}`"
        ));
    }
    if helper.remount {
        return Ok(remount::run(helper.mount, helper.fake)?);
    }
    let plan = launch::plan(helper.mount)?;
    if helper.verbose {
        report(format_args!("mount.thrufs: {plan}"));
    }
    if !helper.fake {
        plan.carry_out()?;
    }
    Ok(())
}

/// Parses the arguments, without the program's name.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<HelperArguments, HelperError> {
    let mut paths = Vec::new();
    let mut lists = Vec::new();
    let (mut fake, mut sloppy, mut verbose) = (false, false, false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let Some(letters) = argument
            .as_bytes()
            .strip_prefix(b"-")
            .filter(|l| !l.is_empty())
        else {
            paths.push(PathBuf::from(argument));
            continue;
        };
        for (index, letter) in letters.iter().enumerate() {
            match letter {
                b'f' => fake = true,
                b's' => sloppy = true,
                b'v' => verbose = true,
                // There is no /etc/mtab.
                b'n' => {}
                b'N' => return Err(HelperError::Namespace),
                b'o' | b't' => {
                    let rest = &letters[index + 1..];
                    let value = match rest {
                        b"" => arguments.next().ok_or(HelperError::Usage)?,
                        rest => OsStr::from_bytes(rest).to_owned(),
                    };
                    if *letter == b'o' {
                        lists.push(value);
                    }
                    break;
                }
                _ => return Err(HelperError::UnknownFlag(argument.clone())),
            }
        }
    }
    let [source, mountpoint] = <[PathBuf; 2]>::try_from(paths).map_err(|_| HelperError::Usage)?;
    let mut settings = Vec::new();
    let mut left_out = Vec::new();
    let mut remount = false;
    for list in lists {
        let list = list.into_string().map_err(OptionError::NotText)?;
        let (list, is_remount) = remount::separate(&list);
        remount |= is_remount;
        if sloppy {
            let (known, unknown) = options::parse_sloppily(&list)?;
            settings.extend(known);
            left_out.extend(unknown);
        } else {
            settings.extend(options::parse(&list)?);
        }
    }
    let mount = MountArguments {
        source,
        mountpoint,
        settings,
    };
    Ok(HelperArguments {
        mount,
        remount,
        fake,
        verbose,
        left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Result<HelperArguments, HelperError> {
        parse(arguments.split_whitespace().map(OsString::from))
    }

    #[test]
    fn names() {
        assert!(is_helper("/sbin/mount.thrufs".as_ref()));
        assert!(is_helper("mount.fuse.thrufs".as_ref()));
        assert!(!is_helper("/usr/bin/thrufs".as_ref()));
        let is_called = |arguments: &str| {
            let words = arguments.split(' ').map(OsString::from);
            is_called(&words.collect::<Vec<_>>())
        };
        assert!(is_called("mount.thrufs") && is_called("thrufs /src /mnt -o rw"));
        for others in ["thrufs share /src -o rw", "thrufs -o rw -o x", "thrufs a b"] {
            assert!(!is_called(others), "{others}");
        }
    }

    #[test]
    fn arguments_of_mount_are_parsed() {
        let helper = parsed("/src /mnt -o rw,noatime -o allow_other").unwrap();
        assert_eq!(helper.mount.source, Path::new("/src"));
        assert_eq!(helper.mount.mountpoint, Path::new("/mnt"));
        assert_eq!(helper.mount.settings.len(), 3);
        assert!(!helper.fake && !helper.verbose);
        let helper = parsed("-sfnv /src -t fuse.thrufs /mnt -oro,strange").unwrap();
        assert!(helper.fake && helper.verbose);
        assert_eq!(helper.left_out, ["strange"]);
        assert_eq!(helper.mount.settings.len(), 1);
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let refused = |arguments| parsed(arguments).unwrap_err();
        for arguments in ["/src", "/a /b /c", "/a /b -o"] {
            assert!(
                matches!(refused(arguments), HelperError::Usage),
                "{arguments}"
            );
        }
        assert!(matches!(refused("/a /b -x"), HelperError::UnknownFlag(_)));
        let namespace = refused("/a /b -N /proc/1/ns/mnt");
        assert!(matches!(namespace, HelperError::Namespace));
        assert!(matches!(
            refused("/a /b -o strange"),
            HelperError::Option(_)
        ));
    }
}
