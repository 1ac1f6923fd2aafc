//! Guests without KVM: boots one, gives it a directory of this machine through virtio-fs, and runs
//! tests inside. The server is ours, or virtiofsd, by which the tests themselves are tried.
//!
//! What happens on the host is in `tests/guest/guest.sh`, what happens in the guest in
//! `tests/guest/job.sh`; scripts of `tests/guest/host` say to guests what to do, step by step. Here is
//! what all need first: kernels, the image, programs.

mod compare;
mod compiler;
mod cpio;
mod debian;
mod differs;
mod emulator;
mod image;
mod kernel;
mod plan;

use crate::project;
use crate::skips;
use crate::step::{Failure, Step};
use crate::tools::{self, Package, package};
use image::Image;
use kernel::{Debians, Kernel};
use plan::{Guest, Plan, Run, Server};
use std::fs;
use std::path::{Path, PathBuf};

/// What guests need beyond what every test needs.
pub(crate) const PACKAGES: &[Package] = &[
    package("bc", "the build of a kernel for User-Mode Linux"),
    package("bison", "the same"),
    package("flex", "the same"),
    package("qemu-system-x86", "a guest with a PCI bus"),
    package("xz-utils", "unpacking kernels"),
];

/// How many times as long as one guest a script may take: it may boot several.
const GUESTS: u32 = 3;

/// Of a guest: the image, and what scripts keep in memory.
const MEMORY: &str = "1024M";

/// Whether there is a guest to run tests in: where none can be had, that is said, and the tests are
/// skipped.
pub(crate) fn has_guest(tests: &str) -> Result<bool, Failure> {
    tools::install_packages(PACKAGES)?;
    match kernel::uml(false) {
        Ok(_) => Ok(true),
        Err(failure) => {
            skips::add(&format!("guest/{tests}"), &failure.to_string());
            Ok(false)
        }
    }
}

/// Boots a guest once for each set of options, and fails if anything in any of them fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let plan = Plan::parse(arguments)?;
    let kernel = |fetch| match plan.guest {
        Guest::Uml => kernel::uml(fetch),
        Guest::Qemu => kernel::debian(Debians::Cloud, fetch),
    };
    carry_out(&plan, &kernel, &[])
}

/// Measures shares of ours and of others in a guest, prints a table, and keeps what was measured if asked
/// to.
pub(crate) fn bench(arguments: &[String]) -> Result<(), Failure> {
    let comparison = compare::Comparison::parse(arguments)?;
    let plan = Plan::parse(&comparison.plan)?;
    let kernel = |fetch| match (plan.guest, comparison.is_open1) {
        (Guest::Uml, _) => kernel::uml(fetch),
        (Guest::Qemu, true) => kernel::debian(Debians::Cloud, fetch),
        (Guest::Qemu, false) => kernel::debian(Debians::Full, fetch),
    };
    let peer = server(Server::Virtiofsd)?;
    let measured = project::target().join(format!("measured-{}", std::process::id()));
    let _ = fs::remove_file(&measured);
    let mut variables = comparison.variables();
    variables.push(("PEER", peer.display().to_string()));
    variables.push(("MEASURED", measured.display().to_string()));
    let carried_out = carry_out(&plan, &kernel, &variables);
    // What was measured before something failed has taken its time as well.
    let text = match (fs::read_to_string(&measured), &carried_out) {
        (Ok(text), _) => text,
        (Err(_), Err(_)) => return carried_out,
        (Err(error), Ok(())) => return Err(failure(&measured, &error)),
    };
    let _ = fs::remove_file(&measured);
    comparison.report(&text, plan.guest.name(), &plan.lower)?;
    carried_out
}

/// What scripts on the host are told besides.
type Variables = [(&'static str, String)];

fn carry_out(
    plan: &Plan,
    kernel: &dyn Fn(bool) -> Result<Kernel, Failure>,
    variables: &Variables,
) -> Result<(), Failure> {
    if !tools::is_root()? {
        return Err(Failure::new(
            "vm-test needs root: it mounts what it serves, and serves files of several owners",
        ));
    }
    tools::install_packages(PACKAGES)?;
    let kernel = kernel(plan.fetch)?;
    let server = server(plan.server)?;
    // Of this process alone: another may run beside it.
    let place = project::target()
        .join("guest")
        .join(std::process::id().to_string());
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(|error| failure(&place, &error))?;
    let image = place.join("image.cpio");
    let mut images = vec![(kernel, image.clone())];
    let mut variables = variables.to_vec();
    // A second kernel, where a script compares two.
    if plan.runs().iter().any(Run::compares_kernels) {
        let before = kernel::debian(Debians::Before, plan.fetch)?;
        let image = place.join("image-before.cpio");
        variables.push(("KERNEL_BEFORE", before.path.display().to_string()));
        variables.push(("INITRAMFS_BEFORE", image.display().to_string()));
        images.push((before, image));
    }
    let mut failed = Vec::new();
    let runs = plan.runs();
    let ways = plan.options.iter();
    let ways = ways.flat_map(|options| runs.iter().map(move |run| (options, run)));
    for (number, (options, run)) in ways.enumerate() {
        let account = place.join(format!("console-{}", number + 1));
        let name = plan.name_of(options, run);
        println!("\nxtask: {name}");
        let make = |(kernel, path): &(Kernel, PathBuf)| {
            make_image(plan, options, run, kernel, &server, path)
        };
        let booted = images.iter().try_for_each(make).and_then(|()| {
            let paths = [images[0].0.path.as_path(), &image, &server, &account];
            boot(plan, options, run, paths, &variables)
        });
        if let Err(failure) = booted {
            eprintln!(
                "xtask: {failure}\nxtask: the console: {}",
                account.display()
            );
            failed.push(name);
        }
    }
    for (_, image) in &images {
        let _ = fs::remove_file(image);
    }
    if failed.is_empty() {
        let _ = fs::remove_dir_all(&place);
        println!("xtask: {} guests passed", plan.options.len() * runs.len());
        Ok(())
    } else {
        Err(Failure::new(format!(
            "guests that failed: {}",
            failed.join("; ")
        )))
    }
}

/// The program that serves. Whoever has built one elsewhere says so, by `THRUFS` or `VIRTIOFSD`.
fn server(server: Server) -> Result<PathBuf, Failure> {
    let (variable, path) = match server {
        Server::Thrufs => ("THRUFS", project::target().join("release/thrufs")),
        Server::Virtiofsd => ("VIRTIOFSD", tools::program("virtiofsd")),
    };
    let elsewhere = std::env::var_os(variable).map(PathBuf::from);
    if server == Server::Thrufs && elsewhere.is_none() {
        Step::cargo()
            .args(["build", "--release", "--locked", "--bin", "thrufs"])
            .run()?;
    }
    let path = elsewhere.unwrap_or(path);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::new(format!(
        "no such server: {} (set {variable})",
        path.display()
    )))
}

/// Writes what the guest boots into: programs that the scripts say they need, the tests, the job.
fn make_image(
    plan: &Plan,
    options: &str,
    run: &Run,
    kernel: &Kernel,
    server: &Path,
    path: &Path,
) -> Result<(), Failure> {
    let tests = project::target().join("debug");
    Step::cargo()
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "thrufs-tests",
            "--bins",
        ])
        .run()?;
    let mut image = Image::new(path.to_owned())?;
    image.executable(&tests.join("thrufs-guest-init"), "init")?;
    for name in ["thrufs-guest-tests", "thrufs-test-helper"] {
        image.executable(&tests.join(name), &format!("usr/bin/{name}"))?;
    }
    if plan.server == Server::Thrufs {
        image.executable(server, "usr/bin/thrufs")?;
    }
    for program in plan.programs()? {
        image.program(&program)?;
    }
    for (name, content) in &kernel.modules {
        image.made(&format!("guest/modules/{name}"), content)?;
    }
    for directory in ["tests/guest", "tests/real"] {
        image.tree_as(&project::root().join(directory), directory)?;
    }
    let job = project::root().join("tests/guest/job.sh");
    let job = fs::read(&job).map_err(|error| failure(&job, &error))?;
    image.made("guest/job.sh", &job)?;
    image.made(
        "guest/environment",
        plan.environment(options, run)?.as_bytes(),
    )?;
    image.finish()
}

/// Runs the host's side in a mount and process namespace of its own, under a time limit, so that
/// whatever goes wrong leaves neither a mount nor a process behind.
fn boot(
    plan: &Plan,
    options: &str,
    run: &Run,
    [kernel, image, server, account]: [&Path; 4],
    variables: &Variables,
) -> Result<(), Failure> {
    let limit = plan.seconds_max(run);
    let emulator = match run.emulator()? {
        Some(version) if plan.guest == Guest::Qemu => emulator::at_least(version, plan.fetch)?,
        _ => PathBuf::from(emulator::PROGRAM),
    };
    // With us, should we be killed.
    let mut step = Step::new("setpriv");
    for (name, value) in variables {
        step = step.env(name, value);
    }
    step.args([
        "--pdeathsig",
        "TERM",
        "timeout",
        "--kill-after=10",
        &(limit * GUESTS).to_string(),
    ])
    .args(["unshare", "--mount", "--propagation", "private"])
    .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
    .args([&run.script])
    .env("GUEST", plan.guest.name())
    .env("QEMU", emulator)
    .env("KERNEL", kernel)
    .env("INITRAMFS", image)
    .env("SERVER", plan.server.name())
    .env("PROGRAM", server)
    .env("OPTIONS", options)
    .env("LOWER", &plan.lower)
    .env("MEMORY", MEMORY)
    .env("HELPER", project::target().join("debug/thrufs-test-helper"))
    .env("LIMIT", limit.to_string())
    .env("ACCOUNT", account)
    .run()
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
