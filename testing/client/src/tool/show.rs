//! Formats attributes.

use rustix::fs::FileType;
use thrufs_abi::layout::Attr;

/// A line of `ls -l`, without the name.
pub(crate) fn long_line(attr: &Attr) -> String {
    format!(
        "{} {:>3} {:>5} {:>5} {:>10} {}",
        mode_text(attr.mode),
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.size,
        time_text(attr.mtime)
    )
}

pub(crate) fn file_type(mode: u32) -> FileType {
    FileType::from_raw_mode(mode)
}

/// A mode as in `ls -l`.
pub(crate) fn mode_text(mode: u32) -> String {
    let kind = match file_type(mode) {
        FileType::RegularFile => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Seconds since 1970 (signed, as in the protocol) as a UTC date.
pub(crate) fn time_text(seconds: u64) -> String {
    let seconds = seconds.cast_signed();
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The Gregorian date of a day counted from 1970-01-01. Internal years begin in March, so that leap days come
/// last.
fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let shifted = days + 719_468;
    let era = shifted.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = shifted.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_does() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o041_777), "drwxrwxrwt");
        assert_eq!(mode_text(0o106_640), "-rwSr-S---");
        assert_eq!(mode_text(0o120_777), "lrwxrwxrwx");
    }

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00");
        assert_eq!(time_text(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(time_text(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time_text(1_763_763_766), "2025-11-21 22:22:46");
        assert_eq!(time_text((-1_i64).cast_unsigned()), "1969-12-31 23:59:59");
        assert_eq!(time_text(4_107_542_400), "2100-03-01 00:00:00");
    }
}
