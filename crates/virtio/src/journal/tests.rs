use super::*;
use thrufs::Begun;

pub(super) mod dying;

const SIZE: u16 = 8;

fn table(journal: &Journal) -> Inflight {
    journal.inflight(1, SIZE).unwrap()
}

fn heads(table: &mut Inflight, used: u16) -> Option<Vec<u16>> {
    let left = table.recover(used)?;
    Some(left.into_iter().map(|(head, _)| head).collect())
}

/// As another process has it.
fn again(journal: &Journal) -> Journal {
    Journal::from_memory(journal.as_fd().try_clone_to_owned().unwrap()).unwrap()
}

#[test]
fn requests_are_recovered_in_the_order_in_which_they_were_taken() {
    let journal = Journal::new().unwrap();
    let mut first = table(&journal);
    assert_eq!(heads(&mut first, 0), None, "not begun");
    first.begin(7, []);
    for head in [5, 2, 7, 0] {
        first.take(head);
    }
    first.begin_to_give_back(2);
    first.gave_back(2, 8);
    let mut second = table(&again(&journal));
    assert_eq!(heads(&mut second, 8), Some(vec![5, 7, 0]));
    second.take(2);
    let mut third = table(&journal);
    assert_eq!(
        heads(&mut third, 8),
        Some(vec![5, 7, 0, 2]),
        "numbers go on"
    );
    assert_eq!(
        journal.inflight(2, SIZE).unwrap().recover(8),
        None,
        "another queue"
    );
}

#[test]
fn a_death_between_any_two_stores_of_a_return_is_recovered() {
    // Before the ring's index: it is in flight. After it: it is not, whatever else is said.
    let journal = Journal::new().unwrap();
    let mut dead = table(&journal);
    dead.begin(0xffff, [3, 4]);
    dead.begin_to_give_back(3);
    assert_eq!(heads(&mut table(&journal), 0xffff), Some(vec![3, 4]));
    assert_eq!(heads(&mut table(&journal), 0), Some(vec![4]));
    assert_eq!(
        heads(&mut table(&journal), 0),
        Some(vec![4]),
        "and so it stays"
    );
}

#[test]
fn a_table_of_another_queue_is_ignored() {
    let journal = Journal::new().unwrap();
    let mut dead = table(&journal);
    dead.begin(100, [3]);
    assert_eq!(heads(&mut table(&journal), 0), None);
    assert_eq!(heads(&mut table(&journal), 102), None);
    let mut smaller = journal.inflight(1, SIZE / 2).unwrap();
    assert_eq!(smaller.recover(100), None, "of another size");
    assert!(smaller.of_size(SIZE).is_none(), "it has no room");
}

#[test]
fn numbers_are_never_reused() {
    let journal = Journal::new().unwrap();
    let mut dead = table(&journal);
    dead.begin(0, []);
    let first = dead.take(1);
    dead.gave_back(1, 1);
    let mut next = table(&journal);
    assert_eq!(next.recover(1), Some(Vec::new()));
    assert!(next.take(1) > first);
    let last = next.take(2);
    let mut anew = table(&journal);
    anew.begin(0, []);
    assert!(anew.take(3) > last);
}

#[test]
fn the_progress_of_a_request_is_recorded() {
    let journal = Journal::new().unwrap();
    let begun = Begun {
        nanoseconds: 17,
        before: 4,
    };
    let intents = journal.intents(3);
    intents.begin(9, 5, 14, begun);
    let seen = again(&journal).intents(3);
    assert_eq!(seen.phase(9, 5), Phase::Begun(14, begun));
    assert_eq!(seen.phase(9, 6), Phase::Taken, "of an earlier request");
    assert_eq!(seen.phase(8, 5), Phase::Taken);
    intents.answer(9, 5, u32::MAX);
    assert_eq!(seen.phase(9, 5), Phase::Answered(u32::MAX));
    intents.answer(1023, u64::MAX, 80);
    assert_eq!(
        journal.intents(3).phase(1023, u64::MAX),
        Phase::Answered(80)
    );
    assert_eq!(journal.intents(64).phase(9, 5), Phase::Taken);
}

#[test]
fn a_tracker_recovers_or_begins_anew() {
    let journal = Journal::new().unwrap();
    let tracker = || Tracker::new(Some(&journal), None, 1, SIZE);
    let mut dead = tracker();
    dead.begin(10, &[]);
    dead.take(6);
    let number = dead.number_of(6);
    dead.intents().unwrap().answer(6, number, 16);
    dead.take(1);
    let heads = |base| {
        let again = tracker().recover(10, base)?;
        Some(
            again
                .iter()
                .map(|again| (again.head, again.phase))
                .collect::<Vec<_>>(),
        )
    };
    let left = Some(vec![(6, Phase::Answered(16)), (1, Phase::Taken)]);
    assert_eq!(heads(None), left);
    assert_eq!(heads(Some(12)), left, "from where it has stopped");
    assert_eq!(heads(Some(0)), None, "the guest has begun anew");
}

/// Requests in progress when a queue is stopped are in flight again under new numbers. A record under
/// another number would be ignored after a death, and the request executed twice.
#[test]
fn requests_of_a_restarted_queue_get_new_numbers() {
    let journal = Journal::new().unwrap();
    let mut adopting = Tracker::new(Some(&journal), None, 1, SIZE);
    adopting.begin(10, &[6, 1]);
    let number = adopting.number_of(6);
    assert_ne!(number, adopting.number_of(1));
    adopting.intents().unwrap().answer(6, number, 16);
    let left = Tracker::new(Some(&journal), None, 1, SIZE).recover(10, None);
    let left: Vec<(u16, Phase)> = left
        .unwrap()
        .iter()
        .map(|again| (again.head, again.phase))
        .collect();
    assert_eq!(left, [(6, Phase::Answered(16)), (1, Phase::Taken)]);
    adopting.take(3);
    assert!(adopting.number_of(3) > number, "it grows");
}

#[test]
fn a_front_ends_table_is_written_and_read_without_a_journal() {
    let (journal, theirs) = (Journal::new().unwrap(), Journal::new().unwrap());
    let mut dead = Tracker::new(Some(&journal), Some(table(&theirs)), 1, SIZE);
    dead.begin(10, &[]);
    dead.take(6);
    dead.take(1);
    dead.begin_to_give_back(6);
    dead.gave_back(6, 11);
    let anew = Journal::new().unwrap();
    let mut next = Tracker::new(Some(&anew), Some(table(&theirs)), 1, SIZE);
    let left = next.recover(11, None).unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].head, left[0].phase), (1, Phase::Taken));
    assert_eq!(
        heads(&mut table(&anew), 11),
        Some(vec![1]),
        "ours knows it as well"
    );
}

#[test]
fn a_session_is_recorded_completely_or_not_at_all() {
    let journal = Journal::new().unwrap();
    assert_eq!(journal.session(), None);
    journal.set_session(Some(b"the request"));
    assert_eq!(again(&journal).session().unwrap(), b"the request");
    journal.set_session(None);
    assert_eq!(again(&journal).session(), None);
    journal.count_death();
    assert_eq!(again(&journal).deaths(), 1);
    journal.note_base(2);
    assert!(again(&journal).has_new_base(2) && !journal.has_new_base(1));
    journal.take_base(2);
    assert!(!journal.has_new_base(2));
}

#[test]
fn a_new_table_of_the_front_end_is_filled_from_the_journal() {
    let journal = Journal::new().unwrap();
    let mut dead = Tracker::new(Some(&journal), None, 1, SIZE);
    dead.begin(10, &[]);
    dead.take(6);
    dead.take(1);
    let theirs = Journal::new().unwrap();
    let mut next = Tracker::new(Some(&journal), Some(table(&theirs)), 1, SIZE);
    assert_eq!(next.recover(10, None).unwrap().len(), 2);
    assert_eq!(heads(&mut table(&theirs), 10), Some(vec![6, 1]));
}

#[test]
fn an_impossible_session_length_is_limited_to_the_room() {
    let journal = Journal::new().unwrap();
    journal.set_session(Some(&[7; INIT_BYTES_MAX]));
    journal.words.store(INIT_LENGTH, u64::MAX);
    // A worker under a guest's control may write any length; it is limited by the room.
    let session = journal.session().unwrap();
    assert_eq!(session, [7; INIT_BYTES_MAX]);
    journal.note_base(0);
    journal.set_session(Some(&[8; BASES]));
    assert_eq!(journal.session(), None, "too long");
    assert!(journal.has_new_base(0) && !journal.has_new_base(1));
}

#[test]
fn the_memory_cannot_be_truncated() {
    let journal = Journal::new().unwrap();
    assert!(rustix::fs::ftruncate(journal.as_fd(), 4096).is_err());
    let sealed = rustix::fs::fcntl_add_seals(journal.as_fd(), SealFlags::FUTURE_WRITE);
    assert!(sealed.is_err(), "nor keep the next one from writing");
    let file = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
    assert!(Journal::from_memory(file).is_err(), "not long enough");
}

#[test]
fn there_is_room_for_the_largest_queues() {
    let journal = Journal::new().unwrap();
    let mut last = journal.inflight(QUEUES_MAX - 1, QUEUE_SIZE_MAX).unwrap();
    last.begin(0, []);
    last.take(1023);
    let intents = journal.intents(QUEUES_MAX - 1);
    intents.answer(1023, 1, 1);
    assert_eq!(heads(&mut last, 0), Some(vec![1023]));
    assert!(Inflight::new(Arc::clone(journal.words.mapping()), BYTES - 16, 1).is_none());
    assert!(
        Inflight::new(Arc::clone(journal.words.mapping()), 4, 1).is_none(),
        "not aligned"
    );
    assert!(Inflight::new(Arc::clone(journal.words.mapping()), usize::MAX, 1).is_none());
}

proptest::proptest! {
    #[test]
    fn any_table_recovers_only_descriptors_of_its_queue(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 16 + 16 * usize::from(SIZE)),
        begun in proptest::bool::ANY,
        used in proptest::num::u16::ANY,
    ) {
        let journal = Journal::new().unwrap();
        let at = queue_at(1);
        journal.words.copy_in(at, &bytes);
        if begun {
            // Proptest would rarely make one.
            journal.words.store_u16(at + 8, 1);
            journal.words.store_u16(at + 10, SIZE);
            journal.words.store_u16(at + 14, used);
        }
        let mut tracker = Tracker::new(Some(&journal), None, 1, SIZE);
        let left = tracker.recover(used, None);
        proptest::prop_assert_eq!(left.is_some(), begun);
        let mut heads: Vec<u16> = left.iter().flatten().map(|again| again.head).collect();
        heads.sort_unstable();
        heads.dedup();
        proptest::prop_assert_eq!(heads.len(), left.map_or(0, |left| left.len()));
        proptest::prop_assert!(heads.iter().all(|head| *head < SIZE));
        tracker.take(SIZE - 1);
    }
}
