//! The index of a repository (gitformat-index(5)): what git writes when it restores files.

use std::collections::BTreeSet;

const HEADER_BYTES: usize = 12;
/// Times, numbers and sizes before the name of the object.
const STAT_BYTES: usize = 40;
const MODE_AT: usize = 24;
/// SHA-1, SHA-256
const OBJECT_BYTES: [usize; 2] = [20, 32];
const ASSUME_UNCHANGED: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
/// Of the further flags.
const SKIP_WORKTREE: u16 = 0x4000;
/// Paths are at most so many times longer than their index, which has what two have in common once.
const PATHS_FACTOR: usize = 4;
/// The length of the path, or more.
const LENGTH: u16 = 0xfff;
const PATH_BYTES_MAX: usize = 4096;
const KINDS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const SUBMODULE: u32 = 0o160_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    mode: u32,
    object: Vec<u8>,
    /// `--assume-unchanged`, `--skip-worktree`
    pub(super) is_overlooked: bool,
}

impl Entry {
    pub(super) fn marked_otherwise(&self) -> Entry {
        let is_overlooked = !self.is_overlooked;
        Entry {
            is_overlooked,
            ..self.clone()
        }
    }

    pub(super) fn is_submodule(&self) -> bool {
        self.mode & KINDS == SUBMODULE
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode & KINDS == LINK
    }
}

/// `None` for what is no index, or one in parts (`core.splitIndex`, directories of `core.sparseCheckout`), or that can be
/// read in two ways.
pub(super) fn entries(bytes: &[u8]) -> Option<BTreeSet<Entry>> {
    let [short, long] = OBJECT_BYTES.map(|size| parse(bytes, size));
    match (short, long) {
        (found, None) | (None, found) => found,
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn parse(bytes: &[u8], object_bytes: usize) -> Option<BTreeSet<Entry>> {
    let mut rest = bytes.strip_prefix(b"DIRC").and(bytes.get(HEADER_BYTES..))?;
    let (version, count) = (number(bytes, 4)?, number(bytes, 8)?);
    let mut path = Vec::new();
    let mut path_bytes = 0;
    let mut entries = BTreeSet::new();
    let mut starts = Vec::new();
    for _ in 0..count {
        starts.push(bytes.len() - rest.len());
        let mode = number(rest, MODE_AT)?;
        let object = rest.get(STAT_BYTES..STAT_BYTES + object_bytes)?.to_vec();
        let mut at = STAT_BYTES + object_bytes + 2;
        let flags = u16::from_be_bytes(*rest.get(at - 2..)?.first_chunk()?);
        let mut is_overlooked = flags & ASSUME_UNCHANGED != 0;
        if flags & EXTENDED != 0 {
            let further = u16::from_be_bytes(*rest.get(at..)?.first_chunk()?);
            is_overlooked |= further & SKIP_WORKTREE != 0;
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
        path_bytes += path.len();
        let next = if version == 4 {
            end + 1
        } else {
            end / 8 * 8 + 8
        };
        let is_padded = rest.get(end..next)?.iter().all(|byte| *byte == 0);
        // What git would read otherwise, or keep in memory many times over.
        if usize::from(flags & LENGTH) != path.len().min(usize::from(LENGTH))
            || !is_padded
            || path.len() > PATH_BYTES_MAX
            || path_bytes > bytes.len().saturating_mul(PATHS_FACTOR)
            || mode & KINDS == DIRECTORY
        {
            return None;
        }
        rest = &rest[next..];
        entries.insert(Entry {
            path: path.clone(),
            mode,
            object,
            is_overlooked,
        });
    }
    has_plain_extensions(bytes, bytes.len() - rest.len(), &starts, object_bytes).then_some(entries)
}

/// Whether what follows the entries has none, and leads to no other entries than those that `starts` has.
fn has_plain_extensions(bytes: &[u8], end: usize, starts: &[usize], object_bytes: usize) -> bool {
    // Git looks for this one from the end.
    let last = bytes.len().checked_sub(object_bytes * 2 + 12);
    let last = last.and_then(|at| bytes[at..].strip_prefix(b"EOIE"));
    if last.is_some_and(|last| number(last, 4).map(|it| it as usize) != Some(end)) {
        return false;
    }
    let mut rest = &bytes[end..];
    while rest.len() > object_bytes {
        let body = number(rest, 4).and_then(|length| rest.get(8..)?.get(..length as usize));
        let Some(body) = body else { return false };
        if rest.starts_with(b"link") || rest.starts_with(b"IEOT") && !is_plain_table(body, starts) {
            return false;
        }
        rest = &rest[8 + body.len()..];
    }
    rest.len() == object_bytes
}

/// A version, and offset and number of entries of each block.
fn is_plain_table(table: &[u8], starts: &[usize]) -> bool {
    let mut starts = starts;
    for block in table.get(4..).unwrap_or_default().chunks(8) {
        let (Some(offset), Some(count)) = (number(block, 0), number(block, 4)) else {
            return false;
        };
        let Some((these, rest)) = starts.split_at_checked(count as usize) else {
            return false;
        };
        if these.first() != Some(&(offset as usize)) {
            return false;
        }
        starts = rest;
    }
    starts.is_empty()
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
        value = value.checked_add(1)?;
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
            (
                "git init -q && git config index.threads 3",
                "object=$(git hash-object -w a/x) &&
                 seq 30000 | sed \"s,^,100644 $object 0\tmany/,\" | git update-index --index-info",
            ),
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

    /// An entry, and how much of its path the flags say that there is.
    fn entry(path: &[u8], said: usize) -> Vec<u8> {
        let mut bytes = vec![0; STAT_BYTES + 20];
        bytes[MODE_AT + 2] = 0x81;
        bytes.extend((said as u16).to_be_bytes());
        bytes.extend(path);
        bytes.resize(bytes.len() / 8 * 8 + 8, 0);
        bytes
    }

    fn index(version: u32, count: u32, rest: &[&[u8]]) -> Vec<u8> {
        let head = [b"DIRC", &version.to_be_bytes()[..], &count.to_be_bytes()].concat();
        [&head, &rest.concat()[..], &[7; 20]].concat()
    }

    #[test]
    fn what_git_reads_otherwise_is_not_read() {
        let (plain, other) = (entry(b"a/b", 3), entry(b".envrc", 6));
        assert_eq!(entries(&index(2, 1, &[&plain])).unwrap().len(), 1);
        assert_eq!(entries(&index(2, 1, &[&entry(b"a", 200)])), None);
        let mut padded = plain.clone();
        *padded.last_mut().unwrap() = 1;
        assert_eq!(entries(&index(2, 1, &[&padded])), None);
        let mut directory = plain.clone();
        directory[MODE_AT + 2] = 0x40;
        assert_eq!(entries(&index(2, 1, &[&directory])), None);
        let start = HEADER_BYTES as u32;
        let end = start + plain.len() as u32;
        let table = |offset: u32| {
            let fields = [1, offset, 1].map(u32::to_be_bytes).concat();
            [b"IEOT\0\0\0\x0c", &fields[..]].concat()
        };
        assert!(entries(&index(2, 1, &[&plain, &table(start)])).is_some());
        let elsewhere = table(end + 8);
        assert_eq!(
            entries(&index(
                2,
                1,
                &[&plain, b"ABCD\0\0\0\x48", &other, &elsewhere]
            )),
            None
        );
        let last = |offset: u32| [b"EOIE\0\0\0\x18", &offset.to_be_bytes()[..], &[7; 20]].concat();
        assert!(entries(&index(2, 1, &[&plain, &last(end)])).is_some());
        assert_eq!(entries(&index(2, 1, &[&plain, &last(start)])), None);
        // A path of a megabyte that each entry repeats; a number that is too large.
        let long = [&entry(b"", 0xfff)[..62], &[0], &vec![b'x'; 1 << 20], &[0]].concat();
        assert_eq!(entries(&index(4, 1, &[&long])), None);
        let large = [
            &entry(b"", 0)[..62],
            &[0x80, 0xfe],
            &[0xfe; 8],
            &[0xff, 0, 0],
        ]
        .concat();
        assert_eq!(entries(&index(4, 1, &[&large])), None);
    }
}
