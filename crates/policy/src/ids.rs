//! Sets of users and groups: `owner`, `group`, `caller-uid`, `caller-gid`.

use super::Accounts;
use super::error::Problem;
use std::ops::RangeInclusive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdKind {
    User,
    Group,
}

impl IdKind {
    fn noun(self) -> (&'static str, &'static str) {
        match self {
            IdKind::User => ("user", "/etc/passwd"),
            IdKind::Group => ("group", "/etc/group"),
        }
    }
}

/// A set of ids; with exceptions only, all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdSet {
    wanted: Vec<RangeInclusive<u32>>,
    unwanted: Vec<RangeInclusive<u32>>,
}

impl IdSet {
    /// Adds `1000`, `1000-1999` or a name; with a leading `!`, as an exception.
    pub(super) fn add(
        &mut self,
        item: &str,
        kind: IdKind,
        accounts: &Accounts,
    ) -> Result<(), Problem> {
        match item.strip_prefix('!') {
            Some(item) => self.unwanted.push(range(item, kind, accounts)?),
            None => self.wanted.push(range(item, kind, accounts)?),
        }
        Ok(())
    }

    /// Sorts and joins the ranges for fast searches. To be called after the last [`add`](Self::add).
    pub(super) fn settle(&mut self) {
        for ranges in [&mut self.wanted, &mut self.unwanted] {
            ranges.sort_by_key(|range| *range.start());
            ranges.dedup_by(|next, range| {
                let meet = *next.start() <= range.end().saturating_add(1);
                if meet {
                    *range = *range.start()..=*range.end().max(next.end());
                }
                meet
            });
        }
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        let is_in = |ranges: &[RangeInclusive<u32>]| {
            let next = ranges.partition_point(|range| *range.end() < id);
            ranges.get(next).is_some_and(|range| range.contains(&id))
        };
        (self.wanted.is_empty() || is_in(&self.wanted)) && !is_in(&self.unwanted)
    }
}

fn range(item: &str, kind: IdKind, accounts: &Accounts) -> Result<RangeInclusive<u32>, Problem> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number(item) {
        let id = number(item, kind)?;
        return Ok(id..=id);
    }
    if let Some((first, last)) = item.split_once('-')
        && is_number(first)
        && is_number(last)
    {
        let (first, last) = (number(first, kind)?, number(last, kind)?);
        if first > last {
            return Err(format!(
                "`{item}` is empty: its first number is above its last"
            ));
        }
        return Ok(first..=last);
    }
    let (noun, file) = kind.noun();
    let id = match kind {
        IdKind::User => accounts.user(item),
        IdKind::Group => accounts.group(item),
    };
    id.map(|id| id..=id)
        .ok_or_else(|| format!("there is no {noun} `{item}` in {file}: give the number"))
}

fn number(digits: &str, kind: IdKind) -> Result<u32, Problem> {
    let number = digits.parse().ok().filter(|&id| id != u32::MAX);
    number.ok_or_else(|| {
        let (noun, _) = kind.noun();
        format!("`{digits}` is no {noun}: the largest is {}", u32::MAX - 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> Result<IdSet, Problem> {
        let accounts = Accounts::parse(b"ann:x:1000:\n7-9:x:3:\n", b"");
        let mut set = IdSet::default();
        for item in items {
            set.add(item, IdKind::User, &accounts)?;
        }
        set.settle();
        Ok(set)
    }

    #[test]
    fn id_sets_with_ranges_names_and_exceptions() {
        let some = set(&["5", "ann", "2000-2999", "!2500"]).unwrap();
        for (id, is_in) in [
            (5, true),
            (1000, true),
            (2000, true),
            (2999, true),
            (2500, false),
            (3000, false),
            (0, false),
        ] {
            assert_eq!(some.contains(id), is_in, "{id}");
        }
        let others = set(&["!0", "!ann"]).unwrap();
        assert!(others.contains(5) && !others.contains(0) && !others.contains(1000));
        assert!(set(&["7-9"]).unwrap().contains(8), "a range, not a name");
    }

    #[test]
    fn id_ranges_are_joined_in_any_order() {
        let some = set(&["20-30", "5", "6-8", "0-2", "25-40", "41", "22"]).unwrap();
        assert_eq!(some.wanted, [0..=2, 5..=8, 20..=41]);
        let ids: Vec<u32> = (0..50).filter(|id| some.contains(*id)).collect();
        let expected: Vec<u32> = (0..=2).chain(5..=8).chain(20..=41).collect();
        assert_eq!(ids, expected);
        let all = set(&["0-4294967294", "4294967294"]).unwrap();
        assert_eq!(all.wanted, [0..=u32::MAX - 1]);
    }

    #[test]
    fn invalid_ids_are_refused() {
        for item in [
            "",
            "!",
            "nobody-here",
            "-1",
            "4294967295",
            "99999999999",
            "9-7",
            "1-2-3",
        ] {
            assert!(set(&[item]).is_err(), "{item}");
        }
    }
}
