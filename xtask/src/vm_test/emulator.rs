//! QEMU for guests: the machine's own, or, where a script needs a later one than that, Debian's, with
//! all that it links with, in a folder beside the kernels. Nothing of it is installed.

use super::debian::Debian;
use super::kernel;
use crate::step::{Failure, Step};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The machine's own.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// The package that has it, and the suite from which it comes where the machine's is too old.
const PACKAGE: &str = "qemu-system-x86";
const SUITE: &str = "trixie";

/// How the folder is called, in front of the version.
const PREFIX: &str = "qemu-";

/// Starts it, in its folder. It has a dynamic linker and libraries of its own, as it may be of a later
/// release than what the machine has.
const STARTER: (&str, &str) = (
    "start",
    "#!/bin/sh\n\
     here=$(dirname \"$(realpath \"$0\")\")\n\
     exec \"$here/usr/lib64/ld-linux-x86-64.so.2\" --library-path \"$here/usr/lib/x86_64-linux-gnu\" \\\n    \
     \"$here/usr/bin/qemu-system-x86_64\" -L \"$here/usr/share/qemu\" -L \"$here/usr/share/seabios\" \"$@\"\n",
);

/// A version of QEMU.
pub(super) type Version = (u32, u32);

/// A QEMU that is of this version or a later one.
pub(super) fn at_least(wanted: Version, fetch: bool) -> Result<PathBuf, Failure> {
    let own = PathBuf::from(PROGRAM);
    if version_of(&own)? >= wanted {
        return Ok(own);
    }
    let folder = match kernel::cached(PREFIX, "")? {
        Some(folder) if !fetch => folder,
        _ => newest()?,
    };
    let program = folder.join(STARTER.0);
    let found = version_of(&program)?;
    if found < wanted {
        return Err(Failure::new(format!(
            "{SUITE} has QEMU {}.{}, {}.{} is needed: name a later suite here",
            found.0, found.1, wanted.0, wanted.1
        )));
    }
    println!(
        "xtask: THIS MACHINE'S QEMU IS OLDER THAN {}.{}, which is needed here: {}.{} of Debian {SUITE} \
         is used, from {} (not installed)",
        wanted.0,
        wanted.1,
        found.0,
        found.1,
        folder.display()
    );
    Ok(program)
}

/// Fetches the newest that the suite has, unless it is there.
fn newest() -> Result<PathBuf, Failure> {
    let debian = Debian::open(kernel::place()?.join("apt"))?;
    let package = debian.newest(PACKAGE, SUITE)?;
    let folder = kernel::place()?.join(format!("{PREFIX}{}", kernel::file_name(&package)));
    if folder.exists() {
        return Ok(folder);
    }
    println!("xtask: fetching QEMU of Debian {SUITE} with its libraries: some 40 MB, once");
    let partial = kernel::beside(&folder, ".partial");
    let _ = fs::remove_dir_all(&partial);
    for file in debian.download_all(&package)? {
        kernel::extract(&file, &partial)?;
    }
    let starter = partial.join(STARTER.0);
    let unwritable = |error: io::Error| kernel::failure(&starter, &error);
    fs::write(&starter, STARTER.1).map_err(unwritable)?;
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o755)).map_err(unwritable)?;
    fs::rename(&partial, &folder).map_err(|error| kernel::failure(&folder, &error))?;
    Ok(folder)
}

fn version_of(program: &Path) -> Result<Version, Failure> {
    let (_, said, errors) = Step::new(program).args(["--version"]).capture()?;
    parse(&said)
        .ok_or_else(|| Failure::new(format!("{}: no version: {said}{errors}", program.display())))
}

/// The first two numbers of a text such as `QEMU emulator version 8.2.1 (Debian 1:8.2.1)`, or of `8.2`.
pub(super) fn parse(text: &str) -> Option<Version> {
    let mut words = text.split_whitespace();
    let number = words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn versions_are_understood() {
        let debians = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright";
        assert_eq!(parse(debians), Some((7, 2)));
        assert_eq!(parse("8.2"), Some((8, 2)));
        assert!(parse("10.0") > parse("8.2"));
        assert_eq!(parse("QEMU"), None);
    }
}
