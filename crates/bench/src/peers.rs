//! Peers that Debian does not ship as programs: libfuse's high-performance example, from the source
//! package of Debian's testing release, with apt and meson, and with io_uring.

use crate::Outcome;
use crate::archive::{self, Source};
use crate::lower::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is measured.
const LIBFUSE: Source = Source {
    package: "fuse3",
    version: "3.18",
    release: "forky",
};
/// Another name than the build without io_uring had, so that nobody takes that for this.
const PROGRAM: &str = "passthrough_hp-uring";

/// Where peers, and whatever else the benchmark fetches, are kept.
pub(crate) fn directory() -> Outcome<PathBuf> {
    let peers = PathBuf::from(std::env::var_os("PEERS").ok_or("PEERS must name a directory")?);
    std::fs::create_dir_all(&peers).map_err(|error| format!("{}: {error}", peers.display()))?;
    Ok(peers)
}

/// The program, built if it is not there yet.
pub(crate) fn passthrough_hp() -> Outcome<PathBuf> {
    let peers = directory()?;
    let program = peers.join(PROGRAM);
    if !program.exists() {
        build(&peers)?;
    }
    Ok(program)
}

fn build(peers: &Path) -> Outcome<()> {
    println!("building libfuse's passthrough_hp in {}", peers.display());
    archive::install(&[
        "meson",
        "ninja-build",
        "pkg-config",
        "g++",
        "liburing-dev",
        "libnuma-dev",
    ])?;
    let source = LIBFUSE.unpacked(peers)?;
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
