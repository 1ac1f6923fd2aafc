//! The host directory, request by request through the in-process client: what a kernel would hardly send,
//! what only another user may see, and what is left behind.
#![allow(clippy::unwrap_used)]

mod acls;
mod beneath;
mod cases;
mod dots;
mod following;
mod handles;
mod kernel_opens;
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

use thrufs::{MountOptions, SessionConfig};
use thrufs_abi::layout::{LkIn, SetattrIn};
use thrufs_abi::{InitFlags, SetattrValid, WriteFlags};
use thrufs_hostdir::{
    CacheMode, Config, HostDir, IdMap, IdRange, Locks, Resources, Statistics, Translation,
};
use thrufs_testing::{Caller, Client, InProcess};
use thrufs_tests::prelude::*;

type Root<'a> = Caller<'a, InProcess<HostDir>>;

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

    /// Writes a file beneath, and looks it up.
    fn file(&self, name: &str, content: &[u8]) -> NodeId {
        self.write(name, content);
        self.root().walk(name).unwrap()
    }

    fn root(&self) -> Root<'_> {
        self.client.root()
    }

    fn user(&self, uid: u32, gid: u32) -> Root<'_> {
        self.client.user(uid, gid)
    }

    fn statistics(&self) -> Statistics {
        self.client.file_system().statistics()
    }
}

/// The defaults, but for what `change` sets.
fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
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
    config(|it| it.locks = Locks::Shared)
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
    let config = config(|it| it.cache = CacheMode::Never);
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
fn forgetting_too_much_does_no_harm() {
    let served = serve(Config::default());
    let (root, node) = (served.root(), served.file("file", b"x"));
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
    symlink(outside.path(), served.path("link")).unwrap();
    let root = served.root();
    let node = root.walk("link").unwrap();
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
    let root = served.root();
    let dir = root.walk("dir").unwrap();
    fs::rename(served.path("dir"), served.path("was")).unwrap();
    symlink(outside.path(), served.path("dir")).unwrap();
    root.create(dir, b"new", libc::O_RDWR, 0o644).unwrap();
    assert!(served.path("was/new").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
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
        let caller = served.user(uid, gid);
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_creation_keeps_the_bits_that_the_kernel_left_in() {
    skip_if!(!is_root());
    let served = serve(Config::default());
    let shared = served.path("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, None, Some(4321)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).unwrap();
    let user = served.user(1001, 1001);
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
    let root = served.root();
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
    let served = serve(config(|it| it.descriptor_budget = Some(20)));
    let root = served.root();
    let mut nodes = Vec::new();
    for number in 0..200 {
        let name = format!("dir{number}");
        fs::create_dir_all(served.path(&name).join("inner")).unwrap();
        let inner = root.walk(&format!("{name}/inner")).unwrap();
        nodes.push((root.walk(&name).unwrap(), inner));
    }
    // Of this tree: other tests have theirs.
    let is_open_here = |entry: &io::Result<fs::DirEntry>| {
        let target = fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.starts_with(served.directory.path()))
    };
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter(is_open_here).count();
    let statistics = served.statistics();
    assert!(statistics.descriptors <= 21, "{statistics}");
    assert!(statistics.descriptors_evicted > 100, "{statistics}");
    assert!((10..30).contains(&open), "{open} descriptors are open");
    for &(dir, inner) in &nodes {
        assert!(root.getattr(dir).is_ok());
        assert!(root.mkdir(inner, b"deeper", 0o755).is_ok());
    }
    assert!(served.statistics().descriptors <= 21);
}

#[test]
fn exported_nodes_survive_being_forgotten() {
    let served = serve(config(|it| {
        it.export = true;
        it.exported_nodes_max = 10;
    }));
    let root = served.root();
    fs::create_dir_all(served.path("a/b")).unwrap();
    let dir = root.walk("a").unwrap();
    let deep = NodeId(root.lookup(dir, b"b").unwrap().nodeid);
    root.forget(deep, 1);
    for (node, name, found) in [
        (deep, &b"."[..], deep),
        (deep, b"..", dir),
        (dir, b"..", ROOT),
    ] {
        assert_eq!(root.lookup(node, name).unwrap().nodeid, found.0);
    }
    root.forget(deep, 1);
    for number in 0..50 {
        root.forget(served.file(&format!("f{number}"), b""), 1);
    }
    assert_eq!(root.lookup(deep, b".").unwrap_err(), Errno::ESTALE);
    let statistics = served.statistics();
    assert_eq!(statistics.exported_nodes, 10, "{statistics}");
    assert!(statistics.inodes <= 13, "{statistics}");
}

#[test]
fn listings_hold_every_name_once_count_lookups_and_go_on_at_any_offset() {
    let served = serve(Config::default());
    let root = served.root();
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
    let statistics = served.statistics();
    assert_eq!((statistics.inodes, statistics.open_directories), (1, 0));
    // It goes on at any offset.
    let all = root.list(ROOT, false).unwrap();
    let fh = root.opendir(ROOT).unwrap().fh;
    for at in [0, 7, 150, 250, 3, all.len() - 2] {
        let rest = root.readdir(ROOT, fh, all[at].offset, 400, false).unwrap();
        assert_eq!(rest[0].name, all[at + 1].name, "behind entry {at}");
    }
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
            chown(served.path(name), Some(uid), Some(gid)).unwrap();
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
        let root = served.root();
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
    let served = serve(config(|it| it.read_only = true));
    let (root, node) = (served.root(), served.file("file", b"x"));
    let refused = [
        root.mkdir(ROOT, b"d", 0o755).map(drop),
        root.create(ROOT, b"f", libc::O_RDWR, 0o644).map(drop),
        root.open(node, libc::O_RDWR).map(drop),
        root.open(node, libc::O_RDONLY | libc::O_TRUNC).map(drop),
        root.unlink(ROOT, b"file"),
        root.link(node, ROOT, b"l").map(drop),
        root.setattr(node, &SetattrIn::default()).map(drop),
        root.setxattr(node, b"user.x", b"", 0),
        root.rename((ROOT, b"file"), (ROOT, b"g"), 0),
    ];
    assert_eq!(refused, [Err(Errno::EROFS); 9]);
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

/// Those that other tests of this program do not see.
#[test]
fn lower_errors_come_back_as_they_are() {
    let served = serve(Config::default());
    let (root, file) = (served.root(), served.file("file", b""));
    fs::create_dir(served.path("dir")).unwrap();
    let dir = root.walk("dir").unwrap();
    for (what, answer, errno) in [
        ("rmdir", root.rmdir(ROOT, b"file"), Errno::ENOTDIR),
        ("unlink", root.unlink(ROOT, b"dir"), Errno::EISDIR),
        ("mkdir", root.mkdir(file, b"x", 0).map(drop), Errno::ENOTDIR),
        ("readlink", root.readlink(file).map(drop), Errno::EINVAL),
        ("link", root.link(dir, ROOT, b"l").map(drop), Errno::EPERM),
        (
            "getxattr",
            root.getxattr(file, b"no").map(drop),
            Errno::EOPNOTSUPP,
        ),
    ] {
        assert_eq!(answer, Err(errno), "{what}");
    }
}

#[test]
fn privileges_of_files_are_the_servers_business_unless_it_is_measured_without() {
    for killpriv in [true, false] {
        let served = serve(config(|it| it.killpriv = killpriv));
        let agreed = InitFlags::from_bits_retain(u64::from(served.client.greeting().flags));
        assert_eq!(agreed.contains(InitFlags::HANDLE_KILLPRIV_V2), killpriv);
    }
    assert!(Config::default().killpriv);
}
