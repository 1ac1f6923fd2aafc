//! Many requests for a window at once, with a monitor whose one thread also changes the memory table.

use super::{Mounted, READ_WRITE, map_part, open};
use crate::ground::prelude::*;
use crate::ground::share::Place;
use thrufs_abi::NodeId;
use thrufs_abi::layout::RemovemappingOne;
use thrufs_client::{DAX_RANGE_BYTES, SETUPMAPPING_READ, SETUPMAPPING_WRITE, WindowConfig};
use thrufs_test_report::is_full;

/// Each with a range of the window of its own.
const THREADS: u64 = 64;

/// Of each thread: 10,048 with `--full`.
const SET_UPS: (u64, u64) = (20, 157);

/// Less than the server waits for the monitor, which is 30 s: what waits for a mapping is over later.
const LIMIT: Duration = Duration::from_secs(20);

/// Begins with the number of each range.
fn put_numbers(place: &Place) {
    let file = File::create(place.dir.join("a.img")).unwrap();
    file.set_len(THREADS * DAX_RANGE_BYTES).unwrap();
    for number in 0..THREADS {
        file.write_all_at(&number.to_le_bytes(), number * DAX_RANGE_BYTES)
            .unwrap();
    }
}

#[test]
fn many_set_ups_at_once_and_a_monitor_of_one_thread_do_not_wait_for_each_other() {
    let set_ups = if is_full() { SET_UPS.1 } else { SET_UPS.0 };
    let place = Place::new();
    put_numbers(&place);
    let mounted = Mounted::with_ranges(&place, THREADS as usize, "", WindowConfig::as_qemu());
    place.wait_for_log("map_beyond_end=false map_read_only=false announces=true");
    let (node, ..) = open(&mounted.root(), "a.img", READ_WRITE);
    let window = &mounted.window;
    let before = window.counts();
    window.withhold_answers();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mounted = &mounted;
            scope.spawn(move || set_up_again_and_again(mounted, node, thread, set_ups));
        }
        // SHMEM_MAP is not answered, and so none of the set-ups, but ADD_MEM_REG is.
        let announced = window.wait_until(LIMIT, |counts| counts.announced > before.announced);
        let answers = window.counts().answers;
        window.answer_again().unwrap();
        assert_eq!((announced, answers), (true, before.answers));
    });
    let counts = window.counts();
    assert_eq!((counts.live, counts.announcements_failed), (0, 0));
    assert_eq!(counts.maps - before.maps, THREADS * set_ups);
    let waited = counts.announcement_wait_max;
    println!("ADD_MEM_REG and REM_MEM_REG waited {waited:?} at most");
    assert!(waited < LIMIT, "{waited:?}");
    mounted.end();
}

/// Maps another part of the file each time, for reading and then for writing, at the place of the last.
fn set_up_again_and_again(mounted: &Mounted, node: NodeId, thread: u64, times: u64) {
    let root = mounted.root();
    let moffset = thread * DAX_RANGE_BYTES;
    for turn in 0..times {
        let number = (thread + turn) % THREADS;
        map_part(&root, node, (number, thread), SETUPMAPPING_READ).unwrap();
        let mut seen = [0; 8];
        mounted.window.read(moffset, &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), number);
        map_part(&root, node, (number, thread), SETUPMAPPING_WRITE).unwrap();
        let one = RemovemappingOne {
            moffset,
            len: DAX_RANGE_BYTES,
        };
        root.remove_mapping(node, &[one]).unwrap();
    }
}
