//! The steward, and threads and callers as a test would have them.

use super::*;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Sender, channel};
use thrufs::serving::LOOK_INTERVAL;

#[test]
fn what_is_asked_at_once_is_as_good_as_several_callers() {
    let watch = Watch::new(2);
    watch.alarm.set_monitor(std::thread::current());
    let (mut ward, now) = (Ward::new(), Instant::now());
    let mut is_wanted = |rows: &[u64]| {
        for requests in rows {
            watch.note(1, row(*requests, 0));
        }
        let sample = ward.see(&watch.pulses[1]);
        ward.pairing.should_pair(sample, now)
    };
    assert!(!is_wanted(&[1; 20]));
    assert!(is_wanted(&[1; 20]));
    assert!(!is_wanted(&[8; 20]));
    assert!(!is_wanted(&[1; 20]), "from the start");
    assert!(is_wanted(&[1; 20]));
    assert_eq!(watch.pulses[0].counts(), [0; 3]);
}

#[test]
fn half_of_the_cpus_are_left_to_the_guest() {
    let watch = Watch::new(3);
    let mates: Vec<_> = (0..watch.room_max()).map(|_| watch.wake_mate()).collect();
    assert!(!watch.has_room());
    drop(mates);
    assert_eq!(watch.has_room(), watch.room_max() > 0);
    // That for FORGETs does not count.
    watch.set_awake(0, true);
    assert_eq!(watch.has_room(), watch.room_max() > 0);
    watch.set_awake(1, true);
    watch.set_awake(2, true);
    assert_eq!(watch.has_room(), watch.room_max() > 2);
    watch.set_awake(2, false);
    assert_eq!(watch.has_room(), watch.room_max() > 1);
}

#[test]
fn nobody_counts_for_a_steward_that_there_is_not() {
    let watch = Watch::new(2);
    watch.note(1, row(1, 1));
    assert_eq!(watch.pulses[1].counts(), [0; 3]);
    assert!(Steward::start(Arc::new(watch), Vec::new(), Arc::default()).is_none());
}

/// A caller that has run, and is, as the test says.
struct Actor {
    stat: File,
    schedstat: File,
    run: u64,
}

impl Actor {
    fn on(cpu: usize) -> Actor {
        let memory = || {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            File::from(rustix::fs::memfd_create("caller", flags).unwrap())
        };
        let mut actor = Actor {
            stat: memory(),
            schedstat: memory(),
            run: 0,
        };
        actor.moves_to(cpu);
        actor.runs(1);
        actor
    }

    fn caller(&self) -> Caller {
        Caller {
            stat: self.stat.try_clone().unwrap(),
            schedstat: self.schedstat.try_clone().unwrap(),
        }
    }

    fn moves_to(&self, cpu: usize) {
        // The 39th field, of which the third is the first behind the name.
        let text = format!("1 (a b) {}{cpu:<8}", "0 ".repeat(36));
        self.stat.write_all_at(text.as_bytes(), 0).unwrap();
    }

    fn runs(&mut self, ms: u64) {
        self.run += ms * 1_000_000;
        let text = format!("{:<20} 0 0", self.run);
        self.schedstat.write_all_at(text.as_bytes(), 0).unwrap();
    }
}

/// A thread that serves a queue until this is dropped.
struct Queue {
    id: ThreadId,
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    fn begin(watch: &Arc<Watch>) -> Queue {
        let (ends, end) = channel();
        let (tell, told) = channel();
        let watch = Arc::clone(watch);
        let thread = std::thread::spawn(move || {
            watch.begin_queue(0);
            tell.send(current_thread_id()).unwrap();
            let _ = end.recv();
            watch.end_queue(0);
            assert_eq!(*watch.pulses[0].thread.lock(), None, "nobody serves it");
        });
        Queue {
            id: told.recv().unwrap(),
            ends: Some(ends),
            thread: Some(thread),
        }
    }

    fn cpus(&self) -> CpuSet {
        sched_getaffinity(Pid::from_raw(self.id.as_raw())).unwrap()
    }

    fn is_bound_to(&self, cpu: usize) -> bool {
        let mut only = CpuSet::new();
        only.set(cpu);
        self.cpus() == only
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.ends.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A round of the steward's, with one caller and one queue, and the time.
struct Stage {
    round: Round,
    actor: Actor,
    now: Instant,
}

impl Stage {
    fn new(cpu: usize) -> Stage {
        let watch = Arc::new(Watch::new(1));
        watch.alarm.set_monitor(std::thread::current());
        let actor = Actor::on(cpu);
        let round = Round {
            callers: Callers::new(vec![actor.caller()]),
            wards: vec![Ward::new()],
            metrics: Arc::default(),
            watch,
        };
        Stage {
            round,
            actor,
            now: Instant::now(),
        }
    }

    /// The caller asks so much, and the steward looks.
    fn look(&mut self, rows: u64, row: Row) -> bool {
        self.actor.runs(2);
        (0..rows).for_each(|_| self.round.watch.note(0, row));
        self.now += LOOK_INTERVAL;
        self.round.look(self.now)
    }

    /// Until there is a pair, or should have been.
    fn look_often(&mut self) {
        for _ in 0..8 {
            self.look(20, ONE);
        }
    }

    fn is_paired(&self) -> bool {
        self.round.wards[0].pair.is_some()
    }
}

const ONE: Row = row(1, 0);

const fn row(requests: u64, large: u64) -> Row {
    Row { requests, large }
}

fn two_cpus() -> Option<(usize, usize)> {
    let allowed = allowed_cpus();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let pair = may_leave_idle().then(|| Some((cpus.next()?, cpus.next()?)));
    if pair.flatten().is_none() {
        thrufs_test_report::skipped("threads cannot be moved here");
    }
    pair.flatten()
}

#[test]
fn a_thread_goes_where_its_caller_is_and_comes_back() {
    let Some((one, other)) = two_cpus() else {
        return;
    };
    let mut stage = Stage::new(one);
    let queue = Queue::begin(&stage.round.watch);
    stage.look_often();
    assert!(stage.is_paired() && queue.is_bound_to(one));
    stage.actor.moves_to(other);
    stage.look(20, ONE);
    assert!(stage.is_paired() && queue.is_bound_to(other));
    // Settled, and then nothing to do.
    for _ in 0..20 {
        assert!(stage.look(20, ONE));
    }
    assert!(!stage.look(0, ONE));
    assert!(!stage.is_paired());
    assert_eq!(queue.cpus(), stage.round.watch.allowed);
}

#[test]
fn nobody_goes_where_this_process_may_not_be() {
    if two_cpus().is_none() {
        return;
    }
    let mut stage = Stage::new(CpuSet::MAX_CPU - 1);
    let queue = Queue::begin(&stage.round.watch);
    stage.round.watch = {
        let mut watch = Watch::new(1);
        watch.allowed = CpuSet::new();
        watch.alarm.set_monitor(std::thread::current());
        *watch.pulses[0].thread.lock() = Some(queue.id);
        Arc::new(watch)
    };
    let (one, _) = two_cpus().unwrap();
    stage.actor.moves_to(one);
    let before = queue.cpus();
    stage.look_often();
    assert!(!stage.is_paired());
    assert_eq!(queue.cpus(), before);
    assert_eq!(stage.round.metrics.snapshot().pairs, 0);
}

#[test]
fn much_data_and_several_at_once_are_not_for_a_pair() {
    let Some((one, _)) = two_cpus() else { return };
    for row in [row(1, 1), row(4, 0)] {
        let mut stage = Stage::new(one);
        let queue = Queue::begin(&stage.round.watch);
        for _ in 0..8 {
            stage.look(20, row);
        }
        assert!(!stage.is_paired(), "{row:?}");
        // A pair does not last that is asked for such things.
        stage.look_often();
        assert!(stage.is_paired() && queue.is_bound_to(one));
        stage.look(20, row);
        assert!(!stage.is_paired(), "{row:?}");
        assert_eq!(queue.cpus(), stage.round.watch.allowed);
    }
}

#[test]
fn a_thread_that_took_the_place_of_another_is_left_alone() {
    let Some((one, other)) = two_cpus() else {
        return;
    };
    let mut stage = Stage::new(one);
    let first = Queue::begin(&stage.round.watch);
    stage.look_often();
    assert!(stage.is_paired());
    drop(first);
    let second = Queue::begin(&stage.round.watch);
    stage.actor.moves_to(other);
    let before = second.cpus();
    stage.look(20, ONE);
    assert!(!stage.is_paired());
    assert_eq!(second.cpus(), before);
}

#[test]
fn what_callers_do_while_nobody_looks_does_not_count() {
    let mut stage = Stage::new(0);
    let round = &mut stage.round;
    assert_eq!(round.callers.the_busy_one(), Busy::NotKnownYet);
    stage.actor.runs(5000);
    round.rest();
    assert_eq!(round.callers.the_busy_one(), Busy::NotKnownYet);
}

#[test]
fn it_sleeps_when_nobody_asks_and_wakes_again() {
    let Some((one, _)) = two_cpus() else { return };
    let watch = Arc::new(Watch::new(1));
    let actor = Actor::on(one);
    let steward = Steward::start(Arc::clone(&watch), vec![actor.caller()], Arc::default());
    assert!(steward.is_some());
    for _ in 0..2 {
        watch.note(0, ONE);
        assert!(watch.alarm.is_armed());
        let begun = Instant::now();
        while watch.alarm.is_armed() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never rests");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}
