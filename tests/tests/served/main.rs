//! The host directory, request by request through the in-process client: what a kernel would hardly send,
//! what only another user may see, and what is left behind.
#![allow(clippy::unwrap_used)]

mod acls;
mod beneath;
#[allow(dead_code)]
#[path = "../policy/cases.rs"]
mod cases;
mod dots;
mod following;
mod handles;
mod listings;
mod locks;
mod losses;
mod mount_locks;
mod names;
mod numbers;
mod opens;
mod owners;
mod privileges;
mod refusals;
mod renames;
mod replaced;
mod rules;
#[allow(dead_code)]
#[path = "../policy/samples.rs"]
mod samples;
mod silent;
mod views;
mod waits;
mod xattrs;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thrufs::{Errno, MountOptions, SessionConfig};
use thrufs_abi::layout::{LkIn, SetattrIn};
use thrufs_abi::{InitFlags, NodeId, SetattrValid, WriteFlags};
use thrufs_hostdir::{CacheMode, Config, HostDir, IdMap, IdRange, Locks, Resources, Translation};
use thrufs_testing::{Client, InProcess};
use thrufs_tests::guard::is_root;
use thrufs_tests::skip_if;

struct Served {
    // Dropped before the directory that it serves.
    client: Client<InProcess<HostDir>>,
    directory: tempfile::TempDir,
}

/// How a directory is served.
#[derive(Clone, Default)]
struct Setup {
    config: Config,
    resources: Resources,
}

impl From<Config> for Setup {
    fn from(config: Config) -> Setup {
        Setup {
            config,
            ..Setup::default()
        }
    }
}

impl From<Resources> for Setup {
    fn from(resources: Resources) -> Setup {
        Setup {
            resources,
            ..Setup::default()
        }
    }
}

fn serve(setup: impl Into<Setup>) -> Served {
    serve_in(tempfile::tempdir().unwrap(), setup)
}

fn serve_in(directory: tempfile::TempDir, setup: impl Into<Setup>) -> Served {
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let client = connect(directory.path(), setup);
    Served { client, directory }
}

fn connect(directory: &Path, setup: impl Into<Setup>) -> Client<InProcess<HostDir>> {
    let Setup { config, resources } = setup.into();
    let host = HostDir::open(directory, config, resources).unwrap();
    Client::connect(Arc::new(host)).unwrap()
}

impl Served {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }
}

fn one_owner(uid_map: IdMap, gid_map: IdMap) -> Config {
    Config {
        uid_map,
        gid_map,
        ..Config::default()
    }
}

/// Ids from `client` on are `host` and the following on the host.
fn id_range(client: u32, host: u32, count: u32) -> IdMap {
    IdMap::Ranges(vec![IdRange {
        client,
        host,
        count,
    }])
}

fn shared_locks() -> Config {
    Config {
        locks: Locks::Shared,
        ..Config::default()
    }
}

/// A SETATTR of attributes that are zero.
fn set(valid: SetattrValid) -> SetattrIn {
    SetattrIn {
        valid: valid.bits(),
        ..SetattrIn::default()
    }
}

fn set_mode(mode: u32) -> SetattrIn {
    SetattrIn {
        mode,
        ..set(SetattrValid::MODE)
    }
}

const ROOT: NodeId = NodeId::ROOT;

const NO_ID: u32 = u32::MAX;

/// Else others would act as the server's user: refused for any server, before anything is mounted.
#[test]
fn a_program_mounts_it_for_others_only_where_the_kernel_checks() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        cache: CacheMode::Never,
        ..Config::default()
    };
    let host = HostDir::open(directory.path(), config, Resources::default()).unwrap();
    let options = MountOptions {
        allow_other: true,
        default_permissions: false,
        ..MountOptions::new("served")
    };
    let mounted = thrufs::mount(host, directory.path(), &options, SessionConfig::default());
    let error = mounted.expect_err("it is refused").to_string();
    assert!(error.contains("default_permissions"), "{error}");
}

#[test]
fn a_lookup_is_counted_and_forgotten() {
    let served = serve(Config::default());
    served.write("file", b"x");
    let root = served.client.root();
    let before = served.client.file_system().statistics().inodes;
    let first = root.lookup(ROOT, b"file").unwrap();
    let second = root.lookup(ROOT, b"file").unwrap();
    assert_eq!(first.nodeid, second.nodeid);
    let node = NodeId(first.nodeid);
    root.forget(node, 1);
    assert!(root.getattr(node).is_ok(), "one lookup is left");
    root.forget(node, 1);
    assert_eq!(root.getattr(node).unwrap_err(), Errno::ESTALE);
    assert_eq!(served.client.file_system().statistics().inodes, before);
    let third = root.lookup(ROOT, b"file").unwrap();
    assert_ne!(third.nodeid, first.nodeid, "a node id is never used twice");
}

#[test]
fn forgetting_too_much_does_no_harm() {
    let served = serve(Config::default());
    served.write("file", b"x");
    let root = served.client.root();
    let node = NodeId(root.lookup(ROOT, b"file").unwrap().nodeid);
    root.forget(node, u64::MAX);
    root.forget(node, 1);
    root.forget(ROOT, u64::MAX);
    root.forget(NodeId(u64::MAX), 7);
    root.batch_forget(&[(ROOT, 3), (node, 3), (NodeId(0), 1)]);
    assert!(root.getattr(ROOT).is_ok());
    assert!(root.lookup(ROOT, b"file").is_ok());
}

#[test]
fn symbolic_links_are_never_followed() {
    let served = serve(Config::default());
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), served.path("link")).unwrap();
    let root = served.client.root();
    let link = root.lookup(ROOT, b"link").unwrap();
    assert_eq!(link.attr.mode & libc::S_IFMT, libc::S_IFLNK);
    let node = NodeId(link.nodeid);
    assert!(root.lookup(node, b"secret").is_err());
    assert!(root.create(node, b"new", libc::O_RDWR, 0o644).is_err());
    assert!(root.mkdir(node, b"new", 0o755).is_err());
    assert!(root.open(node, libc::O_RDONLY).is_err());
    assert!(root.opendir(node).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_swapped_for_a_link_leads_nowhere() {
    let served = serve(Config::default());
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(served.path("dir")).unwrap();
    let root = served.client.root();
    let dir = NodeId(root.lookup(ROOT, b"dir").unwrap().nodeid);
    fs::rename(served.path("dir"), served.path("was")).unwrap();
    std::os::unix::fs::symlink(outside.path(), served.path("dir")).unwrap();
    root.create(dir, b"new", libc::O_RDWR, 0o644).unwrap();
    assert!(served.path("was/new").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn what_a_caller_creates_is_the_callers() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let root = served.client.root();
    let [one, other] = [(1001, 1002), (2001, 2002)].map(|(uid, gid)| served.client.user(uid, gid));
    let owner = |name: &str| {
        let metadata = fs::symlink_metadata(served.path(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    let entry = one.mkdir(ROOT, b"dir", 0o755).unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid), (1001, 1002));
    other.create(ROOT, b"file", libc::O_RDWR, 0o644).unwrap();
    one.symlink(ROOT, b"link", b"target").unwrap();
    let fifo = libc::S_IFIFO | 0o600;
    other.mknod(ROOT, b"fifo", fifo, 0).unwrap();
    root.create(ROOT, b"roots", libc::O_RDWR, 0o644).unwrap();
    let owners = ["dir", "file", "link", "fifo", "roots"].map(owner);
    let (first, second) = ((1001, 1002), (2001, 2002));
    assert_eq!(owners, [first, second, first, second, (0, 0)]);
}

/// It would belong to the server, which is root.
#[test]
fn a_caller_without_an_id_creates_nothing() {
    skip_if!(!is_root());
    let mut squash_guest = Translation::default();
    squash_guest.add("squash-guest:0:1001:65536").unwrap();
    let maps = [
        IdMap::Identity,
        IdMap::Squash(1001),
        IdMap::Translated(squash_guest),
        id_range(0, 0, 100_000),
    ];
    let callers = [(NO_ID, NO_ID), (NO_ID, 1001), (1001, NO_ID)];
    for (map, (uid, gid)) in maps
        .iter()
        .flat_map(|map| callers.map(|caller| (map, caller)))
    {
        let served = serve(one_owner(map.clone(), map.clone()));
        served.write("file", b"");
        let caller = served.client.user(uid, gid);
        let (fifo, whiteout) = (libc::S_IFIFO | 0o600, libc::RENAME_WHITEOUT);
        let refused = [
            caller.mkdir(ROOT, b"new", 0o755).map(drop),
            caller.symlink(ROOT, b"new", b"target").map(drop),
            caller.mknod(ROOT, b"new", fifo, 0).map(drop),
            caller.create(ROOT, b"new", libc::O_RDWR, 0o644).map(drop),
            caller.tmpfile(ROOT, libc::O_RDWR, 0o644).map(drop),
            caller.rename((ROOT, b"file"), (ROOT, b"new"), whiteout),
        ];
        assert_eq!(refused, [Err(Errno::EOVERFLOW); 6], "{map:?} {uid} {gid}");
        assert_eq!(fs::read_dir(served.directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn creating_never_opens_a_file_of_another_user() {
    let served = serve(Config::default());
    served.write("there", b"secret");
    let user = served.client.user(1001, 1001);
    let error = user
        .create(ROOT, b"there", libc::O_RDWR, 0o644)
        .unwrap_err();
    assert_eq!(error, Errno::ESTALE, "the kernel is to look again");
    let exclusive = libc::O_RDWR | libc::O_EXCL;
    assert_eq!(
        user.create(ROOT, b"there", exclusive, 0o644).unwrap_err(),
        Errno::EEXIST
    );
    assert_eq!(
        user.create(ROOT, b"there", libc::O_TRUNC, 0o644)
            .unwrap_err(),
        Errno::ESTALE
    );
    assert_eq!(fs::read(served.path("there")).unwrap(), b"secret");
}

#[test]
fn a_file_that_appends_is_written_where_the_kernel_says() {
    let served = serve(Config::default());
    served.write("log", b"0123456789");
    let root = served.client.root();
    let node = root.walk("log").unwrap();
    let open = root.open(node, libc::O_WRONLY | libc::O_APPEND).unwrap();
    assert_eq!(root.write(node, open.fh, 2, b"ab", 0), Ok(2));
    assert_eq!(fs::read(served.path("log")).unwrap(), b"01ab456789");
    root.release(node, open.fh).unwrap();
    assert_eq!(root.write(node, open.fh, 0, b"x", 0), Err(Errno::EBADF));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_id_minus_one_owns_no_new_file() {
    let served = serve(Config::default());
    let root = served.client.root();
    served.write("file", b"");
    let node = root.walk("file").unwrap();
    for valid in [SetattrValid::UID, SetattrValid::GID] {
        let set = SetattrIn {
            uid: u32::MAX,
            gid: u32::MAX,
            ..set(valid)
        };
        assert_eq!(root.setattr(node, &set).unwrap_err(), Errno::EINVAL);
    }
}

#[test]
fn a_creation_keeps_the_bits_that_the_kernel_left_in() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let shared = served.path("shared");
    fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, None, Some(4321)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).unwrap();
    let user = served.client.user(1001, 1001);
    let dir = user.walk("shared").unwrap();
    let (first, open) = user.create(dir, b"first", libc::O_RDWR, 0o2755).unwrap();
    assert_eq!(first.attr.mode & 0o7777, 0o2755);
    // A write that drops bits leaves the thread without CAP_FSETID; the next creation needs it.
    let kill = WriteFlags::KILL_SUIDGID.bits();
    user.write(NodeId(first.nodeid), open.fh, 0, b"x", kill)
        .unwrap();
    let (second, _) = user.create(dir, b"second", libc::O_RDWR, 0o2755).unwrap();
    assert_eq!(second.attr.mode & 0o7777, 0o2755);
}

#[test]
fn another_file_under_the_same_inode_number_is_another_node() {
    let served = serve(Config::default());
    let root = served.client.root();
    // ext4 reuses the number of a removed file; the old node must not become the new one.
    served.write("a", b"old");
    let old = root.lookup(ROOT, b"a").unwrap();
    fs::remove_file(served.path("a")).unwrap();
    served.write("a", b"newer");
    let new = root.lookup(ROOT, b"a").unwrap();
    assert_ne!(old.nodeid, new.nodeid);
    assert_eq!(new.attr.size, 5);
    assert!(root.getattr(NodeId(old.nodeid)).is_err());
}

#[test]
fn descriptors_stay_within_their_budget() {
    let config = Config {
        descriptor_budget: Some(20),
        ..Config::default()
    };
    let served = serve(config);
    let root = served.client.root();
    let mut nodes = Vec::new();
    for number in 0..200 {
        let name = format!("dir{number}");
        fs::create_dir_all(served.path(&name).join("inner")).unwrap();
        let dir = NodeId(root.lookup(ROOT, name.as_bytes()).unwrap().nodeid);
        nodes.push((dir, NodeId(root.lookup(dir, b"inner").unwrap().nodeid)));
    }
    // Of this tree: other tests have theirs.
    let is_open_here = |entry: &std::io::Result<fs::DirEntry>| {
        let target = fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.starts_with(served.directory.path()))
    };
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter(is_open_here).count();
    let statistics = served.client.file_system().statistics();
    assert!(statistics.descriptors <= 21, "{statistics}");
    assert!(statistics.descriptors_evicted > 100, "{statistics}");
    assert!((10..30).contains(&open), "{open} descriptors are open");
    for &(dir, inner) in &nodes {
        assert!(root.getattr(dir).is_ok());
        assert!(root.mkdir(inner, b"deeper", 0o755).is_ok());
    }
    assert!(served.client.file_system().statistics().descriptors <= 21);
}

#[test]
fn exported_nodes_survive_being_forgotten() {
    let config = Config {
        export: true,
        exported_nodes_max: 10,
        ..Config::default()
    };
    let served = serve(config);
    let root = served.client.root();
    fs::create_dir_all(served.path("a/b")).unwrap();
    let dir = root.walk("a").unwrap();
    let deep = NodeId(root.lookup(dir, b"b").unwrap().nodeid);
    root.forget(deep, 1);
    let again = root.lookup(deep, b".").unwrap();
    assert_eq!(again.nodeid, deep.0);
    let parent = root.lookup(deep, b"..").unwrap();
    assert_eq!(parent.nodeid, dir.0);
    assert_eq!(root.lookup(dir, b"..").unwrap().nodeid, ROOT.0);
    assert_eq!(root.lookup(ROOT, b"..").unwrap().nodeid, ROOT.0);
    root.forget(deep, 1);
    for number in 0..50 {
        served.write(&format!("f{number}"), b"");
        let node = root.walk(&format!("f{number}")).unwrap();
        root.forget(node, 1);
    }
    assert_eq!(root.lookup(deep, b".").unwrap_err(), Errno::ESTALE);
    let statistics = served.client.file_system().statistics();
    assert_eq!(statistics.exported_nodes, 10, "{statistics}");
    assert!(statistics.inodes <= 13, "{statistics}");
}

#[test]
fn without_export_dots_are_refused() {
    let served = serve(Config::default());
    let root = served.client.root();
    assert!(root.lookup(ROOT, b".").is_err());
    assert!(root.lookup(ROOT, b"..").is_err());
}

#[test]
fn listings_hold_every_name_once_and_count_lookups() {
    let served = serve(Config::default());
    let root = served.client.root();
    let mut wanted: Vec<Vec<u8>> = (0..1500)
        .map(|number| format!("a-rather-long-name-for-entry-number-{number:06}").into_bytes())
        .collect();
    for name in &wanted {
        served.write(std::str::from_utf8(name).unwrap(), b"");
    }
    wanted.extend([b".".to_vec(), b"..".to_vec()]);
    wanted.sort();
    for plus in [false, true] {
        let mut listed = root.list(ROOT, plus).unwrap();
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names, wanted, "plus: {plus}");
        for entry in listed.iter().filter_map(|listed| listed.entry) {
            root.forget(NodeId(entry.nodeid), 1);
        }
    }
    assert_eq!(served.client.file_system().statistics().inodes, 1);
    assert_eq!(served.client.file_system().statistics().open_directories, 0);
}

#[test]
fn a_listing_goes_on_at_any_offset() {
    let served = serve(Config::default());
    let root = served.client.root();
    for number in 0..300 {
        served.write(&format!("f{number}"), b"");
    }
    let all = root.list(ROOT, false).unwrap();
    let fh = root.opendir(ROOT).unwrap().fh;
    for at in [0, 7, 150, 250, 3, all.len() - 2] {
        let rest = root.readdir(ROOT, fh, all[at].offset, 400, false).unwrap();
        assert_eq!(rest[0].name, all[at + 1].name, "behind entry {at}");
    }
    root.releasedir(ROOT, fh).unwrap();
}

#[test]
fn ids_are_mapped_both_ways() {
    skip_if!(!is_root());
    let range = |host| id_range(0, host, 1000);
    let config = Config {
        uid_map: range(100_000),
        gid_map: range(200_000),
        ..Config::default()
    };
    let served = serve(config);
    let user = served.client.user(7, 8);
    assert_eq!(user.getattr(ROOT).unwrap().attr.uid, NO_ID);
    std::os::unix::fs::chown(served.directory.path(), Some(100_000), Some(200_000)).unwrap();
    let entry = user.mkdir(ROOT, b"dir", 0o755).unwrap();
    assert_eq!((entry.attr.uid, entry.attr.gid), (7, 8));
    let metadata = fs::metadata(served.path("dir")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (100_007, 200_008));
    let stranger = served.client.user(5000, 8);
    assert_eq!(
        stranger.mkdir(ROOT, b"no", 0o755).unwrap_err(),
        Errno::EOVERFLOW
    );
}

/// A guest's root may send what its kernel would refuse.
#[test]
fn files_that_the_map_leaves_out_do_not_change() {
    skip_if!(!is_root());
    let range = || id_range(0, 100_000, 1000);
    for (uid_map, gid_map, owner) in [
        (range(), range(), (0, 100_000)),
        (range(), range(), (100_000, 0)),
        (range(), IdMap::Identity, (0, 0)),
        (IdMap::Identity, range(), (0, 0)),
    ] {
        let served = serve(Config {
            callers_are_local: false,
            ..one_owner(uid_map, gid_map)
        });
        let give = |name: &str, (uid, gid)| {
            std::os::unix::fs::chown(served.path(name), Some(uid), Some(gid)).unwrap();
        };
        give("", (100_000, 100_000));
        served.write("file", b"content");
        served.write("own", b"");
        fs::create_dir(served.path("dir")).unwrap();
        served.write("dir/own", b"");
        for name in ["own", "dir/own"] {
            give(name, (100_000, 100_000));
        }
        for name in ["file", "dir"] {
            give(name, owner);
        }
        let root = served.client.root();
        let [file, dir, own] = ["file", "dir", "own"].map(|name| root.walk(name).unwrap());
        let before = fs::metadata(served.path("file")).unwrap();
        let to_own = SetattrIn {
            uid: 1,
            gid: 1,
            ..set(SetattrValid::UID | SetattrValid::GID)
        };
        let times = set(SetattrValid::MTIME | SetattrValid::ATIME);
        let whiteout = libc::RENAME_WHITEOUT;
        let refused = [
            root.open(file, libc::O_RDWR).map(drop),
            root.open(file, libc::O_RDONLY | libc::O_TRUNC).map(drop),
            root.setattr(file, &set(SetattrValid::SIZE)).map(drop),
            root.setattr(file, &set_mode(0o666)).map(drop),
            root.setattr(file, &to_own).map(drop),
            root.setattr(file, &times).map(drop),
            root.setxattr(file, b"user.x", b"1", 0),
            root.removexattr(file, b"user.y"),
            root.link(file, ROOT, b"link").map(drop),
            root.link(own, dir, b"link").map(drop),
            root.unlink(ROOT, b"file"),
            root.rmdir(ROOT, b"dir"),
            root.rename((ROOT, b"file"), (ROOT, b"new"), 0),
            root.rename((ROOT, b"own"), (ROOT, b"file"), 0),
            root.rename((ROOT, b"own"), (dir, b"new"), 0),
            root.rename((dir, b"own"), (ROOT, b"new"), whiteout),
            root.create(dir, b"new", libc::O_RDWR, 0o644).map(drop),
            root.mkdir(dir, b"new", 0o755).map(drop),
        ];
        assert_eq!(refused, [Err(Errno::EOVERFLOW); 18], "{owner:?}");
        let after = fs::metadata(served.path("file")).unwrap();
        assert_eq!(
            (before.ctime(), before.ctime_nsec()),
            (after.ctime(), after.ctime_nsec())
        );
        assert_eq!(fs::read(served.path("file")).unwrap(), b"content");
        let fh = root.open(file, libc::O_RDONLY).unwrap().fh;
        assert_eq!(root.read(file, fh, 0, 10).unwrap(), b"content");
        root.open(own, libc::O_RDWR).unwrap();
        root.rename((ROOT, b"own"), (ROOT, b"new"), 0).unwrap();
    }
}

#[test]
fn a_read_only_tree_refuses_every_change() {
    let served = serve(Config {
        read_only: true,
        ..Config::default()
    });
    served.write("file", b"x");
    let root = served.client.root();
    let node = root.walk("file").unwrap();
    let erofs = Some(Errno::EROFS);
    assert_eq!(root.mkdir(ROOT, b"d", 0o755).err(), erofs);
    assert_eq!(root.create(ROOT, b"f", libc::O_RDWR, 0o644).err(), erofs);
    assert_eq!(root.open(node, libc::O_RDWR).err(), erofs);
    assert_eq!(root.open(node, libc::O_RDONLY | libc::O_TRUNC).err(), erofs);
    assert_eq!(root.unlink(ROOT, b"file").err(), erofs);
    assert_eq!(root.link(node, ROOT, b"l").err(), erofs);
    assert_eq!(root.setattr(node, &SetattrIn::default()).err(), erofs);
    assert_eq!(root.setxattr(node, b"user.x", b"", 0).err(), erofs);
    assert_eq!(root.rename((ROOT, b"file"), (ROOT, b"g"), 0).err(), erofs);
    assert!(root.open(node, libc::O_RDONLY).is_ok());
}

fn lock(fh: u64, owner: u64, kind: i32) -> LkIn {
    let mut arg = LkIn {
        fh,
        owner,
        ..LkIn::default()
    };
    arg.lk.end = i64::MAX as u64;
    arg.lk.kind = kind as u32;
    arg
}

#[test]
fn shared_locks_conflict_among_owners_and_go_with_them() {
    let served = serve(shared_locks());
    served.write("file", b"x");
    let root = served.client.root();
    let node = root.walk("file").unwrap();
    let one = root.open(node, libc::O_RDWR).unwrap().fh;
    let two = root.open(node, libc::O_RDWR).unwrap().fh;
    root.setlk(node, &lock(one, 11, libc::F_WRLCK), false)
        .unwrap();
    let refused = root
        .setlk(node, &lock(two, 22, libc::F_RDLCK), false)
        .unwrap_err();
    assert_eq!(refused, Errno::EAGAIN);
    let in_the_way = root
        .getlk(node, two, 22, lock(two, 22, libc::F_RDLCK).lk)
        .unwrap();
    assert_eq!(in_the_way.kind, libc::F_WRLCK as u32);
    root.setlk(node, &lock(one, 11, libc::F_RDLCK), false)
        .unwrap();
    root.setlk(node, &lock(two, 22, libc::F_RDLCK), false)
        .unwrap();
    root.flush(node, two, thrufs_abi::LockOwner(22)).unwrap();
    root.setlk(node, &lock(one, 11, libc::F_WRLCK), false)
        .unwrap();
    root.release(node, one).unwrap();
    root.setlk(node, &lock(two, 22, libc::F_WRLCK), false)
        .unwrap();
    root.release(node, two).unwrap();
    assert_eq!(served.client.file_system().statistics().lock_owners, 0);
}

#[test]
fn lower_errors_come_back_as_they_are() {
    let served = serve(Config::default());
    served.write("file", b"");
    fs::create_dir_all(served.path("full/inner")).unwrap();
    let root = served.client.root();
    let file = root.walk("file").unwrap();
    let full = root.walk("full").unwrap();
    assert_eq!(root.rmdir(ROOT, b"full").unwrap_err(), Errno::ENOTEMPTY);
    assert_eq!(root.rmdir(ROOT, b"file").unwrap_err(), Errno::ENOTDIR);
    assert_eq!(root.unlink(ROOT, b"full").unwrap_err(), Errno::EISDIR);
    assert_eq!(root.unlink(ROOT, b"none").unwrap_err(), Errno::ENOENT);
    assert_eq!(root.mkdir(ROOT, b"file", 0o755).unwrap_err(), Errno::EEXIST);
    assert_eq!(root.mkdir(file, b"x", 0o755).unwrap_err(), Errno::ENOTDIR);
    assert_eq!(
        root.lookup(ROOT, &[b'x'; 256]).unwrap_err(),
        Errno::ENAMETOOLONG
    );
    assert_eq!(root.open(full, libc::O_RDWR).unwrap_err(), Errno::EISDIR);
    assert_eq!(root.opendir(file).unwrap_err(), Errno::ENOTDIR);
    assert_eq!(root.readlink(file).unwrap_err(), Errno::EINVAL);
    assert_eq!(root.link(full, ROOT, b"l").unwrap_err(), Errno::EPERM);
    assert_eq!(
        root.rename((ROOT, b"full"), (full, b"x"), 0).unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(
        root.rename((ROOT, b"file"), (ROOT, b"g"), 1 << 30)
            .unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(
        root.getxattr(file, b"user.none").unwrap_err(),
        Errno::ENODATA
    );
    assert_eq!(
        root.getxattr(file, b"nonsense").unwrap_err(),
        Errno::EOPNOTSUPP
    );
}

#[test]
fn privileges_of_files_are_the_servers_business_unless_it_is_measured_without() {
    for killpriv in [true, false] {
        let served = serve(Config {
            killpriv,
            ..Config::default()
        });
        let agreed = InitFlags::from_bits_retain(u64::from(served.client.greeting().flags));
        assert_eq!(agreed.contains(InitFlags::HANDLE_KILLPRIV_V2), killpriv);
    }
    assert!(Config::default().killpriv);
}
