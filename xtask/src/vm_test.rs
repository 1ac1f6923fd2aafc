//! Guests without KVM: boots one, gives it a directory of this machine through virtio-fs, and runs tests
//! inside. The server is ours, or virtiofsd, which tries the tests themselves.
//!
//! `tests/guest/guest.sh` runs on the host, `tests/guest/job.sh` in the guest; scripts of
//! `tests/guest/host` command guests step by step. Here is what all need first: kernels, the image,
//! programs.

mod debian;
mod kernel;
mod plan;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::programs;
use crate::project;
use crate::release;
use crate::step::Step;
use crate::tools::{self, Tier};
use plan::{Plan, Run, Variables};
use std::fs;
use std::path::{Path, PathBuf};

/// Time limit of a script in times of one guest's: it may boot several.
const GUESTS: u32 = 3;

/// Of a guest: the image, and what scripts keep in memory.
const MEMORY: &str = "1024M";

/// What a guest boots into, as a directory, and packed for the kernel.
const IMAGE: &str = "image";
const ARCHIVE: &str = "image.cpio";

/// The test that runs a test program in the guest.
const FOLLOW: &str = "follow";

/// That program.
const SOAK: &str = "thrufs-tests/soak";

/// The script of the host that measures, beside virtiofsd and 9p.
const COMPARE: &str = "compare";

/// The test that needs an emulator that maps files into a guest.
const WINDOW: &str = "dax";

fn add(variables: &mut Variables, name: &str, path: &Path) {
    variables.insert(name.to_owned(), path.display().to_string());
}

/// Boots a guest once for each set of options, and fails if anything in any of them fails. A package that the archive
/// no longer has is reported, and is no failure.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let plan = Plan::parse(Arguments(arguments.to_vec()))?;
    let mut variables = Variables::new();
    tools::install_packages("guests")?;
    // Of this run alone: another may run beside it, with a process of the same number.
    let run = std::env::temp_dir();
    let run = run.file_name().unwrap_or_default().to_string_lossy();
    let place = project::target().join(format!("guest-{run}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).map_err(Failure::of(&place))?;
    if plan.guest == "qemu" {
        for (name, package, is_needed) in [
            ("QEMU", &debian::QEMU, plan.has_others_than(WINDOW)),
            ("QEMU_WINDOW", &debian::QEMU_WINDOW, plan.has(WINDOW)),
        ] {
            if !is_needed {
                continue;
            }
            let Some(qemu) = package.unpacked()? else {
                return Ok(());
            };
            add(&mut variables, name, &qemu);
        }
    }
    let server = match plan.server.as_str() {
        "thrufs" => release::build()?,
        name => tools::program(name)?,
    };
    // As `cargo test` builds the workspace, so that nothing is built twice.
    let build = ["build", "--workspace", "--bins", "--locked"];
    Step::cargo().args(build).run()?;
    let kernel = match plan.guest.as_str() {
        "uml" => kernel::uml()?,
        _ if plan.has(COMPARE) => kernel::debian(&debian::GENERIC)?,
        _ => kernel::debian(&debian::CLOUD)?,
    };
    let Some((kernel, modules)) = kernel else {
        return Ok(());
    };
    put_together(&plan, modules, &server, &place.join(IMAGE))?;
    if plan.has(COMPARE) {
        add(&mut variables, "PEER", &tools::program("virtiofsd")?);
    }
    add(&mut variables, "KERNEL", &kernel);
    add(&mut variables, "INITRAMFS", &place.join(ARCHIVE));
    add(&mut variables, "PROGRAM", &server);
    each(&plan, &place, &variables)?;
    let _ = fs::remove_dir_all(&place);
    Ok(())
}

/// Everything in the plan, one after the other, whatever becomes of each.
fn each(plan: &Plan, place: &Path, variables: &Variables) -> Result<(), Failure> {
    let (mut tried, mut failed) = (0, Vec::new());
    let runs = plan.runs();
    for options in &plan.options {
        for run in &runs {
            let name = plan.name_of(options, run);
            println!("\nxtask: {name}");
            let environment = plan.environment(options, run);
            pack(&place.join(IMAGE), &environment, &place.join(ARCHIVE))?;
            let account = place.join(format!("console-{tried}"));
            if let Err(failure) = boot(plan, options, run, &account, variables) {
                println!("xtask: {failure}: {}", account.display());
                failed.push(name);
            }
            tried += 1;
        }
    }
    Failure::if_any("guests that failed", &failed)?;
    println!("xtask: {tried} guests passed");
    Ok(())
}

/// Makes the tree of the guest's image, without its environment.
fn put_together(
    plan: &Plan,
    modules: Option<PathBuf>,
    server: &Path,
    image: &Path,
) -> Result<(), Failure> {
    let programs = plan.programs()?;
    for program in &programs {
        tools::installed(program)?;
    }
    let served = match plan.server.as_str() {
        "thrufs" => server,
        _ => Path::new(""),
    };
    let mut soak = PathBuf::new();
    if plan.has(FOLLOW) {
        let mut programs = programs::build(&[SOAK.to_owned()], Tier::Full)?;
        soak = programs.remove(0).executable;
    }
    Step::new("bash")
        .args([Path::new("tests/guest/image.sh"), image])
        .args(programs)
        .env("DEBUG", project::target().join("debug"))
        .env("SERVED", served)
        .env("SOAK", soak)
        .env("KERNEL", modules.unwrap_or_default())
        .env("TOOLS", tools::search_path())
        .run()
}

/// Makes the archive that the kernel unpacks.
fn pack(image: &Path, environment: &str, archive: &Path) -> Result<(), Failure> {
    let path = image.join("guest/environment");
    fs::write(&path, environment).map_err(Failure::of(&path))?;
    let pack = "find . | cpio --quiet --create --format=newc --owner=0:0 >\"$0\"";
    let step = Step::new("bash").args(["-c", pack]).args([archive]);
    step.directory(image).quietly()
}

/// Runs the host's side with mounts and processes of its own under a time limit, so that it leaves none
/// behind.
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
        .env("TOOLS", tools::search_path())
        .env("LIMIT", limit.to_string())
        .env("ACCOUNT", account)
        .run()
}
