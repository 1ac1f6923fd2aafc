//! Names of users and groups.
//!
//! Read from `/etc/passwd` and `/etc/group` by a parser of our own: the C library may load modules, talk to
//! daemons and wait for a network. Rules identify users of a directory service by number.

use super::PolicyFileError;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest file of accounts that is read.
pub const ACCOUNTS_BYTES_MAX: u64 = 16 << 20;

/// The users and groups that a policy may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    users: HashMap<String, u32>,
    groups: HashMap<String, u32>,
}

impl Accounts {
    /// Reads `/etc/passwd` and `/etc/group`; a missing file has no names.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or is longer than [`ACCOUNTS_BYTES_MAX`].
    pub fn read() -> Result<Accounts, PolicyFileError> {
        let read = |path: &str| {
            bounded(Path::new(path)).map_err(|source| PolicyFileError::Unreadable {
                path: path.into(),
                source,
            })
        };
        Ok(Accounts::parse(&read("/etc/passwd")?, &read("/etc/group")?))
    }

    /// Parses passwd(5) and group(5). Invalid lines are ignored; of two lines with one name the first
    /// counts.
    pub fn parse(passwd: &[u8], group: &[u8]) -> Accounts {
        Accounts {
            users: entries(passwd),
            groups: entries(group),
        }
    }

    /// The number of a user.
    pub fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    /// The number of a group.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(ACCOUNTS_BYTES_MAX + 1).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    if text.len() as u64 > ACCOUNTS_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn entries(text: &[u8]) -> HashMap<String, u32> {
    let mut found = HashMap::new();
    for (name, id) in text.split(|&byte| byte == b'\n').filter_map(entry) {
        found.entry(name.to_owned()).or_insert(id);
    }
    found
}

/// Name and number of a line; the number is the third field of either file.
fn entry(line: &[u8]) -> Option<(&str, u32)> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let id = fields.nth(1)?.parse().ok()?;
    (id != u32::MAX).then_some((name, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_account_lines_are_ignored() {
        let passwd = b"root:x:0:0::/:/bin/sh\n\nbroken\n+nis\n:x:3:\nann:x:1000:5\nann:x:1:1\n\
                       neg:x:-1:1\nnone:x:4294967295:1\n\xff:x:7:7\nlast:x:42";
        let accounts = Accounts::parse(passwd, b"staff:x:50:ann\n");
        assert_eq!(accounts.user("root"), Some(0));
        assert_eq!(accounts.user("ann"), Some(1000), "the first line counts");
        assert_eq!(accounts.user("last"), Some(42));
        for name in ["", "broken", "+nis", "neg", "none", "staff"] {
            assert_eq!(accounts.user(name), None, "{name}");
        }
        assert_eq!(accounts.group("staff"), Some(50));
    }
}
