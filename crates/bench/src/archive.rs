//! Debian's archive: packages to be installed, and sources to be unpacked.

use crate::Outcome;
use crate::lower::run;
use crate::peers;
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
    /// Where it lies unpacked in `place`: fetched by `bench/peers/debian-source` if it is not there.
    pub(crate) fn unpacked(&self, place: &Path) -> Outcome<PathBuf> {
        let asked = [self.package, self.version, self.release];
        peers::script_says("debian-source", &asked, place).map(PathBuf::from)
    }

    /// The same if it is there, without fetching anything.
    pub(crate) fn found(&self, place: &Path) -> Outcome<PathBuf> {
        let start = format!("{}-{}", self.package, self.version);
        let entries = std::fs::read_dir(place);
        let mut entries = entries.into_iter().flatten().flatten();
        let is_it = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&start)) && path.is_dir()
        };
        let found = entries.find_map(|entry| Some(entry.path()).filter(|path| is_it(path)));
        found.ok_or_else(|| format!("{} is not in {}", self.package, place.display()))
    }
}
