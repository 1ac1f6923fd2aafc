//! The journal of a session over `/dev/fuse`, in shared memory, from which the next process goes on when one is
//! killed.
//!
//! The process that starts servers makes one for each connection, keeps `/dev/fuse` open, and gives both to each
//! server, one after the other. The journal holds the INIT request, and what each thread is doing that must not
//! be done twice. The kernel sends what the dead one has read again, to whoever asks
//! (`FUSE_NOTIFY_RESEND`, Linux 6.9), under the same number with one more bit; the number is looked up here.
//! It is written by plain stores, in an order that leaves it consistent between any two; no lock, no system call.
//!
//! | a request was | the next process |
//! |---|---|
//! | not noted | carries it out: twice does no harm |
//! | begun | [finds out](crate::dispatch::Dispatcher::answer_again) what was done |
//! | answered | sends that answer |

use crate::dispatch::Begun;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{MemfdFlags, SealFlags};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs_abi::opcode::Repeat;
use thrufs_abi::{Opcode, UNIQUE_RESEND, Unique};
use thrufs_sys::shared_memory::records::{Bytes, SharedRecords, Stated, Word};
use thrufs_sys::shared_records;

shared_records! {
    struct Header {
        /// Of the INIT request; 0 before the session.
        init_length: Word,
        /// Servers that have died.
        deaths: Word,
        init: Bytes<INIT_WORDS>,
    }

    /// What a thread is doing. The state is the number of the request; 0 for none.
    struct Progress {
        /// See [`Begun`].
        nanoseconds: Word,
        before: Word,
        /// Of the answer; 0 before there is one.
        length: Word,
        answer: Bytes<ANSWER_WORDS>,
    }
}

/// Longer than INIT requests are.
const INIT_WORDS: usize = 128;
/// For the answer to CREATE, which is the longest of those that are kept.
const ANSWER_WORDS: usize = 20;

const PLACES_AT: u64 = 4096;
/// More than a session has threads that carry out requests.
const PLACES: usize = 1024;
const BYTES: u64 = PLACES_AT + (PLACES * size_of::<Stated<Progress>>()) as u64;

/// See the module. Clones share the memory.
#[derive(Clone)]
pub struct Journal {
    memory: Arc<OwnedFd>,
    header: Arc<SharedRecords<Header>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Journal")
    }
}

impl Journal {
    /// An empty one, for a new connection: some 180 KiB of address space.
    ///
    /// # Errors
    /// Without descriptors or memory.
    pub fn new() -> io::Result<Journal> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("thrufs-journal", flags)?;
        rustix::fs::ftruncate(&memory, BYTES)?;
        // Whoever is compromised must not truncate it: the next process would get SIGBUS.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Journal::from_memory(memory)
    }

    /// One that another process has made.
    ///
    /// # Errors
    /// When it has another size or cannot be mapped.
    pub fn from_memory(memory: OwnedFd) -> io::Result<Journal> {
        let header = SharedRecords::new(memory.as_fd(), 0, 1)?;
        Ok(Journal {
            memory: Arc::new(memory),
            header: Arc::new(header),
        })
    }

    /// Whether a session has begun that another process can go on with.
    pub fn has_session(&self) -> bool {
        self.header[0].init_length.load() != 0
    }

    /// How many servers have died.
    pub fn deaths(&self) -> u64 {
        self.header[0].deaths.load()
    }

    /// Counts one more.
    pub fn count_death(&self) {
        self.header[0].deaths.add(1);
    }

    /// The INIT request of the session.
    pub(crate) fn session(&self) -> Option<Vec<u8>> {
        let header = &self.header[0];
        let length = header.init_length.load();
        (length != 0).then(|| header.init.get(length))?
    }

    /// Notes the begin of the session, before INIT is answered. False if the request is too long.
    pub(crate) fn begin_session(&self, init: &[u8]) -> bool {
        let header = &self.header[0];
        let noted = header.init.put(init).is_some();
        if noted {
            header.init_length.store(init.len() as u64);
        }
        noted
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// What the dead process was doing with a request that the kernel sends again.
#[derive(Debug)]
pub(crate) enum Left {
    Begun(Place, Begun),
    Answered(Place, Vec<u8>),
}

/// A thread's place in the journal. Free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    writer: Arc<Writer>,
    index: usize,
}

/// The journal, as the process that serves writes it.
pub(crate) struct Writer {
    places: SharedRecords<Stated<Progress>>,
    taken: Mutex<Vec<bool>>,
    /// Requests of the dead process may still arrive.
    is_resuming: AtomicBool,
    left: Mutex<HashMap<u64, Left>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Reads what the dead process has left, if there was one.
    pub(crate) fn new(journal: &Journal) -> io::Result<Arc<Writer>> {
        let places: SharedRecords<Stated<Progress>> =
            SharedRecords::new(journal.as_fd(), PLACES_AT, PLACES)?;
        let taken = places.iter().map(|place| place.state.load() != 0).collect();
        let writer = Arc::new(Writer {
            places,
            taken: Mutex::new(taken),
            is_resuming: AtomicBool::new(journal.has_session()),
            left: Mutex::default(),
        });
        let mut left = HashMap::new();
        for (index, progress) in writer.places.iter().enumerate() {
            let unique = progress.state.load();
            if unique == 0 {
                continue;
            }
            let writer = Arc::clone(&writer);
            let place = Place { writer, index };
            let answer = progress.answer.get(progress.length.load());
            let begun = Begun {
                nanoseconds: progress.nanoseconds.load(),
                before: progress.before.load(),
            };
            let entry = match answer.filter(|answer| !answer.is_empty()) {
                Some(answer) => Left::Answered(place, answer),
                None => Left::Begun(place, begun),
            };
            left.insert(unique, entry);
        }
        *writer.left.lock() = left;
        Ok(writer)
    }

    /// A place for a thread; `None` when all are taken.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken.lock();
        let index = taken.iter().position(|taken| !taken)?;
        taken[index] = true;
        Some(Place {
            writer: Arc::clone(self),
            index,
        })
    }

    /// While requests of the dead process may arrive: to be held from before a request is read until it was
    /// looked up. So that no thread has one in hand when the first other request says that none is left.
    pub(crate) fn resuming(&self) -> Option<Resuming<'_>> {
        if !self.is_resuming.load(Ordering::Acquire) {
            return None;
        }
        let left = self.left.lock();
        self.is_resuming
            .load(Ordering::Acquire)
            .then_some(Resuming { writer: self, left })
    }
}

pub(crate) struct Resuming<'a> {
    writer: &'a Writer,
    left: MutexGuard<'a, HashMap<u64, Left>>,
}

impl Resuming<'_> {
    /// What the dead process has left of the request that was read. The kernel sends what is left before
    /// anything else, but for FORGETs and INTERRUPTs.
    pub(crate) fn left(&mut self, unique: Unique, opcode: Option<Opcode>) -> Option<Left> {
        if unique.0 & UNIQUE_RESEND != 0 {
            return self.left.remove(&(unique.0 & !UNIQUE_RESEND));
        }
        let is_ordered = !matches!(
            opcode,
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) | None
        );
        if is_ordered {
            // The others were answered.
            self.left.clear();
            self.writer.is_resuming.store(false, Ordering::Release);
        }
        None
    }
}

impl Place {
    fn progress(&self) -> &Stated<Progress> {
        &self.writer.places[self.index]
    }

    /// Notes that a request begins.
    pub(crate) fn begin(&self, unique: Unique, begun: Begun) {
        let progress = self.progress();
        progress.state.store(0);
        progress.length.store(0);
        progress.nanoseconds.store(begun.nanoseconds);
        progress.before.store(begun.before);
        progress.state.store(unique.0 & !UNIQUE_RESEND);
    }

    /// Notes the answer, before it is sent, if there is room for it.
    pub(crate) fn answer(&self, unique: Unique, answer: &[u8]) {
        let progress = self.progress();
        let unique = unique.0 & !UNIQUE_RESEND;
        let has_begun = progress.state.load() == unique;
        if !has_begun {
            progress.length.store(0);
        }
        if progress.answer.put(answer).is_some() {
            progress.length.store(answer.len() as u64);
            progress.state.store(unique);
        }
    }

    /// The answer was sent.
    pub(crate) fn end(&self) {
        self.progress().state.store(0);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
        self.writer.taken.lock()[self.index] = false;
    }
}

/// Whether the begin of a request is noted. (What is never repeated has no answer, and does not come again.)
pub(crate) fn is_begin_noted(opcode: Opcode) -> bool {
    opcode.row().repeat == Repeat::Noted
}

/// Whether the answer to a request is noted: another would be of one more open file.
pub(crate) fn is_answer_noted(opcode: Opcode) -> bool {
    is_begin_noted(opcode) || matches!(opcode, Opcode::Open | Opcode::Opendir | Opcode::Tmpfile)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Begun = Begun {
        nanoseconds: 17,
        before: 4,
    };

    fn again(journal: &Journal) -> Arc<Writer> {
        let memory = journal.memory.try_clone().unwrap();
        Writer::new(&Journal::from_memory(memory).unwrap()).unwrap()
    }

    /// A process that dies leaves its places as they are.
    fn dies(place: Place) {
        std::mem::forget(place);
    }

    fn resent(number: u64) -> Unique {
        Unique(number | UNIQUE_RESEND)
    }

    #[test]
    fn what_a_dead_process_was_doing_is_found_by_the_number() {
        let journal = Journal::new().unwrap();
        assert!(!journal.has_session() && journal.session().is_none());
        let writer = Writer::new(&journal).unwrap();
        assert!(writer.resuming().is_none(), "nobody has died");
        assert!(journal.begin_session(b"init"));
        let places: Vec<Place> = (0..5).map(|_| writer.place().unwrap()).collect();
        places[0].begin(Unique(10), BEGUN);
        places[1].begin(Unique(12), BEGUN);
        places[1].answer(Unique(12), b"made");
        places[2].answer(Unique(14), b"opened");
        places[3].begin(Unique(16), BEGUN);
        places[3].answer(Unique(16), b"sent");
        places[3].end();
        places.into_iter().for_each(dies);

        let next = again(&journal);
        assert_eq!(journal.session().unwrap(), b"init");
        let mut resuming = next.resuming().unwrap();
        let mut left = |number| resuming.left(resent(number), Some(Opcode::Mkdir));
        assert!(matches!(left(10), Some(Left::Begun(_, BEGUN))));
        assert!(matches!(left(12), Some(Left::Answered(_, it)) if it == b"made"));
        assert!(left(12).is_none(), "once");
        assert!(matches!(left(14), Some(Left::Answered(_, it)) if it == b"opened"));
        assert!(left(16).is_none() && left(18).is_none());
    }

    #[test]
    fn a_request_that_does_not_come_again_ends_the_resuming() {
        let journal = Journal::new().unwrap();
        journal.begin_session(b"init");
        let writer = Writer::new(&journal).unwrap();
        let place = writer.place().unwrap();
        place.begin(Unique(10), BEGUN);
        dies(place);
        let next = again(&journal);
        let mut resuming = next.resuming().unwrap();
        for unordered in [Some(Opcode::Forget), Some(Opcode::Interrupt), None] {
            assert!(resuming.left(Unique(20), unordered).is_none());
        }
        drop(resuming);
        next.resuming()
            .unwrap()
            .left(Unique(22), Some(Opcode::Lookup));
        assert!(next.resuming().is_none());
        assert!(again(&journal).left.lock().is_empty(), "it was answered");
    }

    /// The next but one has what the first has begun, if the next did not come to it.
    #[test]
    fn what_was_not_gone_on_with_stays() {
        let journal = Journal::new().unwrap();
        journal.begin_session(b"init");
        let writer = Writer::new(&journal).unwrap();
        let place = writer.place().unwrap();
        place.begin(Unique(10), BEGUN);
        dies(place);
        let second = again(&journal);
        let own = second.place().unwrap();
        own.begin(Unique(30), BEGUN);
        dies(own);
        let left = second.resuming().unwrap().left(resent(10), None).unwrap();
        std::mem::forget(left);
        assert_eq!(again(&journal).left.lock().len(), 2);
    }

    #[test]
    fn places_are_given_back_and_limited() {
        let journal = Journal::new().unwrap();
        let writer = Writer::new(&journal).unwrap();
        let all: Vec<Place> = std::iter::from_fn(|| writer.place()).collect();
        assert_eq!(all.len(), PLACES);
        drop(all);
        let place = writer.place().unwrap();
        place.answer(Unique(2), &[0; ANSWER_WORDS * 8 + 1]);
        assert_eq!(place.progress().state.load(), 0, "too long to be noted");
    }

    #[test]
    fn the_memory_cannot_be_truncated() {
        let journal = Journal::new().unwrap();
        assert!(rustix::fs::ftruncate(&journal, 0).is_err());
        assert!(!journal.begin_session(&[0; INIT_WORDS * 8 + 1]));
        journal.count_death();
        assert_eq!(journal.deaths(), 1);
    }
}
