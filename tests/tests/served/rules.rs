//! A tree under a policy: each changing request, hidden names, and the names by which a file is judged.

use super::handles::by_node;
use super::{ROOT, Served, beneath, connect, serve};
use thrufs::{Outcome, Result};
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::{OpenIn, SetattrIn};
use thrufs_hostdir::Resources;
use thrufs_policy::{Accounts, Policy};
use thrufs_tests::prelude::*;

/// Each answers with another error.
const RULES: &str = r#"
[[rule]]
path = ["hidden", ".*"]
action = "hide"

[[rule]]
path = "hollow"
type = "directory"
action = "hide"

[[rule]]
type = "fifo"
action = "deny"
errno = "EBUSY"

[[rule]]
path = "of-root"
caller-uid = "!0"
action = "deny"
errno = "EIO"

[[rule]]
path = "kept/**"
action = "read-only"

[[rule]]
path = "photos/**"
action = "redact"
redact = "gps"
errno = "EPERM"

[[rule]]
path = "films/**"
action = "redact"
redact = "gps"
"#;

pub(super) fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse(text.as_bytes(), &Accounts::default()).unwrap())
}

pub(super) fn with(rules: &str) -> Resources {
    Resources {
        policy: Some(policy(rules)),
        ..Resources::default()
    }
}

/// Serves a tree under these rules, also without file handles. Every file has one byte.
fn under(rules: &str, test: impl Fn(&Served)) {
    let test = |served: &Served| {
        for directory in ["dir", "films", "hollow", "kept/dir", "photos/album"] {
            fs::create_dir_all(served.path(directory)).unwrap();
        }
        let files = "a b two hidden .dot dir/x kept/x photos/p photos/one";
        files.split(' ').for_each(|file| served.write(file, b"1"));
        for name in ["photos/two", "photos/as-well"] {
            fs::hard_link(served.path("two"), served.path(name)).unwrap();
        }
        let fifo = rustix::fs::FileType::Fifo;
        let (at, mode) = (served.path("fifo"), Mode::RUSR);
        rustix::fs::mknodat(CWD, at, fifo, mode, 0).unwrap();
        test(served);
    };
    test(&serve(with(rules)));
    beneath::on_overlay(with(rules), test);
}

/// A SETATTR of these attributes.
pub(super) fn set(valid: SetattrValid, size: u64) -> SetattrIn {
    SetattrIn {
        valid: valid.bits(),
        mode: 0o600,
        size,
        ..SetattrIn::default()
    }
}

/// The names in a listing, which are the same with attributes.
fn listed(served: &Served, node: NodeId) -> Vec<String> {
    let [mut names, with] = [false, true].map(|plus| {
        let listed = served.root().list(node, plus).unwrap();
        let names = listed
            .into_iter()
            .map(|entry| String::from_utf8(entry.name));
        names.collect::<std::result::Result<Vec<_>, _>>().unwrap()
    });
    assert_eq!(names, with);
    names.sort();
    names
}

#[test]
fn what_is_hidden_is_neither_found_nor_listed() {
    under(RULES, |served| {
        let root = served.root();
        for name in ["hidden", ".dot", "hollow"] {
            assert_eq!(root.walk(name), Err(Errno::ENOENT), "{name}");
        }
        let seen = ". .. a b dir fifo films kept photos two";
        assert_eq!(listed(served, ROOT).join(" "), seen);
        // Another name of a hidden file leads to it.
        fs::hard_link(served.path(".dot"), served.path("dir/dot")).unwrap();
        assert!(root.walk("dir/dot").is_ok());
        // By attributes: a known node stays usable, under the policy of its lookup.
        let sealed = "[[rule]]\npath = \"a\"\nmode = \"o-r\"\naction = \"hide\"\n";
        let client = connect(served.directory.path(), with(sealed));
        let root = client.root();
        let a = root.walk("a").unwrap();
        root.setattr(a, &set(SetattrValid::MODE, 0)).unwrap();
        assert!(root.getattr(a).is_ok());
        assert_eq!(root.walk("a"), Err(Errno::ENOENT));
    });
}

/// A file and a directory that are found in another case too, as in a directory that ignores case: one name is mounted
/// on the other.
fn folded(served: &Served) -> [Detach<PathBuf>; 2] {
    for name in ["folded", "Folded"] {
        served.write(name, b"1");
    }
    for name in ["secret", "Secret"] {
        fs::create_dir(served.path(name)).unwrap();
    }
    ["folded", "secret"].map(|name| {
        let at = served.path(&name.replacen(['f', 's'], &name[..1].to_uppercase(), 1));
        rustix::mount::mount_bind(served.path(name), &at).unwrap();
        Detach(at)
    })
}

/// A lookup that fails gives the kernel no node id, so no FORGET will come for the inode.
#[test]
fn lookups_of_what_is_hidden_or_refused_leave_no_inode_behind() {
    under(RULES, |served| {
        let root = served.root();
        let _mounts = folded(served);
        let inodes = || served.statistics().inodes;
        let before = inodes();
        for (name, error) in [
            ("hidden", Errno::ENOENT),
            (".dot", Errno::ENOENT),
            ("hollow", Errno::ENOENT),
            ("folded", Errno::EACCES),
        ] {
            assert_eq!(root.walk(name), Err(error), "{name}");
            assert_eq!(inodes(), before, "{name}");
        }
    });
}

#[test]
fn files_that_become_hidden_stay_usable_where_they_are_open() {
    under("", |served| {
        let root = served.root();
        let [a, b, dir, x, p] =
            ["a", "b", "dir", "dir/x", "photos/p"].map(|path| root.walk(path).unwrap());
        let opened = root.open(b, libc::O_RDONLY).unwrap().fh;
        let listing = root.opendir(dir).unwrap().fh;
        assert!(listed(served, dir).contains(&"x".to_owned()));
        let rules = "[[rule]]\npath = [\"b\", \"dir\", \"photos/p\"]\naction = \"hide\"\n";
        let server = served.client.file_system();
        server.replace_policy(policy(rules), None).unwrap();
        let absent: Result<()> = Err(Errno::ENOENT);
        let attributes = |node| {
            let statx = root.statx(node, libc::STATX_BASIC_STATS).map(drop);
            [root.getattr(node).map(drop), statx]
        };
        for (node, expected) in [(a, Ok(())), (b, Ok(())), (x, absent), (p, absent)] {
            assert_eq!(attributes(node), [expected; 2]);
        }
        for name in ["b", "dir", "photos/p"] {
            assert_eq!(root.walk(name).map(drop), absent, "{name}");
        }
        assert_eq!(root.read(b, opened, 0, 10).unwrap(), b"1");
        assert_eq!(root.open(b, libc::O_RDONLY).map(drop), absent);
        // A directory is empty, whatever is asked for in it.
        for file in ["dir/there", "other"] {
            served.write(file, b"1");
        }
        assert_eq!(root.lookup(dir, b"x").map(|entry| entry.nodeid), Ok(0));
        let answers = by_node(served, dir);
        let others = answers.iter().filter(|(_, answer)| *answer != absent);
        let others: Vec<_> = others.map(|(operation, _)| *operation).collect();
        assert_eq!(others, ["lookup", "open", "statfs", "syncfs"]);
        let left = root.readdir(dir, listing, 0, 4096, false).unwrap();
        assert_eq!(left.len(), 2, "the directory and the one above");
        assert_eq!(root.unlink(ROOT, b"a"), Ok(()));
        root.release(b, opened).unwrap();
        assert_eq!(attributes(b), [absent; 2]);
    });
}

/// Names that differ in case could be one beneath, and evade rules.
#[test]
fn names_that_look_the_same_in_both_cases_are_refused() {
    under(RULES, |served| {
        let root = served.root();
        let _mounts = folded(served);
        served.write("links", b"1");
        fs::hard_link(served.path("links"), served.path("Links")).unwrap();
        for name in ["files", "Files"] {
            served.write(name, b"1");
        }
        for name in ["symlinks", "Symlinks"] {
            symlink("a", served.path(name)).unwrap();
        }
        for name in ["folded", "Folded", "secret", "Secret"] {
            assert_eq!(root.walk(name), Err(Errno::EACCES), "{name}");
            assert_eq!(root.unlink(ROOT, name.as_bytes()), Err(Errno::EACCES));
        }
        for name in ["links", "Links", "files", "Files", "symlinks", "Symlinks"] {
            assert!(root.walk(name).is_ok(), "{name}");
            assert_eq!(root.unlink(ROOT, name.as_bytes()), Ok(()));
        }
    });
}

#[test]
fn a_file_is_judged_by_the_names_that_it_has() {
    under(RULES, |served| {
        let (root, user) = (served.root(), served.user(1000, 1000));
        let may_open = |node| match user.open(node, libc::O_RDONLY) {
            Ok(opened) => {
                user.release(node, opened.fh).unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error, Errno::EIO);
                false
            }
        };
        let rename = |from: &[u8], to: &[u8], flags| root.rename((ROOT, from), (ROOT, to), flags);
        served.write("of-root", b"1");
        fs::hard_link(served.path("of-root"), served.path("link")).unwrap();
        let [a, b, other, _] = ["a", "b", "of-root", "link"].map(|name| root.walk(name).unwrap());
        assert_eq!([a, b, other].map(may_open), [true, true, false]);
        // It gets the name, and what had it keeps the other.
        rename(b"a", b"of-root", 0).unwrap();
        assert_eq!([a, b, other].map(may_open), [false, true, true]);
        rename(b"of-root", b"b", libc::RENAME_EXCHANGE).unwrap();
        assert_eq!([a, b, other].map(may_open), [true, false, true]);
        rename(b"of-root", b"a", libc::RENAME_EXCHANGE).expect_err("there is no a");
        rename(b"of-root", b"a", 0).unwrap();
        assert_eq!([a, b, other].map(may_open), [true, true, true]);
        // It does not get it.
        root.mkdir(ROOT, b"of-root", 0o700).unwrap();
        assert_eq!(rename(b"a", b"of-root", 0), Err(Errno::EISDIR));
        assert_eq!([a, b, other].map(may_open), [true, true, true]);
    });
}

/// Which another server of the tree holds while it carries out a change of names.
#[test]
fn changes_of_names_wait_for_the_name_lock_of_another_server() {
    under(RULES, |served| {
        let root = served.root();
        let rename = |to: &str| root.rename((ROOT, b"a"), (ROOT, to.as_bytes()), 0);
        let other = File::open(served.path("")).unwrap();
        let flock = |operation| rustix::fs::flock(&other, operation);
        flock(FlockOperation::NonBlockingLockExclusive).unwrap();
        let a = root.walk("a").unwrap();
        thread::scope(|scope| {
            // Each as long as it waits for the lock.
            let refused = [
                scope.spawn(|| rename("b")),
                scope.spawn(|| root.link(a, ROOT, b"new").map(drop)),
                scope.spawn(|| root.unlink(ROOT, b"a")),
            ];
            let refused = refused.map(|it| it.join().unwrap());
            assert_eq!(refused, [Err(Errno::EBUSY); 3]);
            let renamed = scope.spawn(|| rename("b"));
            thread::sleep(Duration::from_millis(50));
            flock(FlockOperation::Unlock).unwrap();
            assert_eq!(renamed.join().unwrap(), Ok(()));
        });
        flock(FlockOperation::NonBlockingLockExclusive).unwrap();
    });
}

#[test]
fn a_new_file_is_judged_by_the_mode_that_the_umask_leaves() {
    // Of the umask 022.
    const MODE: u32 = 0o777;
    let made = |served: &Served| {
        let root = served.root();
        let fifo = root.mknod(ROOT, b"new-fifo", libc::S_IFIFO | MODE, 0);
        let created = root.create(ROOT, b"new-file", libc::O_RDWR, MODE);
        let directory = root.mkdir(ROOT, b"new-directory", MODE);
        (fifo.map(drop), created.map(drop), directory.map(drop))
    };
    let deny = |mode| format!("[[rule]]\nmode = \"{mode}\"\naction = \"deny\"");
    under(&deny("o+w"), |served| {
        assert_eq!(made(served), (Ok(()), Ok(()), Ok(())));
    });
    const NO: Result<()> = Err(Errno::EACCES);
    under(&deny("o+r"), |served| {
        assert_eq!(made(served), (NO, NO, NO));
    });
    // And by the group that its directory gives it.
    under("[[rule]]\ngroup = 4242\naction = \"deny\"", |served| {
        chown(served.path(""), None, Some(4242)).unwrap();
        assert_eq!(made(served), (Ok(()), Ok(()), Ok(())));
        fs::set_permissions(served.path("dir"), PermissionsExt::from_mode(0o2777)).unwrap();
        chown(served.path("dir"), None, Some(4242)).unwrap();
        let root = served.root();
        let dir = root.walk("dir").unwrap();
        assert_eq!(root.mkdir(dir, b"new", MODE).map(drop), NO);
        assert_eq!(root.mknod(dir, b"new", libc::S_IFREG, 0).map(drop), NO);
    });
}

#[test]
fn a_file_with_names_that_are_not_known_is_redacted() {
    under(RULES, |served| {
        let root = served.root();
        served.write("photos/pair", b"1");
        fs::hard_link(served.path("photos/pair"), served.path("photos/twin")).unwrap();
        for path in ["a", "two"] {
            let (path, flags) = (served.path(path), XattrFlags::empty());
            rustix::fs::setxattr(path, "user.place", b"here", flags).unwrap();
        }
        let [a, two, photos] = ["a", "two", "photos"].map(|path| root.walk(path).unwrap());
        let place = |node| root.getxattr(node, b"user.place").map(drop);
        assert_eq!([a, two].map(place), [Ok(()), Err(Errno::ENODATA)]);
        let names = |node| root.listxattr(node).unwrap().len();
        assert_eq!([a, two].map(names), [1, 0]);
        assert_eq!(opened(served, a, libc::O_RDONLY, 0), Ok(()));
        assert!(opened(served, two, libc::O_RDONLY, 0).is_err());
        // A redacted name stays as long as the file may have another one.
        let pair = root.walk("photos/pair").unwrap();
        assert_eq!(root.unlink(photos, b"pair"), Err(Errno::EPERM));
        assert_eq!(root.walk("photos/twin").unwrap(), pair);
        assert_eq!(root.unlink(photos, b"pair"), Ok(()));
        for name in ["two", "as-well"] {
            root.walk(&format!("photos/{name}")).unwrap();
        }
        assert_eq!(root.unlink(photos, b"two"), Err(Errno::EPERM), "it is free");
    });
}

/// A path through a directory that was moved beneath renames nothing, at either end.
#[test]
fn a_rename_is_refused_where_a_directory_was_moved_beneath() {
    under(RULES, |served| {
        let root = served.root();
        let dir = root.walk("dir").unwrap();
        root.walk("dir/x").unwrap();
        fs::rename(served.path("dir"), served.path("elsewhere")).unwrap();
        let rename = |from, to| root.rename(from, to, 0);
        let changed = || fs::metadata(served.path("a")).map(|it| (it.ctime(), it.ctime_nsec()));
        let before = changed().unwrap();
        let moved: Result<()> = Err(Errno::EXDEV);
        assert_eq!(rename((dir, b"x"), (ROOT, b"y")), moved);
        assert_eq!(rename((ROOT, b"a"), (dir, b"y")), moved);
        assert_eq!(changed().unwrap(), before, "nor for a moment");
        fs::rename(served.path("elsewhere"), served.path("dir")).unwrap();
        assert_eq!(rename((dir, b"x"), (ROOT, b"y")), Ok(()));
    });
}

/// A hidden file can be neither renamed nor linked; a directory above it must not take it along.
#[test]
fn a_directory_is_not_moved_out_of_a_rule_that_hides() {
    let rules = [
        "[[rule]]\npath = \"free/**\"\naction = \"passthrough\"\n\
         [[rule]]\npath = \"**/*.key\"\naction = \"hide\"\n",
        "[[rule]]\npath = [\"**/*.key\", \"!free/**\"]\naction = \"hide\"\n",
    ];
    for rules in rules {
        under(rules, |served| {
            fs::create_dir_all(served.path("free/dir")).unwrap();
            served.write("dir/a.key", b"1");
            let root = served.root();
            let [dir, free] = ["dir", "free"].map(|path| root.walk(path).unwrap());
            let rename =
                |from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags| root.rename(from, to, flags);
            let (exchange, moved) = (libc::RENAME_EXCHANGE, Err(Errno::EXDEV));
            assert_eq!(rename((ROOT, b"dir"), (free, b"new"), 0), moved);
            assert_eq!(rename((ROOT, b"dir"), (free, b"dir"), exchange), moved);
            assert_eq!(rename((free, b"dir"), (ROOT, b"dir"), exchange), moved);
            assert_eq!(rename((ROOT, b"dir"), (ROOT, b"new"), 0), Ok(()));
            assert_eq!(rename((ROOT, b"new"), (ROOT, b"dir"), 0), Ok(()));
            assert_eq!(rename((free, b"dir"), (ROOT, b"new"), 0), Ok(()));
            assert_eq!(rename((dir, b"x"), (free, b"x"), 0), Ok(()), "a file");
            assert_eq!(root.walk("dir/a.key"), Err(Errno::ENOENT));
        });
    }
}

fn opened(served: &Served, node: NodeId, flags: i32, uid: u32) -> Result<()> {
    let user = served.user(uid, uid);
    let fh = user.open(node, flags)?.fh;
    user.release(node, fh)
}

/// Looking into files and writing a log may block.
#[test]
fn opens_that_inspect_content_or_write_a_log_may_block() {
    for (rule, sleeps) in [
        ("content = 'text/plain'\naction = 'read-only'", true),
        (
            "path = 'photos/**'\naction = 'redact'\nredact = 'gps'",
            true,
        ),
        ("path = 'b'\naction = 'audit'", true),
        ("path = 'b'\naction = 'deny'", false),
    ] {
        under(
            &format!("audit-log = '/dev/null'\n[[rule]]\n{rule}\n"),
            |served| {
                let node = served.root().walk("a").unwrap();
                assert_eq!(opens_asleep(served, node), sleeps, "{rule}");
            },
        );
    }
}

/// Whether an OPEN is left to a thread that may block.
fn opens_asleep(served: &Served, node: NodeId) -> bool {
    let request = served
        .root()
        .request(Opcode::Open, node)
        .arg(&OpenIn::default());
    let request = request.finish();
    let dispatcher = served.client.dispatcher();
    let answer = dispatcher.dispatch(&request[..], &mut [0; 4096], false);
    matches!(answer, Outcome::Defer(_))
}

/// A judgement by a thousand names deep in a tree took seconds, during which no name could change.
#[test]
fn files_with_many_names_are_judged_without_the_name_lock_up_to_a_limit() {
    const LEVELS: usize = 100;
    let served = serve(with("[[rule]]\npath = \"hidden\"\naction = \"hide\"\n"));
    let root = served.root();
    let name = "d".repeat(200);
    let mut parent = ROOT;
    for _ in 0..LEVELS {
        parent = NodeId(root.mkdir(parent, name.as_bytes(), 0o777).unwrap().nodeid);
    }
    let file = root.mknod(parent, b"0", libc::S_IFREG | 0o644, 0).unwrap();
    let file = NodeId(file.nodeid);
    // One directory is looked at once; names of twenty kilobytes each are too many together.
    let link = |number: usize| {
        let linked = root.link(file, parent, number.to_string().as_bytes());
        linked.map(drop)
    };
    let refused = (1..1000).find(|number| {
        assert_eq!(opens_asleep(&served, file), *number >= 8, "{number}");
        link(*number).is_err()
    });
    assert!((130..200).contains(&refused.unwrap()), "{refused:?}");
    assert_eq!(link(1000), Err(Errno::ELOOP));
    assert!(root.open(file, 0).is_ok(), "it got no name too many");
}
