//! The kernels of guests: one built for User-Mode Linux, and Debian's for QEMU.

use super::debian::{self, Package};
use crate::project;
use crate::step::{Failure, Step};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// How the kernel of User-Mode Linux is configured, beneath the top of the repository.
const UML_CONFIG: &str = "tests/guest/uml.config";

/// What a guest with PCI needs to see the shares, in the order of loading. What a kernel has built in
/// is not among its modules.
const MODULES: &[&str] = &[
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "dax",
    "fuse",
    "virtiofs",
    "netfs",
    "9pnet",
    "9pnet_virtio",
    "9p",
];

/// How long the build may take, in seconds: many times what it takes on two processors.
const BUILD_SECONDS_MAX: u32 = 5400;

/// A kernel to boot, and its modules in the order of loading.
pub(super) struct Kernel {
    pub(super) path: PathBuf,
    pub(super) modules: Vec<PathBuf>,
}

/// The kernel of User-Mode Linux, built unless one of this version and configuration is there. Nothing
/// where the archive does not have its source.
pub(super) fn uml() -> Result<Option<Kernel>, Failure> {
    let config = project::root().join(UML_CONFIG);
    let mut hasher = DefaultHasher::new();
    fs::read(&config)
        .map_err(Failure::of(&config))?
        .hash(&mut hasher);
    let name = format!("uml-{}-{:016x}", debian::UML.version, hasher.finish());
    let place = debian::place()?;
    let path = place.join(&name);
    if !path.exists() {
        let Some(package) = debian::UML.fetch()? else {
            return Ok(None);
        };
        println!("xtask: building a kernel for User-Mode Linux: minutes, once");
        // One build at a time, that others hardly notice.
        Step::limited(BUILD_SECONDS_MAX)
            .args(["flock", "--no-fork"])
            .args([place.join("lock")])
            .args(["nice", "-n", "10", "bash", "tests/guest/uml.sh"])
            .args([&package, &config, &place.join(name + ".build"), &path])
            .run()?;
        let _ = fs::remove_dir_all(package);
    }
    let modules = Vec::new();
    Ok(Some(Kernel { path, modules }))
}

/// A kernel of Debian's. Nothing where the archive does not have it.
pub(super) fn debian(package: &Package) -> Result<Option<Kernel>, Failure> {
    let Some(folder) = package.unpacked()? else {
        return Ok(None);
    };
    let found = Step::new("find")
        .args([&folder])
        .args(["-name", "*.ko*"])
        .text()?;
    let module = |name: &&str| {
        let is_it = |path: &&str| {
            let file = path.rsplit('/').next().unwrap_or_default();
            let stem = file.split('.').next().unwrap_or_default();
            stem.replace('-', "_") == **name
        };
        found.lines().find(is_it).map(PathBuf::from)
    };
    let version = package.name.trim_start_matches("linux-image-");
    Ok(Some(Kernel {
        path: folder.join("boot").join(format!("vmlinuz-{version}")),
        modules: MODULES.iter().filter_map(module).collect(),
    }))
}
