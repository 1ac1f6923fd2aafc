//! Peers that Debian does not ship as programs: libfuse's high-performance example, from the source
//! package of Debian's testing release, with apt and meson, and with io_uring.

use crate::Outcome;
use crate::lower::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that is measured. Debian's testing release moves on; when it has, the error says so.
const VERSION: &str = "3.18";
const RELEASE: &str = "forky";
/// Another name than the build without io_uring had, so that nobody takes that for this.
const PROGRAM: &str = "passthrough_hp-uring";

/// The program, built if it is not there yet.
pub(crate) fn passthrough_hp() -> Outcome<PathBuf> {
    let peers = PathBuf::from(std::env::var_os("PEERS").ok_or("PEERS must name a directory")?);
    let program = peers.join(PROGRAM);
    if !program.exists() {
        std::fs::create_dir_all(&peers).map_err(|error| format!("{}: {error}", peers.display()))?;
        build(&peers)?;
    }
    Ok(program)
}

fn build(peers: &Path) -> Outcome<()> {
    println!("building libfuse's passthrough_hp in {}", peers.display());
    run(Command::new("apt-get").args([
        "-qq",
        "-y",
        "--no-install-recommends",
        "install",
        "meson",
        "ninja-build",
        "pkg-config",
        "g++",
        "dpkg-dev",
        "liburing-dev",
        "libnuma-dev",
    ]))?;
    // An apt of its own, so that neither the machine's sources nor its lists change.
    let apt = peers.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(apt.join(part)).map_err(|error| error.to_string())?;
    }
    let write = |name: &str, text: String| {
        std::fs::write(apt.join(name), text).map_err(|error| format!("{name}: {error}"))
    };
    let mirror = mirror()?;
    write(
        "sources.list",
        format!(
            "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
             {mirror} {RELEASE} main\n"
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
            .current_dir(peers)
            .env("APT_CONFIG", apt.join("apt.conf"));
        run(&mut command)
    };
    configured(&["-qq", "update"])?;
    configured(&["-qq", "source", "--only-source", "fuse3"])?;
    let source = source_directory(peers)?;
    let built = source.join("build-uring");
    run(Command::new("meson")
        .arg("setup")
        .args(["-Dutils=false", "-Dtests=false", "-Dexamples=true"])
        .args(["--buildtype=release", "-Ddefault_library=static"])
        .arg("-Denable-io-uring=true")
        .arg(&built)
        .arg(&source))?;
    run(Command::new("ninja")
        .arg("-C")
        .arg(&built)
        .arg("example/passthrough_hp"))?;
    must_have_uring(&built)?;
    // The last step: whoever sees the program may rely on it.
    let made = built.join("example/passthrough_hp");
    let unfinished = peers.join(format!("{PROGRAM}.new"));
    std::fs::copy(&made, &unfinished).map_err(|error| format!("{}: {error}", made.display()))?;
    std::fs::rename(&unfinished, peers.join(PROGRAM)).map_err(|error| error.to_string())
}

/// libfuse leaves io_uring out without a word when it finds no library for it.
fn must_have_uring(built: &Path) -> Outcome<()> {
    let config = built.join("fuse_config.h");
    let text = std::fs::read_to_string(&config)
        .map_err(|error| format!("{}: {error}", config.display()))?;
    if text.contains("#define HAVE_URING") {
        Ok(())
    } else {
        Err("libfuse was built without io_uring: are liburing-dev and libnuma-dev there?".into())
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

fn source_directory(peers: &Path) -> Outcome<PathBuf> {
    let entries = std::fs::read_dir(peers).map_err(|error| error.to_string())?;
    let wanted = format!("fuse3-{VERSION}.");
    let mut others = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&wanted) && entry.path().is_dir() {
            return Ok(entry.path());
        }
        if name.starts_with("fuse3-") {
            others.push(name);
        }
    }
    Err(format!(
        "Debian {RELEASE} no longer has fuse3 {VERSION} (found: {}): change VERSION in peers.rs",
        others.join(" ")
    ))
}
