//! The kernels of guests: one built for User-Mode Linux, one of Debian's for QEMU. They are kept
//! beside the tools; `cargo xtask vm-test --fetch` looks for newer ones.

use super::debian::{Debian, Package};
use crate::project;
use crate::step::{Failure, Step};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What stands for the source of the kernel that User-Mode Linux boots: the first suite that has it, and
/// whose version builds. The second is kept for as long as the release is.
const UML_SOURCE: &str = "linux-source";
const UML_SUITES: &[&str] = &["trixie-backports", "trixie"];

/// How the names of such kernels begin.
const UML_PREFIX: &str = "uml-";

/// How that kernel is configured, beneath the top of the repository.
const UML_CONFIG: &str = "tests/guest/uml.config";

/// A kernel of Debian's, by what stands for the newest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Debians {
    /// For virtual machines: small.
    Cloud,
    /// For any machine: it has 9p as well.
    Full,
    /// For virtual machines, from before close(2) did its work before it returned (Linux 6.6).
    Before,
}

impl Debians {
    /// How it is called here, the package that stands for it, and the suite that has it.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Cloud => ("cloud-", "linux-image-cloud-amd64", "trixie"),
            Self::Full => ("full-", "linux-image-amd64", "trixie"),
            Self::Before => ("before-", "linux-image-cloud-amd64", "bookworm"),
        }
    }
}

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
const BUILD_SECONDS_MAX: &str = "5400";

/// How names of what is not finished end.
const UNFINISHED: &[&str] = &[".build", ".new", ".partial"];

/// A kernel to boot, and its modules in the order of loading, each with its content.
pub(super) struct Kernel {
    pub(super) path: PathBuf,
    pub(super) modules: Vec<(String, Vec<u8>)>,
}

/// Where kernels are kept.
pub(super) fn place() -> Result<PathBuf, Failure> {
    let place = project::tools().join("guest");
    fs::create_dir_all(&place).map_err(|error| failure(&place, &error))?;
    Ok(place)
}

fn apt() -> Result<Debian, Failure> {
    Debian::open(place()?.join("apt"))
}

/// The kernel of User-Mode Linux, built unless one with this configuration is there. `fetch` asks
/// for the newest source also then.
pub(super) fn uml(fetch: bool) -> Result<Kernel, Failure> {
    let fragment = project::root().join(UML_CONFIG);
    let config = fs::read(&fragment).map_err(|error| failure(&fragment, &error))?;
    let suffix = format!("-{:016x}", fingerprint(&config));
    let path = match cached(UML_PREFIX, &suffix)? {
        Some(path) if !fetch => path,
        _ => newest_uml(&fragment, &suffix)?,
    };
    Ok(Kernel {
        path,
        modules: Vec::new(),
    })
}

/// Builds from the first suite that can, and says why the others cannot.
fn newest_uml(fragment: &Path, suffix: &str) -> Result<PathBuf, Failure> {
    let debian = apt()?;
    let mut reasons = Vec::new();
    for suite in UML_SUITES {
        match uml_of(&debian, suite, fragment, suffix) {
            Ok(path) => return Ok(path),
            Err(failure) => {
                println!("xtask: no kernel for User-Mode Linux from {suite}: {failure}");
                reasons.push(format!("{suite}: {failure}"));
            }
        }
    }
    Err(Failure::new(reasons.join("; ")))
}

fn uml_of(debian: &Debian, suite: &str, fragment: &Path, suffix: &str) -> Result<PathBuf, Failure> {
    let standing = debian.newest(UML_SOURCE, suite)?;
    let name = standing
        .needs("linux-source-")
        .ok_or_else(|| Failure::new(format!("{UML_SOURCE} stands for no source")))?;
    let source = debian.newest(name, suite)?;
    let name = format!("{UML_PREFIX}{name}-{}{suffix}", file_name(&source));
    let path = place()?.join(name);
    if !path.exists() {
        build_uml(debian, &source, fragment, &path)?;
    }
    Ok(path)
}

fn build_uml(
    debian: &Debian,
    source: &Package,
    fragment: &Path,
    path: &Path,
) -> Result<(), Failure> {
    let building = beside(path, ".build");
    // A build that was interrupted goes on, and needs no package.
    let package = match building.join("unpacked").exists() {
        true => None,
        false => Some(debian.download(source)?),
    };
    println!("xtask: building a kernel for User-Mode Linux: minutes, once");
    // One build at a time, that others hardly notice, and that ends with us.
    Step::new("setpriv")
        .args(["--pdeathsig", "TERM", "flock", "--no-fork"])
        .args([place()?.join("lock")])
        .args(["nice", "-n", "10", "timeout", "--kill-after=10"])
        .args([BUILD_SECONDS_MAX, "bash"])
        .args([project::root().join("tests/guest/uml.sh")])
        .args([package.as_deref().unwrap_or(Path::new("none"))])
        .args([fragment, &building, path])
        .run()?;
    if let Some(package) = package {
        let _ = fs::remove_file(package);
    }
    Ok(())
}

/// The newest of these kernels that is there, fetched if there is none.
pub(super) fn debian(which: Debians, fetch: bool) -> Result<Kernel, Failure> {
    let (prefix, stands_for, suite) = which.names();
    let directory = match cached(prefix, "")? {
        Some(path) if !fetch => path,
        _ => {
            let debian = apt()?;
            let standing = debian.newest(stands_for, suite)?;
            let name = standing
                .needs("linux-image-")
                .ok_or_else(|| Failure::new(format!("{} stands for no kernel", standing.name)))?;
            let package = debian.newest(name, suite)?;
            let path = place()?.join(format!("{prefix}{}", file_name(&package)));
            if !path.exists() {
                unpack(&debian.download(&package)?, &path)?;
            }
            path
        }
    };
    let boot = directory.join("boot");
    let path = entry(&boot, |name| name.starts_with("vmlinuz-"))?;
    let modules = modules(&directory)?;
    Ok(Kernel { path, modules })
}

/// Takes a package apart into `path`, which is there only once it is complete.
fn unpack(package: &Path, path: &Path) -> Result<(), Failure> {
    let partial = beside(path, ".partial");
    let _ = fs::remove_dir_all(&partial);
    extract(package, &partial)?;
    fs::rename(&partial, path).map_err(|error| failure(path, &error))
}

/// Adds what a package has to a folder, and removes the package.
pub(super) fn extract(package: &Path, folder: &Path) -> Result<(), Failure> {
    let arguments = ["--extract".as_ref(), package, folder];
    let (passed, _, errors) = Step::new("dpkg-deb").args(arguments).capture()?;
    if !passed {
        return Err(Failure::new(format!("{}: {errors}", package.display())));
    }
    let _ = fs::remove_file(package);
    Ok(())
}

/// The modules that a guest loads, decompressed: the kernel need not be able to.
fn modules(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut found = Vec::new();
    // Where /usr is not merged with the root, it is the other.
    let (_, list, _) = Step::new("find")
        .args([directory])
        .args(["-name", "*.ko*", "-type", "f"])
        .capture()?;
    for name in MODULES {
        let path = list.lines().find(|path| {
            let file = path.rsplit('/').next().unwrap_or_default();
            let stem = file.split('.').next().unwrap_or_default();
            stem.replace('-', "_") == *name
        });
        let Some(path) = path else { continue };
        let name = format!("{:02}-{name}.ko", found.len());
        let content = match path.ends_with(".xz") {
            true => Step::new("xz").args(["-dc", path]).capture_bytes()?,
            false => fs::read(path).map_err(|error| failure(path.as_ref(), &error))?,
        };
        found.push((name, content));
    }
    let config = entry(&directory.join("boot"), |name| name.starts_with("config-"))?;
    let config = fs::read_to_string(&config).map_err(|error| failure(&config, &error))?;
    let is_built_in = config.lines().any(|line| line == "CONFIG_VIRTIO_FS=y");
    if !is_built_in && !found.iter().any(|(name, _)| name.ends_with("virtiofs.ko")) {
        return Err(Failure::new(format!(
            "{}: this kernel has no virtio-fs",
            directory.display()
        )));
    }
    Ok(found)
}

/// The newest of the kernels that are there whose name begins and ends so.
pub(super) fn cached(prefix: &str, suffix: &str) -> Result<Option<PathBuf>, Failure> {
    let place = place()?;
    let unreadable = |error: &io::Error| failure(&place, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(&place).map_err(|error| unreadable(&error))? {
        let entry = entry.map_err(|error| unreadable(&error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let whole = !UNFINISHED.iter().any(|mark| name.ends_with(mark));
        if whole && name.starts_with(prefix) && name.ends_with(suffix) {
            let made = entry.metadata().and_then(|metadata| metadata.modified());
            found.push((made.map_err(|error| unreadable(&error))?, entry.path()));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// The same path with `mark` behind it.
pub(super) fn beside(path: &Path, mark: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(mark);
    PathBuf::from(name)
}

fn entry(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(directory).map_err(|error| failure(directory, &error))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(&is_wanted)
        })
        .ok_or_else(|| Failure::new(format!("{}: not what was expected", directory.display())))
}

/// The version as a part of a file's name.
pub(super) fn file_name(package: &Package) -> String {
    package.version.replace(['/', ':'], "_")
}

/// FNV-1a, 64 bits: the same in every version of the compiler.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub(super) fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
