use super::*;
use thrufs_hostdir::{CacheMode, LowerState, Opens};
use thrufs_policy::DataPath;

fn explained() -> Explained {
    Explained {
        path: "/mnt/file".into(),
        server: Server::Mount {
            mountpoint: "/mnt".into(),
        },
        explanation: Explanation {
            kind: FileKind::Regular,
            ino: 7,
            data_path: Some(DataPath::Cached),
            reason: "a reason".into(),
            rule: None,
            backing: None,
            opens: Opens {
                total: 2,
                writable: 1,
                by_kernel: false,
            },
            locked_by_mount: false,
            restrictions: Vec::new(),
            maps_refused: false,
            window: None,
            cache: CacheState {
                mode: CacheMode::Auto,
                writeback: false,
                entry_timeout_s: 1.0,
                attr_timeout_s: 1.5,
                negative_timeout_s: 0.0,
                followed: false,
                data_version_remembered: true,
            },
            node: Some(NodeState {
                id: 5,
                lookups: 1,
                descriptor_held: true,
                dormant: false,
            }),
            lower: LowerState {
                file_system: Some("ext4".into()),
                magic: 0xef53,
                handles: true,
                remote: false,
                memory: false,
            },
        },
    }
}

#[test]
fn lines_are_aligned() {
    let text = as_text(Path::new("/mnt/file"), &explained());
    assert_eq!(
        text,
        "/mnt/file\n\
         \x20 what        regular file, inode 7\n\
         \x20 data path   cached: a reason\n\
         \x20 open        2 times, 1 of them for writing\n\
         \x20 cache       cache=auto; names 1 s, absent names 0 s, attributes 1.5 s; data version: cached\n\
         \x20 kernel      node 5, 1 lookup; descriptor held\n\
         \x20 beneath     ext4, by file handle\n\
         \x20 mount       /mnt\n"
    );
}

#[test]
fn optional_fields_have_a_line_when_present() {
    let mut explained = explained();
    explained.explanation.rule = Some("photos".into());
    explained.explanation.backing = Some(3);
    explained.explanation.locked_by_mount = true;
    explained.explanation.restrictions = vec!["audited so".into(), "denied so".into()];
    explained.explanation.maps_refused = true;
    explained.explanation.node = None;
    explained.explanation.window = Some(WindowUse {
        mapped: true,
        ranges: 2,
        reason: "so".into(),
    });
    explained.explanation.opens = Opens {
        total: 1,
        writable: 1,
        by_kernel: false,
    };
    let text = as_text(Path::new("x"), &explained);
    for line in [
        "  rule        photos\n",
        "  backing id  3\n",
        "  open        once, for writing\n",
        "  locked      as a whole by the mount, until programs above have unlocked their ranges of it\n",
        "  policy      audited so\n  policy      denied so\n",
        "  shared maps refused (ENODEV) to what opens it for reading and writing now, since a program on the host \
         has it open for writing\n",
        "  window      mapped, 2 ranges: so\n",
        "  cache       once looked up: cache=auto;",
        "  kernel      not looked up\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn replies_are_printed_without_control_characters() {
    let mut explained = explained();
    explained.explanation.reason = "\x1b[2J\rgone".into();
    let text = as_text(Path::new("a\nb"), &explained);
    assert!(!text.contains(['\x1b', '\r']), "{text:?}");
    assert!(text.starts_with("a\\nb\n"), "{text:?}");
}

#[test]
fn a_file_of_a_share_has_its_machine_and_socket() {
    let mut explained = explained();
    explained.server = Server::Share {
        share: "/run/s".into(),
        process: 11,
    };
    let text = as_text(Path::new("/file"), &explained);
    let end =
        "  beneath     ext4, by file handle\n  machine     process 11\n  share       /run/s\n";
    assert!(text.ends_with(end), "{text}");
    let value = serde_json::to_value(explained).unwrap();
    assert_eq!(
        (&value["share"], &value["process"]),
        (&"/run/s".into(), &11.into())
    );
    assert_eq!(value["mountpoint"], Value::Null);
}

#[test]
fn paths_on_a_share_begin_at_its_root() {
    let names = |path: &str| components_on_share(Path::new(path));
    for path in ["a/b", "/a/b", "./a//b/."] {
        assert_eq!(
            names(path).unwrap(),
            [c"a", c"b"].map(CString::from),
            "{path}"
        );
    }
    assert!(names("/").unwrap().is_empty());
    assert!(names("a/../b").is_err());
}
