//! Programs of root on a mount that shows another owner (`uid=`): a store through a shared map drops
//! nothing, so the open for writing does.

use crate::callers::Caller;
use crate::operations::{CONTENT, Operation, Target};
use crate::privileges::{Bits, Left};
use thrufs_tests::prelude::*;

fn set_privileges(beneath: &Path) {
    Bits::CapabilityAndSetUser.set(beneath);
    fs::set_permissions(beneath, fs::Permissions::from_mode(0o4755)).unwrap();
}

#[test]
fn a_caller_mapped_to_root_stores_into_no_program_of_root() {
    skip_if!(must_skip());
    // To one owner for all files; and for those of root alone, as `thrufs run` has it.
    let maps = [
        format!("uid={}", ALICE.uid),
        format!("uidmap={}:0:1", ALICE.uid),
    ];
    let ways = ["passthrough", "nopassthrough", "writeback"];
    for (map, way) in maps.iter().flat_map(|map| ways.map(|way| (map, way))) {
        // Attributes stay valid for longer than the test takes: what fell is seen all the same.
        let options = format!("{map},attr_timeout=1000,{way}");
        let mut mounted = Mounted::start_on(Lower::Tmpfs, &options).unwrap();
        let (path, beneath) = (mounted.mnt().join("file"), mounted.source().join("file"));
        fs::write(&beneath, b"program").unwrap();
        set_privileges(&beneath);
        ALICE.run(|| {
            assert_eq!(fs::read(&path).unwrap(), b"program", "{map} {way}");
            assert_eq!(Left::on(&beneath).mode, 0o4755, "{map} {way}");
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).open(&path).unwrap();
            let mut map = Mapping::new(&file, 7, Sharing::Shared).unwrap();
            map.store(0, b"P");
            map.sync().unwrap();
        });
        let left = Left::on(&beneath);
        assert_eq!((left.mode, left.capability), (0o755, false), "{map} {way}");
        assert_eq!(fs::read(&beneath).unwrap(), b"Program", "{map} {way}");
        assert_eq!(Left::on(&path).mode, 0o755, "{map} {way}");
        set_privileges(&beneath);
        ALICE.run(|| fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap());
        let left = Left::on(&beneath);
        assert_eq!((left.mode, left.capability), (0o777, false), "{map} {way}");
        // Without an open for writing before.
        for operation in [Operation::Truncate, Operation::OpenTruncating] {
            fs::write(&beneath, CONTENT).unwrap();
            set_privileges(&beneath);
            let changed = ALICE.run(|| {
                let file = &File::open(&path).unwrap();
                let (source, caller) = (file, Caller::Other);
                let path = &path;
                operation.run(&Target {
                    path,
                    file,
                    source,
                    caller,
                })
            });
            let left = Left::on(&beneath);
            assert_eq!(
                (changed, left.mode),
                (Ok(()), 0o755),
                "{map} {way} {operation:?}"
            );
            assert!(!left.capability, "{map} {way} {operation:?}");
        }
        mounted.stop().unwrap();
    }
}
