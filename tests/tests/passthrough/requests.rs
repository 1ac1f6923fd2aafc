//! Proof of passthrough: the kernel sends no request for data.

use crate::ground::{LOWERS, on_each, pattern};
use thrufs_tests::prelude::*;

fn tracer(mounted: &Mounted) -> Option<Tracer> {
    match Tracer::start(mounted.mnt()) {
        Ok(tracer) => Some(tracer),
        Err(error) => {
            skipped(format!("no tracing here: {error}"));
            None
        }
    }
}

fn read_write_and_map(mounted: &Mounted) {
    let path = mounted.mnt().join("file");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .unwrap();
    file.write_all(&pattern(300_000)).unwrap();
    let mut found = vec![0; 300_000];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == pattern(300_000));
    let mut map = Mapping::new(&file, 4096, Sharing::Shared).unwrap();
    map.store(0, b"mapped");
    drop(map);
    file.read_exact_at(&mut found[..6], 0).unwrap();
    assert_eq!(&found[..6], b"mapped");
}

#[test]
fn no_request_carries_data() {
    on_each(&LOWERS, "", |mounted| {
        let Some(tracer) = tracer(mounted) else {
            return;
        };
        let seen = tracer.count(|| read_write_and_map(mounted));
        for opcode in ["READ", "WRITE"] {
            assert_eq!(seen.get(opcode), None, "{seen:?}");
        }
        assert!(seen.contains_key("CREATE"), "{seen:?}");
        // Again, with an open of an existing file.
        let seen = tracer.count(|| read_write_and_map(mounted));
        assert_eq!(seen.get("OPEN"), Some(&1), "{seen:?}");
        assert_eq!(seen.get("READ"), None, "{seen:?}");
        assert_eq!(seen.get("WRITE"), None, "{seen:?}");
        let beneath = fs::read(mounted.source().join("file")).unwrap();
        assert_eq!(&beneath[..6], b"mapped");
        assert!(beneath[6..] == pattern(300_000)[6..]);
    });
}

#[test]
fn files_without_a_name_use_passthrough() {
    on_each(&[Lower::Tmpfs, Lower::Ext4], "", |mounted| {
        let Some(tracer) = tracer(mounted) else {
            return;
        };
        let seen = tracer.count(|| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            let mode = Mode::from_raw_mode(0o600);
            let file = File::from(rustix::fs::open(mounted.mnt(), flags, mode).unwrap());
            file.write_all_at(b"content", 0).unwrap();
            let mut found = [0; 7];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(&found, b"content");
        });
        assert!(seen.contains_key("TMPFILE"), "{seen:?}");
        assert_eq!(seen.get("WRITE"), None, "{seen:?}");
        assert_eq!(seen.get("READ"), None, "{seen:?}");
    });
}
