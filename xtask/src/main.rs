//! The project's own chores: `cargo xtask CHORE`. One module per chore, no dependencies, so that
//! the first chore on a fresh machine starts within seconds.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod fuzz;
mod hostile;
mod mounts;
mod mutants;
mod project;
mod real;
mod ring;
mod step;
mod test;
mod tools;
mod vm_test;

use std::process::ExitCode;
use step::Failure;

const USAGE: &str = "\
cargo xtask CHORE

  setup            install what the tests use (Debian packages and crates, exact names; as root)
                   and turn FUSE over io_uring on in the kernel
  test             setup, then every test: cargo test, then the real programs, then a
                   guest
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
  fuzz [SECONDS]   every fuzz target, sharing SECONDS among them (default 60)
  hostile [SECONDS]
                   front ends and guests that misbehave, against a share that others use (default 60)
  mutants [AREA...] [--shard K/N]
                   changes the code of permission, rename, locks, ... in one place at a time, and looks
                   whether a test fails; goes on where it was ended (see docs/mutants.md; hours)
  ci               check, test, fuzz and hostile
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
        ("test", []) => test::run(),
        ("check", []) => check::run(),
        ("real", names) => tools::set_up().and_then(|()| real::run(names)),
        ("vm-test", arguments) => tools::set_up().and_then(|()| vm_test::run(arguments)),
        ("vm-bench", arguments) => tools::set_up().and_then(|()| vm_test::bench(arguments)),
        ("fuzz", []) => fuzz::run("60"),
        ("fuzz", [seconds]) => fuzz::run(seconds),
        ("hostile", []) => hostile::run("60"),
        ("hostile", [seconds]) => hostile::run(seconds),
        ("mutants", arguments) => mutants::run(arguments),
        ("ci", []) => ci(),
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

/// What must pass before a change goes in. The cheap checks come first.
fn ci() -> Result<(), Failure> {
    let before = mounts::fuse_mounts()?;
    tools::set_up()?;
    check::run()?;
    test::run_prepared()?;
    fuzz::run("60")?;
    hostile::run("60")?;
    mounts::nothing_left(&before)?;
    println!("xtask: all checks passed");
    Ok(())
}
