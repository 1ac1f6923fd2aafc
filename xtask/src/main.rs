//! The project's own chores: `cargo xtask CHORE`. One module per chore, no dependencies, so that
//! the first chore on a fresh machine starts within seconds.

#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod check;
mod dist;
#[cfg(test)]
mod documents;
mod failure;
mod fuzz;
mod job;
mod mounts;
mod mutants;
mod programs;
mod project;
mod real;
mod release;
mod ring;
mod run;
mod skips;
mod soak;
mod step;
mod structure;
mod test;
mod tools;
mod vm_test;

use failure::Failure;
use std::process::ExitCode;
use tools::Tier;

const USAGE: &str = "\
cargo xtask CHORE

  test [NAME...]   the tests that decide whether a change lands, or only the test programs whose
                   names have such a part; installs the Debian packages that they use, as root, and
                   turns FUSE over io_uring on in the kernel
  test --full [NAME...]
                   every deterministic test: all file systems and options, all real programs,
                   documentation, licences, a guest
  check            structure, format, clippy, and licences where cargo-deny is installed
  structure        circles of files, direction of dependencies, length of files
  ci               check, test
  soak [--minutes N] [--list] [WHAT...]
                   tests that need time or luck, in a drawn order
  real [NAME...]   the real programs of tests/real with the release build, or those named, over each
                   transport (TRANSPORT=dev, uring or relay chooses one)
  vm-test [--guest uml|qemu] [--server thrufs|virtiofsd] [--options LIST]... [--lower tmpfs|ext4]
          [WHAT...]
                   posix, property, and scripts of tests/guest and tests/real, in a guest without KVM,
                   through virtio-fs; by default all that runs there. Scripts of tests/guest/host are
                   run by name (compare: see bench/README.md)
  mutants [ARG...] whether tests notice changes of the code (.cargo/mutants.toml; hours); arguments of
                   cargo-mutants: --in-diff FILE, --file NAME, --shard K/N
  bench TABLE [ARG...]
                   bench/run.py: one of the published tables, Thrufs beside other servers (bench/README.md)
  bench --shares, bench --window, bench --memory, bench --runs, bench --cost, bench --work
                   shares beside virtiofsd, and through a DAX window; memory of idle mounts and of many
                   files; programs in `thrufs run`; what operations on names cost; real work
  dist             target/dist: a tarball and a package for Debian, of static programs
  setup            installs what all chores use, and turns FUSE over io_uring on
  tools            lists what setup installs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let in_run = |tier, chore: &dyn Fn() -> _| run::inside(&arguments, tier, chore);
    let is_help = |it: &str| matches!(it, "help" | "--help" | "-h");
    // These pass their arguments on.
    let passes_on = matches!(chore.as_str(), "mutants" | "bench");
    let outcome = match (chore.as_str(), rest) {
        (chore, rest) if is_help(chore) || !passes_on && rest.iter().any(|it| is_help(it)) => {
            println!("{USAGE}");
            Ok(())
        }
        ("setup", []) => tools::set_up_all(),
        ("tools", []) => {
            tools::list();
            Ok(())
        }
        ("test", [full, names @ ..]) if full == "--full" => {
            in_run(Tier::Full, &|| test::full(names))
        }
        ("test", names) => in_run(Tier::Gate, &|| test::gate(names)),
        ("check", []) => check::run(),
        ("dist", []) => dist::run().map(drop),
        ("structure", []) => structure::run(),
        ("ci", []) => in_run(Tier::Gate, &|| check::run().and_then(|()| test::gate(&[]))),
        ("soak", rest) => in_run(Tier::Full, &|| soak::run(rest)),
        ("real", names) => in_run(Tier::Full, &|| real::run(names)),
        ("vm-test", rest) => in_run(Tier::Full, &|| vm_test::run(rest)),
        ("mutants", rest) => mutants::run(rest),
        ("bench", rest) => bench::run(rest),
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
