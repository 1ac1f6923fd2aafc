//! Death of the process between any two stores.

use super::*;
use std::cell::Cell;

thread_local! {
    /// Stores before the death.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Whether the next store takes place.
pub(in super::super) fn lives() -> bool {
    LEFT.with(|left| {
        let now = left.get();
        left.set(now.saturating_sub(1));
        now > 0
    })
}

/// Lets `work` die after each number of its stores, and at last not at all. `prepare` makes its subject
/// each time, and `look` checks what is left.
fn die_everywhere<T>(prepare: impl Fn() -> T, work: impl Fn(&mut T), look: impl Fn(&mut T)) {
    let mut deaths = 0;
    loop {
        let mut ground = prepare();
        LEFT.set(deaths);
        work(&mut ground);
        let left = LEFT.replace(usize::MAX);
        look(&mut ground);
        if left > 0 {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 1, "there are places to die in");
}

/// A queue with one request in flight, and the used ring's index.
struct Queue {
    journal: Journal,
    table: Inflight,
    ring: u16,
}

impl Queue {
    fn new(used: u16, heads: &[u16]) -> Queue {
        let journal = Journal::new().unwrap();
        let mut table = table(&journal);
        table.begin(used, heads.iter().copied());
        Queue {
            journal,
            table,
            ring: used,
        }
    }

    /// What the next worker recovers.
    fn left(&self) -> Option<Vec<(u16, Phase)>> {
        let left = table(&self.journal).recover(self.ring)?;
        let intents = self.journal.intents(1);
        let phase = |(head, number)| (head, intents.phase(head, number));
        Some(left.into_iter().map(phase).collect())
    }
}

#[test]
fn giving_back() {
    let given = |queue: &mut Queue| {
        queue.table.begin_to_give_back(3);
        // The used ring's index is in the guest's memory.
        queue.ring = queue.ring.wrapping_add(u16::from(lives()));
        queue.table.gave_back(3, 0);
    };
    die_everywhere(
        || Queue::new(0xffff, &[3, 4]),
        given,
        |queue| {
            let mut expected = vec![(3, Phase::Taken), (4, Phase::Taken)];
            if queue.ring == 0 {
                expected.remove(0);
            }
            assert_eq!(queue.left(), Some(expected));
        },
    );
}

#[test]
fn taking_what_was_used_before() {
    let used_before = || {
        let mut queue = Queue::new(7, &[]);
        let number = queue.table.take(3);
        queue.journal.intents(1).answer(3, number, 16);
        queue.table.begin_to_give_back(3);
        queue.ring = 8;
        queue.table.gave_back(3, 8);
        queue
    };
    die_everywhere(
        used_before,
        |queue| {
            queue.table.take(3);
        },
        |queue| {
            let left = queue.left().unwrap();
            // The reply of the last request is not that of this one.
            let is_it = |it: &[(u16, Phase)]| it.is_empty() || it == [(3, Phase::Taken)];
            assert!(is_it(&left), "{left:?}");
        },
    );
}

#[test]
fn beginning_with_a_queue() {
    die_everywhere(
        || Queue::new(50, &[1, 2]),
        |queue| {
            queue.ring = 100;
            queue.table.begin(100, [3]);
        },
        |queue| {
            let left = queue.left();
            let all = left.as_deref() == Some(&[(3, Phase::Taken)]);
            assert!(left.is_none() || all, "{left:?}");
        },
    );
}

#[test]
fn noting_how_far_a_request_has_come() {
    let begun = |nanoseconds, before| Begun {
        nanoseconds,
        before,
    };
    let noted = || {
        let journal = Journal::new().unwrap();
        journal.intents(1).begin(9, 5, 14, begun(17, 4));
        journal
    };
    die_everywhere(
        noted,
        |journal| journal.intents(1).begin(9, 6, 15, begun(18, 5)),
        |journal| {
            let phase = journal.intents(1).phase(9, 6);
            let now = Phase::Begun(15, begun(18, 5));
            assert!(phase == Phase::Taken || phase == now, "{phase:?}");
        },
    );
}

#[test]
fn a_session_in_the_place_of_another() {
    let begun = || {
        let journal = Journal::new().unwrap();
        journal.set_session(Some(b"of one"));
        journal
    };
    die_everywhere(
        begun,
        |journal| journal.set_session(Some(b"of another")),
        |journal| {
            let session = journal.session();
            let whole = [None, Some(&b"of one"[..]), Some(&b"of another"[..])];
            assert!(whole.contains(&session.as_deref()), "{session:?}");
        },
    );
}

#[test]
fn a_mapping_in_the_place_of_another() {
    let [one, other] = [1, 2].map(|value| RecordedMapping([value; 8]));
    let mut certain = one;
    certain.0[5] = 0;
    let begun = || {
        let record = Journal::new().unwrap().window();
        record.store(7, &one);
        record
    };
    die_everywhere(
        begun,
        |record| {
            record.store(7, &certain);
            record.clear(7);
            record.store(7, &other);
        },
        |record| {
            let mapping = record.load(7);
            let whole = [None, Some(one), Some(certain), Some(other)];
            assert!(whole.contains(&mapping), "{mapping:?}");
        },
    );
}
