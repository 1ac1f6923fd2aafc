//! Results for tests.

use crate::results::{Absence, Cell, Ending, FORMAT, Results, Sample, Target};

fn target(name: &str) -> Target {
    let (name, options, absent) = (name.to_owned(), "-o something".to_owned(), None);
    Target {
        name,
        options,
        absent,
    }
}

/// A run with these cells: row, target, and for each round the nanoseconds of one of a thousand operations.
pub(crate) fn run(cells: &[(&str, &str, &[u64])]) -> Results {
    let mut results = Results {
        format: FORMAT,
        command: vec!["thrufs".to_owned()],
        started: 1_795_279_109,
        seconds: 118.0,
        percent: 50,
        ending: Ending::Complete,
        machine: Default::default(),
        targets: Vec::new(),
        cells: Vec::new(),
        remarks: Vec::new(),
    };
    for (name, of, rounds) in cells {
        if !results.targets.iter().any(|target| target.name == *of) {
            results.targets.push(target(of));
        }
        let sample = |(round, time): (u32, &u64)| Sample {
            round,
            operations: 1000,
            nanoseconds: 1000 * time,
        };
        results.cells.push(Cell {
            row: (*name).to_owned(),
            target: (*of).to_owned(),
            lower: "ext4".to_owned(),
            jobs: 1,
            samples: (0..).zip(*rounds).map(sample).collect(),
            absence: None,
        });
    }
    results
}

/// A run as one may have it, small.
pub(crate) fn usual() -> Results {
    let mut results = run(&[
        ("random-read-4k-loop", "native", &[1000; 5]),
        ("random-read-4k-loop", "dev", &[10_000; 5]),
        ("random-read-4k-loop", "ring", &[2000; 5]),
        ("random-read-4k-loop", "old", &[4000; 5]),
        ("create", "native", &[4000; 5]),
        ("create", "dev", &[40_000, 50_000, 90_000, 42_000, 41_000]),
        ("create", "ring", &[20_000, 21_000, 22_000, 23_000, 24_000]),
        ("create", "old", &[50_000; 2]),
        ("create", "native", &[2000; 5]),
    ]);
    results.cells[7].absence = Some(Absence::failure("no space"));
    results.cells[8].jobs = 2;
    results.targets.push(Target {
        absent: Some("not for users".to_owned()),
        ..target("ring+pt")
    });
    results.remarks.push("a remark of some length".to_owned());
    results
}
