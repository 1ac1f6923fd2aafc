//! What the C compiler of this machine needs to build a small program, beside the programs that are
//! called by name.

use crate::project;
use crate::step::{Failure, Step};
use std::path::{Path, PathBuf};

/// Programs that only the compiler calls.
const PROGRAMS: &[&str] = &["cc1", "collect2"];

/// What is linked with every program.
const LINKED: &[&str] = &[
    "Scrt1.o",
    "crti.o",
    "crtn.o",
    "crtbeginS.o",
    "crtendS.o",
    "libc.so",
    "libc_nonshared.a",
    "libgcc.a",
    "libgcc_s.so",
    "liblto_plugin.so",
];

/// A program whose headers are all that a test of the compiler includes, beneath the top of the
/// repository.
const SAMPLE: &str = "tests/real/client.c";

/// The programs that only the compiler calls.
pub(super) fn programs() -> Result<Vec<PathBuf>, Failure> {
    ask("-print-prog-name", PROGRAMS)
}

/// The headers, and what is linked with every program.
pub(super) fn files() -> Result<Vec<PathBuf>, Failure> {
    let mut files = ask("-print-file-name", LINKED)?;
    let sample = project::root().join(SAMPLE);
    // A rule for make: what the program is made from.
    let rule = Step::new("gcc")
        .args(["-O1", "-D_GNU_SOURCE", "-M"])
        .args([sample]);
    let rule = String::from_utf8_lossy(&rule.capture_bytes()?).into_owned();
    for header in rule.split_whitespace().filter(|word| word.ends_with(".h")) {
        files.push(real(header)?);
    }
    Ok(files)
}

fn ask(question: &str, names: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let answer = |name| {
        let (_, path, _) = Step::new("gcc")
            .args([format!("{question}={name}")])
            .capture()?;
        real(path.trim())
    };
    names.iter().map(answer).collect()
}

/// The path without symbolic links.
fn real(path: &str) -> Result<PathBuf, Failure> {
    let real = Path::new(path).canonicalize();
    real.map_err(|error| Failure::new(format!("gcc needs {path}: {error}")))
}
