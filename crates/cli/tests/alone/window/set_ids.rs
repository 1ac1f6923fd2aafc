//! Set-id bits and file capabilities of files that a guest maps: a store keeps them, a write clears them.

use super::{BOTH, Mounted, RANGE, READ_WRITE, open, put};
use crate::ground::prelude::*;
use crate::ground::share::Place;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::Permissions;
use thrufs_abi::layout::SetattrIn;
use thrufs_abi::{InitFlags, WriteFlags};
use thrufs_client::WindowBehaviour;

/// An ordinary user, in the group of the files: a set-group-id bit without execution stays natively, as it does for
/// the requests of any guest.
const NOBODY: u32 = 65534;
const GROUP: u32 = 0;

const MODES: [u32; 5] = [0o6777, 0o6666, 0o4666, 0o2666, 0o2676];

/// CAP_NET_RAW, permitted and effective (`struct vfs_cap_data`, revision 2).
const CAPABILITY: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];

/// The mode, and whether it has capabilities.
type Privileges = (u32, bool);

fn give(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let value = CAPABILITY.map(u32::to_le_bytes).concat();
    setxattr(path, "security.capability", &value, XattrFlags::empty()).unwrap();
}

fn privileges(path: &Path) -> Privileges {
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let size = getxattr(path, "security.capability", &mut [0_u8; 64]);
    (mode, size.is_ok())
}

fn privileged(place: &Place, name: &str, mode: u32) -> PathBuf {
    let (path, _) = put(place, name, RANGE);
    give(&path, mode);
    path
}

/// What a file has after a write(2) by an ordinary user on the host.
fn after_a_native_write(place: &Place, mode: u32) -> Privileges {
    let path = privileged(place, "native", mode);
    let mut write = Command::new("dd");
    write.args([
        "if=/dev/zero",
        "bs=1",
        "count=1",
        "conv=notrunc",
        "status=none",
    ]);
    write.arg(format!("of={}", path.display()));
    assert!(write.uid(NOBODY).gid(GROUP).status().unwrap().success());
    privileges(&path)
}

#[test]
fn a_store_keeps_set_ids_and_a_write_clears_them_as_natively() {
    for config in BOTH {
        let place = Place::new();
        let mounted = Mounted::new(&place, "", config);
        let (root, dax) = (mounted.root(), mounted.dax());
        let nobody = mounted.client.user(NOBODY, GROUP);
        let agreed = mounted.client.agreed();
        assert!(agreed.contains(InitFlags::HANDLE_KILLPRIV_V2));
        for mode in MODES {
            let expected = after_a_native_write(&place, mode);
            let name = format!("{mode:o}.img");
            let path = privileged(&place, &name, mode);
            let (node, fh, is_dax) = open(&root, &name, READ_WRITE);
            let is_program = mode & 0o111 != 0;
            let maps_it = config.behaviour == WindowBehaviour::AsSpecified || !is_program;
            assert_eq!(is_dax, maps_it, "{mode:o}");
            let store = |what: &[u8]| {
                if is_dax {
                    dax.write(node, 0, what).unwrap();
                }
            };
            store(b"by a store");
            assert_eq!(privileges(&path), (mode, true), "{mode:o}: a store");
            let kills = WriteFlags::KILL_SUIDGID.bits();
            nobody.write(node, fh, 0, b"by a request", kills).unwrap();
            assert_eq!(privileges(&path), expected, "{mode:o}: WRITE");
            give(&path, mode);
            // Before write(2) by a map.
            nobody.setattr(node, &SetattrIn::default()).unwrap();
            assert_eq!(privileges(&path), expected, "{mode:o}: SETATTR");
            store(b"by another store");
            root.release(node, fh).unwrap();
        }
        mounted.end();
    }
}
