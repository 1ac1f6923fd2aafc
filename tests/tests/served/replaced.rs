//! Two files exchange their names during a lookup. A handle and attributes are read one after the other,
//! and must be of one file.

use super::{ROOT, Root, Served, beneath, config, is_root, serve, serve_in, set};
use rustix::fs::renameat_with;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use thrufs::Result;
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::SetattrIn;
use thrufs_hostdir::{Config, FdStore, Resources};
use thrufs_tests::prelude::*;

/// A hundred are enough to show the bug.
const LOOKS: usize = 20_000;

fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Looks one name up, again and again, while its file changes.
fn look_while_they_change_places(served: &Served) {
    served.write("small", b"1");
    served.write("large", b"22222");
    let root = served.root();
    let (one, other) = (served.path("small"), served.path("large"));
    while_repeating([|| exchange(&one, &other)], || {
        let mut seen = std::collections::HashMap::new();
        for _ in 0..LOOKS {
            let entry = match root.lookup(ROOT, b"small") {
                // Never twice in a row: the kernel looks again.
                Err(Errno::ESTALE) => continue,
                entry => entry.unwrap(),
            };
            let size = *seen.entry(entry.nodeid).or_insert(entry.attr.size);
            let node = entry.nodeid;
            assert_eq!(size, entry.attr.size, "two files are taken for one: {node}");
        }
        assert_eq!(seen.len(), 2, "they did change places");
    });
    // A node leads to the file that the lookup described.
    for name in ["small", "large"] {
        let entry = root.lookup(ROOT, name.as_bytes()).unwrap();
        let attributes = root.getattr(NodeId(entry.nodeid)).unwrap();
        assert_eq!(attributes.attr.ino, entry.attr.ino);
        assert_eq!(attributes.attr.size, entry.attr.size);
    }
}

#[test]
fn a_handle_and_attributes_are_of_one_file() {
    look_while_they_change_places(&serve(Config::default()));
    if is_root() {
        let directory = tempfile::tempdir().unwrap();
        let tmpfs = beneath::tmpfs(directory.path());
        let served = serve_in(directory, Config::default());
        look_while_they_change_places(&served);
        drop((served.client, tmpfs));
    }
}

#[test]
fn a_handle_that_does_not_show_the_number_and_attributes_are_of_one_file() {
    skip_if!(!is_root());
    let (directory, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = ",index=on,nfs_export=on";
    let layers = beneath::layers(base.path());
    let overlay = beneath::overlay(base.path(), directory.path(), data);
    let served = serve_in(directory, Config::default());
    look_while_they_change_places(&served);
    drop((served.client, overlay, layers));
}

/// A file that is removed beneath once it has been looked up.
fn removed(served: &Served, name: &str, content: &[u8]) -> NodeId {
    let node = served.file(name, content);
    fs::remove_file(served.path(name)).unwrap();
    node
}

fn open(served: &Served, node: NodeId) -> Result<()> {
    served.root().open(node, libc::O_RDONLY).map(drop)
}

const STALE: Result<()> = Err(Errno::ESTALE);

/// What it finds and never opens does not keep a submount busy.
#[test]
fn a_second_lookup_holds_a_submount_for_a_moment_only() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    fs::create_dir(served.path("on")).unwrap();
    let first = removed(&served, "file", b"first");
    let mounted = beneath::tmpfs(&served.path("on"));
    served.write("on/file", b"second");
    let on = served.root().walk("on").unwrap();
    assert_eq!(open(&served, first), STALE);
    served.root().lookup(on, b"file").unwrap();
    let flags = UnmountFlags::empty();
    wait_until("idle", || rustix::mount::unmount(&mounted.0, flags).is_ok());
}

/// An OPEN that came too late is followed by a second lookup, and what that finds can be opened, whatever
/// becomes of the name: a kernel tries no third time.
#[test]
fn an_open_that_lost_a_race_succeeds_after_a_second_lookup() {
    let served = serve(Config::default());
    let root = served.root();
    let first = removed(&served, "file", b"first");
    assert_eq!(open(&served, first), STALE);
    // Removed beneath, and through the server, which closes files without names.
    for is_by_us in [false, true] {
        assert_eq!(open(&served, first), STALE);
        let second = served.file("file", b"second");
        if is_by_us {
            root.unlink(ROOT, b"file").unwrap();
        } else {
            fs::remove_file(served.path("file")).unwrap();
        }
        let fh = root.open(second, libc::O_RDONLY).unwrap().fh;
        assert_eq!(root.read(second, fh, 0, 10).unwrap(), b"second");
        root.release(second, fh).unwrap();
        root.forget(second, 1);
    }
    // Also an open that would create, and once only.
    served.write("file", b"third");
    let created = root.create(ROOT, b"file", libc::O_RDWR, 0o644).map(drop);
    assert_eq!(created, STALE);
    let third = removed(&served, "file", b"third");
    assert_eq!(open(&served, third), Ok(()));
    let fourth = removed(&served, "file", b"fourth");
    assert_eq!(open(&served, fourth), STALE);
}

/// A CREATE cannot tell whether it may open what others have made: it is late as often as they are faster.
#[test]
fn a_create_may_lose_several_races() {
    let served = serve(Config::default());
    let root = served.root();
    for _ in 0..2 {
        assert_eq!(root.walk("file").map(drop), Err(Errno::ENOENT));
        served.write("file", b"of others");
        let created = root.create(ROOT, b"file", libc::O_RDWR, 0o644).map(drop);
        assert_eq!(created, Err(Errno::ESTALE));
        fs::remove_file(served.path("file")).unwrap();
    }
}

/// The same for all other requests with a path. link(2) gives no name to a file without one, natively too.
#[test]
fn requests_by_path_that_lost_a_race_succeed_after_a_second_lookup() {
    type Usage = fn(&Root<'_>, NodeId) -> Result<()>;
    let usages: [(&str, Usage); 6] = [
        ("getattr", |root, node| root.getattr(node).map(drop)),
        ("statx", |root, node| root.statx(node, 0).map(drop)),
        ("listxattr", |root, node| root.listxattr(node).map(drop)),
        ("readlink", |root, node| root.readlink(node).map(drop)),
        ("link", |root, node| {
            root.link(node, ROOT, b"other").map(drop)
        }),
        ("setattr", |root, node| {
            let set = SetattrIn {
                uid: rustix::process::geteuid().as_raw(),
                ..set(SetattrValid::UID)
            };
            root.setattr(node, &set).map(drop)
        }),
    ];
    for (what, usage) in usages {
        let outcome = match what {
            "link" => Err(Errno::ENOENT),
            _ => Ok(()),
        };
        let served = serve(Config::default());
        let root = served.root();
        // Gone before it is used.
        let late = || {
            root.symlink(ROOT, b"name", b"target").unwrap();
            let node = root.walk("name").unwrap();
            root.unlink(ROOT, b"name").unwrap();
            usage(&root, node)
        };
        assert_eq!(late(), STALE, "{what}");
        assert_eq!(late(), outcome, "{what}");
    }
}

/// Its blocks are free then, not at FORGET.
#[test]
fn removed_files_are_closed_before_space_is_reported() {
    let served = serve(Config::default());
    let root = served.root();
    let node = served.file("file", b"content");
    root.getattr(node).unwrap();
    root.unlink(ROOT, b"file").unwrap();
    root.statfs(ROOT).unwrap();
    let directory = served.directory.path().canonicalize().unwrap();
    let kept = fs::read_dir("/proc/self/fd").unwrap().filter(|entry| {
        let target = fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.starts_with(&directory) && target != directory)
    });
    assert_eq!(kept.count(), 0);
    assert_eq!(root.getattr(node).map(drop), Err(Errno::ESTALE));
}

/// Without file handles, nothing else leads to a file with another, unknown name, or to a directory in use.
/// Removed files take up nothing.
#[test]
fn removed_files_are_held_on_file_systems_without_handles() {
    let few = config(|it| it.descriptor_budget = Some(1));
    beneath::on_overlay(few, |served| {
        let root = served.root();
        let nodes = ["removed", "replaced", "moved", "other"].map(|name| {
            let node = served.file(name, b"content");
            let other = served.path(&format!("{name}-as-well"));
            fs::hard_link(served.path(name), other).unwrap();
            node
        });
        let gone = served.file("gone", b"content");
        let directory = root.mkdir(ROOT, b"directory", 0o755).unwrap();
        root.unlink(ROOT, b"removed").unwrap();
        root.unlink(ROOT, b"gone").unwrap();
        root.rmdir(ROOT, b"directory").unwrap();
        root.rename((ROOT, b"moved"), (ROOT, b"replaced"), 0)
            .unwrap();
        // More than the budget of descriptors.
        for number in 0..40 {
            root.mkdir(ROOT, format!("{number}").as_bytes(), 0o755)
                .unwrap();
        }
        let statistics = served.statistics();
        assert!(statistics.descriptors_evicted > 20, "{statistics}");
        for node in nodes {
            assert_eq!(root.getattr(node).unwrap().attr.size, 7);
        }
        assert_eq!(root.getattr(gone).map(drop), Err(Errno::ESTALE));
        assert!(root.getattr(NodeId(directory.nodeid)).is_ok());
    });
}

/// One user has half of the descriptors for that, and all but root have three quarters; a file found again
/// by another name counts no more.
#[test]
fn a_user_that_holds_many_removed_files_is_limited_to_its_share() {
    let few = config(|it| it.descriptor_budget = Some(32));
    beneath::on_overlay(few, |served| {
        let root = served.root();
        let removed_by = |uid| -> Vec<NodeId> {
            let user = served.user(uid, uid);
            let remove = |_| {
                let node = NodeId(root.mkdir(ROOT, b"removed", 0o755).unwrap().nodeid);
                user.rmdir(ROOT, b"removed").unwrap();
                node
            };
            (0..40).map(remove).collect()
        };
        let kept = |nodes: &[NodeId]| {
            let answers = |node: &&NodeId| root.getattr(**node).is_ok();
            nodes.iter().filter(answers).count()
        };
        let (first, second) = (removed_by(1001), removed_by(1002));
        assert_eq!((kept(&first), kept(&second)), (16, 8));
        first.iter().for_each(|node| root.forget(*node, 1));
        assert_eq!(kept(&removed_by(0)), 40);
        let made = root.tmpfile(ROOT, libc::O_RDWR, 0o600);
        assert!(made.is_ok(), "root may");
        removed_by(1003);
        let user = served.user(1003, 1003);
        let made = user.tmpfile(ROOT, libc::O_RDWR, 0o600).map(drop);
        assert_eq!(made, Err(Errno::ENFILE));
        second.iter().for_each(|node| root.forget(*node, 1));
        // A file with an unknown name is held like that, until its lookup.
        let user = served.user(1001, 1001);
        for number in 0..40 {
            let node = served.file("one", b"content");
            let other = format!("other-{number}");
            fs::hard_link(served.path("one"), served.path(&other)).unwrap();
            user.unlink(ROOT, b"one").unwrap();
            assert!(root.getattr(node).is_ok(), "{number}");
            assert_eq!(root.walk(&other).unwrap(), node);
        }
    });
}

/// Clean-up by root removes what others hold.
#[test]
fn files_removed_by_root_count_towards_a_share() {
    beneath::on_overlay(Config::default(), |served| {
        let root = served.root();
        let refused = || served.statistics().refused_to_users;
        let mut last = ROOT;
        let mut removed = 0;
        while refused() == 0 {
            assert!(removed <= 16_384, "nothing is refused");
            last = NodeId(root.mkdir(ROOT, b"removed", 0o755).unwrap().nodeid);
            root.rmdir(ROOT, b"removed").unwrap();
            removed += 1;
        }
        assert_eq!(root.getattr(last).map(drop), Err(Errno::ESTALE));
    });
}

/// A handle leads to a file with another name, however much was removed.
#[test]
fn removed_files_with_handles_take_no_descriptors() {
    skip_if!(!is_root());
    let served = serve(config(|it| it.descriptor_budget = Some(32)));
    let (root, user) = (served.root(), served.user(1001, 1001));
    for number in 0..40 {
        let node = served.file("removed", b"content");
        let other = served.path(&format!("other-{number}"));
        fs::hard_link(served.path("removed"), other).unwrap();
        user.unlink(ROOT, b"removed").unwrap();
        assert!(root.getattr(node).is_ok(), "{number}");
    }
    let refused = served.statistics().refused_to_users;
    assert_eq!(refused, 0);
}

/// Counts what is kept for the next worker.
#[derive(Debug, Default)]
struct Kept(AtomicUsize);

impl FdStore for Kept {
    fn keep(&self, _: u64, _: BorrowedFd<'_>) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// No room for files that are merely open.
    fn kept_max(&self) -> usize {
        0
    }

    fn discard(&self, _: u64) {}

    fn take(&self) -> Vec<(u64, OwnedFd)> {
        Vec::new()
    }
}

#[test]
fn an_open_file_is_kept_when_it_loses_its_name_not_when_it_gets_another() {
    let kept = Arc::<Kept>::default();
    let resources = Resources {
        fd_store: Some(Arc::clone(&kept) as Arc<dyn FdStore>),
        ..Resources::default()
    };
    beneath::on_overlay(resources, |served| {
        let root = served.root();
        for name in ["file", "open"] {
            served.write(name, b"content");
        }
        let open = root.walk("open").unwrap();
        root.open(open, libc::O_RDONLY).unwrap();
        // It is "file" then.
        root.rename((ROOT, b"file"), (ROOT, b"open"), libc::RENAME_EXCHANGE)
            .unwrap();
        assert_eq!(kept.0.load(Ordering::Relaxed), 0);
        root.rename((ROOT, b"open"), (ROOT, b"file"), 0).unwrap();
        assert_eq!(kept.0.load(Ordering::Relaxed), 1);
    });
}

/// A thread of its own frees small files that were removed, more than it takes at once.
#[test]
fn space_of_removed_files_is_free_for_whoever_asks() {
    skip_if!(!is_root());
    let outside = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir_in(&outside).unwrap();
    let _mounted = beneath::tmpfs(directory.path());
    let served = serve_in(directory, Config::default());
    let root = served.root();
    let free = || root.statfs(ROOT).unwrap().ffree;
    let before = free();
    let mut late = 0;
    for round in 0..20 {
        let names: Vec<String> = (0..100).map(|number| format!("{round}-{number}")).collect();
        for name in &names {
            served.file(name, b"content");
        }
        assert_eq!(free(), before - 100);
        for name in &names {
            root.unlink(ROOT, name.as_bytes()).unwrap();
        }
        // A child that another test starts has our descriptors until exec.
        late += usize::from(free() != before);
        wait_until("they are free", || free() == before);
    }
    assert!(late <= 3, "{late} of 20");
}
