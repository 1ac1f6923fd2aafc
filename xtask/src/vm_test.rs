//! Guests without KVM: boots one, gives it a directory of this machine through virtio-fs, and runs
//! tests inside. The server is ours, or virtiofsd, by which the tests themselves are tried.
//!
//! What happens on the host is in `tests/guest/guest.sh`, what happens in the guest in
//! `tests/guest/job.sh`; here is what both need first: kernels, the image, programs.

mod compiler;
mod cpio;
mod debian;
mod image;
mod kernel;
mod plan;

use crate::project;
use crate::step::{Failure, Step};
use crate::tools::{self, Package, package};
use image::Image;
use kernel::Kernel;
use plan::{Guest, Plan, Server};
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

/// No boot may take longer, with all that runs in it, in seconds.
const SECONDS_MAX: &str = "1800";

/// Of a guest: the image, and what scripts keep in memory.
const MEMORY: &str = "1024M";

/// Boots a guest once for each set of options, and fails if anything in any of them fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let plan = Plan::parse(arguments)?;
    if !tools::is_root()? {
        return Err(Failure::new(
            "vm-test needs root: it mounts what it serves, and serves files of several owners",
        ));
    }
    tools::install_packages(PACKAGES)?;
    let kernel = match plan.guest {
        Guest::Uml => kernel::uml(plan.fetch)?,
        Guest::Qemu => kernel::cloud(plan.fetch)?,
    };
    let server = server(plan.server)?;
    // Of this process alone: another may run beside it.
    let place = project::target()
        .join("guest")
        .join(std::process::id().to_string());
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(|error| failure(&place, &error))?;
    let image = place.join("image.cpio");
    let mut failed = Vec::new();
    for (number, options) in plan.options.iter().enumerate() {
        let account = place.join(format!("console-{}", number + 1));
        let name = plan.name_of(options);
        println!("\nxtask: {name}");
        let booted = make_image(&plan, options, &kernel, &image)
            .and_then(|()| boot(&plan, options, [&kernel.path, &image, &server, &account]));
        if let Err(failure) = booted {
            eprintln!(
                "xtask: {failure}\nxtask: the console: {}",
                account.display()
            );
            failed.push(name);
        }
    }
    let _ = fs::remove_file(&image);
    if failed.is_empty() {
        let _ = fs::remove_dir_all(&place);
        println!("xtask: {} guests passed", plan.options.len());
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
fn make_image(plan: &Plan, options: &str, kernel: &Kernel, path: &Path) -> Result<(), Failure> {
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
    image.made("guest/environment", plan.environment(options)?.as_bytes())?;
    image.finish()
}

/// Runs the host's side in a mount and process namespace of its own, under a time limit, so that
/// whatever goes wrong leaves neither a mount nor a process behind.
fn boot(
    plan: &Plan,
    options: &str,
    [kernel, image, server, account]: [&Path; 4],
) -> Result<(), Failure> {
    // With us, should we be killed.
    Step::new("setpriv")
        .args([
            "--pdeathsig",
            "TERM",
            "timeout",
            "--kill-after=10",
            SECONDS_MAX,
        ])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .args([project::root().join("tests/guest/guest.sh")])
        .env("GUEST", plan.guest.name())
        .env("KERNEL", kernel)
        .env("INITRAMFS", image)
        .env("SERVER", plan.server.name())
        .env("PROGRAM", server)
        .env("OPTIONS", options)
        .env("LOWER", &plan.lower)
        .env("MEMORY", MEMORY)
        .env("ACCOUNT", account)
        .run()
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
