//! What one process records, the next one reads.

use super::{Before, Ledger, Notes, Rank, Telling};
use crate::identity::KnownName;
use thrufs_abi::NodeId;

const NODE: NodeId = NodeId(7);

fn name(name: &str) -> KnownName {
    KnownName::new(NodeId(1), name.as_bytes())
}

/// The names of the node in the ledger, and whether each is uncertain.
fn noted(ledger: &Ledger) -> Vec<(KnownName, bool)> {
    let next = Notes::new(ledger.clone()).unwrap();
    let mut read = next.read().unwrap().names;
    let names = read.remove(&NODE).unwrap_or_default();
    names
        .into_iter()
        .map(|note| (note.name, note.is_unsure))
        .collect()
}

#[test]
fn resuming_process_keeps_recorded_names() {
    let ledger = Ledger::new().unwrap();
    let first = Notes::new(ledger.clone()).unwrap();
    for text in ["a", "b", "c"] {
        first.note_name(NODE, &name(text), Rank::Latest).unwrap();
    }
    let second = Notes::new(ledger.clone()).unwrap();
    let read = second.read().unwrap().names;
    second.forget_name(read[&NODE][1].index);
    second.note_name(NODE, &name("d"), Rank::Latest).unwrap();
    second.note_name(NODE, &name("e"), Rank::Latest).unwrap();
    let read: Vec<KnownName> = noted(&ledger).into_iter().map(|(name, _)| name).collect();
    assert_eq!(read, ["e", "d", "c", "a"].map(name));
}

#[test]
fn ledger_knows_which_audit_records_were_written() {
    let telling = |request| Telling { request, digest: 5 };
    let ledger = Ledger::new().unwrap();
    let first = Notes::new(ledger.clone()).unwrap();
    let place = first.begin_telling(telling(1));
    first.told(place);
    first.begin_telling(telling(2)).unwrap();
    assert_eq!(first.told_before(telling(1)), None, "that is this process");
    let second = Notes::new(ledger).unwrap();
    second.read().unwrap();
    assert_eq!(second.told_before(telling(1)), Some(Before::Told));
    assert_eq!(second.told_before(telling(1)), None, "once");
    assert_eq!(second.told_before(telling(2)), Some(Before::Begun));
    assert_eq!(second.told_before(telling(3)), None);
    let other = Telling {
        request: 1,
        digest: 6,
    };
    assert_eq!(second.told_before(other), None);
    // The oldest are overwritten.
    let places = (10..5000).map(|request| second.begin_telling(telling(request)));
    assert!(places.flatten().all(|place| place < 1024));
}
