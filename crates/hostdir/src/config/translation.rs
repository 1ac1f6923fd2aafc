//! Translation of ids by ranges, each direction by itself.
//!
//! The language is virtiofsd's:
//!
//! ```text
//! guest:FROM:TO:COUNT           ids of clients, to as many on the host
//! host:FROM:TO:COUNT            ids on the host, to as many for clients
//! map:CLIENT:HOST:COUNT         both at once
//! squash-guest:FROM:TO:COUNT    ids of clients, to one on the host
//! squash-host:FROM:TO:COUNT     ids on the host, to one for clients
//! forbid-guest:FROM:COUNT       ids that clients may not give to a file
//! ```
//!
//! Ids outside of all ranges stay as they are.

use serde::{Deserialize, Serialize};

/// Most ranges in one direction: they are searched for every id.
const RANGES_MAX: usize = 64;

/// Ranges of ids in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Translation {
    to_host: Vec<Range>,
    to_client: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    first: u32,
    count: u32,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Target {
    /// To this id and the following ones.
    From(u32),
    /// All to this id.
    One(u32),
    /// Forbidden.
    Nothing,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslationError {
    /// The word before the numbers.
    #[error("unknown kind `{0}`: use guest, host, map, squash-guest, squash-host or forbid-guest")]
    Kind(String),
    /// The numbers.
    #[error("after {kind} there must be {expected} numbers, with colons between them")]
    Numbers {
        /// The word before them.
        kind: &'static str,
        /// How many there should be.
        expected: usize,
    },
    /// A range of none, or one past the end.
    #[error("a range has at least one id, and none beyond 4294967294")]
    Beyond,
    /// Two ranges with an id in common.
    #[error("it shares ids with another range of the same direction")]
    Overlap,
    /// More than `RANGES_MAX`.
    #[error("there are more than {RANGES_MAX} ranges")]
    TooMany,
}

impl Translation {
    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// See [`TranslationError`]; nothing was added then.
    pub fn add(&mut self, rule: &str) -> Result<(), TranslationError> {
        let (word, numbers) = rule.split_once(':').unwrap_or((rule, ""));
        let kinds = [
            "guest",
            "host",
            "map",
            "squash-guest",
            "squash-host",
            "forbid-guest",
        ];
        let kind = kinds.into_iter().find(|kind| *kind == word);
        let kind = kind.ok_or_else(|| TranslationError::Kind(word.to_owned()))?;
        if kind == "forbid-guest" {
            let [first, count] = parse(kind, numbers)?;
            return add(&mut self.to_host, first, count, Target::Nothing);
        }
        let [first, target, count] = parse(kind, numbers)?;
        let (to_host, to_client) = (&mut self.to_host, &mut self.to_client);
        match kind {
            "guest" => add(to_host, first, count, Target::From(target)),
            "host" => add(to_client, first, count, Target::From(target)),
            "squash-guest" => add(to_host, first, count, Target::One(target)),
            "squash-host" => add(to_client, first, count, Target::One(target)),
            _ => {
                let before = to_host.len();
                add(to_host, first, count, Target::From(target))?;
                add(to_client, target, count, Target::From(first))
                    .inspect_err(|_| to_host.truncate(before))
            }
        }
    }

    /// The id that clients see.
    pub(crate) fn to_client(&self, host: u32) -> u32 {
        // Nothing is forbidden in this direction.
        lookup(&self.to_client, host).unwrap_or(host)
    }

    /// The id on the host, if there is one.
    pub(crate) fn to_host(&self, client: u32) -> Option<u32> {
        lookup(&self.to_host, client)
    }
}

fn lookup(ranges: &[Range], id: u32) -> Option<u32> {
    let holds = |range: &&Range| id >= range.first && id - range.first < range.count;
    match ranges.iter().find(holds) {
        None => Some(id),
        Some(range) => match range.target {
            Target::From(first) => first.checked_add(id - range.first),
            Target::One(id) => Some(id),
            Target::Nothing => None,
        },
    }
}

fn parse<const COUNT: usize>(
    kind: &'static str,
    text: &str,
) -> Result<[u32; COUNT], TranslationError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let numbers: Option<Vec<u32>> = text.split(':').map(number).collect();
    let expected = COUNT;
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or(TranslationError::Numbers { kind, expected })
}

fn add(
    ranges: &mut Vec<Range>,
    first: u32,
    count: u32,
    target: Target,
) -> Result<(), TranslationError> {
    // 2³²−1 is no id.
    let end = |first: u32| u64::from(first) + u64::from(count);
    let last_target = match target {
        Target::From(first) => end(first),
        Target::One(id) => u64::from(id) + 1,
        Target::Nothing => 0,
    };
    if count == 0 || end(first) > 0xffff_ffff || last_target > 0xffff_ffff {
        return Err(TranslationError::Beyond);
    }
    let meets = |other: &Range| {
        let other_end = u64::from(other.first) + u64::from(other.count);
        u64::from(first) < other_end && u64::from(other.first) < end(first)
    };
    if ranges.iter().any(meets) {
        return Err(TranslationError::Overlap);
    }
    if ranges.len() >= RANGES_MAX {
        return Err(TranslationError::TooMany);
    }
    ranges.push(Range {
        first,
        count,
        target,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translation(rules: &[&str]) -> Translation {
        let mut translation = Translation::default();
        for rule in rules {
            translation.add(rule).unwrap();
        }
        translation
    }

    #[test]
    fn directions_are_independent() {
        let ids = translation(&["guest:0:1000:10", "host:500:0:1", "forbid-guest:77:1"]);
        assert_eq!(ids.to_host(3), Some(1003));
        assert_eq!(ids.to_host(10), Some(10), "outside");
        assert_eq!(ids.to_host(77), None);
        assert_eq!(ids.to_client(500), 0);
        assert_eq!(ids.to_client(1003), 1003, "not the other way round");
    }

    #[test]
    fn map_and_squash_rules() {
        let ids = translation(&["map:0:1000:10"]);
        assert_eq!((ids.to_host(9), ids.to_client(1009)), (Some(1009), 9));
        let ids = translation(&["squash-guest:0:1001:4294967295", "squash-host:5:8:3"]);
        assert_eq!(ids.to_host(4_000_000_000), Some(1001));
        assert_eq!((ids.to_client(7), ids.to_client(8)), (8, 8));
        assert_eq!(ids.to_client(4), 4);
    }

    #[test]
    fn invalid_translation_rules_change_nothing() {
        let mut ids = translation(&["map:0:1000:10", "host:0:50:1"]);
        let before = ids.clone();
        for (rule, error) in [
            ("guests:0:1:1", TranslationError::Kind("guests".to_owned())),
            ("", TranslationError::Kind(String::new())),
            ("guest:9:5:1", TranslationError::Overlap),
            // Its first half would be valid.
            ("map:100:1009:1", TranslationError::Overlap),
            ("guest:4294967295:1:1", TranslationError::Beyond),
            ("guest:100:4294967295:1", TranslationError::Beyond),
            ("guest:100:1:0", TranslationError::Beyond),
        ] {
            assert_eq!(ids.add(rule), Err(error), "{rule}");
        }
        for rule in [
            "guest",
            "guest:1",
            "guest:1:2:3:4",
            "guest:+1:2:3",
            "forbid-guest:1:2:3",
        ] {
            let error = ids.add(rule);
            assert!(
                matches!(error, Err(TranslationError::Numbers { .. })),
                "{rule}"
            );
        }
        assert_eq!(ids, before);
    }
}
