//! Packages of Debian for guests, each in one version, which `tests/guest/debian.sh` unpacks and never installs.

use crate::failure::Failure;
use crate::project;
use crate::skips;
use crate::step::Step;
use std::fs;
use std::path::{Path, PathBuf};

/// A package in its one version.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    /// Whether all its dependencies come with it.
    with_needs: bool,
    /// The suite that its dependencies are taken from first, unless it is the newest release.
    suite: Option<&'static str>,
}

const fn package(name: &'static str, version: &'static str) -> Package {
    Package {
        name,
        version,
        with_needs: false,
        suite: None,
    }
}

/// The kernel of User-Mode Linux is built from this: several processors need 6.19, tmpfs that folds case 6.13.
pub(super) const UML: Package = package("linux-source-7.3", "7.3.4-1~bpo13+1");
/// Small, for virtual machines.
pub(super) const CLOUD: Package = package("linux-image-6.12.117+deb13-cloud-amd64", "6.12.117-1");
/// For any machine: it has 9p as well.
pub(super) const GENERIC: Package = package("linux-image-6.12.117+deb13-amd64", "6.12.117-1");
/// Moves the state of servers (8.2), and runs here with all its libraries.
pub(super) const QEMU: Package = Package {
    with_needs: true,
    ..package("qemu-system-x86", "1:10.0.13+ds-0+deb13u1")
};
/// Maps files into the window of a vhost-user device (11.1).
pub(super) const QEMU_WINDOW: Package = Package {
    suite: Some("trixie-backports"),
    with_needs: true,
    ..package("qemu-system-x86", "1:11.1.3+ds-1~bpo13+1")
};

/// What the script ends with where the archive does not have a package.
const ABSENT: i32 = 3;

impl Package {
    /// Fetches and unpacks it into a folder; nothing, which is reported, where the archive does not have it.
    pub(super) fn unpacked(&self) -> Result<Option<PathBuf>, Failure> {
        let (name, version) = (self.name, self.version);
        let folder = place()?.join(format!("{name}_{}", version.replace(':', "_")));
        if folder.exists() {
            return Ok(Some(folder));
        }
        println!("xtask: fetching {name} {version}: once");
        let command = match self.with_needs {
            true => "install",
            false => "download",
        };
        let (status, said) = Step::new("bash")
            .args([Path::new("tests/guest/debian.sh"), &folder])
            .args([name, version, command])
            .args(self.suite)
            .record()?;
        match status.code() {
            Some(0) => Ok(Some(folder)),
            Some(ABSENT) => {
                let why = format!(
                    "Debian's archive has no version {version} of it, or cannot be reached. If it has gone, name \
                     another in xtask/src/vm_test/debian.rs. ({said})"
                );
                skips::add(&format!("guest/{name}"), &why.replace('\n', " "));
                Ok(None)
            }
            _ => Err(Failure::new(format!(
                "tests/guest/debian.sh {name}: {said}"
            ))),
        }
    }
}

/// The directory of guests' packages.
pub(super) fn place() -> Result<PathBuf, Failure> {
    let place = project::tools().join("guest");
    fs::create_dir_all(&place).map_err(Failure::of(&place))?;
    Ok(place)
}
