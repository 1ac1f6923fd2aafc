//! What one process records, the next one reads.

use super::memory::Memory;
use super::records::{DIRECTORIES, FILES, Open, Shape, USED};
use super::table::Table;
use super::{AuditId, Before, FileNote, Ledger, OpenerIds, StateTables};
use std::io;
use std::sync::Arc;
use thrufs_abi::{FileHandle, NodeId};

#[test]
fn record_is_complete_or_absent() {
    let ledger = Ledger::new().unwrap();
    let table = |shape: Shape<Open>| {
        let memory = Memory::new(ledger.clone()).unwrap();
        Table::new(&Arc::new(memory), shape)
    };
    let seen = |shape| {
        let (mut nodes, other) = (Vec::new(), table(shape));
        let highest = other.each(|index, open, _| nodes.push((index, open.node.load())));
        (nodes, highest.unwrap())
    };
    let files = table(FILES);
    // In the fourth chunk.
    let put = files.commit(9000, 7 << 32 | USED, |open| {
        assert_eq!(seen(FILES), (vec![], 0), "not before it is filled");
        open.node.store(5);
        Some(())
    });
    assert_eq!(put, Some(()));
    assert_eq!(seen(FILES), (vec![(9000, 5)], 7));
    assert_eq!(seen(DIRECTORIES), (vec![], 0));
    files.free(6 << 32 | 9000);
    assert_eq!(seen(FILES).0.len(), 1, "that was another");
    files.free(7 << 32 | 9000);
    assert_eq!(seen(FILES), (vec![], 7), "its generation stays");
    assert_eq!(files.commit(1, USED, |_| None), None);
    assert_eq!(seen(FILES), (vec![], 7));
    let refused = StateTables::new(ledger.clone()).unwrap().read().map(drop);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn tables_that_are_full_or_damaged_are_refused() {
    let ledger = Ledger::new().unwrap();
    let first = StateTables::new(ledger.clone()).unwrap();
    let note = FileNote {
        handle: FileHandle(1 << 20),
        node: NodeId(1),
        flags: 0,
        route: None,
        opener: OpenerIds::default(),
        backing: None,
    };
    let last = FileHandle((1 << 20) - 1025);
    first.files.insert(FileNote {
        handle: last,
        ..note
    });
    first.directories.insert(note);
    let header = Memory::new(ledger.clone()).unwrap();
    let read = || StateTables::new(ledger.clone()).unwrap().read();
    assert!(read().is_err(), "a directory had no room");
    header.header().incomplete.store(0);
    // More chunks than there are.
    header.header().chunks[2].store(u64::MAX);
    assert_eq!(read().unwrap().files[0].note.handle, last);
    header.header().magic.store(1);
    assert!(read().is_err(), "no ledger");
}

#[test]
fn ledger_knows_which_audit_records_were_written() {
    let audit_id = |request| AuditId { request, digest: 5 };
    let ledger = Ledger::new().unwrap();
    let first = StateTables::new(ledger.clone()).unwrap();
    let place = first.audit_records.begin(audit_id(1));
    first.audit_records.finish(place);
    first.audit_records.begin(audit_id(2)).unwrap();
    assert_eq!(
        first.audit_records.before(audit_id(1)),
        None,
        "that is this process"
    );
    let second = StateTables::new(ledger).unwrap();
    second.read().unwrap();
    assert_eq!(
        second.audit_records.before(audit_id(1)),
        Some(Before::Written)
    );
    assert_eq!(second.audit_records.before(audit_id(1)), None, "once");
    assert_eq!(
        second.audit_records.before(audit_id(2)),
        Some(Before::Begun)
    );
    assert_eq!(second.audit_records.before(audit_id(3)), None);
    let other = AuditId {
        request: 1,
        digest: 6,
    };
    assert_eq!(second.audit_records.before(other), None);
    // The oldest are overwritten.
    let places = (10..5000).map(|request| second.audit_records.begin(audit_id(request)));
    assert!(places.flatten().all(|place| place < 1024));
}
