//! Figures as people read them.

use crate::results::statistics::Middle;
use crate::results::{Counts, RowInfo};

/// A rate in the unit of its row: bytes or operations per second, or seconds for one operation.
pub fn rate(row: &RowInfo, per_second: f64) -> String {
    if row.in_seconds {
        return duration(1e9 / per_second);
    }
    if row.operation_bytes > 0 {
        let bytes = per_second * row.operation_bytes as f64;
        return match bytes {
            0.0..1e6 => format!("{} kB/s", digits(bytes / 1e3)),
            1e6..1e9 => format!("{} MB/s", digits(bytes / 1e6)),
            _ => format!("{} GB/s", digits(bytes / 1e9)),
        };
    }
    match per_second {
        0.0..1e3 => format!("{} /s", digits(per_second)),
        1e3..1e6 => format!("{} k/s", digits(per_second / 1e3)),
        _ => format!("{} M/s", digits(per_second / 1e6)),
    }
}

/// A time, given in nanoseconds.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        ..999.5 => format!("{nanoseconds:.0} ns"),
        ..999.5e3 => format!("{} µs", digits(nanoseconds / 1e3)),
        ..999.5e6 => format!("{} ms", digits(nanoseconds / 1e6)),
        _ => format!("{} s", digits(nanoseconds / 1e9)),
    }
}

/// How many times something: two digits that count, three from 0.1 on where there are as many.
pub fn times(ratio: f64) -> String {
    match ratio {
        ..0.0995 => format!("{ratio:.3}"),
        ..9.995 => format!("{ratio:.2}"),
        ..99.95 => format!("{ratio:.1}"),
        _ => format!("{ratio:.0}"),
    }
}

/// A figure, and the ends of its interval, with three digits behind the point, for comparing it with a goal.
pub fn precise(middle: &Middle) -> [String; 3] {
    let digits = match middle.median {
        ..2.0 => 3,
        ..20.0 => 2,
        _ => 1,
    };
    [middle.median, middle.least, middle.greatest].map(|ratio| format!("{ratio:.digits$}"))
}

/// A share, as a whole percentage.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// How often something happens for each operation.
pub fn each(count: u64, operations: u64) -> String {
    let each = count as f64 / operations.max(1) as f64;
    match each {
        0.0 => "0".to_owned(),
        ..0.005 => "<0.01".to_owned(),
        ..0.95 => format!("{each:.2}"),
        ..99.5 => {
            let text = format!("{each:.1}");
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        _ => format!("{each:.0}"),
    }
}

/// Requests and system calls for an operation: `3 / 4.5`.
pub fn cost(counts: &Counts) -> String {
    let each =
        |count: Option<u64>| count.map_or("–".to_owned(), |count| each(count, counts.operations));
    let requests = counts.requests.as_ref();
    let requests = each(requests.map(|requests| requests.values().sum()));
    format!("{requests} / {}", each(counts.system_calls))
}

/// Bytes, in units of 1024.
pub fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        ..1024.0 => format!("{bytes:.0} bytes"),
        ..1048576.0 => format!("{} KiB", digits(bytes / 1024.0)),
        ..1073741824.0 => format!("{} MiB", digits(bytes / 1048576.0)),
        _ => format!("{} GiB", digits(bytes / 1073741824.0)),
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

/// A moment, given in seconds since 1970, as date and time of day (UTC).
pub fn moment(seconds: u64) -> String {
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{} {hour:02}:{minute:02} UTC", date(seconds))
}

/// The day of it, year first.
pub fn date(seconds: u64) -> String {
    // Years that begin in March have the leap day at their end; 400 of them are 146,097 days.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, month, day) = (
        era * 400 + year + u64::from(month >= 10),
        if month < 10 { month + 3 } else { month - 9 },
        day - (153 * month + 2) / 5 + 1,
    );
    format!("{year}-{month:02}-{day:02}")
}

/// Words as a shell takes them.
pub fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{command, date, duration, each, moment, rate, times};
    use crate::report::sample;

    #[test]
    fn rates_have_the_unit_of_their_row() {
        let mut row = sample::row("stat");
        assert_eq!(rate(&row, 612.0), "612 /s");
        assert_eq!(rate(&row, 12_345.0), "12.3 k/s");
        assert_eq!(rate(&row, 1_400_000.0), "1.40 M/s");
        row.operation_bytes = 4096;
        assert_eq!(rate(&row, 1e6), "4.10 GB/s");
        assert_eq!(rate(&row, 12e3), "49.2 MB/s");
        row.in_seconds = true;
        assert_eq!(rate(&row, 1.0 / 18.24), "18.2 s");
    }

    #[test]
    fn figures_have_the_digits_that_count() {
        let durations = [0.0, 810.0, 999.7, 12_345.0, 2_100_000.0, 18.2e9];
        let seen = durations.map(duration);
        assert_eq!(
            seen,
            ["0 ns", "810 ns", "1.00 µs", "12.3 µs", "2.10 ms", "18.2 s"]
        );
        let seen = [0.0432, 0.0996, 0.944, 2.0, 12.34, 250.2].map(times);
        assert_eq!(seen, ["0.043", "0.10", "0.94", "2.00", "12.3", "250"]);
        let seen = [(0, 9), (1, 9000), (1, 32), (4096, 4096), (5, 2)];
        assert_eq!(
            seen.map(|(count, of)| each(count, of)),
            ["0", "<0.01", "0.03", "1", "2.5"]
        );
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_709_164_800), "2024-02-29");
        assert_eq!(date(1_735_689_599), "2024-12-31");
        assert_eq!(moment(1_795_279_109), "2026-11-21 16:38 UTC");
    }

    #[test]
    fn words_are_quoted_as_a_shell_wants_them() {
        let words = ["thrufs", "bench", "/a b", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), r"thrufs bench '/a b' 'it'\''s' ''");
    }
}
