//! Thrufs against native and its peers, in interleaved rounds. See README.md.

mod contest;
mod contestant;
mod fence;
mod figures;
mod floor;
mod lower;
mod machine;
mod measurement;
mod peers;
mod report;
mod ring_parameter;
mod row;
mod splice;
mod workload;

use contest::Contest;
use lower::Lower;
use measurement::{Amount, measure, measure_here};
use report::Report;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Whatever stops a run, as a text for people.
type Outcome<T> = Result<T, String>;

/// What the command line asks for.
struct Plan {
    rounds: usize,
    rows: Vec<&'static row::Row>,
    /// How many processes measure at once: all rows for the first number, then for the next.
    jobs: Vec<usize>,
    lowers: Vec<Lower>,
    contest: Contest,
    /// The comparison of [`splice`] instead of the rows.
    splice: bool,
    /// Work per measurement, in hundredths of the usual.
    percent: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("row") => measure_here(&arguments[1..]),
        Some("floor") => floor::serve_here(&arguments[1..]),
        Some("inside") => parse(&arguments[1..]).and_then(|plan| run(&plan)),
        _ => parse(&arguments).and_then(|plan| go_inside(&plan, &arguments)),
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
fn go_inside(plan: &Plan, arguments: &[String]) -> Outcome<()> {
    peers::passthrough_hp()?;
    if plan.contest.needs_ring() {
        ring_parameter::switch_on()?;
    }
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

const USAGE: &str = "\
[--transports | --ring-setups] [--quick] [--rounds N] [--jobs 1,2] [--rows A,B] [--lower tmpfs,ext4] \
[--with-passthrough]
or: --splice [--rounds N] [--lower tmpfs,ext4]";

fn parse(arguments: &[String]) -> Outcome<Plan> {
    let mut plan = Plan {
        rounds: 5,
        rows: row::ROWS.iter().collect(),
        jobs: vec![1],
        lowers: vec![Lower::Tmpfs, Lower::Ext4],
        contest: Contest::Usual {
            with_passthrough: false,
        },
        splice: false,
        percent: 100,
    };
    let (mut rows, mut transports, mut with_passthrough) = (None, None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => plan.rounds = number(word, value()?)?,
            "--jobs" => {
                let jobs = value()?.split(',').map(|jobs| number(word, jobs));
                plan.jobs = jobs.collect::<Outcome<_>>()?;
            }
            "--rows" => rows = Some(row::listed(value()?)?),
            "--lower" => {
                let lowers = value()?.split(',').map(Lower::named);
                plan.lowers = lowers.collect::<Outcome<_>>()?;
            }
            "--with-passthrough" => with_passthrough = true,
            "--transports" => transports = Some(Contest::Transports),
            "--ring-setups" => transports = Some(Contest::RingSetups),
            "--splice" => plan.splice = true,
            "--quick" => {
                plan.percent = 10;
                plan.rounds = 3;
            }
            _ => {
                let rows = row::names().join(" ");
                return Err(format!("{word}? {USAGE}\nrows: {rows}"));
            }
        }
    }
    if transports.is_some() && (with_passthrough || plan.splice) {
        return Err("transports go with neither --with-passthrough nor --splice".to_owned());
    }
    plan.contest = if let Some(contest) = transports {
        plan.rows = row::listed("transports")?;
        contest
    } else {
        Contest::Usual { with_passthrough }
    };
    if let Some(rows) = rows {
        plan.rows = rows;
    }
    Ok(plan)
}

fn number(option: &str, text: &str) -> Outcome<usize> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} {text}: a number, at least 1")),
    }
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
    let mut report = Report::new(plan.contest, plan.rounds, machine::describe()?);
    for lower in &plan.lowers {
        let beneath = lower.set_up(work)?;
        let jobs_max = plan.jobs.iter().copied().max().unwrap_or(1);
        let contestants = plan.contest.start(jobs_max, &beneath, work)?;
        for &jobs in &plan.jobs {
            for row in &plan.rows {
                for round in 0..plan.rounds {
                    let percent = plan.percent;
                    let amount = Amount {
                        jobs,
                        round,
                        percent,
                    };
                    // Whoever goes first has what the row before has left to be cleaned up, and so
                    // on: every place is everybody's once.
                    let order = contestants.iter().cycle().skip(round);
                    for contestant in order.take(contestants.len()) {
                        let measured = measure(row, contestant, amount)?;
                        report.add(lower.name(), jobs, row, contestant.name(), measured);
                    }
                }
                report.print_row(lower.name(), jobs, row);
            }
        }
        for contestant in contestants {
            report.add_memory(lower.name(), &contestant);
            contestant.unmount()?;
        }
    }
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::{Contest, Outcome, Plan, parse};

    fn parsed(line: &str) -> Outcome<Plan> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn the_usual_contest_has_all_rows_and_one_job() {
        let plan = parsed("").unwrap();
        assert_eq!(plan.rows.len(), crate::row::ROWS.len());
        assert_eq!(plan.jobs, [1]);
        let with_passthrough = false;
        assert!(plan.contest == Contest::Usual { with_passthrough });
    }

    #[test]
    fn transports_have_their_rows_unless_others_are_asked_for() {
        let plan = parsed("--transports --jobs 1,2").unwrap();
        assert!(plan.contest == Contest::Transports);
        assert_eq!((plan.rows.len(), plan.jobs), (11, vec![1, 2]));
        for order in ["--rows mkdir --transports", "--transports --rows mkdir"] {
            assert_eq!(parsed(order).unwrap().rows.len(), 1, "{order}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--jobs 0",
            "--rounds 0",
            "--rows none",
            "--transports --splice",
            "--transports --with-passthrough",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
