//! Requests that are answered later, without a transport: who comes first, and what ends them.

use super::*;
use crate::{Attributes, Entry, FileHandle, Interrupted, Late, LateTarget, Name};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

type Answer = Box<dyn Fn(&Context<'_>) -> Result<Attributes> + Send + Sync>;

/// Answers GETATTR by what a test gives.
struct Asks(Answer);

impl FileSystem for Asks {
    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
        Err(Errno::ENOENT)
    }

    fn getattr(
        &self,
        context: &Context<'_>,
        _: NodeId,
        _: Option<FileHandle>,
    ) -> Result<Attributes> {
        (self.0)(context)
    }
}

fn asked_with_max(
    late_max: usize,
    answer: impl Fn(&Context<'_>) -> Result<Attributes> + Send + Sync + 'static,
) -> Dispatcher<Asks> {
    let fs = Arc::new(Asks(Box::new(answer)));
    let dispatcher = Dispatcher::new(fs).with_late_max(late_max);
    ask(&dispatcher, &init_request(45, offered())).unwrap();
    dispatcher
}

fn asked(
    answer: impl Fn(&Context<'_>) -> Result<Attributes> + Send + Sync + 'static,
) -> Dispatcher<Asks> {
    asked_with_max(100_000, answer)
}

/// A dispatcher whose GETATTRs a test gets.
fn waiting(late_max: usize) -> (Dispatcher<Asks>, Receiver<Late<Attributes>>) {
    let (pass, passed) = channel();
    let dispatcher = asked_with_max(late_max, move |context| {
        pass.send(context.answer_later()?).unwrap();
        Err(Errno::LATER)
    });
    (dispatcher, passed)
}

fn getattr(unique: u64) -> Vec<u8> {
    let arg = thrufs_abi::layout::GetattrIn::default();
    RequestBuilder::new(Opcode::Getattr, Unique(unique), NodeId(7))
        .arg(&arg)
        .finish()
}

/// What a transport would send.
#[derive(Default)]
struct Sent(Option<std::sync::mpsc::Sender<Vec<u8>>>);

impl LateTarget for Sent {
    fn send(self: Box<Self>, head: &[u8], data: &[u8]) {
        let _ = self.0.unwrap().send([head, data].concat());
    }
}

/// Dispatches a request that is answered later, and returns where its reply comes.
fn dispatch(dispatcher: &Dispatcher<Asks>, unique: u64) -> Receiver<Vec<u8>> {
    let (send, sent) = channel();
    let mut reply = vec![0; 4096];
    match dispatcher.dispatch(&getattr(unique), &mut reply, false) {
        Outcome::Later(later) => later.keep(Box::new(Sent(Some(send)))),
        other => panic!("{other:?}"),
    }
    sent
}

/// The error in a reply that is there.
fn error_in(sent: &Receiver<Vec<u8>>) -> i32 {
    Reply::parse(&sent.try_recv().unwrap()).unwrap().error
}

fn error_of(dispatcher: &Dispatcher<Asks>) -> i32 {
    ask(dispatcher, &getattr(6)).unwrap().error
}

fn attributes() -> Attributes {
    Attributes {
        attr: thrufs_abi::layout::Attr::default(),
        timeout: Duration::ZERO,
    }
}

fn interrupt(dispatcher: &Dispatcher<Asks>, unique: u64) {
    let request = RequestBuilder::new(Opcode::Interrupt, Unique(unique | 1), NodeId(0));
    let arg = thrufs_abi::layout::InterruptIn { unique };
    assert!(ask(dispatcher, &request.arg(&arg).finish()).is_none());
}

#[test]
fn ten_thousand_are_out_at_once_and_each_gets_its_own_answer() {
    const NUMBER: u64 = 10_000;
    let (dispatcher, passed) = waiting(NUMBER as usize);
    let sent: Vec<_> = (0..NUMBER)
        .map(|number| dispatch(&dispatcher, 2 * number + 2))
        .collect();
    assert_eq!(dispatcher.metrics().snapshot().late, NUMBER);
    let lates: Vec<Late<Attributes>> = passed.try_iter().collect();
    let giver = std::thread::spawn(move || {
        for (number, late) in lates.into_iter().enumerate().rev() {
            let mut answer = attributes();
            answer.attr.ino = number as u64;
            late.give(Ok(answer));
        }
    });
    giver.join().unwrap();
    for (number, sent) in sent.iter().enumerate() {
        let bytes = sent.try_recv().unwrap();
        let reply = Reply::parse(&bytes).unwrap();
        let out: thrufs_abi::layout::AttrOut = reply.structure().unwrap();
        assert_eq!(
            (reply.unique.0, out.attr.ino),
            (2 * number as u64 + 2, number as u64)
        );
    }
    let snapshot = dispatcher.metrics().snapshot();
    assert_eq!(snapshot.late, 0);
    let counts = snapshot.operation(Opcode::Getattr).unwrap();
    assert_eq!((counts.requests(), counts.errors), (NUMBER, 0));
}

#[test]
fn a_request_that_is_dropped_fails_with_eio() {
    let (dispatcher, passed) = waiting(9);
    let sent = dispatch(&dispatcher, 4);
    drop(passed.recv().unwrap());
    assert_eq!(error_in(&sent), -libc::EIO);
    let panicking = dispatch(&dispatcher, 6);
    let late = passed.recv().unwrap();
    let panicked = std::thread::spawn(move || {
        let _late = late;
        panic!("as the test wants it");
    });
    assert!(panicked.join().is_err());
    assert_eq!(error_in(&panicking), -libc::EIO);
    let dropping = asked(|context| {
        drop(context.answer_later::<Attributes>()?);
        Err(Errno::LATER)
    });
    assert_eq!(error_of(&dropping), -libc::EIO);
    let snapshot = dispatcher.metrics().snapshot();
    assert_eq!((snapshot.late, snapshot.late_dropped), (0, 2));
}

#[test]
fn an_answer_may_come_before_the_method_has_returned() {
    let dispatcher = asked(|context| {
        let late = context.answer_later()?;
        let given = std::thread::spawn(|| late.give(Ok(attributes())));
        given.join().unwrap();
        Err(Errno::LATER)
    });
    let sent = dispatch(&dispatcher, 8);
    assert_eq!(error_in(&sent), 0);
    assert_eq!(dispatcher.metrics().snapshot().late, 0);
}

#[test]
fn what_the_method_returns_is_the_answer_unless_it_is_later() {
    let (pass, passed) = channel();
    let dispatcher = asked(move |context| {
        pass.send(context.answer_later::<Attributes>()?).unwrap();
        Err(Errno::EDQUOT)
    });
    assert_eq!(error_of(&dispatcher), -libc::EDQUOT);
    passed.recv().unwrap().give(Ok(attributes()));
    let panicking = asked(|context| {
        let _late = context.answer_later::<Attributes>()?;
        panic!("as the test wants it")
    });
    assert_eq!(error_of(&panicking), -libc::EIO);
    for dispatcher in [dispatcher, panicking] {
        let snapshot = dispatcher.metrics().snapshot();
        assert_eq!((snapshot.late, snapshot.requests()), (0, 2), "{snapshot}");
    }
    assert_eq!(error_of(&asked(|_| Err(Errno::LATER))), -libc::EIO);
}

#[test]
fn another_type_and_a_second_time_are_refused() {
    let other = asked(|context| {
        assert_eq!(context.answer_later::<Entry>().unwrap_err(), Errno::EIO);
        Err(Errno::EDQUOT)
    });
    assert_eq!(error_of(&other), -libc::EDQUOT);
    let twice = asked(|context| {
        let late = context.answer_later()?;
        let second = context.answer_later::<Attributes>();
        assert_eq!(second.unwrap_err(), Errno::EIO);
        late.give(Ok(attributes()));
        Err(Errno::LATER)
    });
    assert_eq!(error_of(&twice), 0);
}

#[test]
fn an_interrupt_sets_the_flag_and_calls_back() {
    let (dispatcher, passed) = waiting(9);
    let sent = [4, 6].map(|unique| dispatch(&dispatcher, unique));
    let [late, other] = [passed.recv().unwrap(), passed.recv().unwrap()];
    let token = late.interrupt_token();
    let (call, called) = channel();
    late.on_interrupt(move || call.send(()).unwrap());
    assert!(called.try_recv().is_err() && !late.is_interrupted());
    interrupt(&dispatcher, 4);
    called.try_recv().unwrap();
    assert!(late.is_interrupted() && token.is_set() && !other.is_interrupted());
    // Too late for a callback that waits.
    let (call, called) = channel();
    late.on_interrupt(move || call.send(()).unwrap());
    called.try_recv().unwrap();
    late.give(Err(Errno::EINTR));
    assert_eq!(error_in(&sent[0]), -libc::EINTR);
    other.give(Ok(attributes()));
    assert_eq!(error_in(&sent[1]), 0);
    // Another thread may read the interrupt first.
    interrupt(&dispatcher, 8);
    let _sent = dispatch(&dispatcher, 8);
    assert!(passed.recv().unwrap().is_interrupted());
}

/// Counts how often its task is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn all_tasks_that_wait_for_an_interrupt_are_woken_by_it_or_by_the_answer() {
    let (dispatcher, passed) = waiting(9);
    let _sent = [4, 6].map(|unique| dispatch(&dispatcher, unique));
    for end in [true, false] {
        let late = passed.recv().unwrap();
        let tasks: [Arc<Woken>; 2] = Default::default();
        let mut futures = [late.interrupted(), late.interrupted().clone()];
        let mut poll = |task: usize| {
            let waker = Waker::from(Arc::clone(&tasks[task]));
            Pin::new(&mut futures[task]).poll(&mut task::Context::from_waker(&waker))
        };
        let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::SeqCst));
        assert!([0, 1, 1].map(&mut poll).iter().all(Poll::is_pending));
        assert_eq!(woken(), [0, 0]);
        if end {
            late.give(Ok(attributes()));
        } else {
            interrupt(&dispatcher, 6);
        }
        assert_eq!(woken(), [1, 1]);
        assert!([0, 1].map(&mut poll).iter().all(Poll::is_ready));
        assert_eq!(futures.each_ref().map(Interrupted::is_set), [!end; 2]);
    }
}

#[test]
fn a_callback_that_panics_or_holds_its_request_harms_nobody() {
    let (dispatcher, passed) = waiting(9);
    let sent = [4, 6].map(|unique| dispatch(&dispatcher, unique));
    let panics = passed.recv().unwrap();
    panics.on_interrupt(|| panic!("as the test wants it"));
    interrupt(&dispatcher, 4);
    assert_eq!(dispatcher.metrics().snapshot().panics, 1);
    drop(panics);
    let late = passed.recv().unwrap();
    let drops = Arc::new(());
    let held = Arc::clone(&drops);
    late.on_interrupt(move || drop(held));
    late.give(Ok(attributes()));
    assert_eq!(Arc::strong_count(&drops), 1, "dropped with the answer");
    assert_eq!(error_in(&sent[1]), 0);
}

#[test]
fn beyond_late_max_requests_wait_on_threads_that_may_sleep() {
    let (dispatcher, passed) = waiting(2);
    let _first = [4, 12].map(|unique| dispatch(&dispatcher, unique));
    let first = [passed.recv().unwrap(), passed.recv().unwrap()];
    let mut reply = vec![0; 4096];
    let refused = dispatcher.dispatch(&getattr(8), &mut reply, false);
    assert!(matches!(refused, Outcome::Defer(Wait::Late)), "{refused:?}");
    assert_eq!(Wait::Late.refusal(), Some(Errno::EAGAIN));
    std::thread::scope(|scope| {
        let third = scope.spawn(|| error_of(&dispatcher));
        while dispatcher.interrupts().waiting() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(dispatcher.metrics().snapshot().late, 2);
        let [one, _two] = first;
        one.give(Ok(attributes()));
        passed.recv().unwrap().give(Ok(attributes()));
        assert_eq!(third.join().unwrap(), 0);
        // It is interrupted while it waits.
        let _fourth = dispatch(&dispatcher, 10);
        let interrupted = scope.spawn(|| error_of(&dispatcher));
        while dispatcher.interrupts().waiting() == 0 {
            std::thread::yield_now();
        }
        interrupt(&dispatcher, 6);
        assert_eq!(interrupted.join().unwrap(), -libc::EINTR);
    });
}

/// A guest may give two requests the same number.
#[test]
fn the_end_answers_all_that_are_out_and_later_answers_have_no_effect() {
    let (dispatcher, passed) = waiting(9);
    let sent = [4, 4, 6].map(|unique| dispatch(&dispatcher, unique));
    let lates: Vec<_> = passed.try_iter().collect();
    let (call, called) = channel();
    lates[0].on_interrupt(move || call.send(()).unwrap());
    dispatcher.end_waits();
    called.try_recv().unwrap();
    for sent in &sent {
        assert_eq!(error_in(sent), -libc::ENOTCONN);
    }
    for late in lates {
        assert!(late.is_interrupted());
        late.give(Ok(attributes()));
    }
    assert!(sent.iter().all(|sent| sent.try_recv().is_err()));
    let snapshot = dispatcher.metrics().snapshot();
    assert_eq!((snapshot.late, snapshot.late_dropped), (0, 0));
    assert_eq!(error_of(&dispatcher), -libc::ENOTCONN);
}

/// The file system has its requests, and those know the transport: neither keeps the other for ever.
#[test]
fn nothing_is_left_of_a_session_that_has_ended() {
    let (dispatcher, passed) = waiting(9);
    let sent = dispatch(&dispatcher, 4);
    let late = passed.recv().unwrap();
    let fs = Arc::downgrade(dispatcher.file_system());
    dispatcher.end_waits();
    drop(dispatcher);
    assert!(fs.upgrade().is_none());
    assert_eq!(error_in(&sent), -libc::ENOTCONN);
    assert!(sent.recv().is_err(), "the transport's part is dropped");
    late.give(Ok(attributes()));
}
