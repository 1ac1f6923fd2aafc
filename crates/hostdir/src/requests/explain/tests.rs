use super::*;
use crate::{Config, Resources};
use std::ffi::CString;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use thrufs::OpenArgs;
use thrufs_abi::{FileHandle, NodeId};
use thrufs_policy::{Accounts, Policy};

fn served(config: Config) -> (TempDir, HostDir) {
    served_with(config, Resources::default())
}

fn served_with(config: Config, resources: Resources) -> (TempDir, HostDir) {
    let place = TempDir::new().unwrap();
    std::fs::write(place.path().join("file"), "content").unwrap();
    std::fs::create_dir(place.path().join("dir")).unwrap();
    std::fs::write(place.path().join("dir/inner"), "").unwrap();
    symlink("dir", place.path().join("link")).unwrap();
    symlink("/", place.path().join("out")).unwrap();
    let served = HostDir::open(place.path(), config, resources).unwrap();
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
    let inode = served.host.tree.nodes.get(node).unwrap();
    let guard = served
        .host
        .files
        .use_file(&inode, flags, None, &PASSTHROUGH)
        .unwrap();
    let opened = served
        .host
        .files
        .open_lower(None, guard, flags, &args, true);
    opened.unwrap().handle
}

#[test]
fn explain_does_not_look_up_inodes() {
    let (_place, served) = served(Config::default());
    for (path, kind) in [
        ("file", FileKind::Regular),
        ("dir", FileKind::Directory),
        ("dir/inner", FileKind::Regular),
        ("link", FileKind::SymbolicLink),
    ] {
        let explained = explain(&served, path).unwrap();
        assert_eq!((explained.kind, explained.node), (kind, None), "{path}");
        assert_eq!(explained.opens, Opens::default());
    }
    assert_eq!(served.statistics().inodes, 1, "the root and nothing else");
    let root = explain(&served, "").unwrap();
    assert_eq!(root.node.map(|node| node.id), Some(1));
}

#[test]
fn explain_counts_opens_and_adds_no_lookup() {
    let (place, served) = served(Config::default());
    let (inode, _) = served
        .host
        .tree
        .lookup_name(&served.host.tree.root, c"file")
        .unwrap();
    let handles = [
        open(&served, inode.node(), libc::O_RDONLY),
        open(&served, inode.node(), libc::O_RDWR),
        open(&served, inode.node(), libc::O_WRONLY),
    ];
    let dir = served
        .host
        .tree
        .lookup_name(&served.host.tree.root, c"dir")
        .unwrap()
        .0;
    let (other, _) = served.host.tree.lookup_name(&dir, c"inner").unwrap();
    open(&served, other.node(), libc::O_RDWR);
    let explained = explain(&served, "file").unwrap();
    assert_eq!((explained.opens.total, explained.opens.writable), (3, 2));
    let node = explained.node.unwrap();
    assert_eq!((node.id, node.lookups), (inode.node().0, 1));
    assert!(!node.dormant);
    assert!(!explained.cache.data_version_remembered, "it is too young");
    assert_eq!(explained.data_path, Some(DataPath::Cached));
    assert!(
        explained.reason.contains("nopassthrough"),
        "{}",
        explained.reason
    );

    // By another name, it is the same file.
    std::fs::rename(place.path().join("file"), place.path().join("dir/moved")).unwrap();
    served.host.files.files.remove(handles[1].0);
    let explained = explain(&served, "dir/moved").unwrap();
    assert_eq!((explained.opens.total, explained.opens.writable), (2, 1));
    assert_eq!(explained.node.unwrap().id, inode.node().0);
    assert_eq!(explain(&served, "file"), Err(Errno::ENOENT));
}

#[test]
fn explain_counts_open_directories() {
    let (_place, served) = served(Config::default());
    let (inode, _) = served
        .host
        .tree
        .lookup_name(&served.host.tree.root, c"dir")
        .unwrap();
    served.host.files.enter_directory(inode, None).unwrap();
    let explained = explain(&served, "dir").unwrap();
    assert_eq!((explained.opens.total, explained.opens.writable), (1, 0));
    assert_eq!(explained.data_path, None);
}

#[test]
fn explain_reports_cache_mode_and_timeouts() {
    let config = Config {
        cache: CacheMode::Never,
        attr_timeout: Some(Duration::from_millis(1500)),
        ..Config::default()
    };
    let (_place, served) = served(config);
    let explained = explain(&served, "file").unwrap();
    assert_eq!(explained.data_path, Some(DataPath::Direct));
    assert_eq!(explained.cache.mode, CacheMode::Never);
    assert_eq!(explained.cache.entry_timeout_s, 0.0);
    assert_eq!(explained.cache.attr_timeout_s, 1.5);
    assert!(!explained.cache.data_version_remembered);
}

#[test]
fn explained_path_stays_beneath_the_source() {
    let (_place, served) = served(Config::default());
    assert_eq!(explain(&served, "out/etc"), Err(Errno::ENOTDIR));
    assert_eq!(explain(&served, "link/inner"), Err(Errno::ENOTDIR));
    assert_eq!(explain(&served, "file/x"), Err(Errno::ENOTDIR));
    for name in [c"..", c".", c"", c"dir/inner", c"/"] {
        assert_eq!(served.explain(&[name]), Err(Errno::EINVAL), "{name:?}");
    }
}

#[test]
fn explained_path_has_a_depth_limit() {
    let (_place, served) = served(Config::default());
    let at_limit = vec![c"none"; EXPLAINED_DEPTH_MAX];
    assert_eq!(served.explain(&at_limit), Err(Errno::ENOENT));
    let beyond = vec![c"none"; EXPLAINED_DEPTH_MAX + 1];
    assert_eq!(served.explain(&beyond), Err(Errno::ENAMETOOLONG));
}

#[test]
fn explain_reports_dormant_nodes() {
    let config = Config {
        export: true,
        ..Config::default()
    };
    let (_place, served) = served(config);
    let (inode, _) = served
        .host
        .tree
        .lookup_name(&served.host.tree.root, c"file")
        .unwrap();
    let held = |served: &HostDir| explain(served, "file").unwrap().node.unwrap();
    let _ = served.host.tree.descriptor(&inode).unwrap();
    assert!(held(&served).descriptor_held);
    served.host.tree.nodes.forget(inode.node(), 1);
    let node = held(&served);
    assert!(node.dormant && node.lookups == 0 && !node.descriptor_held);
}

#[test]
fn explain_says_what_the_policy_forbids() {
    let rules = [
        ("path = \"dir\"", "hide"),
        ("path = \"link\"", "hide"),
        ("path = \"text\"\ncontent = \"text/plain\"", "deny"),
        ("path = \"ro/*\"", "read-only"),
        ("path = \"*.log\"", "audit"),
        ("path = \"*.log\"", "deny"),
    ]
    .map(|(condition, action)| format!("[[rule]]\n{condition}\naction = \"{action}\"\n"));
    let policy = format!("audit-log = \"/audit\"\n{}", rules.concat());
    let resources = Resources {
        policy: Some(Arc::new(
            Policy::parse(policy.as_bytes(), &Accounts::default()).unwrap(),
        )),
        ..Resources::default()
    };
    let (place, served) = served_with(Config::default(), resources);
    std::fs::create_dir(place.path().join("ro")).unwrap();
    for name in ["text", "ro/file", "a.log"] {
        std::fs::write(place.path().join(name), "text").unwrap();
    }
    for (path, expected) in [
        ("file", &[][..]),
        ("dir", &["hidden by rule 1"]),
        ("dir/inner", &["hidden by rule 1"]),
        ("link", &["hidden by rule 2"]),
        ("text", &["denied (EACCES) by rule 3"]),
        ("ro", &[]),
        ("ro/file", &["read-only (EROFS) by rule 4"]),
        ("a.log", &["audited by rule 5", "denied (EACCES) by rule 6"]),
    ] {
        let said = explain(&served, path).unwrap().restrictions;
        let begins = |(said, expected): (&String, &&str)| said.starts_with(expected);
        let is_so = said.len() == expected.len() && said.iter().zip(expected).all(begins);
        assert!(is_so, "{path}: {said:?}");
    }
    // By its first bytes, not its name.
    std::fs::write(place.path().join("text"), [0, 1]).unwrap();
    assert!(explain(&served, "text").unwrap().restrictions.is_empty());
}
