//! Debian's archive: packages to be installed, and sources to be unpacked.

use crate::Outcome;
use crate::lower::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A source package. Releases move on; when the version is no longer there, the error says so.
pub(crate) struct Source {
    pub(crate) package: &'static str,
    /// How the version begins.
    pub(crate) version: &'static str,
    pub(crate) release: &'static str,
}

/// Installs what is missing of these.
pub(crate) fn install(packages: &[&str]) -> Outcome<()> {
    run(Command::new("apt-get")
        .args(["-qq", "-y", "--no-install-recommends", "install"])
        .args(packages))
}

impl Source {
    /// Where it lies unpacked in `place`, by an apt of its own there, so that neither the machine's
    /// sources nor its lists change.
    pub(crate) fn unpacked(&self, place: &Path) -> Outcome<PathBuf> {
        if let Ok(found) = self.found(place) {
            return Ok(found);
        }
        install(&["dpkg-dev"])?;
        let apt = place.join("apt").join(self.release);
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = apt.join(part);
            std::fs::create_dir_all(&part)
                .map_err(|error| format!("{}: {error}", part.display()))?;
        }
        let write = |name: &str, text: String| {
            std::fs::write(apt.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        let (mirror, release) = (mirror()?, self.release);
        write(
            "sources.list",
            format!(
                "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                 {mirror} {release} main\n"
            ),
        )?;
        let top = apt.display();
        write(
            "apt.conf",
            format!(
                "Dir::Etc::sourcelist \"{top}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::State::lists \"{top}/lists\";\nDir::Cache \"{top}/cache\";\n\
                 APT::Sandbox::User \"root\";\n"
            ),
        )?;
        let configured = |words: &[&str]| {
            let mut command = Command::new("apt-get");
            command
                .args(words)
                .current_dir(place)
                .env("APT_CONFIG", apt.join("apt.conf"));
            run(&mut command)
        };
        configured(&["-qq", "update"])?;
        configured(&["-qq", "source", "--only-source", self.package])?;
        self.found(place)
    }

    /// The same if it is there, without fetching anything.
    pub(crate) fn found(&self, place: &Path) -> Outcome<PathBuf> {
        let (package, version, release) = (self.package, self.version, self.release);
        let entries = std::fs::read_dir(place).map_err(|error| error.to_string())?;
        let mut others = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!("{package}-{version}.")) && entry.path().is_dir() {
                return Ok(entry.path());
            }
            if name.starts_with(&format!("{package}-")) {
                others.push(name);
            }
        }
        Err(format!(
            "Debian {release} no longer has {package} {version} (found: {}): change the version in \
             the benchmark",
            others.join(" ")
        ))
    }
}

/// The archive that the machine takes its packages from.
fn mirror() -> Outcome<String> {
    let output = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(REPO_URI)",
            "Created-By: Packages",
        ])
        .output()
        .map_err(|error| format!("apt-get: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find(|line| !line.contains("security"))
        .map(str::to_owned)
        .ok_or_else(|| "apt-get knows no archive of packages".to_owned())
}
