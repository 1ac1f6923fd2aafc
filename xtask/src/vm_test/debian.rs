//! Packages of Debian that are taken apart here and never installed: kernels of guests, and QEMU.
//!
//! They come from a release that need not be this machine's. So apt gets sources, lists and a cache
//! of its own; the machine's are not touched.

use crate::step::{Failure, Step};
use std::fs;
use std::path::{Path, PathBuf};

/// An apt of our own.
pub(super) struct Debian {
    place: PathBuf,
}

impl Debian {
    /// Sets it up in `place`, and fetches the lists.
    pub(super) fn open(place: PathBuf) -> Result<Self, Failure> {
        for directory in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(place.join(directory)).map_err(|error| failure(&place, &error))?;
        }
        let sources = place.join("debian.sources");
        fs::write(&sources, text(&mirror()?)).map_err(|error| failure(&sources, &error))?;
        let debian = Self { place };
        debian.apt("apt-get").args(["--quiet=2", "update"]).run()?;
        Ok(debian)
    }

    fn apt(&self, program: &str) -> Step {
        let place = |name: &str| self.place.join(name).display().to_string();
        Step::new(program).args([
            format!("-oDir::Etc::sourcelist={}", place("debian.sources")),
            "-oDir::Etc::sourceparts=/dev/null".to_owned(),
            format!("-oDir::State::lists={}", place("lists")),
            format!("-oDir::Cache={}", place("cache")),
            "-oAcquire::Languages=none".to_owned(),
            "-oAcquire::Retries=3".to_owned(),
            "-oAcquire::http::Timeout=60".to_owned(),
            "-oAcquire::https::Timeout=60".to_owned(),
            // Its own user cannot reach every place that we build in. Signatures are checked all the same.
            "-oAPT::Sandbox::User=root".to_owned(),
        ])
    }

    /// What the newest version of `package` in `suite` is.
    pub(super) fn newest(&self, package: &str, suite: &str) -> Result<Package, Failure> {
        let name = format!("{package}/{suite}");
        let record = self.apt("apt-cache").args(["show", &name]).capture()?;
        let (passed, record, errors) = record;
        let field = |field: &str| {
            let prefix = format!("{field}: ");
            record.lines().find_map(|line| line.strip_prefix(&prefix))
        };
        match field("Version") {
            Some(version) if passed => Ok(Package {
                name: package.to_owned(),
                version: version.to_owned(),
                needs: field("Depends").unwrap_or_default().to_owned(),
            }),
            _ => Err(Failure::new(format!(
                "{suite} has no {package}; if it has a later one, name that here\n{errors}"
            ))),
        }
    }

    /// Fetches a package; its signature is checked by apt.
    pub(super) fn download(&self, package: &Package) -> Result<PathBuf, Failure> {
        let place = self.place.join("packages").join(&package.name);
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(|error| failure(&place, &error))?;
        self.apt("apt-get")
            .args(["--quiet", "download"])
            .args([format!("{}={}", package.name, package.version)])
            .directory(&place)
            .run()?;
        let mut files = fs::read_dir(&place).map_err(|error| failure(&place, &error))?;
        let file = files.next().and_then(Result::ok);
        file.map(|file| file.path())
            .ok_or_else(|| Failure::new(format!("apt-get fetched no {}", package.name)))
    }

    /// Fetches a package and all that it depends on, as for a machine that has nothing.
    pub(super) fn download_all(&self, package: &Package) -> Result<Vec<PathBuf>, Failure> {
        let nothing = self.place.join("nothing-installed");
        fs::write(&nothing, "").map_err(|error| failure(&nothing, &error))?;
        let archives = self.place.join("cache/archives");
        let _ = fs::remove_dir_all(&archives);
        let partial = archives.join("partial");
        fs::create_dir_all(&partial).map_err(|error| failure(&partial, &error))?;
        self.apt("apt-get")
            .args([format!("-oDir::State::status={}", nothing.display())])
            .args([
                "--quiet=2",
                "--yes",
                "--no-install-recommends",
                "--download-only",
                "install",
            ])
            .args([format!("{}={}", package.name, package.version)])
            .run()?;
        let files = fs::read_dir(&archives).map_err(|error| failure(&archives, &error))?;
        let files = files.filter_map(|file| Some(file.ok()?.path()));
        Ok(files
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect())
    }
}

/// The sources that guests' kernels come from. Debian signs them with a key that bookworm has as well.
fn text(mirror: &str) -> String {
    format!(
        "Types: deb\nURIs: {mirror}\nSuites: bookworm trixie trixie-backports\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
}

/// The archive that the machine takes its packages from.
fn mirror() -> Result<String, Failure> {
    let known = Step::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]);
    let (_, archives, errors) = known.capture()?;
    first_archive(&archives)
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("apt-get knows no archive of packages\n{errors}")))
}

/// The first of a list that is not for security updates alone.
fn first_archive(archives: &str) -> Option<&str> {
    archives
        .lines()
        .find(|archive| !archive.contains("security"))
}

/// A package in its newest version.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    needs: String,
}

impl Package {
    /// The first package that this one needs whose name starts with `prefix`.
    pub(super) fn needs(&self, prefix: &str) -> Option<&str> {
        let mut names = self
            .needs
            .split(", ")
            .filter_map(|need| need.split(' ').next());
        names.find(|name| name.starts_with(prefix))
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Package, first_archive, text};

    #[test]
    fn kernels_come_from_where_other_packages_do() {
        let archives = "http://mirror.test/debian-security/\nhttp://mirror.test/debian/\n";
        let archive = first_archive(archives).expect("one that is for all");
        assert_eq!(archive, "http://mirror.test/debian/");
        assert!(
            text(archive).contains("\nURIs: http://mirror.test/debian/\nSuites: bookworm trixie ")
        );
        assert_eq!(first_archive("http://mirror.test/debian-security/\n"), None);
    }

    #[test]
    fn the_kernel_that_a_package_stands_for_is_found() {
        let package = Package {
            name: "linux-image-cloud-amd64".to_owned(),
            version: "7".to_owned(),
            needs: "linux-base (= 7), linux-image-7+deb13-cloud-amd64 (= 7), linux-image-x"
                .to_owned(),
        };
        let found = package.needs("linux-image-");
        assert_eq!(found, Some("linux-image-7+deb13-cloud-amd64"));
        assert_eq!(package.needs("qemu"), None);
    }
}
