//! What one process records, the next one reads.

use super::{Before, Ledger, Notes, Telling};

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
