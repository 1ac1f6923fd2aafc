//! The kernels of guests: one built for User-Mode Linux, and Debian's for QEMU.

use super::debian::{self, Package};
use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// Configuration of the kernel of User-Mode Linux.
const UML_CONFIG: &str = "tests/guest/uml.config";

/// Time limit of the build, in seconds: many times the usual on two processors.
const BUILD_SECONDS_MAX: u32 = 5400;

/// A kernel to boot, and the folder of its modules, if any.
pub(super) type Kernel = (PathBuf, Option<PathBuf>);

/// The kernel of User-Mode Linux, built unless one of this version and configuration is there. Nothing
/// where the archive does not have its source.
pub(super) fn uml() -> Result<Option<Kernel>, Failure> {
    let config = project::root().join(UML_CONFIG);
    let mut hasher = DefaultHasher::new();
    let text = fs::read(&config).map_err(Failure::of(&config))?;
    text.hash(&mut hasher);
    let name = format!("uml-{}-{:016x}", debian::UML.version, hasher.finish());
    let place = debian::place()?;
    let path = place.join(&name);
    if !path.exists() {
        let Some(package) = debian::UML.unpacked()? else {
            return Ok(None);
        };
        println!("xtask: building a kernel for User-Mode Linux: minutes, once");
        // One build at a time, at low priority.
        Step::limited(BUILD_SECONDS_MAX)
            .args(["flock", "--no-fork"])
            .args([place.join("lock")])
            .args(["nice", "-n", "10", "bash", "tests/guest/uml.sh"])
            .args([&package, &config, &place.join(name + ".build"), &path])
            .run()?;
        let _ = fs::remove_dir_all(package);
    }
    Ok(Some((path, None)))
}

/// A kernel of Debian's. Nothing where the archive does not have it.
pub(super) fn debian(package: &Package) -> Result<Option<Kernel>, Failure> {
    let Some(folder) = package.unpacked()? else {
        return Ok(None);
    };
    let version = package.name.trim_start_matches("linux-image-");
    let path = folder.join("boot").join(format!("vmlinuz-{version}"));
    Ok(Some((path, Some(folder))))
}
