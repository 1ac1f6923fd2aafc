//! The syntax of option lists and values.

use super::{OptionError, Value};
use std::fs;
use std::time::Duration;
use thrufs_hostdir::IdRange;

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

/// Why `value` is not of this kind, if so.
pub(crate) fn value_problem(kind: Value, value: &str) -> Option<String> {
    match kind {
        Value::None | Value::Any => None,
        Value::Text | Value::Path if value.is_empty() => Some("it is empty".to_owned()),
        Value::Text | Value::Path if value.contains('\0') => Some("it holds a NUL".to_owned()),
        Value::Text | Value::Path => None,
        Value::Choice(words) if words.contains(&value) => None,
        Value::Choice(words) => Some(format!("it must be {}", either(words))),
        Value::Seconds => parse_seconds(value).err(),
        Value::Bytes => parse_bytes(value).err(),
        Value::Count(least, most) => match parse_count(value) {
            Ok(count) if (least..=most).contains(&count) => None,
            _ => Some(format!(
                "it must be a whole number between {least} and {most}"
            )),
        },
        Value::User => parse_user(value).err(),
        Value::Group => parse_group(value).err(),
        Value::Range => parse_range(value).err(),
    }
}

fn either(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
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

pub(crate) fn parse_bytes(value: &str) -> Result<u32, String> {
    let problem = || "it must be a number of bytes below 4G, such as 131072, 128K or 1M".to_owned();
    let (digits, shift) = match value.char_indices().next_back() {
        Some((end, 'k' | 'K')) => (&value[..end], 10),
        Some((end, 'm' | 'M')) => (&value[..end], 20),
        Some((end, 'g' | 'G')) => (&value[..end], 30),
        _ => (value, 0),
    };
    let number = parse_count(digits).map_err(|()| problem())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(problem)?;
    u32::try_from(bytes).map_err(|_| problem())
}

/// Only digits: `parse` alone accepts a `+`.
pub(crate) fn parse_count(value: &str) -> Result<u64, ()> {
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.parse().map_err(|_| ())
    } else {
        Err(())
    }
}

/// A number, or a name in `/etc/passwd`.
pub(crate) fn parse_user(value: &str) -> Result<u32, String> {
    parse_id(value, "user", "/etc/passwd")
}

/// A number, or a name in `/etc/group`.
pub(crate) fn parse_group(value: &str) -> Result<u32, String> {
    parse_id(value, "group", "/etc/group")
}

/// A number below 2³²−1 (the kernel's "none"), or a name in the file.
fn parse_id(value: &str, what: &str, file: &str) -> Result<u32, String> {
    if let Ok(number) = parse_count(value) {
        return match u32::try_from(number) {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err(format!("there is no {what} of that number")),
        };
    }
    let entries = fs::read_to_string(file).unwrap_or_default();
    let named = entries.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == value).then_some(())?;
        fields.nth(1)?.parse().ok()
    });
    named.ok_or_else(|| format!("there is no {what} of that name in {file}: give the number"))
}

/// `0:100000:65536`: client, host, count.
pub(crate) fn parse_range(value: &str) -> Result<IdRange, String> {
    let numbers: Option<Vec<u32>> = value
        .split(':')
        .map(|part| parse_count(part).ok()?.try_into().ok())
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
        assert_eq!(parse_bytes("128K"), Ok(131_072));
        assert_eq!(parse_bytes("1m"), Ok(1 << 20));
        assert_eq!(parse_bytes("3G"), Ok(3 << 30));
        for bad in [
            "",
            "K",
            "4G",
            "+1",
            "-1",
            "1.5M",
            "1KB",
            "99999999999999999999",
        ] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
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
        assert_eq!(
            parse_range("0:100000:65536"),
            Ok(IdRange {
                client: 0,
                host: 100_000,
                count: 65_536
            })
        );
        for bad in [
            "",
            "0:1",
            "0:1:0",
            "0:1:2:3",
            "a:1:1",
            "0:4294967295:1",
            "-1:1:1",
        ] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
