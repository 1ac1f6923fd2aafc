//! From samples to figures with intervals.
//!
//! A ratio is that of two samples of one round, which were measured within seconds of each other. The
//! figure is the median of the rounds' ratios, its bar an interval in which the true median lies with a
//! known chance whatever the distribution: the k-th smallest to the k-th greatest of n ratios miss it with
//! twice the chance of fewer than k heads in n throws of a coin.

use super::{Cell, Sample};

/// The least chance with which an interval is to hold the true median, as far as there are rounds enough.
/// With five or six rounds the whole range has 0.94 or 0.97, with three 0.75.
pub const CONFIDENCE: f64 = 0.9;

/// The middle of some values, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Middle {
    /// The median.
    pub median: f64,
    /// The interval's ends.
    pub least: f64,
    /// See [`least`](Self::least).
    pub greatest: f64,
    /// The chance that the interval holds the true median: at least [`CONFIDENCE`] where there are rounds
    /// enough for it.
    pub confidence: f64,
    /// Values that it is made of.
    pub count: usize,
}

impl Middle {
    /// Of these values; of none there is none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Middle> {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (least, greatest) = (*values.first()?, *values.last()?);
        let half = count / 2;
        let median = if count % 2 == 1 {
            values[half]
        } else {
            f64::midpoint(values[half - 1], values[half])
        };
        let mut middle = Middle {
            median,
            least,
            greatest,
            confidence: confidence(count, 1),
            count,
        };
        // The narrowest that is sure enough.
        for rank in 2..=half {
            if confidence(count, rank) < CONFIDENCE {
                break;
            }
            middle.least = values[rank - 1];
            middle.greatest = values[count - rank];
            middle.confidence = confidence(count, rank);
        }
        Some(middle)
    }

    /// Half the interval, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
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

/// Operations in a second, over all rounds.
#[must_use]
pub fn rate(cell: &Cell) -> Option<Middle> {
    Middle::of(cell.samples.iter().map(Sample::per_second).collect())
}

/// How many times the rate of `base`, from the rounds in which both were measured.
#[must_use]
pub fn ratio(cell: &Cell, base: &Cell) -> Option<Middle> {
    let pairs = cell
        .samples
        .iter()
        .filter_map(|sample| Some(sample.per_second() / base.of_round(sample)?.per_second()));
    Middle::of(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::{Middle, confidence};

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Middle::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(Middle::of(vec![9.0, 1.0, 5.0]).unwrap().median, 5.0);
        assert_eq!(Middle::of(Vec::new()), None);
    }

    #[test]
    fn an_interval_is_the_narrowest_that_is_sure_enough() {
        // By the binomial distribution: 1 - 2 * (1 + 8) / 2^8, and 1 - 2 * (1 + 10 + 45) / 2^10.
        assert!((confidence(8, 2) - 0.9297).abs() < 0.0001);
        assert!((confidence(10, 3) - 0.8906).abs() < 0.0001);
        let ten = Middle::of((1..=10).map(f64::from).collect()).unwrap();
        assert_eq!((ten.least, ten.greatest), (2.0, 9.0));
        let three = Middle::of(vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!((three.least, three.greatest), (1.0, 3.0));
        assert!((three.confidence - 0.75).abs() < 1e-9);
    }
}
