use super::{Schedule, Spent};
use crate::plan::{Plan, PlannedRow};
use crate::request::Request;
use crate::row;
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["mkdir", "rename", "unlink", "append-4k"];

fn planned_rows() -> Vec<PlannedRow> {
    let planned = |name| PlannedRow {
        row: row::named(name).unwrap(),
        jobs: 1,
    };
    NAMES.into_iter().map(planned).collect()
}

fn schedule(seconds: u32, change: impl FnOnce(&mut Request)) -> Schedule {
    let mut request = Request {
        directory: ".".into(),
        suite: "quick".to_owned(),
        seconds: Some(seconds),
        out: Some(std::env::temp_dir().join("thrufs-bench-not-there")),
        ..Request::default()
    };
    change(&mut request);
    let plan = Plan::of(&request).unwrap();
    Schedule::new(Instant::now(), &plan, planned_rows(), 20)
}

/// What a row takes, after things were prepared that are kept.
fn spent(seconds: u64) -> Spent {
    Spent {
        all: Duration::from_secs(seconds + 10),
        preparing: Duration::from_secs(10),
    }
}

/// The first round, with seconds for each row; gives the remark about it.
fn first_round(schedule: &mut Schedule, seconds: [u64; 4]) -> Option<String> {
    for (planned, seconds) in planned_rows().into_iter().zip(seconds) {
        schedule.row_is_over(planned, 0, spent(seconds));
    }
    schedule.round_is_over(0, &mut Vec::new())
}

fn names(schedule: &Schedule) -> Vec<&'static str> {
    schedule
        .planned_rows()
        .iter()
        .map(|planned| planned.row.name)
        .collect()
}

#[test]
fn a_fast_machine_has_more_rounds() {
    let mut schedule = schedule(100, |_| ());
    assert_eq!(first_round(&mut schedule, [3, 3, 3, 3]), None);
    // One and six more of twelve seconds, and the rest for the passes.
    assert_eq!((schedule.rounds(), names(&schedule).len()), (7, 4));
    let mut faster = self::schedule(100, |_| ());
    first_round(&mut faster, [1, 0, 1, 1]);
    assert_eq!(faster.rounds(), super::ROUNDS_MAX);
}

#[test]
fn a_row_that_is_far_dearer_than_others_goes_before_rounds_do() {
    let mut schedule = schedule(60, |_| ());
    let remark = first_round(&mut schedule, [2, 20, 2, 2]).unwrap();
    assert_eq!(names(&schedule), ["mkdir", "unlink", "append-4k"]);
    assert!(schedule.rounds() >= 5);
    assert!(remark.contains("rename (20 s a round)"), "{remark}");
}

#[test]
fn on_a_slow_disk_rows_go_until_three_rounds_fit() {
    let mut schedule = schedule(60, |_| ());
    first_round(&mut schedule, [10, 11, 22, 23]);
    assert!(schedule.rounds() >= 3);
    // 48 seconds without the passes and 30 more: two rounds of 21 seconds, not of 43.
    assert_eq!(names(&schedule), ["mkdir", "rename"]);
}

#[test]
fn a_run_takes_longer_rather_than_lose_rows() {
    let mut schedule = schedule(60, |_| ());
    first_round(&mut schedule, [8, 9, 9, 10]);
    assert_eq!((schedule.rounds(), names(&schedule).len()), (3, 4));
}

#[test]
fn rows_that_the_first_round_did_not_reach_are_left_out() {
    let mut schedule = schedule(100, |_| ());
    let mut planned_rows = planned_rows().into_iter();
    schedule.started = Instant::now() - Duration::from_secs(41);
    let first = planned_rows.next().unwrap();
    assert!(!schedule.row_is_over(first, 0, spent(40)));
    let mut gone = Vec::new();
    let remark = schedule.round_is_over(0, &mut gone).unwrap();
    assert_eq!(gone.len(), 3);
    assert_eq!(names(&schedule), ["mkdir"]);
    assert!(remark.contains("rename, unlink, append-4k"), "{remark}");
}

#[test]
fn rounds_that_were_asked_for_are_kept() {
    let mut schedule = schedule(1000, |request| request.rounds = Some(2));
    first_round(&mut schedule, [1, 1, 1, 1]);
    assert_eq!(schedule.rounds(), 2);
}

#[test]
fn some_of_the_time_is_kept_for_the_passes() {
    let mut schedule = schedule(100, |_| ());
    first_round(&mut schedule, [4, 4, 4, 4]);
    // One and four more of sixteen seconds.
    assert_eq!(schedule.rounds(), 5);
    let mut long = self::schedule(100, |request| request.rounds = Some(9));
    first_round(&mut long, [5, 5, 5, 5]);
    // Rows go, of five seconds each, rather than the time for the passes.
    let seconds = 5.0 * names(&long).len() as f64 * f64::from(long.rounds() - 1);
    assert_eq!(long.rounds(), 9);
    assert!(seconds <= 100.0 * (1.0 - super::PASSES_SHARE));
}

#[test]
fn every_cell_is_in_the_passes_however_late_it_is() {
    let mut schedule = schedule(100, |_| ());
    // With five targets, a second for each measurement.
    first_round(&mut schedule, [5, 5, 5, 5]);
    let planned = planned_rows()[0];
    let at = |schedule: &mut Schedule, elapsed: u64, share: f64| {
        schedule.started = Instant::now() - Duration::from_secs(elapsed);
        schedule.effort(planned, 5, share, 40)
    };
    assert_eq!(at(&mut schedule, 50, 1.0), schedule.usual());
    let shorter = at(&mut schedule, 80, 1.0);
    assert_eq!(shorter.share, 0.1);
    assert!(shorter.limit <= schedule.usual().limit);
    // What does a tenth anyway has time enough.
    assert_eq!(at(&mut schedule, 80, 0.1), schedule.usual());
    let late = at(&mut schedule, 1000, 1.0);
    assert_eq!((late.share, late.of(50)), (0.01, 1));
    assert!(late.limit > Duration::ZERO);
}
