use super::*;
use crate::Config;
use std::ffi::CString;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use thrufs::OpenArgs;
use thrufs_abi::FileHandle;

fn served(config: Config) -> (TempDir, HostDir) {
    let place = TempDir::new().unwrap();
    std::fs::write(place.path().join("file"), "content").unwrap();
    std::fs::create_dir(place.path().join("dir")).unwrap();
    std::fs::write(place.path().join("dir/inner"), "").unwrap();
    symlink("dir", place.path().join("link")).unwrap();
    symlink("/", place.path().join("out")).unwrap();
    let served = HostDir::open(place.path(), config).unwrap();
    (place, served)
}

fn explain(served: &HostDir, path: &str) -> Result<Explanation> {
    let names: Vec<CString> = path
        .split('/')
        .filter(|name| !name.is_empty())
        .map(|name| CString::new(name).unwrap())
        .collect();
    let names: Vec<&CStr> = names.iter().map(CString::as_c_str).collect();
    served.explain(&names)
}

fn open(served: &HostDir, node: NodeId, flags: i32) -> FileHandle {
    let args = OpenArgs {
        flags: flags as u32,
        kill_suidgid: false,
    };
    let inode = served.host.nodes.get(node).unwrap();
    let guard = served
        .host
        .use_file(&inode, flags, None, &PASSTHROUGH)
        .unwrap();
    let opened = served.host.open_lower(None, guard, flags, &args, true);
    opened.unwrap().handle
}

#[test]
fn what_nobody_has_looked_up_is_explained_and_stays_unknown() {
    let (_place, served) = served(Config::default());
    for (path, kind) in [
        ("file", FileKind::Regular),
        ("dir", FileKind::Directory),
        ("dir/inner", FileKind::Regular),
        ("link", FileKind::SymbolicLink),
    ] {
        let told = explain(&served, path).unwrap();
        assert_eq!((told.kind, told.node), (kind, None), "{path}");
        assert_eq!(told.opens, Opens::NONE);
    }
    assert_eq!(served.statistics().inodes, 1, "the root and nothing else");
    let root = explain(&served, "").unwrap();
    assert_eq!(root.node.map(|node| node.id), Some(1));
}

#[test]
fn opens_are_counted_and_lookups_stay() {
    let (place, served) = served(Config::default());
    let (inode, _) = served.host.lookup_name(&served.host.root, c"file").unwrap();
    let handles = [
        open(&served, inode.node(), libc::O_RDONLY),
        open(&served, inode.node(), libc::O_RDWR),
        open(&served, inode.node(), libc::O_WRONLY),
    ];
    let dir = served
        .host
        .lookup_name(&served.host.root, c"dir")
        .unwrap()
        .0;
    let (other, _) = served.host.lookup_name(&dir, c"inner").unwrap();
    open(&served, other.node(), libc::O_RDWR);
    let told = explain(&served, "file").unwrap();
    assert_eq!((told.opens.total, told.opens.writable), (3, 2));
    let node = told.node.unwrap();
    assert_eq!((node.id, node.lookups), (inode.node().0, 1));
    assert!(!node.dormant);
    assert!(!told.cache.data_version_remembered, "it is too young");
    assert_eq!(told.data_path, ExplainedDataPath::Cached);
    assert!(told.reason.contains("nopassthrough"), "{}", told.reason);

    // By another name, it is the same file.
    std::fs::rename(place.path().join("file"), place.path().join("dir/moved")).unwrap();
    served.host.files.remove(handles[1].0);
    let told = explain(&served, "dir/moved").unwrap();
    assert_eq!((told.opens.total, told.opens.writable), (2, 1));
    assert_eq!(told.node.unwrap().id, inode.node().0);
    assert_eq!(explain(&served, "file"), Err(Errno::ENOENT));
}

#[test]
fn open_directories_are_counted() {
    let (_place, served) = served(Config::default());
    let (inode, _) = served.host.lookup_name(&served.host.root, c"dir").unwrap();
    served.host.enter_directory(inode, None).unwrap();
    let told = explain(&served, "dir").unwrap();
    assert_eq!((told.opens.total, told.opens.writable), (1, 0));
    assert_eq!(told.data_path, ExplainedDataPath::None);
}

#[test]
fn the_cache_mode_decides_and_timeouts_are_told() {
    let config = Config {
        cache: CacheMode::Never,
        attr_timeout: Some(std::time::Duration::from_millis(1500)),
        ..Config::default()
    };
    let (_place, served) = served(config);
    let told = explain(&served, "file").unwrap();
    assert_eq!(told.data_path, ExplainedDataPath::Direct);
    assert_eq!(told.cache.mode, CacheWord::Never);
    assert_eq!(told.cache.entry_timeout_s, 0.0);
    assert_eq!(told.cache.attr_timeout_s, 1.5);
    assert!(!told.cache.data_version_remembered);
}

#[test]
fn no_way_leads_out() {
    let (_place, served) = served(Config::default());
    assert_eq!(explain(&served, "out/etc"), Err(Errno::ENOTDIR));
    assert_eq!(explain(&served, "link/inner"), Err(Errno::ENOTDIR));
    assert_eq!(explain(&served, "file/x"), Err(Errno::ENOTDIR));
    for name in [c"..", c".", c"", c"dir/inner", c"/"] {
        assert_eq!(served.explain(&[name]), Err(Errno::EINVAL), "{name:?}");
    }
}

#[test]
fn the_depth_has_a_limit() {
    let (_place, served) = served(Config::default());
    let at_limit = vec![c"none"; EXPLAINED_DEPTH_MAX];
    assert_eq!(served.explain(&at_limit), Err(Errno::ENOENT));
    let beyond = vec![c"none"; EXPLAINED_DEPTH_MAX + 1];
    assert_eq!(served.explain(&beyond), Err(Errno::ENAMETOOLONG));
}

#[test]
fn what_is_dormant_is_told_so() {
    let config = Config {
        export: true,
        ..Config::default()
    };
    let (_place, served) = served(config);
    let (inode, _) = served.host.lookup_name(&served.host.root, c"file").unwrap();
    let held = |served: &HostDir| explain(served, "file").unwrap().node.unwrap();
    let _ = served.host.descriptor(&inode).unwrap();
    assert!(held(&served).descriptor_held);
    served.host.nodes.forget(inode.node(), 1);
    let node = held(&served);
    assert!(node.dormant && node.lookups == 0 && !node.descriptor_held);
}

#[test]
fn it_is_the_same_in_json_and_back() {
    let (_place, served) = served(Config::default());
    let told = explain(&served, "file").unwrap();
    let json = serde_json::to_string(&told).unwrap();
    assert!(json.contains(r#""data_path":"cached""#), "{json}");
    assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap(), told);
}
