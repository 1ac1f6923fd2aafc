//! Figures as people read them.

use crate::row::Row;
use std::process::Command;

/// The form of a date and a time of day.
pub(crate) const MOMENT: &str = "+%Y-%m-%d %H:%M UTC";

/// A rate in the unit of its row: bytes or operations per second.
pub(crate) fn rate(row: &Row, per_second: f64) -> String {
    let unit = if row.bytes > 0 { "B/s" } else { "/s" };
    match per_second * row.bytes.max(1) as f64 {
        rate @ ..1e3 => format!("{} {unit}", digits(rate)),
        rate @ ..1e6 => format!("{} k{unit}", digits(rate / 1e3)),
        rate @ ..1e9 => format!("{} M{unit}", digits(rate / 1e6)),
        rate => format!("{} G{unit}", digits(rate / 1e9)),
    }
}

/// How many times something: two digits that count, three from 0.1 on where there are as many.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        ..0.0995 => format!("{ratio:.3}"),
        ..9.995 => format!("{ratio:.2}"),
        ..99.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

/// Three digits that count, or all before the point.
fn digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A moment, given in seconds since 1970, as a form of date(1) has it (UTC).
pub(crate) fn moment(seconds: u64, form: &str) -> String {
    let mut date = Command::new("date");
    let output = date
        .args(["-u", "-d", &format!("@{seconds}"), form])
        .output();
    output.map_or(seconds.to_string(), |output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim_end().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::{MOMENT, moment, rate, times};
    use crate::row::list::by_name;

    #[test]
    fn figures_have_the_unit_of_their_row_and_the_digits_that_count() {
        let row = |name| by_name(name).unwrap();
        assert_eq!(rate(row("stat-cold"), 612.0), "612 /s");
        assert_eq!(rate(row("stat-cold"), 12_345.0), "12.3 k/s");
        assert_eq!(rate(row("stat-cold"), 1_400_000.0), "1.40 M/s");
        assert_eq!(rate(row("append-4k"), 1e6), "4.10 GB/s");
        assert_eq!(rate(row("append-4k"), 12e3), "49.2 MB/s");
        let seen = [0.0432, 0.0996, 0.944, 2.0, 12.34, 250.2].map(times);
        assert_eq!(seen, ["0.043", "0.10", "0.94", "2.00", "12.3", "250"]);
        assert_eq!(moment(1_709_164_800, MOMENT), "2024-02-29 00:00 UTC");
    }
}
