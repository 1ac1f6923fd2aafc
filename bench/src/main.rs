//! Thrufs against native and its peers, in interleaved rounds. See README.md.

mod contestant;
mod lower;
mod machine;
mod peers;
mod report;
mod row;
mod splice;
mod workload;

use contestant::Contestant;
use lower::Lower;
use report::{Report, Sample};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Whatever stops a run, as a text for people.
type Outcome<T> = Result<T, String>;

/// What the command line asks for.
struct Plan {
    rounds: usize,
    rows: Vec<&'static row::Row>,
    lowers: Vec<Lower>,
    with_passthrough: bool,
    /// The comparison of [`splice`] instead of the rows.
    splice: bool,
    /// Work per measurement, in hundredths of the usual.
    percent: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("row") => row::measure_here(&arguments[1..]),
        Some("inside") => parse(&arguments[1..]).and_then(|plan| run(&plan)),
        _ => parse(&arguments).and_then(|_| go_inside(&arguments)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("thrufs-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts again in mount and process namespaces of its own: whatever happens, no mount and no
/// server is left. What must be fetched is fetched before.
fn go_inside(arguments: &[String]) -> Outcome<()> {
    peers::passthrough_hp()?;
    let own = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let error = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .arg("--mount-proc")
        .arg(own)
        .arg("inside")
        .args(arguments)
        .exec();
    Err(format!("cannot run unshare: {error}"))
}

fn parse(arguments: &[String]) -> Outcome<Plan> {
    let mut plan = Plan {
        rounds: 5,
        rows: row::ROWS.iter().collect(),
        lowers: vec![Lower::Tmpfs, Lower::Ext4],
        with_passthrough: false,
        splice: false,
        percent: 100,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => {
                plan.rounds = value()?
                    .parse()
                    .map_err(|_| "--rounds wants a number".to_owned())?;
            }
            "--rows" => {
                plan.rows = value()?
                    .split(',')
                    .map(row::named)
                    .collect::<Outcome<_>>()?
            }
            "--lower" => {
                plan.lowers = value()?
                    .split(',')
                    .map(Lower::named)
                    .collect::<Outcome<_>>()?
            }
            "--with-passthrough" => plan.with_passthrough = true,
            "--splice" => plan.splice = true,
            "--quick" => {
                plan.percent = 10;
                plan.rounds = 3;
            }
            _ => {
                return Err(format!(
                    "{word}? [--quick] [--rounds N] [--rows A,B] [--lower tmpfs,ext4] \
                     [--with-passthrough]\nor: --splice [--rounds N] [--lower tmpfs,ext4]\nrows: {}",
                    row::names().join(" ")
                ));
            }
        }
    }
    if plan.rounds == 0 {
        return Err("--rounds must be at least 1".to_owned());
    }
    Ok(plan)
}

fn run(plan: &Plan) -> Outcome<()> {
    let work = std::env::temp_dir().join(format!("thrufs-bench-{}", machine::random_name()?));
    std::fs::create_dir(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let outcome = run_in(plan, &work);
    // The mounts go with the namespace; what is beneath them is not to be deleted through them.
    for lower in &plan.lowers {
        lower.take_down(&work);
    }
    // Mount points are empty directories, images are files: nothing deeper may be there.
    if let Err(error) = std::fs::remove_dir_all(&work) {
        eprintln!("thrufs-bench: {} stays: {error}", work.display());
    }
    outcome
}

fn run_in(plan: &Plan, work: &Path) -> Outcome<()> {
    if plan.splice {
        for (what, value) in machine::describe()? {
            eprintln!("{what}: {value}");
        }
        return splice::run(plan.rounds, &plan.lowers, work);
    }
    let mut report = Report::new(plan.rounds, machine::describe()?);
    for lower in &plan.lowers {
        let beneath = lower.set_up(work)?;
        let mut contestants = vec![Contestant::native(&beneath)?];
        contestants.push(Contestant::thrufs(&beneath, work)?);
        contestants.push(Contestant::libfuse(&beneath, work, false)?);
        if plan.with_passthrough {
            contestants.push(Contestant::libfuse(&beneath, work, true)?);
        }
        for row in &plan.rows {
            for round in 0..plan.rounds {
                // Whoever goes first has what the row before has left to be cleaned up, and so on:
                // every place is everybody's once.
                let order = contestants.iter().cycle().skip(round);
                for contestant in order.take(contestants.len()) {
                    let sample = measure(row, contestant, round, plan.percent)?;
                    report.add(lower.name(), row, contestant.name(), sample);
                }
            }
            report.print_row(lower.name(), row);
        }
        for contestant in contestants {
            report.add_memory(lower.name(), contestant.name(), contestant.resident_kib());
            contestant.unmount()?;
        }
    }
    report.finish()
}

/// One measurement, in a process of its own.
fn measure(
    row: &row::Row,
    contestant: &Contestant,
    round: usize,
    percent: usize,
) -> Outcome<Sample> {
    let own: PathBuf =
        std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let directory = format!("{}-{round}", row.name);
    let output = Command::new(own)
        .args(["row", row.name])
        .arg(contestant.source().join(&directory))
        .arg(contestant.seen_at().join(&directory))
        .arg(percent.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run a measurement: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok());
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(operations), Some(nanoseconds)) if nanoseconds > 0 => Ok(Sample {
            operations,
            nanoseconds,
        }),
        _ => Err(format!(
            "{} on {}: {} {text}",
            row.name,
            contestant.name(),
            output.status
        )),
    }
}
