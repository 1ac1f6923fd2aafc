//! Ranges of sizes: `size`.

use super::error::Problem;
use std::ops::RangeInclusive;

const FORM: &str = "a size is a comparison such as `<1MiB`, or two: `>=4KiB, <1MiB`";

/// The sizes in bytes that all of some comparisons admit.
pub(super) fn parse(text: &str) -> Result<RangeInclusive<u64>, Problem> {
    let (mut least, mut most) = (0, u64::MAX);
    let nothing = || format!("no file has a size of `{text}`");
    for condition in text.split(',') {
        let condition = condition.trim();
        let digits = condition
            .find(|c: char| c.is_ascii_digit())
            .ok_or_else(|| FORM.to_owned())?;
        let (operator, number) = condition.split_at(digits);
        let bytes = bytes(number)?;
        match operator.trim_end() {
            "<" => most = most.min(bytes.checked_sub(1).ok_or_else(nothing)?),
            "<=" => most = most.min(bytes),
            ">" => least = least.max(bytes.checked_add(1).ok_or_else(nothing)?),
            ">=" => least = least.max(bytes),
            "=" => {
                least = least.max(bytes);
                most = most.min(bytes);
            }
            _ => return Err(FORM.to_owned()),
        }
    }
    if least > most {
        return Err(nothing());
    }
    Ok(least..=most)
}

fn bytes(text: &str) -> Result<u64, Problem> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        unit => {
            return Err(format!(
                "`{unit}` is no unit: say B, KiB, MiB, GiB or TiB (of 1024), kB, MB, GB or TB (of 1000)"
            ));
        }
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor));
    bytes.ok_or_else(|| format!("`{text}` is more than a size can be"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_comparisons() {
        assert_eq!(parse("<1MiB"), Ok(0..=(1 << 20) - 1));
        assert_eq!(parse("<= 2 kB"), Ok(0..=2000));
        assert_eq!(parse(">=4KiB, <1M"), Ok(4096..=(1 << 20) - 1));
        assert_eq!(parse(">0"), Ok(1..=u64::MAX));
        assert_eq!(parse("=0"), Ok(0..=0));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for text in ["<0", ">18446744073709551615", ">5,<5", "=1,=2", ">=2,<=1"] {
            assert!(parse(text).unwrap_err().contains("no file"), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "",
            "5",
            "<",
            "<x",
            "=>5",
            "<5 Mib",
            "<-5",
            "<99999999T",
            "<5,",
            "<5<6",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
