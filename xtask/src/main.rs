//! The project's own chores: `cargo xtask CHORE`. One module per chore, no dependencies, so that
//! the first chore on a fresh machine starts within seconds.

#![forbid(unsafe_code)]

mod bench;
mod check;
#[cfg(test)]
mod claims;
mod fuzz;
mod hostile;
mod mounts;
mod mutants;
mod programs;
mod project;
mod real;
mod ring;
mod run;
mod skips;
mod step;
mod test;
mod together;
mod tools;
mod vm_test;

use std::process::ExitCode;
use step::Failure;

const USAGE: &str = "\
cargo xtask CHORE

  setup            install what the tests use (Debian packages and crates, exact names; as root)
                   and turn FUSE over io_uring on in the kernel
  quick            format, clippy, unit and in-process tests: no root, no network, no mount
  test             setup, then every test: the test programs, several at a time, then the real
                   programs, then a guest; what was skipped is listed at the end
  programs [NAME...]
                   of `test`, the test programs alone, or those whose names have such a part
  check            format, clippy, documentation, licences and advisories
  real [NAME...]   the real programs of tests/real, or those named, over each transport
                   (TRANSPORT=dev or uring chooses one)
  vm-test [--guest uml|qemu] [--server thrufs|virtiofsd] [--options LIST]... [--lower tmpfs|ext4]
          [--fetch] [WHAT...]
                   the POSIX cases (`posix`), the property tests (`property`), and scripts of
                   tests/guest and tests/real, in a guest without KVM, through virtio-fs; by default
                   all that runs there, in User-Mode Linux, served by thrufs. Scripts of
                   tests/guest/host are run by name: faults, hotplug (qemu), killed, locks,
                   migrate (qemu), turns
  vm-bench [--guest uml|qemu] [--lower tmpfs|ext4] [--rounds N] [--seconds N] [--cache MODE]
          [--with OPTIONS] [--rows EXPRESSION] [--save] [--save-as FILE]
                   thrufs against virtiofsd in a guest, with QEMU against 9p as well, row by row in
                   turns; --save keeps what was measured in bench/results, --save-as elsewhere
  vm-bench --open1 [--lower tmpfs|ext4] [--rounds N] [--seconds N] [--save]
                   opening and closing a file in QEMU guests with Linux 6.1 and 6.12, on a share
                   and in the guest's own tmpfs, with and without restartable sequences
  fuzz [SECONDS]   every fuzz target for SECONDS each (default 60); what it finds is kept in
                   target/corpus, where the next run begins
  hostile [SECONDS [--record]]
                   front ends and guests that misbehave against a share that others use, and processes
                   against mounts, each for so long (default 60); --record notes what passed in tests/results, and goes on
                   where it was stopped
  mutants [AREA...] [--shard K/N]
                   changes the code of permission, rename, locks, ... in one place at a time, and looks
                   whether a test fails; goes on where it was ended (see docs/mutants.md; hours)
  ci               check, test, fuzz (5 seconds each) and hostile
  bench [ARG...]   `thrufs bench`, optimised, with the peers that it is compared with; what it finds is
                   kept in bench/results (see bench/README.md); --suite published takes place in
                   guests as well: --no-guest leaves them out, --only-guest the rest
  bench --shares, bench --memory
                   shares beside virtiofsd; memory of idle mounts and of many files
  bench --document makes the tables of docs/performance.md anew from bench/results
  tools            list what setup installs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = match (chore.as_str(), rest) {
        ("setup", []) => tools::set_up(),
        ("tools", []) => {
            tools::list();
            Ok(())
        }
        ("quick", []) => apart(&arguments, test::quick),
        ("test", []) => prepared(&arguments, test::run),
        ("programs", names) => prepared(&arguments, || test::programs(names)),
        ("check", []) => check::run(),
        ("real", names) => prepared(&arguments, || real::run(names)),
        ("vm-test", rest) => prepared(&arguments, || vm_test::run(rest)),
        ("vm-bench", arguments) => tools::set_up().and_then(|()| vm_test::bench(arguments)),
        ("fuzz", []) => fuzz::run(fuzz::SECONDS),
        ("fuzz", [seconds]) => fuzz::run(seconds),
        ("hostile", []) => apart(&arguments, || hostile::run("60")),
        ("hostile", [seconds]) => apart(&arguments, || hostile::run(seconds)),
        ("hostile", [seconds, record]) if record == "--record" => {
            apart(&arguments, || hostile::record(seconds))
        }
        ("mutants", rest) => mutants::run(rest),
        ("ci", []) => prepared(&arguments, ci),
        ("bench", arguments) => bench::run(arguments),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::new(format!(
            "no such chore: {}\n\n{USAGE}",
            arguments.join(" ")
        ))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a chore as a run of its own, which leaves nothing behind (see `run`).
fn apart(arguments: &[String], chore: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    if !run::is_inside() {
        return run::chore(arguments);
    }
    mounts::prepare()?;
    let before = mounts::own()?;
    let outcome = chore();
    // A failure that leaves something is told first.
    outcome.and(run::nothing_left(&before))
}

/// The same once what it uses is installed, which outlives the run.
fn prepared(
    arguments: &[String],
    chore: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !run::is_inside() {
        tools::set_up()?;
    }
    apart(arguments, chore)
}

/// What must pass before a change goes in. The cheap checks come first.
fn ci() -> Result<(), Failure> {
    check::run()?;
    let tested = test::run();
    fuzz::run(fuzz::SECONDS_CI)?;
    hostile::run("60")?;
    tested?;
    println!("xtask: all checks passed");
    Ok(())
}
