//! Thrufs against the file system beneath and against libfuse, in interleaved rounds.
//!
//! `thrufs-bench [--rounds N] [--lower tmpfs|ext4|both] [--rows NAME,…] [--save]`. Every figure is
//! taken by a process of its own; every contestant serves the same tree within one round. With
//! `--save` the raw figures go to `bench/results/`.

mod contestant;
mod lower;
mod report;
mod workload;

use contestant::{ALL, Programs};
use lower::Lower;
use report::Figures;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use workload::{WORKLOADS, Workload};

struct Arguments {
    rounds: u32,
    lowers: Vec<String>,
    rows: Option<Vec<String>>,
    save: bool,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut parsed = Arguments {
        rounds: 5,
        lowers: vec!["tmpfs".into()],
        rows: None,
        save: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            "--rounds" => parsed.rounds = value()?.parse()?,
            "--lower" => {
                parsed.lowers = match value()?.as_str() {
                    "both" => vec!["tmpfs".into(), "ext4".into()],
                    one => vec![one.into()],
                }
            }
            "--rows" => parsed.rows = Some(value()?.split(',').map(str::to_owned).collect()),
            "--save" => parsed.save = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    Ok(parsed)
}

fn main() -> Result<(), Box<dyn Error>> {
    // A measurement: this program runs itself with the row and the directory.
    let own: Vec<String> = std::env::args().collect();
    if let [_, flag, row, place] = own.as_slice()
        && flag == "--measure"
    {
        let workload = Workload::find(row).ok_or("no such row")?;
        let measured = workload.run(Path::new(place))?;
        println!(
            "{}",
            f64::from(measured.operations) / measured.elapsed.as_secs_f64()
        );
        return Ok(());
    }
    let arguments = arguments()?;
    let project = PathBuf::from(std::env::var_os("PROJECT").unwrap_or_else(|| ".".into()));
    let programs = Programs {
        thrufs: std::env::var_os("THRUFS").map_or("thrufs".into(), PathBuf::from),
        libfuse: build_libfuse(&project),
    };
    for (name, value) in report::machine() {
        println!("{name}: {value}");
    }
    for kind in &arguments.lowers {
        let figures = measure(&arguments, &programs, kind)?;
        println!("\n{}", figures.table(kind, arguments.rounds));
        if arguments.save {
            let directory = project.join("bench/results");
            std::fs::create_dir_all(&directory)?;
            std::fs::write(directory.join(format!("{kind}.json")), figures.json(kind))?;
            std::fs::write(
                directory.join(format!("{kind}.md")),
                figures.table(kind, arguments.rounds),
            )?;
        }
    }
    Ok(())
}

/// The peer, built from Debian's source package. Without it only native and ours are measured.
fn build_libfuse(project: &Path) -> Option<PathBuf> {
    let peers = PathBuf::from(std::env::var_os("PEERS")?);
    let program = peers.join("passthrough_hp");
    if !program.exists() {
        let script = project.join("bench/peers/libfuse.sh");
        let built = Command::new("bash")
            .arg(script)
            .env("PEERS", &peers)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("libfuse could not be built: it is left out of the table");
            return None;
        }
    }
    Some(program)
}

fn measure(
    arguments: &Arguments,
    programs: &Programs,
    kind: &str,
) -> Result<Figures, Box<dyn Error>> {
    let directory = temporary_directory()?;
    let lower = Lower::mount(kind, &directory)?;
    let mountpoint = directory.join("mnt");
    std::fs::create_dir(&mountpoint)?;
    let wanted = |workload: &&Workload| {
        arguments
            .rows
            .as_ref()
            .is_none_or(|rows| rows.iter().any(|row| row == workload.name))
    };
    let contestants = ALL
        .into_iter()
        .filter(|contestant| !contestant.is_libfuse() || programs.libfuse.is_some());
    let contestants: Vec<_> = contestants.collect();
    let mut figures = Figures::default();
    for round in 0..arguments.rounds {
        for workload in WORKLOADS.iter().filter(wanted) {
            for contestant in &contestants {
                let ground = contestant.serve(programs, lower.path(), &mountpoint)?;
                let per_second = run_apart(workload, ground.root())?;
                figures.add(workload.name, *contestant, per_second);
            }
        }
        eprintln!("{kind}: round {} of {}", round + 1, arguments.rounds);
    }
    drop(lower);
    std::fs::remove_dir_all(&directory)?;
    Ok(figures)
}

fn run_apart(workload: &Workload, place: &Path) -> Result<f64, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--measure", workload.name])
        .arg(place)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} on {}: {said}", workload.name, place.display()).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn temporary_directory() -> Result<PathBuf, Box<dyn Error>> {
    let parent = std::env::temp_dir();
    let directory = parent.join(format!("thrufs-bench-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    Ok(directory)
}
