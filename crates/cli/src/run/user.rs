//! The user as whom the command runs.

use super::error::RunError;
use crate::draft::DraftIds;
use crate::options;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;

/// Ids that no system assigns (systemd's table of ids), for commands of root on a tree of root.
const UNASSIGNED: std::ops::RangeInclusive<u32> = 60_706..=61_183;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunUser {
    /// As the kernel knows it.
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// As the command sees it.
    pub(super) shown_uid: u32,
    pub(super) shown_gid: u32,
    /// What changes, if root runs the command as another user.
    pub(super) change: Option<Change>,
    pub(super) home: Option<OsString>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) groups: Vec<u32>,
    /// `USER` and `LOGNAME`.
    pub(super) name: Option<String>,
}

/// An entry of passwd(5).
pub(crate) struct Account {
    name: String,
    uid: u32,
    pub(crate) gid: u32,
    pub(super) home: OsString,
}

impl Account {
    /// The first of this user in `/etc/passwd`.
    pub(crate) fn of(uid: u32) -> Option<Account> {
        Account::find(|account| account.uid == uid)
    }

    pub(super) fn named(name: &str) -> Option<Account> {
        Account::find(|account| account.name == name)
    }

    fn find(is_meant: impl FnMut(&Account) -> bool) -> Option<Account> {
        let passwd = fs::read_to_string("/etc/passwd").ok()?;
        let mut accounts = passwd.lines().filter_map(account);
        accounts.find(is_meant)
    }

    /// Of another source than `/etc/passwd`, or of a container: its group is the one of a tree that it owns, unless
    /// that is root's.
    fn unknown(uid: u32, tree: &Stat) -> Account {
        let is_its_own = tree.st_uid == uid && tree.st_gid != 0;
        Account {
            name: String::new(),
            uid,
            gid: if is_its_own { tree.st_gid } else { uid },
            home: "/nonexistent".into(),
        }
    }
}

impl RunUser {
    /// An ordinary user runs commands as itself; root as `wanted`, or as the owner of the tree, or, if that
    /// is root, as a user that owns nothing but sees itself and the tree as root's.
    pub(super) fn find(wanted: Option<&str>, tree: &Stat) -> Result<RunUser, RunError> {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        if uid != 0 {
            if wanted.is_some() {
                return Err(RunError::UserOfOther);
            }
            return Ok(RunUser {
                uid,
                gid,
                shown_uid: uid,
                shown_gid: gid,
                change: None,
                home: std::env::var_os("HOME"),
            });
        }
        let found = RunUser::of_root(wanted, tree)?;
        match is_mapped(found.uid) {
            true => Ok(found),
            false => Err(RunError::NotMapped(found.uid)),
        }
    }

    fn of_root(wanted: Option<&str>, tree: &Stat) -> Result<RunUser, RunError> {
        let found = match wanted {
            Some(text) => options::parse_user(text).map_err(RunError::NoUser)?,
            None => tree.st_uid,
        };
        if found == 0 {
            if wanted.is_some() {
                return Err(RunError::RunAsRoot);
            }
            return Ok(RunUser::without_files());
        }
        Ok(RunUser::with_account(found, tree))
    }

    /// As it was when the draft was begun, in which what it made belongs to it: one without files has another id in
    /// each run.
    pub(super) fn in_draft(self, ids: &DraftIds) -> Result<RunUser, RunError> {
        let is_again =
            self.shown_uid == ids.shown_uid && (self.shown_uid != self.uid || self.uid == ids.uid);
        match is_again {
            true => Ok(RunUser {
                uid: ids.uid,
                gid: ids.gid,
                ..self
            }),
            false => Err(RunError::OtherUserOfDraft(ids.uid)),
        }
    }

    pub(super) fn ids(&self) -> DraftIds {
        DraftIds {
            uid: self.uid,
            gid: self.gid,
            shown_uid: self.shown_uid,
            shown_gid: self.shown_gid,
        }
    }

    fn without_files() -> RunUser {
        let ids = UNASSIGNED.end() - UNASSIGNED.start() + 1;
        let uid = UNASSIGNED.start() + std::process::id() % ids;
        RunUser {
            uid,
            gid: uid,
            shown_uid: 0,
            shown_gid: 0,
            change: Some(Change {
                groups: Vec::new(),
                name: None,
            }),
            home: std::env::var_os("HOME"),
        }
    }

    fn with_account(uid: u32, tree: &Stat) -> RunUser {
        let account = Account::of(uid).unwrap_or_else(|| Account::unknown(uid, tree));
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        RunUser {
            uid,
            gid: account.gid,
            shown_uid: uid,
            shown_gid: account.gid,
            change: Some(Change {
                groups: groups_of(&account.name, account.gid, &groups),
                name: Some(account.name).filter(|name| !name.is_empty()),
            }),
            home: Some(account.home),
        }
    }
}

/// Whether the user namespace of this process has this user.
fn is_mapped(uid: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
        matches!(numbers[..], [first, _, count] if uid.checked_sub(first).is_some_and(|it| it < count))
    })
}

fn account(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, ..] = fields[..] else {
        return None;
    };
    Some(Account {
        name: name.to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: home.into(),
    })
}

/// Its own group, and those of group(5) that list the user. One without a name is in no list: an empty list, split,
/// is one empty name.
fn groups_of(name: &str, gid: u32, groups: &str) -> Vec<u32> {
    let listed = groups.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members, ..] = fields[..] else {
            return None;
        };
        let is_member = members
            .split(',')
            .any(|member| !name.is_empty() && member == name);
        is_member.then(|| number.parse().ok())?
    });
    let mut all: Vec<u32> = [gid].into_iter().chain(listed).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_and_groups_of_a_user() {
        let found = account("ann:x:1000:1001:Ann,,,:/home/ann:/bin/sh").unwrap();
        assert_eq!(
            (found.name.as_str(), found.uid, found.gid),
            ("ann", 1000, 1001)
        );
        assert_eq!(found.home, "/home/ann");
        assert!(account("ann:x:1000").is_none());
        let groups =
            "root:x:0:\nwheel:x:10:bob,ann\nannex:x:11:joann\nann:x:1001:\nbad\nx:x:y:ann\n";
        assert_eq!(groups_of("ann", 1001, groups), [10, 1001]);
        assert_eq!(groups_of("", 1001, groups), [1001]);
    }
}
