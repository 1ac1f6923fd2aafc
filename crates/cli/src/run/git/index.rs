//! The index of a repository (gitformat-index(5)): what git writes when it restores files.

use std::collections::BTreeSet;

const HEADER_BYTES: usize = 12;
/// Times, numbers and sizes before the name of the object.
const STAT_BYTES: usize = 40;
const MODE_AT: usize = 24;
/// SHA-1, SHA-256
const OBJECT_BYTES: [usize; 2] = [20, 32];
const EXTENDED: u16 = 0x4000;
const LINK: u32 = 0o160_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    mode: u32,
    object: Vec<u8>,
}

impl Entry {
    pub(super) fn is_submodule(&self) -> bool {
        self.mode & LINK == LINK
    }
}

/// `None` for what is no index, or one in parts (`core.splitIndex`).
pub(super) fn entries(bytes: &[u8]) -> Option<BTreeSet<Entry>> {
    let mut sizes = OBJECT_BYTES.into_iter();
    sizes.find_map(|size| parse(bytes, size))
}

fn parse(bytes: &[u8], object_bytes: usize) -> Option<BTreeSet<Entry>> {
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
    };
    let mut rest = bytes.strip_prefix(b"DIRC").and(bytes.get(HEADER_BYTES..))?;
    let (version, count) = (number(bytes, 4)?, number(bytes, 8)?);
    let mut path = Vec::new();
    let mut entries = BTreeSet::new();
    for _ in 0..count {
        let mode = number(rest, MODE_AT)?;
        let object = rest.get(STAT_BYTES..STAT_BYTES + object_bytes)?.to_vec();
        let mut at = STAT_BYTES + object_bytes + 2;
        let flags = u16::from_be_bytes(*rest.get(at - 2..)?.first_chunk()?);
        if flags & EXTENDED != 0 {
            at += 2;
        }
        let kept = match version {
            2 | 3 => 0,
            4 => path.len().checked_sub(offset(rest, &mut at)?)?,
            _ => return None,
        };
        path.truncate(kept);
        let end = at + rest.get(at..)?.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&rest[at..end]);
        let next = if version == 4 {
            end + 1
        } else {
            end / 8 * 8 + 8
        };
        rest = rest.get(next..)?;
        entries.insert(Entry {
            path: path.clone(),
            mode,
            object,
        });
    }
    // Extensions, and the sum of all.
    while rest.len() > object_bytes {
        let length = number(rest, 4)? as usize;
        if rest.starts_with(b"link") {
            return None;
        }
        rest = rest.get(length.checked_add(8)?..)?;
    }
    (rest.len() == object_bytes).then_some(entries)
}

/// Seven bits in a byte, and one more for each byte that follows.
fn offset(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0_usize;
    loop {
        let byte = usize::from(*bytes.get(*at)?);
        *at += 1;
        value = value.checked_mul(128)?.checked_add(byte & 127)?;
        if byte < 128 {
            return Some(value);
        }
        value += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// What the index has after a script, and what git says that it has.
    fn both(script: &str) -> (Option<Vec<String>>, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        let run = |script: &str| {
            let mut shell = Command::new("sh");
            let shell = shell.args(["-ec", script]).current_dir(place.path());
            let output = shell.env("GIT_CONFIG_GLOBAL", "/dev/null").output();
            let output = output.unwrap();
            assert!(output.status.success(), "{script}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        run(script);
        let found = entries(&fs::read(place.path().join(".git/index")).unwrap());
        let text = |entry: Entry| {
            let object: String = entry.object.iter().map(|it| format!("{it:02x}")).collect();
            let path = String::from_utf8(entry.path).unwrap();
            format!("{:06o} {object} 0\t{path}", entry.mode)
        };
        let listed = run("git ls-files -s").lines().map(str::to_owned).collect();
        (found.map(|it| it.into_iter().map(text).collect()), listed)
    }

    #[test]
    fn entries_are_those_that_git_lists() {
        let long = "d/".repeat(200);
        let files = format!(
            "mkdir -p a/b {long} && touch a/b/c a/b/cd a/x ab one {long}file && git init -q sub
             git -C sub -c user.name=A -c user.email=a@b commit -q --allow-empty -m one"
        );
        for (init, then) in [
            ("git init -q", "git add ."),
            ("git init -q", "git add a && git add -N ab one"),
            (
                "git init -q",
                "git add . && git update-index --index-version 4",
            ),
            ("git init -q --object-format=sha256", "git add a ab one"),
        ] {
            let (found, listed) = both(&format!("{init}\n{files}\n{then} 2>/dev/null"));
            assert_eq!(found.unwrap(), listed, "{init}; {then}");
            assert!(listed.len() > 3);
        }
        let (found, _) = both(&format!(
            "git init -q\n{files}\ngit add . 2>/dev/null && git update-index --split-index"
        ));
        assert_eq!(found, None);
        assert_eq!(entries(b"DIRC"), None);
    }
}
