//! A window under a policy: files are mapped that no rule may restrict, and what a reload restricts is unmapped.

use super::{BOTH, Mounted, RANGE, READ_WRITE, map, map_part, open, put};
use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::resume::replace;
use thrufs_abi::AttrFlags;
use thrufs_client::{
    DAX_RANGE_BYTES, SETUPMAPPING_READ, SETUPMAPPING_WRITE, WindowBehaviour, WindowConfig,
};

/// The rules of files by their names; `LOG` is the audit log.
fn write_rules(place: &Place, rules: &[(&str, &str)]) {
    let mut text = format!("audit-log = \"{}\"\n", place.path("audit.log").display());
    for (path, action) in rules {
        text += &format!("[[rule]]\npath = \"{path}\"\n{action}\n");
    }
    fs::write(place.path("policy.toml"), text).unwrap();
}

fn under_policy(place: &Place, rules: &[(&str, &str)], window: WindowConfig) -> Mounted {
    write_rules(place, rules);
    let policy = format!(",policy={}", place.path("policy.toml").display());
    Mounted::new(place, &policy, window)
}

fn live(mounted: &Mounted, count: usize) -> bool {
    mounted
        .window
        .wait_until(LIMIT, |counts| counts.live == count)
}

#[test]
fn files_that_rules_may_restrict_are_not_mapped() {
    const RULES: [(&str, &str); 6] = [
        ("exempt.img", "action = \"passthrough\""),
        ("audited.img", "action = \"audit\""),
        ("photo.img", "action = \"redact\"\nredact = \"gps\""),
        ("direct.img", "action = \"direct\""),
        ("read.img", "action = \"read-only\""),
        ("{perhaps,exempt}.img", "owner = 1234\naction = \"deny\""),
    ];
    for config in BOTH {
        let place = Place::new();
        let names = [
            "plain", "exempt", "audited", "photo", "direct", "read", "perhaps",
        ];
        for name in names {
            put(&place, &format!("{name}.img"), RANGE);
        }
        let mounted = under_policy(&place, &RULES, config);
        let root = mounted.root();
        let maps_read_only = config.behaviour == WindowBehaviour::AsSpecified;
        for (number, name) in names.into_iter().enumerate() {
            let name = format!("{name}.img");
            let expected = match &*name {
                "plain.img" | "exempt.img" => true,
                "read.img" => maps_read_only,
                _ => false,
            };
            let entry = root.lookup(NodeId::ROOT, name.as_bytes()).unwrap();
            let (node, is_flagged) = (NodeId(entry.nodeid), entry.attr.flags != 0);
            assert_eq!(is_flagged, expected, "{name}");
            match root.open(node, libc::O_RDONLY) {
                // It is no photograph.
                Err(error) => assert_eq!((&*name, error), ("photo.img", Errno::EACCES)),
                Ok(_) => {
                    // As a guest that is mounted with `dax=always`.
                    let mapped = map(&root, node, number as u64, SETUPMAPPING_READ);
                    let none = Err(Errno::EOPNOTSUPP);
                    assert_eq!(mapped, if expected { Ok(()) } else { none }, "{name}");
                    if name == "read.img" && expected {
                        let written = map(&root, node, 7, SETUPMAPPING_WRITE);
                        assert_eq!(written, Err(Errno::EACCES));
                    }
                }
            }
        }
        mounted.end();
    }
}

#[test]
fn what_a_reload_restricts_is_unmapped_once_it_is_closed() {
    const AUDIT: &str = "action = \"audit\"";
    for config in BOTH {
        let place = Place::new();
        for name in ["kept.img", "used.img", "idle.img", "denied.img"] {
            put(&place, name, 2 * RANGE);
        }
        let mounted = under_policy(&place, &[("other", AUDIT)], config);
        let root = mounted.root();
        let [kept, used, idle, denied] =
            ["kept.img", "used.img", "idle.img", "denied.img"].map(|name| {
                let (node, handle, is_dax) = open(&root, name, READ_WRITE);
                assert!(is_dax, "{name}");
                (node, handle)
            });
        for (range, (node, _)) in [kept, used, idle, denied].into_iter().enumerate() {
            map(&root, node, range as u64, SETUPMAPPING_WRITE).unwrap();
        }
        for (node, handle) in [idle, denied] {
            root.release(node, handle).unwrap();
        }
        assert!(live(&mounted, 4));

        let stricter = [
            ("{used,idle}.img", AUDIT),
            ("denied.img", "action = \"deny\""),
        ];
        write_rules(&place, &stricter);
        mounted.share.signal(Signal::HUP);
        assert!(live(&mounted, 2), "{:?}", mounted.window.mappings());
        let open = |(node, _): (NodeId, u64)| root.open(node, READ_WRITE).map(drop);
        for round in 0..2 {
            assert_eq!(open(kept), Ok(()));
            assert_eq!(open(used), Err(Errno::EBUSY));
            assert_eq!(open(idle), Err(Errno::ESTALE), "it is to be looked up anew");
            assert_eq!(open(denied), Err(Errno::EACCES));
            // What is open keeps what it was granted.
            mounted.window.write(DAX_RANGE_BYTES, b"written").unwrap();
            map_part(&root, used.0, (1, 4 + round), SETUPMAPPING_WRITE).unwrap();
            assert!(live(&mounted, 3 + round as usize));
            replace(&place);
        }
        assert_eq!(
            fs::read(place.dir.join("used.img")).unwrap()[..7],
            *b"written"
        );
        root.release(used.0, used.1).unwrap();
        assert!(live(&mounted, 1), "{:?}", mounted.window.mappings());

        // A name that is looked up again leads to another inode, by which it is not mapped, and which stays.
        let again = ["used.img", "idle.img", "kept.img"].map(|name| {
            let entry = root.lookup(NodeId::ROOT, name.as_bytes()).unwrap();
            let node = NodeId(entry.nodeid);
            root.open(node, READ_WRITE).unwrap();
            (node, entry.attr.flags & AttrFlags::DAX.bits() != 0)
        });
        assert!(again[0].0 != used.0 && again[1].0 != idle.0);
        assert_eq!(again[2], (kept.0, true));
        assert!(!again[0].1 && !again[1].1);
        let entry = root.lookup(NodeId::ROOT, b"idle.img").unwrap();
        assert_eq!(NodeId(entry.nodeid), again[1].0);
        root.forget(idle.0, 1);
        root.getattr(again[1].0).unwrap();
        mounted.end();
    }
}
