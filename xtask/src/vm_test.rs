//! Guests without KVM: boots one, gives it a directory of this machine through virtio-fs, and runs
//! tests inside. The server is ours, or virtiofsd, by which the tests themselves are tried.
//!
//! What happens on the host is in `tests/guest/guest.sh`, what happens in the guest in
//! `tests/guest/job.sh`; scripts of `tests/guest/host` say to guests what to do, step by step. Here is
//! what all need first: kernels, the image, programs.

mod compare;
mod compiler;
mod debian;
mod differs;
mod image;
mod kernel;
mod plan;

use crate::arguments::Arguments;
use crate::project;
use crate::step::{Failure, Step};
use crate::tools;
use compare::Comparison;
use debian::Package;
use image::Image;
use kernel::Kernel;
use plan::{Plan, Run};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What guests need beyond what every test needs.
pub(crate) const PACKAGES: &[tools::Package] = &[
    ("bc", "the build of a kernel for User-Mode Linux"),
    ("bison", "the same"),
    ("cpio", "what a guest boots into"),
    ("flex", "the same as bc"),
    ("xz-utils", "unpacking kernels"),
];

/// How many times as long as one guest a script may take: it may boot several.
const GUESTS: u32 = 3;

/// Of a guest: the image, and what scripts keep in memory.
const MEMORY: &str = "1024M";

/// What scripts on the host are told.
type Variables = BTreeMap<String, String>;

fn add(variables: &mut Variables, name: &str, path: &Path) {
    variables.insert(name.to_owned(), path.display().to_string());
}

/// Boots a guest once for each set of options, and fails if anything in any of them fails.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let plan = Plan::parse(Arguments(arguments.to_vec()), plan::ALL)?;
    carry_out(&plan, &[("", &debian::CLOUD)], Variables::new())
}

/// Measures shares of ours and of others in a guest, prints a table, and keeps what was measured if asked
/// to.
pub(crate) fn bench(arguments: &[String]) -> Result<(), Failure> {
    let comparison = Comparison::parse(arguments)?;
    let kernels: &[_] = match comparison.is_open1 {
        true => &[("", &debian::CLOUD), ("_BEFORE", &debian::BEFORE)],
        false => &[("", &debian::GENERIC)],
    };
    let measured = project::target().join(format!("measured-{}", std::process::id()));
    let mut variables = comparison.variables.clone();
    let peer = server("virtiofsd")?;
    add(&mut variables, "PEER", &peer);
    add(&mut variables, "MEASURED", &measured);
    let carried_out = carry_out(&comparison.plan, kernels, variables);
    // What was measured before something failed has taken its time as well.
    let text = fs::read_to_string(&measured).unwrap_or_default();
    let _ = fs::remove_file(&measured);
    if text.is_empty() {
        return carried_out.and(Err(Failure::new("nothing was measured")));
    }
    comparison.report(&text)?;
    carried_out
}

/// Does it with kernels of these packages where the guest is not User-Mode Linux, each with what its
/// variables end with. What the archive has no longer cannot be tried: that is said, and no failure.
fn carry_out(
    plan: &Plan,
    packages: &[(&str, &Package)],
    mut variables: Variables,
) -> Result<(), Failure> {
    tools::install_packages(PACKAGES)?;
    // Of this process alone: another may run beside it.
    let place = project::target()
        .join("guest")
        .join(std::process::id().to_string());
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(Failure::of(&place))?;
    if plan.guest == "qemu" {
        let Some(qemu) = debian::QEMU.unpacked()? else {
            return Ok(());
        };
        add(&mut variables, "QEMU", &qemu);
    }
    let server = server(&plan.server)?;
    Step::cargo().args(BUILD).run()?;
    let mut images = Vec::new();
    for (suffix, package) in packages {
        let kernel = match plan.guest.as_str() {
            "uml" => kernel::uml()?,
            _ => kernel::debian(package)?,
        };
        let Some(kernel) = kernel else { return Ok(()) };
        let archive = place.join(format!("image{suffix}.cpio"));
        add(&mut variables, &format!("KERNEL{suffix}"), &kernel.path);
        add(&mut variables, &format!("INITRAMFS{suffix}"), &archive);
        let image = place.join(format!("image{suffix}"));
        images.push((image_of(plan, &kernel, &server, image)?, archive));
    }
    add(&mut variables, "PROGRAM", &server);
    each(plan, &images, &place, &variables)?;
    let _ = fs::remove_dir_all(&place);
    Ok(())
}

/// The tests' own programs, built as `cargo test` builds them: nothing is built twice.
const BUILD: &[&str] = &["build", "--workspace", "--bins", "--locked"];

/// All that the plan has, one after the other, whatever becomes of each.
fn each(
    plan: &Plan,
    images: &[(Image, PathBuf)],
    place: &Path,
    variables: &Variables,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let runs = plan.runs();
    let ways = plan
        .options
        .iter()
        .flat_map(|options| runs.iter().map(move |run| (options, run)));
    let count = plan.options.len() * runs.len();
    for (number, (options, run)) in ways.enumerate() {
        let name = plan.name_of(options, run);
        println!("\nxtask: {name}");
        let environment = plan.environment(options, run)?;
        for (image, archive) in images {
            image.write("guest/environment", &environment)?;
            image.pack(archive)?;
        }
        let account = place.join(format!("console-{}", number + 1));
        if let Err(failure) = boot(plan, options, run, &account, variables) {
            eprintln!(
                "xtask: {failure}\nxtask: the console: {}",
                account.display()
            );
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        return Err(Failure::new(format!(
            "guests that failed: {}",
            failed.join("; ")
        )));
    }
    println!("xtask: {count} guests passed");
    Ok(())
}

/// The program that serves.
fn server(name: &str) -> Result<PathBuf, Failure> {
    if name == "thrufs" {
        return project::release();
    }
    tools::program(name)
}

/// What the guest boots into, but for its environment: programs that the scripts say they need, the tests,
/// the job.
fn image_of(
    plan: &Plan,
    kernel: &Kernel,
    server: &Path,
    directory: PathBuf,
) -> Result<Image, Failure> {
    let tests = project::target().join("debug");
    let mut image = Image::new(directory)?;
    image.executable(&tests.join("thrufs-guest-init"), "init")?;
    for name in ["thrufs-guest-tests", "thrufs-test-helper"] {
        image.executable(&tests.join(name), &format!("usr/bin/{name}"))?;
    }
    if plan.server == "thrufs" {
        image.executable(server, "usr/bin/thrufs")?;
    }
    for program in plan.programs()? {
        image.program(&program)?;
    }
    image.add_libraries()?;
    for (number, path) in kernel.modules.iter().enumerate() {
        image.module(number, path)?;
    }
    image.tree("tests/guest")?;
    image.tree("tests/real")?;
    image.copy(&project::root().join("tests/guest/job.sh"), "guest/job.sh")?;
    Ok(image)
}

/// Runs the host's side with mounts and processes of its own, under a time limit, so that whatever goes
/// wrong leaves none of them behind.
fn boot(
    plan: &Plan,
    options: &str,
    run: &Run,
    account: &Path,
    variables: &Variables,
) -> Result<(), Failure> {
    let limit = plan.seconds_max(run);
    let step = Step::confined_for(limit * GUESTS).envs(variables);
    step.args([&run.script])
        .env("GUEST", &plan.guest)
        .env("SERVER", &plan.server)
        .env("OPTIONS", options)
        .env("LOWER", &plan.lower)
        .env("MEMORY", MEMORY)
        .env("HELPER", project::target().join("debug/thrufs-test-helper"))
        .env("LIMIT", limit.to_string())
        .env("ACCOUNT", account)
        .run()
}
