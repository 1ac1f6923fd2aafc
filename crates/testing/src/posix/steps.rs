//! Cases that are written as steps: calls with what they must answer, in the manner of pjdfstest's `expect`.
//!
//! Steps end with `;`. One is `[USER:] [ERRNO] CALL`: a call of [`Steps`] that must succeed, or fail with that errno, by
//! root or by `alice`, `bob` or `member`, who is in the group `team`. `{a,b}` repeats a step, once with each word. At the
//! end, all is closed, and both trees must agree on every name. What is compared with text has its odd bytes escaped.
//!
//! | step | |
//! |---|---|
//! | `read @f TEXT`, `pread @f OFFSET TEXT`, `load @m AT TEXT`, `seekdata @f OFFSET FOUND`, `getxattr X NAME VALUE` | the call, and what it must answer |
//! | `eventually CALL` | within seconds: a server learns of a close(2) later |
//! | `shared NAME`, `stamp NAME`, `umask MODE`, `tick` | a directory of mode 0777; [`Env::stamp`]; … |
//! | `is X KEY VALUE…` | `mode`, `links`, `size`, `owner UID GID`, `type`, `rdev`, `atime`, `mtime`, `ino OTHER`, `room` (bytes at least), `blocks-below`; last `text`, `target`, `names`, `xattrs` or `flags` |
//! | `absent NAME`, `agree` | in both trees; now |
//! | `filled X OFFSET LENGTH BYTE` | all are that byte, or, where it is `pattern`, as in the file that `pattern NAME LENGTH` makes, from offset `FROM` of that |
//! | `note X`; then `later X KEY…`, `same X KEY…`, `unlike X KEY…` | `ctime`, `mtime`, `atime`, `mode`, `owner`, `ino`, `dev`, `blocks` |
//! | `free OWNER KIND NAME [START LENGTH]`, `busy …` | whether another process can take a lock |
//! | `chattr NAME +adi`, `chattr NAME -adi` | as chattr(1); undone at the end |
//! | `setfacl NAME access\|default ENTRY,…`, `getfacl …` | entries as `u:alice:rw`; `getfacl` compares |

use std::os::unix::ffi::OsStrExt;

use rustix::fs::{IFlags, Stat, XattrFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Result;

use super::env::shared_xattrs;
use super::prelude::*;
use super::{acl, lock};
use crate::steps::{Steps, device, id, kind, octal};
use crate::user::User;

/// Carries out all steps. Panics at the first that answers something else.
pub(super) fn run(env: &Env, steps: &str) {
    let mut script = Script {
        env,
        steps: Steps::new(env.path(""), env.beneath("")),
        noted: None,
        flags: Vec::new(),
    };
    for step in steps.split(';').flat_map(repeated) {
        let words: Vec<&str> = step.split_whitespace().collect();
        if !words.is_empty() {
            script.step(&words);
        }
    }
    drop(script);
    env.agree_everywhere();
}

/// The step once with each word in braces.
fn repeated(step: &str) -> Vec<String> {
    let Some((_, rest)) = step.split_once('{') else {
        return vec![step.to_owned()];
    };
    let (list, _) = rest.split_once('}').expect("a list ends with }");
    let words = list.split(',');
    words
        .flat_map(|word| repeated(&step.replace(&format!("{{{list}}}"), word)))
        .collect()
}

struct Script<'a> {
    env: &'a Env,
    steps: Steps,
    noted: Option<Stat>,
    /// Files whose inode flags were changed, and what they had: one that stays immutable could not be removed.
    flags: Vec<(File, IFlags)>,
}

impl Drop for Script<'_> {
    fn drop(&mut self) {
        for (file, flags) in self.flags.iter().rev() {
            let _ = ioctl_setflags(file, *flags);
        }
    }
}

fn user(name: &str) -> Option<User> {
    match name {
        "alice:" => Some(ALICE),
        "bob:" => Some(BOB),
        "member:" => Some(MEMBER),
        _ => None,
    }
}

fn errno(name: &str) -> Option<Errno> {
    Some(match name {
        "EACCES" => Errno::ACCESS,
        "EAGAIN" => Errno::AGAIN,
        "EBADF" => Errno::BADF,
        "EEXIST" => Errno::EXIST,
        "ENODATA" => Errno::NODATA,
        "ENOENT" => Errno::NOENT,
        "ENOTEMPTY" => Errno::NOTEMPTY,
        "ENXIO" => Errno::NXIO,
        "EOPNOTSUPP" => Errno::OPNOTSUPP,
        "EPERM" => Errno::PERM,
        _ => return None,
    })
}

fn inode_flags(letters: &str) -> IFlags {
    let flag = |letter| match letter {
        'a' => IFlags::APPEND,
        'd' => IFlags::NODUMP,
        _ => IFlags::IMMUTABLE,
    };
    letters.chars().map(flag).collect()
}

/// The bytes of a file that `pattern` makes.
fn pattern(length: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..1 << 16).map(|at| (at * 7 + at / 256) as u8).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

impl Script<'_> {
    #[track_caller]
    fn step(&mut self, words: &[&str]) {
        let (caller, rest) = match user(words[0]) {
            Some(caller) => (Some(caller), &words[1..]),
            None => (None, words),
        };
        let (expected, call) = match errno(rest[0]) {
            Some(errno) => (Err(errno), &rest[1..]),
            None => (Ok(()), rest),
        };
        let answer = match caller {
            Some(caller) => caller.run(|| self.call(call)),
            None => self.call(call),
        };
        assert_eq!(answer, expected, "`{}`", words.join(" "));
    }

    fn call(&mut self, words: &[&str]) -> Result<()> {
        match words[0] {
            "read" => self.compared(&words[..2], &words[2..]),
            "pread" | "load" => self.compared(&words[..3], &words[3..]),
            "getxattr" => {
                let value = self.steps.call(&words[..3])?;
                assert_eq!(value.escape_ascii().to_string(), words[3..].join(" "));
                Ok(())
            }
            "seekdata" | "seekhole" => {
                let found = self.steps.call(&words[..3])?;
                assert_eq!(found, words[3].as_bytes(), "{words:?}");
                Ok(())
            }
            "chattr" => {
                let file = open(&self.steps.path(words[1]), OFlags::RDONLY)?;
                let (before, (sign, letters)) = (ioctl_getflags(&file)?, words[2].split_at(1));
                let changed = inode_flags(letters);
                let after = if sign == "+" {
                    before | changed
                } else {
                    before - changed
                };
                ioctl_setflags(&file, after)?;
                self.flags.push((file, before));
                Ok(())
            }
            "eventually" => {
                lock::eventually(|| self.steps.call(&words[1..]).is_ok());
                Ok(())
            }
            "setfacl" => {
                let (path, list) = (self.steps.path(words[1]), acl::list(words[3]));
                rustix::fs::setxattr(path, acl::name(words[2]), &list, XattrFlags::empty())
            }
            "is" | "absent" | "agree" | "filled" | "pattern" | "note" | "later" | "same"
            | "unlike" | "free" | "busy" | "shared" | "stamp" | "umask" | "tick" | "getfacl" => {
                self.check(words);
                Ok(())
            }
            _ => self.steps.call(words).map(drop),
        }
    }

    /// Reads as much as the text, or more than nothing at the end of the file.
    fn compared(&mut self, call: &[&str], text: &[&str]) -> Result<()> {
        let text = text.join(" ");
        let length = text.len().max(1).to_string();
        let found = self.steps.call(&[call, &[&length]].concat())?;
        assert_eq!(found.escape_ascii().to_string(), text, "{call:?}");
        Ok(())
    }

    #[track_caller]
    fn check(&mut self, words: &[&str]) {
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "is" => self.is(words[1], &words[2..]),
            "absent" => self.env.absent(words[1]),
            "agree" => self.env.agree_everywhere(),
            "pattern" => drop(self.env.file(words[1], pattern(number(2)))),
            "filled" => {
                let found = self
                    .steps
                    .call(&["cat", words[1], words[2], words[3]])
                    .unwrap();
                let expected = match words[4] {
                    "pattern" => pattern(number(5) + number(3)).split_off(number(5)),
                    byte => vec![byte.parse().unwrap(); number(3)],
                };
                assert!(found == expected, "{}", words.join(" "));
            }
            "note" => self.noted = Some(self.stat(words[1])),
            "free" | "busy" => {
                let at = |at: usize| words.get(at).map_or(0, |word| word.parse().unwrap());
                let (path, range) = (self.steps.path(words[3]), lock::range(at(4), at(5)));
                let is_free = lock::free(words[1], words[2], &path, range);
                assert_eq!(is_free, words[0] == "free", "{}", words.join(" "));
            }
            "shared" => drop(self.env.shared_dir(words[1])),
            "stamp" => self.env.stamp(words[1]),
            "umask" => drop(rustix::process::umask(Mode::from_raw_mode(octal(words[1])))),
            "tick" => tick(),
            "getfacl" => {
                let found = self
                    .steps
                    .call(&["getxattr", words[1], acl::name(words[2])])
                    .unwrap();
                assert_eq!(found, acl::list(words[3]), "{}", words.join(" "));
            }
            _ => self.compare(words),
        }
    }

    #[track_caller]
    fn stat(&self, name: &str) -> Stat {
        self.steps.stat(name).unwrap()
    }

    #[track_caller]
    fn is(&self, name: &str, words: &[&str]) {
        let mut words = words.iter();
        let mut word = || *words.next().unwrap_or(&"");
        let text = |value: &dyn std::fmt::Display| value.to_string();
        let time = |seconds: i64, nanoseconds: u64| format!("{seconds}.{nanoseconds}");
        let exact = |word: &str| match word.contains('.') {
            true => word.to_owned(),
            false => format!("{word}.0"),
        };
        loop {
            let key = word();
            let stat = match key {
                "" => return,
                _ => self.stat(name),
            };
            let (found, expected) = match key {
                "mode" => (format!("{:o}", stat.st_mode & 0o7777), word().to_owned()),
                "links" => (text(&stat.st_nlink), word().to_owned()),
                "size" => (text(&stat.st_size), word().to_owned()),
                "owner" => (
                    format!("{} {}", stat.st_uid, stat.st_gid),
                    format!("{} {}", id(word()).unwrap(), id(word()).unwrap()),
                ),
                "type" => (
                    format!("{:?}", FileType::from_raw_mode(stat.st_mode)),
                    format!("{:?}", kind(word())),
                ),
                "room" => {
                    let least: i64 = word().parse().unwrap();
                    (text(&(stat.st_blocks * 512 >= least)), text(&true))
                }
                "blocks-below" => {
                    let end: i64 = word().parse().unwrap();
                    (text(&(stat.st_blocks < end)), text(&true))
                }
                "rdev" => (text(&stat.st_rdev), text(&device(&[word(), word()]))),
                "ino" => (text(&stat.st_ino), text(&self.stat(word()).st_ino)),
                "atime" => (time(stat.st_atime, stat.st_atime_nsec), exact(word())),
                "mtime" => (time(stat.st_mtime, stat.st_mtime_nsec), exact(word())),
                _ => {
                    let expected = words.copied().collect::<Vec<_>>().join(" ");
                    assert_eq!(self.last(name, key), expected, "{key} of {name}");
                    return;
                }
            };
            assert_eq!(found, expected, "{key} of {name}");
        }
    }

    /// What goes to the end of a step.
    fn last(&self, name: &str, key: &str) -> String {
        let path = self.steps.path(name);
        let bytes = match key {
            "text" => fs::read(path).unwrap(),
            "target" => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
            "names" => {
                let names = fs::read_dir(path).unwrap();
                let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names.join(" ".as_ref()).as_bytes().to_vec()
            }
            "flags" => {
                let flags = ioctl_getflags(open(&path, OFlags::RDONLY).unwrap()).unwrap();
                let letters = ["a", "d", "i"].into_iter();
                let set = letters.filter(|letter| flags.contains(inode_flags(letter)));
                set.collect::<String>().into_bytes()
            }
            "xattrs" => {
                let names: Vec<_> = shared_xattrs(&path).into_keys().collect();
                names.join(&b' ')
            }
            _ => panic!("no such key: {key}"),
        };
        bytes.escape_ascii().to_string()
    }

    #[track_caller]
    fn compare(&self, words: &[&str]) {
        let (noted, now) = (self.noted.unwrap(), self.stat(words[1]));
        let value = |stat: &Stat, key: &str| match key {
            "ctime" => (stat.st_ctime, stat.st_ctime_nsec),
            "mtime" => (stat.st_mtime, stat.st_mtime_nsec),
            "atime" => (stat.st_atime, stat.st_atime_nsec),
            "mode" => (stat.st_mode.into(), 0),
            "owner" => (stat.st_uid.into(), stat.st_gid.into()),
            "ino" => (0, stat.st_ino),
            "dev" => (0, stat.st_dev),
            "blocks" => (stat.st_blocks, 0),
            _ => panic!("no such key: {key}"),
        };
        for key in &words[2..] {
            let (before, after) = (value(&noted, key), value(&now, key));
            let is_so = match words[0] {
                "later" => after > before,
                "unlike" => after != before,
                _ => after == before,
            };
            assert!(is_so, "{}: {before:?}, {after:?}", words.join(" "));
        }
    }
}
