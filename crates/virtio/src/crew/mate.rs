//! One thread of a crew: asleep until it is called, then at work until there is nothing to do.

use super::{Crew, Found, Next, Terms};
use crate::frame::Kind;
use crate::patience::Patience;
use crate::post::Returned;
use crate::serving::{Carried, carry_out};
use crate::session::MakeFileSystem;
use crate::slot::Slot;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

/// The place of one thread.
#[derive(Debug, Default)]
pub(super) struct Berth {
    is_taken: AtomicBool,
    thread: Mutex<Option<Thread>>,
    asleep: AtomicBool,
}

impl Berth {
    fn wake(&self) {
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }
}

impl<M: MakeFileSystem> Crew<M> {
    /// Has one more thread work, if there is another.
    pub(crate) fn call(self: &Arc<Self>) {
        // One that is about to fall asleep is missed; the next request calls again.
        let idle = |(_, berth): &(usize, &Berth)| {
            !berth.is_taken.load(Ordering::Relaxed) || berth.asleep.load(Ordering::Relaxed)
        };
        let Some((number, berth)) = self.berths.iter().enumerate().find(idle) else {
            return;
        };
        if !self.has_room() {
            return;
        }
        if !berth.is_taken.swap(true, Ordering::Relaxed) {
            self.start(number);
        } else if berth.asleep.swap(false, Ordering::SeqCst) {
            berth.wake();
        }
    }

    fn start(self: &Arc<Self>, number: usize) {
        let (crew, count) = (Arc::clone(self), self.threads.one_more());
        let started = std::thread::Builder::new()
            .name("thrufs-helper".to_owned())
            .spawn(move || {
                let _count = count;
                let _serving = crew.shared.threads.begin();
                crew.live(&crew.berths[number]);
            });
        if let Err(error) = started {
            tracing::debug!(%error, "no further thread for a queue");
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    fn live(self: &Arc<Self>, berth: &Berth) {
        *berth.thread.lock() = Some(std::thread::current());
        let mut patience = Patience::new(self.shared.spin);
        while !self.is_ending() {
            let awake = self.shared.watch.wake_mate();
            self.awake.fetch_add(1, Ordering::Relaxed);
            self.work(&mut patience);
            self.awake.fetch_sub(1, Ordering::Relaxed);
            drop(awake);
            berth.asleep.store(true, Ordering::SeqCst);
            while berth.asleep.load(Ordering::SeqCst) && !self.is_ending() {
                std::thread::park();
            }
        }
    }

    /// Works as long as there is something to do.
    fn work(self: &Arc<Self>, patience: &mut Patience) {
        while let Some(terms) = self.join() {
            // Whoever calls may have taken the next itself, and there is another soon.
            patience.note_request();
            let mut finished = None;
            let unreturned = loop {
                match self.exchange(&terms, finished.take()) {
                    Next::Request(taken) => match self.read(&terms, taken) {
                        Found::Request(slot, kind) => {
                            patience.note_request();
                            finished = self.carry_out(&terms, slot, kind);
                        }
                        Found::Malformed(returned) => finished = Some(returned),
                    },
                    Next::Nothing if self.looks_out(&terms, patience) => {}
                    Next::Nothing => return,
                    Next::Closed(unreturned) => break unreturned,
                }
            };
            // Whoever hears of the result may wait for the session to go.
            drop(terms);
            if let Some(returned) = unreturned {
                self.post.give_back(returned);
            }
        }
    }

    fn join(&self) -> Option<Terms<M::FileSystem>> {
        self.counter.lock().terms.clone()
    }

    /// Looks out for more. False when there is none for long.
    fn looks_out(&self, terms: &Terms<M::FileSystem>, patience: &mut Patience) -> bool {
        if !patience.is_worth_it() {
            return false;
        }
        patience.look_out(|| {
            self.opening.load(Ordering::Relaxed) != terms.opening
                || self.sees_more(terms) && !self.post.has_news()
        })
    }

    /// Carries a request out, to its end, and returns what has to be given back here.
    fn carry_out(&self, terms: &Terms<M::FileSystem>, slot: Slot, kind: Kind) -> Option<Returned> {
        if matches!(kind, Kind::Init | Kind::Destroy) {
            self.post.hand_over(slot, kind);
            return None;
        }
        match carry_out(&terms.session, &self.post, &self.shared.metrics, slot) {
            Carried::Out(returned) => Some(returned),
            Carried::Asleep(sleeping) if sleeping.wait.is_for_lock() => {
                self.post.hand_over(sleeping.slot, kind);
                None
            }
            Carried::Asleep(sleeping) => Some(sleeping.carry_out()),
        }
    }

    /// Ends the threads. Those that have not ended by `deadline` do when their requests have.
    pub(crate) fn end(&self, deadline: Instant) {
        self.begin_to_end();
        self.threads.wait_for_none(deadline);
    }

    /// Has the threads end.
    pub(crate) fn begin_to_end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.berths.iter().for_each(Berth::wake);
    }
}
