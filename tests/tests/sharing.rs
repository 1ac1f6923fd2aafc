//! Requests of shares that mounts do not make: mapped attribute names and ids, announced submounts, a cache
//! without data.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use tempfile::TempDir;
use thrufs::{Features, FileSystem, Services};
use thrufs_abi::layout::{CreateIn, MkdirIn};
use thrufs_abi::{AttrFlags, InitFlags, OpenReplyFlags};
use thrufs_hostdir::{CacheMode, Config, HostDir, IdMap, Resources, Translation};
use thrufs_testing::{Client, InProcess};
use thrufs_tests::prelude::*;

type Served = Client<InProcess<HostDir>>;

const ROOT: NodeId = NodeId::ROOT;

/// What a guest offers besides.
const OF_GUESTS: InitFlags = InitFlags::SUBMOUNTS;

fn serve(dir: &Path, config: Config) -> HostDir {
    HostDir::open(dir, config, Resources::default()).unwrap()
}

fn client(dir: &Path, config: Config) -> Served {
    Client::connect(Arc::new(serve(dir, config))).unwrap()
}

fn flags(client: &Served) -> InitFlags {
    let greeting = client.greeting();
    let flags = u64::from(greeting.flags) | u64::from(greeting.flags2) << 32;
    InitFlags::from_bits_retain(flags)
}

#[test]
fn attributes_have_other_names_on_the_host() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let empty = XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.own", b"host's", empty).unwrap();
    let config = Config {
        xattr_map: Some(":map::user.guest.:".parse().unwrap()),
        ..Config::default()
    };
    let client = client(dir.path(), config);
    let root = client.root();
    let node = root.walk("file").unwrap();
    root.setxattr(node, b"trusted.x", b"1", 0).unwrap();
    root.setxattr(node, b"user.y", b"22", 0).unwrap();
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(&path, "user.guest.trusted.x", &mut value).unwrap();
    assert_eq!(&value[..length], b"1");
    assert_eq!(root.getxattr(node, b"user.y").unwrap(), b"22");
    let mut names = root.listxattr(node).unwrap();
    names.sort();
    assert_eq!(names, [&b"trusted.x"[..], b"user.y"]);
    assert_eq!(
        client.user(1000, 1000).listxattr(node).unwrap(),
        [b"user.y"]
    );
    assert_eq!(root.getxattr(node, b"user.own"), Err(Errno::ENODATA));
    root.removexattr(node, b"trusted.x").unwrap();
    assert_eq!(root.listxattr(node).unwrap(), [b"user.y"]);
}

#[test]
fn capabilities_under_a_mapped_name_are_the_client_s_to_drop() {
    let dir = TempDir::new().unwrap();
    let negotiated = |map: Option<&str>| {
        let config = Config {
            xattr_map: map.map(|map| map.parse().unwrap()),
            ..Config::default()
        };
        flags(&client(dir.path(), config)).contains(InitFlags::HANDLE_KILLPRIV_V2)
    };
    assert!(negotiated(None));
    assert!(negotiated(Some(":map:trusted.:user.guest.:")));
    assert!(!negotiated(Some(":map::user.guest.:")));
    assert!(!negotiated(Some(":bad:client:security.:: :ok:all:::")));
}

#[test]
fn ids_are_translated_each_way_by_itself() {
    skip_if!(!is_root());
    let dir = TempDir::new().unwrap();
    let mut uids = Translation::default();
    uids.add("map:0:1000:10").unwrap();
    uids.add("forbid-guest:77:1").unwrap();
    let mut gids = Translation::default();
    gids.add("squash-guest:0:500:100").unwrap();
    let config = Config {
        uid_map: IdMap::Translated(uids),
        gid_map: IdMap::Translated(gids),
        ..Config::default()
    };
    // A thread of its own: it changes credentials.
    thread::scope(|scope| {
        scope.spawn(|| {
            let client = client(dir.path(), config);
            let owner = |name: &str| {
                let stat = fs::metadata(dir.path().join(name)).unwrap();
                (stat.uid(), stat.gid())
            };
            let entry = client.user(3, 4).mkdir(ROOT, b"three", 0o755).unwrap();
            assert_eq!(owner("three"), (1003, 500));
            assert_eq!((entry.attr.uid, entry.attr.gid), (3, 500), "one way alone");
            client
                .user(200, 200)
                .mkdir(ROOT, b"outside", 0o755)
                .unwrap();
            assert_eq!(owner("outside"), (200, 200));
            let forbidden = client.user(77, 0).mkdir(ROOT, b"none", 0o755);
            assert_eq!(forbidden.map(drop), Err(Errno::EOVERFLOW));
        });
    });
}

#[test]
fn submounts_are_announced_to_clients_that_ask() {
    skip_if!(!is_root());
    let dir = TempDir::new().unwrap();
    let beneath = dir.path().join("beneath");
    fs::create_dir(&beneath).unwrap();
    fs::create_dir(dir.path().join("plain")).unwrap();
    let mounted = Detach::tmpfs(&beneath);
    fs::create_dir(beneath.join("deeper")).unwrap();
    let announced = |announce_submounts, offered| {
        let config = Config {
            announce_submounts,
            ..Config::default()
        };
        let file_system = Arc::new(serve(dir.path(), config));
        let client = Client::connect_offering(file_system, 45, offered).unwrap();
        begin(&client);
        let root = client.root();
        ["beneath", "plain", "beneath/deeper"].map(|path| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let parent = if parent.is_empty() {
                ROOT
            } else {
                root.walk(parent).unwrap()
            };
            let entry = root.lookup(parent, name.as_bytes()).unwrap();
            entry.attr.flags & AttrFlags::SUBMOUNT.bits() != 0
        })
    };
    let usual = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    assert_eq!(announced(true, usual | OF_GUESTS), [true, false, false]);
    assert_eq!(announced(false, usual | OF_GUESTS), [false; 3]);
    assert_eq!(announced(true, usual), [false; 3]);
    drop(mounted);
}

/// As a session does, once INIT is answered.
fn begin(client: &Served) {
    let greeting = client.greeting();
    let features = Features {
        minor: greeting.minor,
        flags: flags(client),
        write_bytes_max: greeting.max_write,
        readahead_bytes_max: greeting.max_readahead,
        background_requests_max: greeting.max_background,
        prompt: false,
        refused: Vec::new(),
    };
    let file_system = client.file_system();
    file_system.started(&features, Services::disconnected());
}

#[test]
fn metadata_are_cached_and_data_are_not() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "content").unwrap();
    let with = |cache, allow_mmap| {
        let config = Config {
            cache,
            allow_mmap,
            passthrough: false,
            ..Config::default()
        };
        client(dir.path(), config)
    };
    let client = with(CacheMode::Metadata, false);
    let root = client.root();
    let entry = root.lookup(ROOT, b"file").unwrap();
    assert_eq!((entry.entry_valid, entry.attr_valid), (86_400, 86_400));
    let opened = root.open(NodeId(entry.nodeid), libc::O_RDONLY).unwrap();
    let flags_of = |open_flags| OpenReplyFlags::from_bits_retain(open_flags);
    assert!(flags_of(opened.open_flags).contains(OpenReplyFlags::DIRECT_IO));
    let listed = root.opendir(ROOT).unwrap();
    let kept = OpenReplyFlags::CACHE_DIR | OpenReplyFlags::KEEP_CACHE;
    assert!(flags_of(listed.open_flags).contains(kept));
    for (cache, allow_mmap, wanted) in [
        (CacheMode::Metadata, false, false),
        (CacheMode::Metadata, true, true),
        (CacheMode::Never, false, false),
        (CacheMode::Never, true, true),
        (CacheMode::Auto, true, false),
    ] {
        let negotiated = flags(&with(cache, allow_mmap));
        let is_there = negotiated.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
        assert_eq!(is_there, wanted, "{cache:?}, {allow_mmap}");
    }
}

#[test]
fn listings_without_attributes() {
    let dir = TempDir::new().unwrap();
    for readdirplus in [true, false] {
        let config = Config {
            readdirplus,
            ..Config::default()
        };
        let negotiated = flags(&client(dir.path(), config));
        assert_eq!(negotiated.contains(InitFlags::DO_READDIRPLUS), readdirplus);
    }
}

/// A label, as the kernel appends it to a request (`struct fuse_secctx_header`, `struct fuse_secctx`).
fn label(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut body = (value.len() as u32).to_ne_bytes().to_vec();
    body.extend([0; 4]);
    body.extend(name);
    body.push(0);
    body.extend(value);
    body.resize(body.len().next_multiple_of(8), 0);
    let mut record = ((body.len() + 8) as u32).to_ne_bytes().to_vec();
    record.extend(1_u32.to_ne_bytes());
    record.extend(body);
    record
}

#[test]
fn new_files_have_their_label_or_are_not_made() {
    let dir = TempDir::new().unwrap();
    let config = Config {
        security_label: true,
        ..Config::default()
    };
    let client = client(dir.path(), config);
    assert!(flags(&client).contains(InitFlags::SECURITY_CTX));
    let root = client.root();
    let mkdir = |name: &[u8], label: &[u8]| {
        let arg = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let request = root.request(Opcode::Mkdir, ROOT).arg(&arg).name(name);
        root.call(request.extension(label)).map(drop)
    };
    let create = |name: &[u8], label: &[u8]| {
        let arg = CreateIn {
            flags: libc::O_RDWR as u32,
            mode: 0o644,
            ..CreateIn::default()
        };
        let request = root.request(Opcode::Create, ROOT).arg(&arg).name(name);
        root.call(request.extension(label)).map(drop)
    };
    let before = client.file_system().statistics();
    // An attribute that is no label, and which all may set.
    let (good, bad) = (label(b"user.label", b"secret"), label(b"nonsense", b"x"));
    assert_eq!(mkdir(b"refused", &bad), Err(Errno::EOPNOTSUPP));
    assert_eq!(create(b"refused", &bad), Err(Errno::EOPNOTSUPP));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let after = client.file_system().statistics();
    assert_eq!(
        (before.inodes, before.open_files),
        (after.inodes, after.open_files)
    );
    assert_eq!(mkdir(b"dir", &good), Ok(()));
    assert_eq!(create(b"file", &good), Ok(()));
    for name in ["dir", "file"] {
        let mut value = [0; 16];
        let path = dir.path().join(name);
        let length = rustix::fs::getxattr(&path, "user.label", &mut value).unwrap();
        assert_eq!(&value[..length], b"secret");
    }
}
