//! Synthetic machines: every target has a price for a request, every row so many requests and a time
//! natively, and each measurement a mood. What stands out is what was made slow, and nothing else.

use super::{Finding, Measure, standing_out};
use crate::report::sample::Builder;
use crate::results::{Kind, Results};
use proptest::prelude::{Strategy, prop, proptest};
use proptest::{prop_assert, prop_assert_eq};

const ROWS: [(&str, u64); 7] = [
    ("create", 3),
    ("unlink", 2),
    ("rename", 2),
    ("stat-cold", 1),
    ("open-close", 2),
    ("random-read-4k", 1),
    ("read-1m", 8),
];

#[derive(Clone, Debug)]
struct World {
    /// Nanoseconds for a request, of each target.
    prices: Vec<f64>,
    /// Nanoseconds of the work itself, of each row.
    natives: Vec<f64>,
    /// By how much each measurement is off.
    moods: Vec<f64>,
    rounds: usize,
    counted: bool,
}

/// A sleep in one cell: row, target, nanoseconds for each request.
type Sleep = (usize, usize, f64);

impl World {
    fn results(&self, sleeps: &[Sleep]) -> Results {
        let names = ["ring", "dev", "libfuse", "bindfs"];
        let kinds = [Kind::Ours, Kind::Ours, Kind::Other, Kind::Other];
        let mut targets = vec![("native", Kind::Native)];
        let present = self.prices.len();
        targets.extend(names.into_iter().zip(kinds).take(present));
        let mut builder = Builder::new().targets(&targets);
        let mut moods = self.moods.iter().cycle();
        let mut mood = || *moods.next().unwrap_or(&1.0);
        for (row, (name, requests)) in ROWS.into_iter().enumerate() {
            let native = self.natives[row];
            let mut times = |each: f64| -> Vec<u64> {
                let mut time = || (each * mood()).max(1.0) as u64;
                (0..self.rounds).map(|_| time()).collect()
            };
            builder = builder.cell(name, "native", &times(native));
            for (target, price) in self.prices.iter().enumerate() {
                let slept = sleeps
                    .iter()
                    .filter(|sleep| (sleep.0, sleep.1) == (row, target))
                    .map(|sleep| sleep.2);
                let price = price + slept.sum::<f64>();
                // A copy more of what is moved, at 2 GB/s.
                let moved = if name == "read-1m" { 500_000.0 } else { 0.0 };
                let each = native * 1.5 + moved + price * requests as f64;
                builder = builder.cell(name, names[target], &times(each));
                if self.counted {
                    builder = builder.counts(&[("SOMETHING", 1000 * requests)], 1);
                }
            }
        }
        builder.results()
    }
}

fn world() -> impl Strategy<Value = World> {
    let prices = prop::collection::vec(3_000.0..30_000.0, 1..=4);
    let natives = prop::collection::vec(500.0..8_000.0, ROWS.len());
    let moods = prop::collection::vec(0.7..1.5, 97);
    (prices, natives, moods, 3..9_usize, proptest::bool::ANY).prop_map(
        |(prices, natives, moods, rounds, counted)| World {
            prices,
            natives,
            moods,
            rounds,
            counted,
        },
    )
}

fn names(findings: &[Finding]) -> Vec<(String, String)> {
    let name = |finding: &Finding| (finding.row.clone(), finding.target.clone());
    findings.iter().map(name).collect()
}

proptest! {
    #[test]
    fn nothing_stands_out_of_a_run_as_any_other(world in world()) {
        let found = standing_out(&world.results(&[]));
        prop_assert_eq!(names(&found), Vec::new());
    }

    #[test]
    fn nothing_stands_out_where_the_disk_is_slow(world in world(), disk in 1e5..1e7) {
        let natives = world.natives.iter().map(|native| native + disk).collect();
        let found = standing_out(&World { natives, ..world }.results(&[]));
        prop_assert_eq!(names(&found), Vec::new());
    }

    #[test]
    fn a_sleep_in_one_cell_is_found_and_nothing_else(
        world in world(),
        row in 0..ROWS.len() - 1,
        target in 0..4_usize,
        sleep in 1e6..1e7,
    ) {
        let target = target % world.prices.len();
        let results = world.results(&[(row, target, sleep)]);
        let found = standing_out(&results);
        prop_assert_eq!(names(&found).len(), 1, "{:?}", found);
        prop_assert_eq!(&found[0].row, ROWS[row].0);
        prop_assert_eq!(&found[0].target, &results.targets[target + 1].name);
        prop_assert!(found[0].times() > 8.0);
        // About as long as it was, for the right unit.
        let each = if world.counted { 1.0 } else { ROWS[row].1 as f64 };
        prop_assert!(found[0].nanoseconds > 0.6 * sleep * each);
    }

    #[test]
    fn of_two_the_worse_comes_first(world in world()) {
        let found = standing_out(&world.results(&[(0, 0, 2e6), (3, 0, 4e7)]));
        prop_assert_eq!(found.len(), 2);
        prop_assert!(found[0].times() >= found[1].times());
    }

    #[test]
    fn a_sleep_in_all_rows_is_found_if_others_are_there(world in world()) {
        if world.prices.len() >= 2 {
            let sleeps: Vec<Sleep> = (0..ROWS.len() - 1).map(|row| (row, 0, 3e6)).collect();
            let found = standing_out(&world.results(&sleeps));
            prop_assert_eq!(found.len(), sleeps.len());
            prop_assert!(found.iter().all(|finding| finding.target == "ring"));
        }
    }
}

#[test]
fn a_finding_is_a_sentence() {
    let times = |time: u64| [time; 5];
    let rows = ["create", "unlink", "rename"];
    let mut builder = Builder::new().targets(&[("native", Kind::Native), ("ring", Kind::Ours)]);
    for row in rows {
        builder = builder.cell(row, "native", &times(2_000));
        let time = if row == "create" { 4_202_000 } else { 26_000 };
        builder = builder.cell(row, "ring", &times(time));
        builder = builder.counts(&[("LOOKUP", 1000), ("CREATE", 1000), ("STATFS", 1)], 9);
    }
    let found = standing_out(&builder.results());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].measure, Measure::OtherRows);
    assert_eq!(
        found[0].to_string(),
        "create on ring (ext4): 2.10 ms for each request where the other rows of this target take \
         12.0 µs; its requests: CREATE, LOOKUP"
    );
}
