//! Packages of Debian for guests, each in one version, which are unpacked and never installed.
//!
//! Their releases need not be this machine's: apt gets sources, lists and a cache of its own, and checks
//! signatures.

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

/// The suites of these packages. Debian signs all with a key that bookworm has as well.
const SOURCES: &str = "Types: deb
URIs: MIRROR
Suites: bookworm trixie trixie-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

/// An apt of our own. Its usual user cannot reach every place that we build in.
const OPTIONS: &str = r#"Dir::Etc::sourcelist "APT/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "APT/lists";
Dir::State::status "APT/nothing";
Dir::Cache "APT";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "root";
"#;

impl Package {
    /// The name of its folder.
    pub(super) fn key(&self) -> String {
        format!("{}_{}", self.name, self.version.replace(':', "_"))
    }

    /// Fetches and unpacks it into a folder; nothing where the archive does not have it.
    pub(super) fn unpacked(&self) -> Result<Option<PathBuf>, Failure> {
        let folder = place()?.join(self.key());
        if folder.exists() {
            return Ok(Some(folder));
        }
        let Some(packages) = self.fetch()? else {
            return Ok(None);
        };
        let unpacked = packages.join("unpacked");
        for package in project::names(&packages, ".deb")? {
            let package = packages.join(package + ".deb");
            let arguments = [Path::new("--extract"), &package, &unpacked];
            Step::new("dpkg-deb").args(arguments).text()?;
        }
        // Renamed once it is complete.
        fs::rename(&unpacked, &folder).map_err(Failure::of(&folder))?;
        fs::remove_dir_all(&packages).map_err(Failure::of(&packages))?;
        Ok(Some(folder))
    }

    /// Fetches it into a folder; nothing, which is reported, where the archive does not have it.
    pub(super) fn fetch(&self) -> Result<Option<PathBuf>, Failure> {
        println!("xtask: fetching {} {}: once", self.name, self.version);
        let apt = place()?.join("apt");
        let packages = apt.join(self.key());
        let _ = fs::remove_dir_all(packages.join("unpacked"));
        for folder in [apt.join("lists/partial"), packages.join("partial")] {
            fs::create_dir_all(&folder).map_err(Failure::of(&folder))?;
        }
        let write = |name: &str, text: &str| {
            let path = apt.join(name);
            fs::write(&path, text).map_err(Failure::of(&path))
        };
        write("debian.sources", &SOURCES.replace("MIRROR", &mirror()?))?;
        write("apt.conf", &OPTIONS.replace("APT", &apt.to_string_lossy()))?;
        write("nothing", "")?;
        let apt_get = || {
            let config = format!("--config-file={}", apt.join("apt.conf").display());
            let archives = format!("-oDir::Cache::archives={}", packages.display());
            let words = ["-qq", &config, &archives];
            Step::new("apt-get").directory(&packages).args(words)
        };
        let (_, updated) = apt_get().args(["update"]).record()?;
        let command = match self.with_needs {
            true => "install",
            false => "download",
        };
        let release = self.suite.map(|suite| format!("--target-release={suite}"));
        let (status, fetched) = apt_get()
            .args([command, &format!("{}={}", self.name, self.version)])
            .args(release)
            .args(["--yes", "--no-install-recommends", "--download-only"])
            .record()?;
        if status.success() {
            return Ok(Some(packages));
        }
        let version = self.version;
        let why = format!(
            "Debian's archive has no version {version} of it, or cannot be reached. If it has gone, name \
             another in xtask/src/vm_test/debian.rs. ({updated}{fetched})"
        );
        skips::add(&format!("guest/{}", self.name), &why.replace('\n', " "));
        Ok(None)
    }
}

/// The directory of guests' packages.
pub(super) fn place() -> Result<PathBuf, Failure> {
    let place = project::tools().join("guest");
    fs::create_dir_all(&place).map_err(Failure::of(&place))?;
    Ok(place)
}

/// The machine's Debian mirror, not that of security updates.
fn mirror() -> Result<String, Failure> {
    let words = [
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ];
    let archives = Step::new("apt-get").args(words).text()?;
    let mut archives = archives.lines().filter(|it| !it.contains("security"));
    let first = archives.next().map(str::to_owned);
    first.ok_or_else(|| Failure::new("apt-get knows no archive of packages"))
}
