//! What the command line asks for.

use crate::Outcome;
use crate::contest::Contest;
use crate::lower::Lower;
use crate::row::{self, Row, Work};

/// A run.
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) rows: Vec<&'static Row>,
    /// How many processes measure at once: all rows for the first number, then for the next.
    pub(crate) jobs: Vec<usize>,
    /// Somebody has said how many.
    jobs_given: bool,
    pub(crate) lowers: Vec<Lower>,
    pub(crate) contest: Contest,
    /// The comparison of [`splice`](crate::splice) instead of the rows.
    pub(crate) splice: bool,
    /// Work per measurement, in hundredths of the usual.
    pub(crate) percent: usize,
}

const USAGE: &str = "\
[--transports | --ring-setups | --passthrough | --builds | --killpriv] [--quick] [--rounds N | --pairs N] \
[--jobs 1,2] [--rows A,B] [--lower tmpfs,ext4] [--with-passthrough] [--through-only]
or: --splice [--rounds N] [--lower tmpfs,ext4]";

pub(crate) fn parse(arguments: &[String]) -> Outcome<Plan> {
    let mut plan = Plan {
        rounds: 5,
        rows: Vec::new(),
        jobs: Vec::new(),
        jobs_given: false,
        lowers: vec![Lower::Tmpfs, Lower::Ext4],
        contest: Contest::Usual {
            with_passthrough: false,
        },
        splice: false,
        percent: 100,
    };
    let (mut rows, mut contests) = (None, Vec::new());
    let (mut with_passthrough, mut through_only) = (false, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" | "--pairs" => plan.rounds = number(word, value()?)?,
            "--jobs" => {
                let jobs = value()?.split(',').map(|jobs| number(word, jobs));
                plan.jobs = jobs.collect::<Outcome<_>>()?;
                plan.jobs_given = true;
            }
            "--rows" => rows = Some(row::listed(value()?)?),
            "--lower" => {
                let lowers = value()?.split(',').map(Lower::named);
                plan.lowers = lowers.collect::<Outcome<_>>()?;
            }
            "--with-passthrough" => with_passthrough = true,
            "--through-only" => through_only = true,
            "--transports" => contests.push(Contest::Transports),
            "--ring-setups" => contests.push(Contest::RingSetups),
            "--passthrough" => contests.push(Contest::Passthrough {
                through_only: false,
            }),
            "--builds" => contests.push(Contest::Builds {
                with_passthrough: false,
            }),
            "--killpriv" => contests.push(Contest::KillPriv),
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
    plan.contest = contest(&contests, with_passthrough, plan.splice)?;
    if through_only {
        plan.contest = plan.contest.through_only()?;
    }
    let (usual_rows, usual_jobs) = plan.contest.usual();
    plan.rows = rows.map_or_else(|| row::listed(usual_rows), Ok)?;
    if !plan.jobs_given {
        plan.jobs = usual_jobs.to_vec();
    }
    plan.check()?;
    Ok(plan)
}

/// The one that is asked for.
fn contest(asked: &[Contest], with_passthrough: bool, splice: bool) -> Outcome<Contest> {
    match asked {
        [] => Ok(Contest::Usual { with_passthrough }),
        [_, _, ..] => Err("one comparison at a time".to_owned()),
        [_] if splice => Err("--splice is a comparison of its own".to_owned()),
        [Contest::Builds { .. }] => Ok(Contest::Builds { with_passthrough }),
        [_] if with_passthrough => {
            Err("--with-passthrough goes with the usual comparison and with --builds".to_owned())
        }
        [contest] => Ok(*contest),
    }
}

impl Plan {
    /// The rows that so many processes measure.
    pub(crate) fn rows_for(&self, jobs: usize) -> impl Iterator<Item = &'static Row> {
        let rows = self.rows.iter().copied();
        rows.filter(move |row| self.jobs_given || row.is_usual_for(jobs))
    }

    fn check(&self) -> Outcome<()> {
        let alone = |row: &&&Row| matches!(row.work, Work::Build(_) | Work::Git(_));
        match self.rows.iter().find(alone) {
            Some(row) if self.jobs_given && self.jobs != [1] => {
                Err(format!("{} is measured by one process", row.name))
            }
            _ => Ok(()),
        }
    }
}

fn number(option: &str, text: &str) -> Outcome<usize> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} {text}: a number, at least 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Contest, Outcome, Plan, parse};

    fn parsed(line: &str) -> Outcome<Plan> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    fn names(plan: &Plan, jobs: usize) -> Vec<&'static str> {
        plan.rows_for(jobs).map(|row| row.name).collect()
    }

    #[test]
    fn the_usual_contest_has_its_rows_and_one_job() {
        let plan = parsed("").unwrap();
        assert_eq!(plan.rows.len(), crate::row::listed("usual").unwrap().len());
        assert_eq!(plan.jobs, [1]);
        let with_passthrough = false;
        assert!(plan.contest == Contest::Usual { with_passthrough });
    }

    #[test]
    fn contests_have_their_rows_unless_others_are_asked_for() {
        let plan = parsed("--transports --jobs 1,2").unwrap();
        assert!(plan.contest == Contest::Transports);
        assert_eq!((plan.rows.len(), plan.jobs), (11, vec![1, 2]));
        for order in ["--rows mkdir --transports", "--transports --rows mkdir"] {
            assert_eq!(parsed(order).unwrap().rows.len(), 1, "{order}");
        }
        let plan = parsed("--builds --pairs 2 --with-passthrough").unwrap();
        let with_passthrough = true;
        assert!(plan.contest == Contest::Builds { with_passthrough });
        assert_eq!(
            (plan.rounds, names(&plan, 1)),
            (2, vec!["build-c", "build-cargo"])
        );
    }

    #[test]
    fn passthrough_opens_by_two_processes_as_well_and_nothing_else() {
        let plan = parsed("--passthrough").unwrap();
        assert_eq!(plan.jobs, [1, 2]);
        assert!(names(&plan, 1).contains(&"read-4k"));
        assert_eq!(names(&plan, 2), ["open-close", "open-close-write"]);
        assert!(
            plan.contest
                == Contest::Passthrough {
                    through_only: false
                }
        );
        let plan = parsed("--through-only --passthrough").unwrap();
        assert!(plan.contest == Contest::Passthrough { through_only: true });
        // Whoever says how many means all rows.
        let plan = parsed("--passthrough --rows create-write-4k --jobs 2").unwrap();
        assert_eq!(names(&plan, 2), ["create-write-4k"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--jobs 0",
            "--rounds 0",
            "--rows none",
            "--transports --splice",
            "--transports --with-passthrough",
            "--passthrough --builds",
            "--builds --jobs 1,2",
            "--builds --through-only",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
