//! The syntax of option lists and values.

use super::error::OptionError;
use crate::config::CapabilityChange;
use rustix::thread::CapabilitySet;
use std::time::Duration;
use thrufs_hostdir::{IdMap, IdRange, Translation};
use thrufs_policy::Accounts;

/// Safe for the kernel's clock arithmetic, and longer than any uptime.
const SECONDS_MAX: f64 = 1e9;

/// Splits a list at its commas. Backslashes and quotes escape as in mount(8).
pub(crate) fn split_list(list: &str) -> Result<Vec<String>, OptionError> {
    let mut items = Vec::new();
    let mut item = String::new();
    let mut quoted = false;
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => item.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => items.push(std::mem::take(&mut item)),
            other => item.push(other),
        }
    }
    if quoted {
        return Err(OptionError::OpenQuote(list.to_owned()));
    }
    items.push(item);
    items.retain(|item| !item.is_empty());
    Ok(items)
}

/// The one of these words that `value` is.
pub(super) fn one_of(words: &[&'static str], value: &str) -> Result<&'static str, String> {
    let found = words.iter().find(|word| **word == value);
    found
        .copied()
        .ok_or_else(|| format!("it must be {}", either(words)))
}

fn either(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}

pub(super) fn parse_text(value: &str) -> Result<String, String> {
    match value {
        "" => Err("it is empty".to_owned()),
        text if text.contains('\0') => Err("it holds a NUL".to_owned()),
        text => Ok(text.to_owned()),
    }
}

pub(crate) fn parse_seconds(value: &str) -> Result<Duration, String> {
    match value.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("it must be a time in seconds, such as 0, 1.5 or 3600".to_owned()),
    }
}

pub(super) fn parse_bytes(value: &str, below_gib: u64) -> Result<u64, String> {
    let (number, shift) = match value.char_indices().next_back() {
        Some((end, 'k' | 'K')) => (&value[..end], 10),
        Some((end, 'm' | 'M')) => (&value[..end], 20),
        Some((end, 'g' | 'G')) => (&value[..end], 30),
        _ => (value, 0),
    };
    let bytes = digits(number).and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.filter(|bytes| *bytes < below_gib << 30);
    bytes.ok_or_else(|| {
        format!("it must be a number of bytes below {below_gib}G, such as 131072, 128K or 1M")
    })
}

pub(super) fn parse_count(value: &str, least: u64, most: u64) -> Result<u64, String> {
    let count = digits(value).filter(|count| (least..=most).contains(count));
    count.ok_or_else(|| format!("it must be a whole number between {least} and {most}"))
}

/// Only digits: `parse` alone accepts a `+`.
fn digits(value: &str) -> Option<u64> {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().ok())?
}

/// A number, or a name in `/etc/passwd`.
pub(crate) fn parse_user(value: &str) -> Result<u32, String> {
    parse_id(value, "user", "/etc/passwd", Accounts::user)
}

/// A number, or a name in `/etc/group`.
pub(crate) fn parse_group(value: &str) -> Result<u32, String> {
    parse_id(value, "group", "/etc/group", Accounts::group)
}

/// A number below 2³²−1 (the kernel's "none"), or a name in the file.
fn parse_id(
    value: &str,
    what: &str,
    file: &str,
    find: fn(&Accounts, &str) -> Option<u32>,
) -> Result<u32, String> {
    if let Some(number) = digits(value) {
        return match u32::try_from(number) {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err(format!("there is no {what} of that number")),
        };
    }
    let named = find(&Accounts::read().unwrap_or_default(), value);
    named.ok_or_else(|| format!("there is no {what} of that name in {file}: give the number"))
}

/// `0:100000:65536`: client, host, count.
pub(crate) fn parse_range(value: &str) -> Result<IdRange, String> {
    let numbers: Option<Vec<u32>> = value
        .split(':')
        .map(|part| digits(part)?.try_into().ok())
        .collect();
    let Some([client, host, count]) = numbers.as_deref() else {
        return Err(
            "it must be three numbers CLIENT:HOST:COUNT, such as 0:100000:65536".to_owned(),
        );
    };
    if *count == 0 {
        return Err("a range of no ids maps nothing".to_owned());
    }
    // 2³²−1 is not an id.
    if [client, host]
        .iter()
        .any(|first| u64::from(**first) + u64::from(*count) > 0xffff_ffff)
    {
        return Err("it reaches beyond the last id, 4294967294".to_owned());
    }
    Ok(IdRange {
        client: *client,
        host: *host,
        count: *count,
    })
}

/// Adds a range, which must not overlap another on either side.
pub(super) fn add_range(map: &mut IdMap, new: IdRange) -> Result<(), String> {
    let mut ranges = match std::mem::take(map) {
        IdMap::Ranges(ranges) => ranges,
        _ => Vec::new(),
    };
    let meet = |a: u32, b: u32, count: u32| {
        let (a, b) = (u64::from(a), u64::from(b));
        a < b + u64::from(count) && b < a + u64::from(new.count)
    };
    let overlapping = ranges
        .iter()
        .any(|old| meet(new.client, old.client, old.count) || meet(new.host, old.host, old.count));
    if overlapping {
        return Err("it shares ids with another range".to_owned());
    }
    ranges.push(new);
    *map = IdMap::Ranges(ranges);
    Ok(())
}

/// Adds a rule in virtiofsd's language.
pub(super) fn translate(map: &mut IdMap, rule: &str) -> Result<(), String> {
    let mut translation = match std::mem::take(map) {
        IdMap::Translated(translation) => translation,
        _ => Translation::default(),
    };
    let added = translation.add(rule);
    *map = IdMap::Translated(translation);
    added.map_err(|error| error.to_string())
}

/// `+sys_admin:-mknod`. Of two changes of one capability, the later counts.
pub(super) fn parse_capabilities(value: &str) -> Result<CapabilityChange, String> {
    let mut change = CapabilityChange {
        kept: CapabilitySet::empty(),
        dropped: CapabilitySet::empty(),
    };
    for part in value.split(':') {
        let (sign, name) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
            (Some(name), _) => ('+', name),
            (_, Some(name)) => ('-', name),
            _ => return Err("it must be a list as in +sys_admin:-mknod".to_owned()),
        };
        let upper = name.to_ascii_uppercase();
        let known = CapabilitySet::from_name(upper.strip_prefix("CAP_").unwrap_or(&upper));
        let one = known.ok_or_else(|| format!("there is no capability `{name}`"))?;
        change.kept.set(one, sign == '+');
        change.dropped.set(one, sign == '-');
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_as_mount_does() {
        let split = |list| split_list(list).unwrap();
        assert_eq!(split("a,b=c"), ["a", "b=c"]);
        assert_eq!(split(",a,,"), ["a"]);
        assert_eq!(split(r"fsname=a\,b,c"), ["fsname=a,b", "c"]);
        assert_eq!(split(r#"fsname="a,b",c"#), ["fsname=a,b", "c"]);
        assert_eq!(split(r"a\\b"), [r"a\b"]);
        assert!(split("").is_empty());
        assert!(split_list("a=\"b,c").is_err());
    }

    #[test]
    fn numbers_with_units() {
        assert_eq!(parse_bytes("128K", 4), Ok(131_072));
        assert_eq!(parse_bytes("1m", 4), Ok(1 << 20));
        assert_eq!(parse_bytes("3G", 4), Ok(3 << 30));
        assert_eq!(parse_bytes("64G", 1024), Ok(64 << 30));
        for bad in "|K|4G|+1|-1|1.5M|1KB|99999999999999999999".split('|') {
            assert!(parse_bytes(bad, 4).is_err(), "{bad}");
        }
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1500)));
        for bad in ["", "-1", "inf", "1s", "1e300"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn users_by_name_and_number() {
        assert_eq!(parse_user("7"), Ok(7));
        assert_eq!(parse_user("root"), Ok(0));
        assert!(parse_user("4294967295").is_err());
        assert!(parse_user("").is_err());
    }

    #[test]
    fn ranges() {
        let range = IdRange {
            client: 0,
            host: 100_000,
            count: 65_536,
        };
        assert_eq!(parse_range("0:100000:65536"), Ok(range));
        for bad in "|0:1|0:1:0|0:1:2:3|a:1:1|0:4294967295:1|-1:1:1".split('|') {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
