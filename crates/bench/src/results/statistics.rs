//! From samples to figures with intervals.
//!
//! A ratio is that of two samples of one round, which were measured within seconds of each other. The
//! figure is the median of the rounds' ratios, its bar an interval in which the true median lies with a
//! known chance whatever the distribution: the k-th smallest to the k-th greatest of n ratios miss it with
//! twice the chance of fewer than k heads in n throws of a coin.

use super::{Cell, Sample};

/// The least chance with which an interval is to hold the true median, as far as there are rounds enough.
/// With five or six rounds the whole range has 0.94 or 0.97, with three 0.75.
const CONFIDENCE: f64 = 0.9;

/// The middle of some values, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    /// The interval's ends.
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    /// The chance that the interval holds the true median.
    pub(crate) confidence: f64,
    /// Values that it is made of.
    pub(crate) count: usize,
}

impl Middle {
    /// Of these values; of none there is none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Middle> {
        values.sort_by(f64::total_cmp);
        let (count, half) = (values.len(), values.len() / 2);
        let median = f64::midpoint(*values.get(half)?, values[(count - 1) / 2]);
        // The narrowest that is sure enough.
        let ranks = (2..=half).take_while(|&rank| confidence(count, rank) >= CONFIDENCE);
        let rank = ranks.last().unwrap_or(1);
        Some(Middle {
            median,
            least: values[rank - 1],
            greatest: values[count - rank],
            confidence: confidence(count, rank),
            count,
        })
    }

    /// Half the interval, as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        (self.greatest - self.least) / 2.0 / self.median
    }
}

/// The chance that the median lies between the `rank`-th smallest and the `rank`-th greatest of `count`.
fn confidence(count: usize, rank: usize) -> f64 {
    let mut fewer = 0.0;
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    for heads in 0..rank {
        fewer += term;
        term *= (count - heads) as f64 / (heads + 1) as f64;
    }
    (1.0 - 2.0 * fewer).max(0.0)
}

/// The rate of a cell, over all rounds.
pub(crate) fn rate(cell: &Cell) -> Option<Middle> {
    Middle::of(sound(cell)?.iter().map(per_second).collect())
}

/// How many times the rate of `base`, from the rounds in which both were measured.
pub(crate) fn ratio(cell: &Cell, base: &Cell) -> Option<Middle> {
    let (ours, base) = (sound(cell)?, sound(base)?);
    let of_round = |round| base.iter().find(|sample| sample.round == round);
    let one = |ours: &Sample| Some(per_second(ours) / per_second(of_round(ours.round)?));
    Middle::of(ours.iter().filter_map(one).collect())
}

/// Operations in a second.
fn per_second(sample: &Sample) -> f64 {
    sample.operations as f64 * 1e9 / sample.nanoseconds.max(1) as f64
}

/// Of what has failed in a round, what is left could be the better part.
fn sound(cell: &Cell) -> Option<&[Sample]> {
    let failed = cell.absence.as_ref().is_some_and(|absence| absence.failed);
    let is_sound = !failed && cell.samples.iter().all(|sample| sample.operations > 0);
    is_sound.then_some(&cell.samples)
}

#[cfg(test)]
mod tests {
    use super::{Middle, confidence};

    #[test]
    fn an_interval_is_the_narrowest_that_is_sure_enough() {
        // By the binomial distribution: 1 - 2 * (1 + 8) / 2^8, and 1 - 2 * (1 + 10 + 45) / 2^10.
        assert!((confidence(8, 2) - 0.9297).abs() < 0.0001);
        assert!((confidence(10, 3) - 0.8906).abs() < 0.0001);
        let ten = Middle::of((1..=10).map(f64::from).collect()).unwrap();
        assert_eq!((ten.median, ten.least, ten.greatest), (5.5, 2.0, 9.0));
        let three = Middle::of(vec![9.0, 1.0, 5.0]).unwrap();
        assert_eq!((three.median, three.least, three.greatest), (5.0, 1.0, 9.0));
        assert!((three.confidence - 0.75).abs() < 1e-9);
        assert_eq!(Middle::of(Vec::new()), None);
    }
}
