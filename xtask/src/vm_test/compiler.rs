//! What the C compiler of this machine needs to build a small program, beside the programs that are
//! called by name.

use crate::step::{Failure, Step};
use std::path::{Path, PathBuf};

/// What is linked with every program.
const LINKED: &str = "Scrt1.o crti.o crtn.o crtbeginS.o crtendS.o libc.so libc_nonshared.a libgcc.a \
    libgcc_s.so liblto_plugin.so";

/// A program whose headers are all that a test of the compiler includes, beneath the top of the
/// repository.
const SAMPLE: &str = "tests/real/client.c";

/// The programs that only the compiler calls.
pub(super) fn programs() -> Result<Vec<PathBuf>, Failure> {
    let programs = ["cc1", "collect2"];
    programs
        .iter()
        .map(|name| ask(&format!("-print-prog-name={name}")))
        .collect()
}

/// The headers, and what is linked with every program.
pub(super) fn files() -> Result<Vec<PathBuf>, Failure> {
    let linked = LINKED.split(' ').filter(|name| !name.is_empty());
    let linked = linked.map(|name| ask(&format!("-print-file-name={name}")));
    // A rule for make: what the program is made from.
    let rule = Step::new("gcc")
        .args(["-O1", "-D_GNU_SOURCE", "-M", SAMPLE])
        .text()?;
    let headers = rule.split_whitespace().filter(|word| word.ends_with(".h"));
    linked.chain(headers.map(real)).collect()
}

fn ask(question: &str) -> Result<PathBuf, Failure> {
    real(&Step::new("gcc").args([question]).text()?)
}

/// The path without symbolic links.
fn real(path: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(path);
    path.canonicalize().map_err(Failure::of(path))
}
