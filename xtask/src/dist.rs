//! What is given to those who do not build: a tarball and a package for Debian, of static programs, in `target/dist`.
//!
//! `thrufs install` makes the tree that is packed, so its table is the only list of what is installed. Two builds of a
//! commit by one toolchain are the same, bit by bit, wherever they are made.

use crate::failure::Failure;
use crate::project;
use crate::step::Step;
use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Scripts of the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds and packs: the directory.
pub(crate) fn run() -> Result<PathBuf, Failure> {
    let programs = build()?;
    let directory = project::target().join("dist");
    let stage = directory.join("root");
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(Failure::of(&directory))?;
    }
    let program = programs.join("thrufs");
    let install = Step::new(&program).args(["install", "--prefix", "/usr", "--destdir"]);
    install.args([&stage]).text()?;
    write(&stage.join("usr/share/doc/thrufs/THIRD-PARTY"), &others()?)?;
    let version = Step::new(&program).args(["-V"]).text()?;
    let version = version.trim_start_matches("thrufs ");
    let tarball = pack(&directory, &stage, version)?;
    let package = package(&directory, &stage, version)?;
    fs::remove_dir_all(&stage).map_err(Failure::of(&stage))?;
    let names = [tarball.as_str(), package.as_str()];
    let sums = Step::new("sha256sum").args(names).directory(&directory);
    write(&directory.join("SHA256SUMS"), &(sums.text()? + "\n"))?;
    for name in names {
        println!("{}", directory.join(name).display());
    }
    Ok(directory)
}

/// Builds the programs, static and without debug information: where they are.
fn build() -> Result<PathBuf, Failure> {
    // A target that is named has flags that procedural macros, which cannot be static, do not have.
    let target = format!("{ARCH}-unknown-linux-gnu");
    let renamed = |path: &Path, name| format!("--remap-path-prefix={}={name}", path.display());
    let mut flags = ["-C", "target-feature=+crt-static"]
        .map(str::to_owned)
        .to_vec();
    flags.push(renamed(project::root(), "thrufs"));
    flags.extend(cargo_home().map(|home| renamed(&home, "cargo")));
    Step::cargo()
        .args(["build", "--release", "--locked", "--target", &target])
        .args(["--bin", "thrufs", "--bin", "thrufs-bench"])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .env("THRUFS_COMMIT", commit())
        .run()?;
    Ok(project::target().join(target).join("release"))
}

/// The commit, and whether the sources differ from it; nothing where they are no checkout.
fn commit() -> String {
    let describe = [
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ];
    git(&describe).unwrap_or_default()
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    Step::new("git")
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .text()
}

/// The date of all that is packed, in seconds since 1970: `SOURCE_DATE_EPOCH`, else the commit's.
fn date() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    given
        .or_else(|| git(&["log", "-1", "--format=%ct"]).ok())
        .unwrap_or_else(|| "0".to_owned())
}

/// The crates of others that the programs contain, each with its licence, where it comes from, and the notice that has
/// to be passed on.
fn others() -> Result<String, Failure> {
    let tree = ["tree", "--locked", "--edges", "normal", "--prefix", "none"];
    let tree = Step::cargo().args(tree);
    let tree = tree.args(["-p", "thrufs-cli", "-p", "thrufs-bench"]);
    let listed = tree.args(["--format", "{p}\t{l}\t{r}"]).text()?;
    let is_other = |line: &&str| !line.is_empty() && !line.contains("(/");
    let others: BTreeSet<&str> = listed.lines().filter(is_other).collect();
    let mut text = String::new();
    for line in others {
        text.push_str(&format!("{line}\n"));
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            let source = format!("{name}-{}", version.trim_start_matches('v'));
            text.push_str(&notice(&source).unwrap_or_default());
        }
    }
    Ok(text)
}

/// The shortest licence of the sources of a crate: of two, MIT's.
fn notice(source: &str) -> Option<String> {
    let registries = fs::read_dir(cargo_home()?.join("registry/src")).ok()?;
    let mut sources = registries.flatten().map(|entry| entry.path().join(source));
    let files = fs::read_dir(sources.find(|path| path.is_dir())?).ok()?;
    let name = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().to_uppercase())
    };
    let licences = files.flatten().map(|entry| entry.path());
    let licences = licences.filter(|path| name(path).is_some_and(|name| name.starts_with("LICEN")));
    let read = licences.filter_map(|path| fs::read_to_string(path).ok());
    let shortest = read.min_by_key(String::len)?;
    let indented = shortest.lines().map(|line| format!("    {line}"));
    Some(
        indented
            .map(|line| line.trim_end().to_owned() + "\n")
            .collect(),
    )
}

fn cargo_home() -> Option<PathBuf> {
    let given = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    given.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")))
}

/// Packs the prefix of the stage as a directory from which the program can install itself.
fn pack(directory: &Path, stage: &Path, version: &str) -> Result<String, Failure> {
    let top = format!("thrufs-{version}-{ARCH}-linux");
    let name = format!("{top}.tar.gz");
    Step::new("tar")
        .args([
            "--create",
            "--gzip",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args([
            format!("--mtime=@{}", date()),
            format!("--transform=s,^usr,{top},S"),
        ])
        .args(["--file".as_ref(), directory.join(&name).as_path()])
        .args(["--directory".as_ref(), stage, Path::new("usr")])
        .run()?;
    Ok(name)
}

/// Packs the stage as a package for Debian.
fn package(directory: &Path, stage: &Path, version: &str) -> Result<String, Failure> {
    let architecture = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let size = Step::new("du").args(["--summarize", "--block-size=K", "--apparent-size"]);
    let size = size.args([stage]).text()?;
    let (kib, _) = size.split_once('K').unwrap_or_default();
    let source = project::root().join("dist/debian");
    let read = |name| fs::read_to_string(source.join(name)).map_err(Failure::of(&source));
    let control = read("control")?.replace("@VERSION@", version);
    let control = control
        .replace("@ARCHITECTURE@", architecture)
        .replace("@KIB@", kib);
    let place = stage.join("DEBIAN");
    fs::create_dir(&place).map_err(Failure::of(&place))?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).map_err(Failure::of(&place))?;
    write(&place.join("control"), &control)?;
    for name in SCRIPTS {
        let path = place.join(name);
        write(&path, &read(name)?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(Failure::of(&path))?;
    }
    let name = format!("thrufs_{version}_{architecture}.deb");
    let build = Step::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]);
    let build = build.env("SOURCE_DATE_EPOCH", date());
    build
        .args([stage, directory.join(&name).as_path()])
        .run()
        .map_err(|failure| {
            Failure::new(format!(
                "{failure}\nA package for Debian is made by dpkg-deb, of the package dpkg"
            ))
        })?;
    Ok(name)
}

/// Whatever the umask is.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mode = fs::Permissions::from_mode(0o644);
    let written = fs::write(path, text).and_then(|()| fs::set_permissions(path, mode));
    written.map_err(Failure::of(path))
}
