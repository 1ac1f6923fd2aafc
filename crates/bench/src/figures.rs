//! From measurements to the figures of a table.

use crate::row::Row;

/// One measurement.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    pub(crate) nanoseconds: u64,
}

impl Sample {
    pub(crate) fn per_second(self) -> f64 {
        1e9 / self.time()
    }

    /// Nanoseconds of one operation.
    pub(crate) fn time(self) -> f64 {
        self.nanoseconds as f64 / self.operations as f64
    }
}

/// All rounds of one contestant in one row.
pub(crate) struct Series {
    pub(crate) lower: &'static str,
    pub(crate) jobs: usize,
    pub(crate) row: &'static Row,
    pub(crate) contestant: &'static str,
    /// One of each round; none when it is not there.
    pub(crate) samples: Vec<Sample>,
    /// Why this contestant does not have this row.
    pub(crate) not_there: Option<String>,
    /// Why it failed, in a round at least: there is no figure then.
    pub(crate) failed: Option<String>,
}

impl Series {
    /// The median rate, as people read it.
    pub(crate) fn rate(&self) -> String {
        match self.median_per_second() {
            Some(median) => rate(median, self.row.bytes),
            None => self.absent(),
        }
    }

    pub(crate) fn median_per_second(&self) -> Option<f64> {
        let rates = self.usable().iter().map(|sample| sample.per_second());
        Some(middle(rates.collect())?.median)
    }

    /// None when it has failed: what did not fail could be the better part.
    fn usable(&self) -> &[Sample] {
        match self.failed {
            Some(_) => &[],
            None => &self.samples,
        }
    }

    /// In place of a figure.
    fn absent(&self) -> String {
        match self.failed {
            Some(_) => FAILED.to_owned(),
            None => NOT_THERE.to_owned(),
        }
    }

    /// How many times the rate of `base`, in the median of the rounds.
    pub(crate) fn median_ratio_to(&self, base: &Series) -> Option<f64> {
        Some(self.ratios_to(base)?.median)
    }

    fn ratios_to(&self, base: &Series) -> Option<Middle> {
        middle(ratios(self.usable(), base.usable()))
    }

    /// How many times the time of `base`.
    pub(crate) fn times_of(&self, base: &Series) -> Option<Middle> {
        middle(ratios(base.usable(), self.usable()))
    }

    /// The median time of an operation, in seconds.
    pub(crate) fn seconds(&self) -> String {
        match self.median_per_second() {
            Some(rate) => format!("{:.1} s", 1.0 / rate),
            None => self.absent(),
        }
    }

    /// How many times the rate of `base`, with the spread.
    pub(crate) fn ratio_to(&self, base: &Series) -> String {
        match self.ratios_to(base) {
            Some(middle) => middle.text(),
            None if self.usable().is_empty() => self.absent(),
            None => NOT_COMPARED.to_owned(),
        }
    }

    /// The median of the same; what loses is marked.
    pub(crate) fn against(&self, base: &Series) -> String {
        match self.ratios_to(base) {
            Some(middle) => {
                let verdict = if middle.median < LOSES {
                    " **slower**"
                } else {
                    ""
                };
                format!("{:.2}{verdict}", middle.median)
            }
            None => NOT_COMPARED.to_owned(),
        }
    }
}

/// In the cell of a contestant that a row is not for.
pub(crate) const NOT_THERE: &str = "not there";
/// In the cell of a contestant at which it failed.
pub(crate) const FAILED: &str = "**failed**";
/// In the cell of a comparison that lacks a side.
pub(crate) const NOT_COMPARED: &str = "–";
/// What is closer to its peer has not lost: it is noise.
const LOSES: f64 = 0.95;

/// Round by round, how many times the rate of `base`.
pub(crate) fn ratios(samples: &[Sample], base: &[Sample]) -> Vec<f64> {
    samples
        .iter()
        .zip(base)
        .map(|(sample, base)| sample.per_second() / base.per_second())
        .collect()
}

/// The middle of some values, and their ends.
#[derive(Debug, PartialEq)]
pub(crate) struct Middle {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) greatest: f64,
}

impl Middle {
    pub(crate) fn text(&self) -> String {
        let (median, least, greatest) = (self.median, self.least, self.greatest);
        format!("{median:.3} [{least:.3} to {greatest:.3}]")
    }
}

/// Of no value there is none.
pub(crate) fn middle(mut values: Vec<f64>) -> Option<Middle> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = *values.get(half)?;
    let median = if values.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(*values.get(half - 1)?, upper)
    };
    Some(Middle {
        least: *values.first()?,
        median,
        greatest: *values.last()?,
    })
}

fn rate(per_second: f64, bytes: u64) -> String {
    match bytes {
        0 => format!("{:.0} k/s", per_second / 1e3),
        _ if per_second * (bytes as f64) < 1e8 => {
            format!("{:.0} MB/s", per_second * bytes as f64 / 1e6)
        }
        _ => format!("{:.2} GB/s", per_second * bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::{Middle, middle};

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let of = |least, median, greatest| {
            Some(Middle {
                least,
                median,
                greatest,
            })
        };
        assert_eq!(middle(vec![4.0, 1.0, 3.0, 2.0]), of(1.0, 2.5, 4.0));
        assert_eq!(middle(vec![9.0, 1.0, 5.0]), of(1.0, 5.0, 9.0));
        assert_eq!(middle(Vec::new()), None);
    }
}
