//! Results for tests.

use crate::results::{
    Absence, Cell, Counts, Ending, FORMAT, Group, Kind, Latency, Machine, Results, RowInfo, Sample,
    Target,
};

/// A row of which nothing is known but its name.
pub(crate) fn row(name: &str) -> RowInfo {
    let data = name.contains("read") || name.contains("write");
    RowInfo {
        name: name.to_owned(),
        title: format!("{name}, for people"),
        about: format!("One operation is a {name}."),
        group: match name {
            _ if name.starts_with("build") || name.starts_with("git") => Group::Programs,
            _ if data => Group::Data,
            _ => Group::Metadata,
        },
        operation_bytes: match name {
            _ if !data => 0,
            _ if name.contains("1m") => 1 << 20,
            _ => 4096,
        },
        in_seconds: name.starts_with("build"),
        cold: name.ends_with("-cold"),
        engine: "loop".to_owned(),
        goal: None,
    }
}

/// Makes results cell by cell, on ext4 and by one job unless another is named.
pub(crate) struct Builder {
    results: Results,
    lower: String,
    jobs: u32,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let results = Results {
            format: FORMAT,
            suite: "quick".to_owned(),
            command: ["thrufs", "bench", "--suite", "quick", "."]
                .map(str::to_owned)
                .to_vec(),
            started: 1_795_279_109,
            seconds: 118.0,
            ending: Ending::Complete,
            machine: Machine {
                kernel: "6.18.44".to_owned(),
                processor: "A Processor @ 2.10GHz".to_owned(),
                processors: 4,
                memory_bytes: 24 << 30,
                load_before: 0.3,
                hypervisor: Some("KVM".to_owned()),
                versions: [("thrufs", "0.1.0"), ("fio", "3.33")]
                    .map(|(name, version)| (name.to_owned(), version.to_owned()))
                    .into(),
            },
            targets: Vec::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            remarks: Vec::new(),
        };
        Builder {
            results,
            lower: "ext4".to_owned(),
            jobs: 1,
        }
    }

    pub(crate) fn targets(mut self, all: &[(&str, Kind)]) -> Self {
        for (name, kind) in all {
            self.results.targets.push(Target {
                name: (*name).to_owned(),
                title: format!("{name}, for people"),
                kind: *kind,
                options: "-o something".to_owned(),
                resident_kib: (*kind != Kind::Native).then_some(9000),
                absent: None,
            });
        }
        self
    }

    pub(crate) fn on(mut self, lower: &str) -> Self {
        self.lower = lower.to_owned();
        self
    }

    pub(crate) fn by(mut self, jobs: u32) -> Self {
        self.jobs = jobs;
        self
    }

    /// The next cell: of each round, nanoseconds of one of a thousand operations.
    pub(crate) fn cell(mut self, name: &str, target: &str, nanoseconds: &[u64]) -> Self {
        if !self.results.rows.iter().any(|row| row.name == name) {
            self.results.rows.push(row(name));
        }
        let sample = |(round, time): (u32, &u64)| Sample {
            round,
            operations: 1000,
            nanoseconds: 1000 * time,
        };
        self.results.cells.push(Cell {
            row: name.to_owned(),
            target: target.to_owned(),
            lower: self.lower.clone(),
            jobs: self.jobs,
            samples: (0..).zip(nanoseconds).map(sample).collect(),
            absence: None,
            counts: None,
            latency: None,
        });
        self
    }

    /// Of the last cell, for a thousand operations.
    pub(crate) fn counts(mut self, requests: &[(&str, u64)], system_calls: u64) -> Self {
        let requests = requests
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        if let Some(cell) = self.results.cells.last_mut() {
            cell.counts = Some(Counts {
                operations: 1000,
                requests: Some(requests.collect()),
                system_calls: Some(system_calls),
            });
        }
        self
    }

    /// Of the last cell.
    pub(crate) fn latency(mut self, within: &[(u32, u64)]) -> Self {
        if let Some(cell) = self.results.cells.last_mut() {
            cell.latency = Some(Latency {
                operations: 1000,
                within: within.to_vec(),
            });
        }
        self
    }

    pub(crate) fn failing(mut self, row: &str, target: &str, why: &str) -> Self {
        for cell in &mut self.results.cells {
            if cell.row == row && cell.target == target {
                cell.absence = Some(Absence {
                    failed: true,
                    why: why.to_owned(),
                });
            }
        }
        self
    }

    pub(crate) fn goal(mut self, name: &str, goal: f64) -> Self {
        for row in &mut self.results.rows {
            if row.name == name {
                row.goal = Some(goal);
            }
        }
        self
    }

    pub(crate) fn results(self) -> Results {
        self.results
    }
}

/// A run as one may have it, on one file system, small.
pub(crate) fn usual() -> Results {
    let curve = |half: u64| {
        [
            (500, half),
            (900, half * 2),
            (990, half * 4),
            (1000, half * 60),
        ]
    };
    let mut results = Builder::new()
        .targets(&[
            ("native", Kind::Native),
            ("dev", Kind::Ours),
            ("ring", Kind::Ours),
            ("ring+pt", Kind::Ours),
            ("libfuse", Kind::Other),
            ("floor-uring", Kind::Floor),
        ])
        .cell("random-read-4k", "native", &[1000, 1010, 990, 1005, 1002])
        .cell("random-read-4k", "dev", &[9000, 9100, 9900, 8700, 9200])
        .counts(&[("READ", 1000)], 2000)
        .cell("random-read-4k", "ring", &[7000, 7100, 7900, 6900, 7200])
        .counts(&[("READ", 1000)], 2000)
        .cell("random-read-4k", "ring+pt", &[1020, 1030, 1000, 990, 1040])
        .counts(&[], 0)
        .cell(
            "random-read-4k",
            "libfuse",
            &[17000, 15100, 16900, 18000, 16200],
        )
        .counts(&[("READ", 1000)], 4000)
        .cell("create", "native", &[2500, 2600, 2400, 2550, 2500])
        .latency(&curve(2400))
        .cell("create", "dev", &[25000, 26000, 24000, 25500, 25000])
        .counts(
            &[("LOOKUP", 1000), ("CREATE", 1000), ("RELEASE", 1000)],
            6000,
        )
        .latency(&curve(24000))
        .cell("create", "ring", &[19000, 19500, 18000, 19500, 19100])
        .counts(
            &[("LOOKUP", 1000), ("CREATE", 1000), ("RELEASE", 1000)],
            4000,
        )
        .latency(&curve(18000))
        .cell("create", "ring+pt", &[19100, 19400, 18300, 19200, 19000])
        .counts(
            &[("LOOKUP", 1000), ("CREATE", 1000), ("RELEASE", 1000)],
            4100,
        )
        .cell("create", "libfuse", &[61000, 60000, 62000, 59000, 61500])
        .counts(
            &[
                ("LOOKUP", 1000),
                ("GETATTR", 1000),
                ("CREATE", 1000),
                ("FLUSH", 1000),
                ("RELEASE", 1000),
            ],
            15000,
        )
        .cell(
            "create",
            "floor-uring",
            &[12000, 12100, 11900, 12400, 12000],
        )
        .by(2)
        .cell("create", "native", &[1300, 1310, 1290, 1300, 1305])
        .cell("create", "dev", &[22000, 21000, 23000, 22500, 22100])
        .cell("create", "ring", &[10000, 10100, 9900, 10400, 10200])
        .cell("create", "libfuse", &[40000, 41000, 39000, 40500, 40300])
        .by(1)
        .cell("stat-warm", "native", &[700, 710, 690, 700, 705])
        .cell("stat-warm", "dev", &[760, 810, 640, 700, 905])
        .counts(&[], 0)
        .cell("stat-warm", "ring", &[700, 730, 700, 695, 720])
        .counts(&[], 0)
        .cell("stat-warm", "ring+pt", &[720, 710, 700, 705, 700])
        .cell("stat-warm", "libfuse", &[730, 720, 715, 740, 725])
        .cell("build-c", "native", &[9_000_000, 9_100_000, 9_000_000])
        .cell("build-c", "ring+pt", &[9_300_000, 9_500_000, 9_350_000])
        .cell("build-c", "libfuse", &[])
        .failing("build-c", "libfuse", "make ended: exit status 2")
        .goal("random-read-4k", 0.95)
        .goal("build-c", 0.952)
        .results();
    results
        .remarks
        .push("The ring was switched on for this run.".to_owned());
    results
}
