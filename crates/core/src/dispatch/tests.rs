//! Crafted requests to a file system with scripted replies.

mod every_opcode;
mod hostile;
mod late;
mod out_of_line;
mod recording_fs;
mod succession;

use super::*;
use recording_fs::RecordingFs;
use thrufs_abi::layout::{InitIn, InitOut};
use thrufs_abi::{NodeId, Reply, RequestBuilder};

/// All capabilities that a kernel offers and a transport without rings supports.
fn offered() -> InitFlags {
    InitFlags::all() - InitFlags::OVER_IO_URING - InitFlags::RESERVED
}

fn init_request(minor: u32, flags: InitFlags) -> Vec<u8> {
    let bits = flags.bits();
    let arg = InitIn {
        major: 7,
        minor,
        max_readahead: 131_072,
        flags: bits as u32,
        flags2: (bits >> 32) as u32,
        ..InitIn::default()
    };
    RequestBuilder::new(Opcode::Init, Unique(2), NodeId(0))
        .arg(&arg)
        .finish()
}

/// A dispatcher that has seen INIT.
fn connected(fs: RecordingFs) -> Dispatcher<RecordingFs> {
    let dispatcher = Dispatcher::new(Arc::new(fs));
    let reply = ask(&dispatcher, &init_request(45, offered())).unwrap();
    assert_eq!(reply.error, 0);
    dispatcher
}

#[derive(Debug, PartialEq)]
struct Owned {
    unique: Unique,
    error: i32,
    body: Vec<u8>,
}

impl Owned {
    fn structure<T: zerocopy::FromBytes>(&self) -> T {
        assert_eq!(self.error, 0);
        T::read_from_prefix(&self.body).unwrap().0
    }
}

fn ask<F: FileSystem>(dispatcher: &Dispatcher<F>, request: &[u8]) -> Option<Owned> {
    let mut buffer = vec![0xee; (1 << 20) + 4096];
    let length = dispatcher.answer(request, &mut buffer);
    if length == 0 {
        return None;
    }
    let reply = Reply::parse(&buffer[..length]).unwrap();
    assert!((-511..=0).contains(&reply.error), "{}", reply.error);
    assert!(reply.error == 0 || reply.body.is_empty());
    Some(Owned {
        unique: reply.unique,
        error: reply.error,
        body: reply.body.to_vec(),
    })
}

fn reply_to(dispatcher: &Dispatcher<RecordingFs>, request: RequestBuilder) -> Owned {
    ask(dispatcher, &request.finish()).unwrap()
}

fn request(opcode: Opcode) -> RequestBuilder {
    RequestBuilder::new(opcode, Unique(100), NodeId(7)).ids(1000, 1001, 4242)
}

#[test]
fn init_negotiates_versions_sizes_and_capabilities() {
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    assert!(dispatcher.features().is_none());
    let reply = ask(&dispatcher, &init_request(99, offered())).unwrap();
    let out: InitOut = reply.structure();
    assert_eq!((out.major, out.minor), (7, 45));
    assert_eq!((out.max_write, out.max_pages), (1 << 20, 256));
    assert_eq!((out.max_background, out.congestion_threshold), (256, 192));
    assert_eq!(
        (out.time_gran, out.max_stack_depth, out.request_timeout),
        (1, 0, 0)
    );
    let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
    assert_eq!(flags, dispatcher.features().unwrap().flags.bits());
    let flags = InitFlags::from_bits_retain(flags);
    assert!(flags.contains(InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT));
    assert!(
        flags.contains(InitFlags::DO_READDIRPLUS | InitFlags::SETXATTR_EXT),
        "as RecordingFs wants"
    );
    assert!(!flags.contains(InitFlags::WRITEBACK_CACHE), "not asked for");
    // A second INIT fails and changes nothing.
    let again = ask(&dispatcher, &init_request(31, InitFlags::empty())).unwrap();
    assert_eq!(again.error, -libc::EINVAL);
    assert_eq!(dispatcher.features().unwrap().minor, 45);
}

#[test]
fn init_of_other_versions() {
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    let old = ask(&dispatcher, &init_request(30, offered())).unwrap();
    assert_eq!(old.error, -libc::EPROTO);
    let failure = dispatcher.init_failure().unwrap();
    assert_eq!(
        failure,
        InitFailure::Version {
            major: 7,
            minor: 30
        }
    );
    assert!(failure.to_string().contains("Linux 5.4"));

    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    let arg = InitIn {
        major: 8,
        minor: 3,
        ..InitIn::default()
    };
    let request = RequestBuilder::new(Opcode::Init, Unique(2), NodeId(0))
        .arg(&arg)
        .finish();
    let out: InitOut = ask(&dispatcher, &request).unwrap().structure();
    assert_eq!((out.major, out.minor), (7, 45));
    assert!(dispatcher.features().is_none(), "it asks again");
    let out: InitOut = ask(&dispatcher, &init_request(36, offered()))
        .unwrap()
        .structure();
    assert_eq!((out.major, out.minor), (7, 36));
}

#[test]
fn a_file_system_may_refuse_to_start() {
    let fs = RecordingFs::with(|fs| fs.refuse_init = Some(Errno::ENODEV));
    let dispatcher = Dispatcher::new(Arc::new(fs));
    let reply = ask(&dispatcher, &init_request(45, offered())).unwrap();
    assert_eq!(reply.error, -libc::ENODEV);
    let failure = dispatcher.init_failure();
    assert_eq!(failure, Some(InitFailure::Refused(Errno::ENODEV)));
    assert!(dispatcher.features().is_none());
}

#[test]
fn old_dialects_have_the_short_setxattr() {
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    ask(
        &dispatcher,
        &init_request(31, offered() - InitFlags::SETXATTR_EXT),
    )
    .unwrap();
    let short = request(Opcode::Setxattr)
        .arg(&[3_u32, 0])
        .name(b"user.a")
        .bytes(b"abc");
    assert_eq!(reply_to(&dispatcher, short).error, 0);
    let call = dispatcher.file_system().last();
    assert_eq!(call, "setxattr 7 user.a abc 0 false");
}

#[test]
fn requests_before_init_are_answered_with_eio() {
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    let lookup = request(Opcode::Lookup).name(b"x").finish();
    assert_eq!(ask(&dispatcher, &lookup).unwrap().error, -libc::EIO);
    assert_eq!(dispatcher.metrics().snapshot().malformed, 1);
    assert_eq!(dispatcher.file_system().calls(), Vec::<String>::new());
}

#[test]
fn deferred_requests_are_carried_out_where_they_may_block() {
    let dispatcher = connected(RecordingFs::with(|fs| fs.defer = true));
    let mut buffer = vec![0; 70_000];
    let getattr = request(Opcode::Getattr).arg(&[0_u64; 2]).finish();
    let outcome = dispatcher.dispatch(&getattr, &mut buffer, false);
    assert!(matches!(outcome, Outcome::Defer(Wait::Io)), "{outcome:?}");
    let lock = thrufs_abi::layout::LkIn::default();
    let setlkw = request(Opcode::Setlkw).arg(&lock).finish();
    let outcome = dispatcher.dispatch(&setlkw, &mut buffer, false);
    assert!(
        matches!(outcome, Outcome::Defer(Wait::Lock { .. })),
        "{outcome:?}"
    );
    let setlk = request(Opcode::Setlk).arg(&lock).finish();
    assert!(matches!(
        dispatcher.dispatch(&setlk, &mut buffer, false),
        Outcome::Defer(Wait::Io)
    ));
    let snapshot = dispatcher.metrics().snapshot();
    let counts = (snapshot.deferred, snapshot.requests());
    assert_eq!(counts, (3, 1), "only INIT was answered");
    // RecordingFs defers only where it may not block.
    assert_eq!(ask(&dispatcher, &getattr).unwrap().error, 0);
    assert_eq!(ask(&dispatcher, &setlkw).unwrap().error, 0);
    // Deferring for ever ends in EIO.
    let dispatcher = connected(RecordingFs::with(|fs| fs.fail = Some(Errno::DEFER)));
    assert_eq!(ask(&dispatcher, &getattr).unwrap().error, -libc::EIO);
}

#[test]
fn a_panic_is_an_error_and_the_next_request_is_served() {
    let dispatcher = connected(RecordingFs::with(|fs| fs.panic_on = Some(NodeId(13))));
    let bad = RequestBuilder::new(Opcode::Getattr, Unique(4), NodeId(13)).arg(&[0_u64; 2]);
    assert_eq!(reply_to(&dispatcher, bad).error, -libc::EIO);
    let forget = RequestBuilder::new(Opcode::Forget, Unique(6), NodeId(13)).arg(&1_u64);
    assert_eq!(ask(&dispatcher, &forget.finish()), None);
    assert_eq!(dispatcher.metrics().snapshot().panics, 2);
    let good = request(Opcode::Getattr).arg(&[0_u64; 2]).finish();
    assert_eq!(ask(&dispatcher, &good).unwrap().error, 0);
}

#[test]
fn undelivered_replies_are_reverted() {
    let dispatcher = connected(RecordingFs::default());
    let fs = Arc::clone(dispatcher.file_system());
    let undeliver = |request: RequestBuilder| {
        let request = request.finish();
        let mut buffer = vec![0; 70_000];
        let length = dispatcher.answer(&request, &mut buffer);
        fs.clear();
        dispatcher.undelivered(&request, &buffer[..length]);
        fs.calls()
    };
    let lookup = undeliver(request(Opcode::Lookup).name(b"x"));
    assert_eq!(lookup, ["forget 42 1"]);
    let link = undeliver(request(Opcode::Link).arg(&9_u64).name(b"x"));
    assert_eq!(link, ["forget 42 1"]);
    let create = thrufs_abi::layout::CreateIn::default();
    let made = ["release 42 99", "forget 42 1"];
    let created = undeliver(request(Opcode::Create).arg(&create).name(b"x"));
    assert_eq!(created, made);
    assert_eq!(undeliver(request(Opcode::Tmpfile).arg(&create)), made);
    let open = undeliver(request(Opcode::Open).arg(&[0_u32; 2]));
    assert_eq!(open, ["release 7 99"]);
    let opendir = undeliver(request(Opcode::Opendir).arg(&[0_u32; 2]));
    assert_eq!(opendir, ["releasedir 7 99"]);
    let read = thrufs_abi::layout::ReadIn {
        size: 4096,
        ..Default::default()
    };
    let listed = undeliver(request(Opcode::Readdirplus).arg(&read));
    assert_eq!(
        listed, ["forget 42 1"; 2],
        "of three, one had no attributes"
    );
    let getattr = request(Opcode::Getattr).arg(&[0_u64; 2]);
    for nothing in [getattr, request(Opcode::Lookup).name(b"absent")] {
        assert_eq!(undeliver(nothing), Vec::<String>::new());
    }
    assert_eq!(dispatcher.metrics().snapshot().replies_refused, 9);
}

#[test]
fn an_interrupt_reaches_its_waiter() {
    let dispatcher = connected(RecordingFs::with(|fs| fs.wait_in_setlk = true));
    let lock = thrufs_abi::layout::LkIn::default();
    let setlkw = request(Opcode::Setlkw).arg(&lock).finish();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ask(&dispatcher, &setlkw).unwrap().error);
        while dispatcher.interrupts().waiting() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let interrupt =
            RequestBuilder::new(Opcode::Interrupt, Unique(101), NodeId(0)).arg(&100_u64);
        assert_eq!(ask(&dispatcher, &interrupt.finish()), None);
        assert_eq!(waiter.join().unwrap(), -libc::EINTR);
    });
    assert_eq!(dispatcher.metrics().snapshot().interrupts, 1);
}
