//! A tree under a policy, and then another server: granted opens stay granted, and new requests are judged
//! as before.

use crate::ground::{Root, Server, Session, Setup, WAYS, Way, config_for, last_place_of, mounted};
use crate::samples;
use thrufs::Begun;
use thrufs::layout::{CreateIn, OpenIn};
use thrufs_hostdir::{AuditLog, Config, Migration, MigrationMode, MigrationOnError, Resources};
use thrufs_policy::{Accounts, Policy};
use thrufs_testing::Client;
use thrufs_tests::prelude::*;

const ROOT: NodeId = NodeId::ROOT;
const EXCHANGE: u32 = 2;

pub const POLICY: &str = r#"
[[rule]]
path = "hidden"
action = "hide"

[[rule]]
path = "denied/**"
action = "deny"

[[rule]]
path = "of-one"
caller-uid = "!0"
action = "deny"

[[rule]]
path = "kept/**"
action = "read-only"

[[rule]]
path = "photos/**"
action = "redact"
redact = "gps"

[[rule]]
path = "direct"
action = "direct"
"#;

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse(text.as_bytes(), &Accounts::default()).unwrap())
}

pub fn under(way: Way, text: &str) -> Setup {
    Setup {
        config: Config {
            callers_are_local: false,
            ..config_for(way)
        },
        resources: Resources {
            policy: Some(policy(text)),
            ..Resources::default()
        },
    }
}

pub fn filled(source: &Path) {
    for directory in ["denied", "kept", "photos", "plain"] {
        fs::create_dir(source.join(directory)).unwrap();
    }
    for name in [
        "hidden", "denied/x", "kept/x", "plain/x", "of-one", "direct",
    ] {
        fs::write(source.join(name), "content").unwrap();
    }
    fs::write(source.join("photos/a.jpg"), samples::photograph()).unwrap();
}

fn on_each(rules: &str, test: impl Fn(&Session, Way)) {
    for lower in [Lower::Default, Lower::Overlay] {
        for way in WAYS {
            let ground = Ground::prepare(lower).unwrap();
            filled(ground.source());
            eprintln!("{} {way:?}", lower.name());
            test(&Session::on(ground, under(way, rules)), way);
        }
    }
}

fn open(root: &Root<'_>, node: NodeId, flags: i32) -> Result<u64, Errno> {
    root.open(node, flags).map(|opened| opened.fh)
}

fn content(root: &Root<'_>, node: NodeId, handle: u64) -> Vec<u8> {
    root.read(node, handle, 0, 1 << 20).unwrap()
}

/// Asserts the rules of each file, by nodes that were looked up before.
fn is_judged(client: &Client<Arc<Server>>, nodes: &[NodeId; 5], when: &str) {
    let (root, user) = (client.root(), client.user(1000, 1000));
    let [denied, kept, plain, of_one, photo] = *nodes;
    let read = libc::O_RDONLY;
    assert_eq!(open(&root, denied, read), Err(Errno::EACCES), "{when}");
    assert_eq!(open(&root, kept, libc::O_RDWR), Err(Errno::EROFS), "{when}");
    assert_eq!(open(&user, of_one, read), Err(Errno::EACCES), "{when}");
    for (node, flags) in [(kept, read), (plain, libc::O_RDWR), (of_one, read)] {
        let handle = open(&root, node, flags).unwrap();
        assert_eq!(content(&root, node, handle), b"content", "{when}");
        root.release(node, handle).unwrap();
    }
    let handle = open(&root, photo, read).unwrap();
    assert!(samples::is_clean(&content(&root, photo, handle)), "{when}");
    root.release(photo, handle).unwrap();
    assert_eq!(root.walk("hidden"), Err(Errno::ENOENT), "{when}");
}

#[test]
fn files_are_judged_as_before_without_a_lookup() {
    on_each(POLICY, |session, way| {
        let (_, server, root) = session.parts();
        let paths = ["denied/x", "kept/x", "plain/x", "of-one", "photos/a.jpg"];
        let nodes = paths.map(|path| root.walk(path).unwrap());
        is_judged(&session.client, &nodes, "before");
        server.passed_on(way);
        is_judged(&session.client, &nodes, "after one");
        server.passed_on(way);
        is_judged(&session.client, &nodes, "after two");
    });
}

#[test]
fn open_files_are_seen_as_before() {
    on_each(POLICY, |session, way| {
        let (source, server, root) = session.parts();
        let [photo, kept, direct] =
            ["photos/a.jpg", "kept/x", "direct"].map(|path| root.walk(path).unwrap());
        let [shown, held, direct_handle] =
            [photo, kept, direct].map(|node| open(&root, node, libc::O_RDONLY).unwrap());
        server.passed_on(way);
        server.passed_on(way);
        assert!(samples::is_clean(&content(&root, photo, shown)));
        assert_eq!(content(&root, kept, held), b"content");
        assert_eq!(content(&root, direct, direct_handle), b"content");
        // A further open takes the same data path.
        let again = root.open(direct, libc::O_RDONLY).unwrap();
        assert_ne!(again.open_flags & 1, 0, "FOPEN_DIRECT_IO");
        root.release(direct, again.fh).unwrap();
        for (node, handle) in [(photo, shown), (kept, held), (direct, direct_handle)] {
            root.release(node, handle).unwrap();
        }
        // Scanned anew: it changed meanwhile.
        fs::write(source.join("photos/a.jpg"), samples::photograph()).unwrap();
        let shown = open(&root, photo, libc::O_RDONLY).unwrap();
        assert!(samples::is_clean(&content(&root, photo, shown)));
    });
}

#[test]
fn names_are_known_from_lookup_create_link_and_rename() {
    on_each(POLICY, |session, way| {
        let (source, server, root) = session.parts();
        let [denied, plain] = ["denied", "plain"].map(|path| root.walk(path).unwrap());
        let made = root.create(plain, b"made", libc::O_RDWR, 0o600).unwrap();
        let (made, handle) = (NodeId(made.0.nodeid), made.1.fh);
        root.release(made, handle).unwrap();
        let directory = NodeId(root.mkdir(plain, b"dir", 0o700).unwrap().nodeid);
        let below = root.create(directory, b"f", libc::O_RDWR, 0o600).unwrap();
        let below_handle = below.1.fh;
        let below = NodeId(below.0.nodeid);
        root.release(below, below_handle).unwrap();
        // A second name, under a rule; and a file that moved there, with its directory.
        let linked = root.walk("plain/x").unwrap();
        fs::hard_link(source.join("plain/x"), source.join("denied/second")).unwrap();
        assert_eq!(
            NodeId(root.lookup(denied, b"second").unwrap().nodeid),
            linked
        );
        fs::rename(source.join("plain/dir"), source.join("denied/dir")).unwrap();
        assert_eq!(
            NodeId(root.lookup(denied, b"dir").unwrap().nodeid),
            directory
        );
        let read = libc::O_RDONLY;
        server.passed_on(way);
        assert_eq!(open(&root, linked, read), Err(Errno::EACCES), "by one name");
        assert_eq!(open(&root, below, read), Err(Errno::EACCES));
        let handle = open(&root, made, read).unwrap();
        root.release(made, handle).unwrap();
        // Removed names no longer count, the other one does.
        fs::remove_file(source.join("denied/second")).unwrap();
        assert_eq!(NodeId(root.lookup(plain, b"x").unwrap().nodeid), linked);
        server.passed_on(way);
        open(&root, linked, read).unwrap();
    });
}

#[test]
fn renames_and_exchanges_are_noted() {
    let rules = "[[rule]]\npath = \"shut/**\"\naction = \"read-only\"\n";
    on_each(rules, |session, way| {
        let (source, server, root) = session.parts();
        fs::create_dir(source.join("shut")).unwrap();
        let [x, one] = ["plain/x", "of-one"].map(|path| root.walk(path).unwrap());
        let plain = root.walk("plain").unwrap();
        for _ in 0..3 {
            root.rename((plain, b"x"), (ROOT, b"of-one"), EXCHANGE)
                .unwrap();
            server.passed_on(way);
        }
        root.rename((plain, b"x"), (ROOT, b"x"), 0).unwrap();
        server.passed_on(way);
        // A directory comes under the rule, with what is in it.
        root.rename((ROOT, b"x"), (plain, b"x"), 0).unwrap();
        assert_eq!(NodeId(root.lookup(plain, b"x").unwrap().nodeid), one);
        let handle = open(&root, one, libc::O_RDWR).unwrap();
        root.release(one, handle).unwrap();
        fs::rename(source.join("plain"), source.join("shut/plain")).unwrap();
        root.walk("shut/plain").unwrap();
        server.passed_on(way);
        assert_eq!(open(&root, one, libc::O_RDWR), Err(Errno::EROFS));
        assert!(open(&root, x, libc::O_RDWR).is_ok());
    });
}

#[test]
fn a_death_between_a_rename_and_its_record_does_not_hide_the_file() {
    for happened in [true, false] {
        let rules = POLICY.replace("deny", "read-only");
        let session = Session::new(filled, under(Way::Death, &rules));
        let (source, server, root) = session.parts();
        let [file, plain, _] = ["plain/x", "plain", "denied"].map(|path| root.walk(path).unwrap());
        fs::create_dir(source.join("open")).unwrap();
        let opened = root.walk("open").unwrap();
        root.rename((plain, b"x"), (opened, b"moved"), 0).unwrap();
        server.forget_that_it_was_renamed(b"x", b"moved");
        // Where it is now is under a rule, and where it was is not; or the other way round.
        if happened {
            fs::rename(source.join("denied"), source.join("denied-before")).unwrap();
            fs::rename(source.join("open"), source.join("denied")).unwrap();
            let found = root.lookup(ROOT, b"denied").unwrap();
            assert_eq!(NodeId(found.nodeid), opened);
        } else {
            fs::rename(source.join("open/moved"), source.join("plain/x")).unwrap();
        }
        server.died();
        let written = open(&root, file, libc::O_RDWR);
        if happened {
            assert_eq!(written, Err(Errno::EROFS));
        } else {
            assert!(written.is_ok(), "{written:?}");
        }
    }
}

#[test]
fn a_name_is_noted_before_it_is_given() {
    let session = Session::new(filled, under(Way::Death, POLICY));
    let (source, server, root) = session.parts();
    fs::write(source.join("plain/replaced"), "").unwrap();
    let plain = root.walk("plain").unwrap();
    root.walk("plain/x").unwrap();
    let replaced = root.walk("plain/replaced").unwrap();
    server.keeps_no_open_files();
    open(&root, replaced, libc::O_RDONLY).unwrap();
    // The lock on names is kept from the first change on.
    root.rename((plain, b"x"), (plain, b"y"), 0).unwrap();
    root.rename((plain, b"y"), (plain, b"x"), 0).unwrap();
    // A rename that is about to replace an open file has it kept, while it is in progress.
    let (ledger, (tell, heard)) = (server.ledger(), std::sync::mpsc::channel());
    let beneath = source.join("plain/x");
    server.when_keeping(move || {
        let state_of = |name: &[u8]| {
            let mut state = [0; 8];
            let at = last_place_of(&ledger, name) - 40;
            rustix::io::pread(ledger.as_fd(), &mut state, at).unwrap();
            u64::from_ne_bytes(state)
        };
        tell.send((state_of(b"x"), state_of(b"replaced"), beneath.exists()))
            .unwrap();
    });
    root.rename((plain, b"x"), (plain, b"replaced"), 0).unwrap();
    assert_eq!(heard.recv(), Ok((1, 3, true)));
}

#[test]
fn open_grants_survive_a_death_and_are_checked_on_a_move() {
    let open_to_all = "[[rule]]\npath = \"never\"\naction = \"hide\"\n";
    let session = Session::new(filled, under(Way::Death, open_to_all));
    let (_, server, root) = session.parts();
    let [photo, denied, kept] =
        ["photos/a.jpg", "denied/x", "kept/x"].map(|path| root.walk(path).unwrap());
    let shown = open(&root, photo, libc::O_RDONLY).unwrap();
    let read = open(&root, denied, libc::O_RDONLY).unwrap();
    let written = open(&root, kept, libc::O_RDWR).unwrap();

    server.serve_by(policy(POLICY));
    server.died();
    assert!(!samples::is_clean(&content(&root, photo, shown)), "granted");
    assert_eq!(content(&root, denied, read), b"content");
    root.write(kept, written, 0, b"C", 0).unwrap();
    // Others are judged by the policy in force.
    assert_eq!(open(&root, photo, libc::O_RDONLY), Err(Errno::EBUSY));
    assert_eq!(open(&root, denied, libc::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(open(&root, kept, libc::O_RDWR), Err(Errno::EROFS));

    // Nothing goes to another machine that would not be granted there.
    let state = server.saved().unwrap();
    let refused = server.restored(Migration::default(), &state);
    assert!(refused.is_err(), "{refused:?}");
    let tolerant = Migration {
        on_error: MigrationOnError::GuestError,
        ..Migration::default()
    };
    server.restored(tolerant, &state).unwrap();
    for (node, handle) in [(photo, shown), (denied, read), (kept, written)] {
        assert_eq!(root.read(node, handle, 0, 10), Err(Errno::EBADF));
    }
    let shown = open(&root, photo, libc::O_RDONLY).unwrap();
    assert!(samples::is_clean(&content(&root, photo, shown)));
}

#[test]
fn a_session_moves_from_policy_to_policy_only() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    filled(source);
    let with = Server::new(source, under(Way::Paths, POLICY));
    let without = Server::new(source, config_for(Way::Paths));
    let (of_with, of_without) = (mounted(&with), mounted(&without));
    of_with.root().walk("plain/x").unwrap();
    of_without.root().walk("plain/x").unwrap();
    let (one, other) = (with.saved().unwrap(), without.saved().unwrap());
    for (server, state) in [(&with, other), (&without, one)] {
        let refused = server.restored(Migration::default(), &state);
        assert!(refused.is_err());
    }
}

/// Whatever a state has, no file is shown that the rules here withhold.
#[test]
fn any_byte_of_a_state_may_be_another_and_nothing_is_given_away() {
    let session = Session::new(filled, under(Way::Paths, POLICY));
    let (source, server, root) = session.parts();
    let photo = root.walk("photos/a.jpg").unwrap();
    let denied = root.walk("denied/x").unwrap();
    root.walk("plain/x").unwrap();
    let handle = open(&root, photo, libc::O_RDONLY).unwrap();
    let listing = root.opendir(root.walk("plain").unwrap()).unwrap().fh;
    let state = server.saved().unwrap();
    let tolerant = Migration {
        on_error: MigrationOnError::GuestError,
        mode: MigrationMode::FindPaths,
        ..Migration::default()
    };
    let mut gone_on = 0;
    for at in 0..state.len() {
        let mut bent = state.clone();
        bent[at] ^= if at % 2 == 0 { 0x01 } else { 0xff };
        if server.restored(tolerant.clone(), &bent).is_err() {
            continue;
        }
        gone_on += 1;
        if let Ok(bytes) = root.read(photo, handle, 0, 1 << 20) {
            assert!(samples::is_clean(&bytes), "byte {at}");
        }
        if let Ok(handle) = open(&root, photo, libc::O_RDONLY) {
            let bytes = root.read(photo, handle, 0, 1 << 20).unwrap_or_default();
            assert!(samples::is_clean(&bytes), "byte {at}");
        }
        if let Ok(handle) = open(&root, denied, libc::O_RDONLY) {
            // A node may become another file, but is not opened under another's name.
            let bytes = root.read(denied, handle, 0, 100).unwrap();
            let beneath = fs::metadata(source.join("denied/x")).unwrap();
            let shown = root.getattr(denied).unwrap().attr.ino;
            let is_denied = shown == MetadataExt::ino(&beneath);
            assert!(!is_denied, "byte {at}: {bytes:?}");
        }
        let _ = root.releasedir(NodeId(0), listing);
    }
    assert!(gone_on > 50, "{gone_on}");
}

#[test]
fn an_open_is_audited_once() {
    let rules = "[[rule]]\npath = \"plain/**\"\naction = \"audit\"\n";
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    filled(source);
    let log = ground.base().join("audit.log");
    let file = File::options().create(true).append(true).open(&log);
    let mut setup = under(Way::Death, rules);
    setup.resources.audit_log = AuditLog::new(Some(file.unwrap().into()));
    let session = Session::on(ground, setup);
    let (_, server, root) = session.parts();
    let records = || {
        let text = fs::read_to_string(&log).unwrap();
        text.matches("\"event\":\"open\"").count()
    };
    let plain = root.walk("plain").unwrap();
    let node = root.walk("plain/x").unwrap();
    let open = OpenIn {
        flags: libc::O_RDWR as u32,
        open_flags: 0,
    };
    let create = CreateIn {
        flags: (libc::O_RDWR | libc::O_CREAT) as u32,
        mode: libc::S_IFREG | 0o600,
        ..CreateIn::default()
    };
    let requests = [
        root.request(Opcode::Open, node).arg(&open).finish(),
        root.request(Opcode::Create, plain)
            .arg(&create)
            .name(b"new")
            .finish(),
    ];
    let begun = Begun {
        nanoseconds: 0,
        before: 0,
    };
    for (at, request) in requests.iter().enumerate() {
        assert!(session.client.transact(request).is_some());
        assert_eq!(records(), 2 * at + 1);
        server.died();
        // The answer was never seen: the request is replayed.
        let answer = server.answer_again(request, begun);
        assert_eq!(answer[4..8], [0; 4], "no error");
        assert_eq!(
            records(),
            2 * at + 1,
            "{}",
            fs::read_to_string(&log).unwrap()
        );
        // Another open of the same file is separate.
        let other = root.walk(["plain/x", "plain/new"][at]).unwrap();
        root.open(other, libc::O_RDWR).unwrap();
        assert_eq!(records(), 2 * at + 2);
    }
}

/// The writer of a redacted file continues after a death; no other descriptor open for writing does. Another machine
/// cannot know that it was the writer.
#[test]
fn the_writer_of_a_redacted_file_stays_the_only_one() {
    on_each(POLICY, |session, way| {
        let (source, server, root) = session.parts();
        let photos = root.walk("photos").unwrap();
        let flags = libc::O_RDWR | libc::O_EXCL;
        let (entry, early) = root.create(photos, b"new.jpg", flags, 0o600).unwrap();
        let node = NodeId(entry.nodeid);
        let camera = open(&root, node, libc::O_RDWR).unwrap();
        let photograph = samples::photograph();
        let (first, rest) = photograph.split_at(100);
        assert_eq!(root.write(node, camera, 0, first, 0), Ok(100));
        if way != Way::Death {
            let state = server.saved().unwrap();
            let refused = server.restored(Migration::default(), &state);
            assert!(refused.is_err());
            return;
        }
        for when in ["after one", "after two"] {
            server.passed_on(way);
            let refused = root.write(node, early.fh, 0, b"x", 0);
            assert_eq!(refused, Err(Errno::EACCES), "{when}");
            assert_eq!(
                open(&root, node, libc::O_WRONLY),
                Err(Errno::EACCES),
                "{when}"
            );
        }
        assert_eq!(
            root.write(node, camera, 100, rest, 0),
            Ok(rest.len() as u32)
        );
        let beneath = fs::read(source.join("photos/new.jpg")).unwrap();
        assert!(beneath == photograph);
        let busy = open(&root, node, libc::O_RDONLY);
        assert_eq!(busy, Err(Errno::EBUSY), "while it is written");
        root.release(node, camera).unwrap();
        let handle = open(&root, node, libc::O_RDONLY).unwrap();
        assert!(samples::is_clean(&content(&root, node, handle)));
    });
}

/// A death returns nothing that another caller has taken.
#[test]
fn refused_opens_stay_refused_by_the_next_server() {
    let session = Session::new(filled, under(Way::Death, POLICY));
    let (source, server, root) = session.parts();
    let photos = root.walk("photos").unwrap();
    let flags = libc::O_RDWR | libc::O_EXCL;
    let (entry, open) = root.create(photos, b"new.jpg", flags, 0o600).unwrap();
    let node = NodeId(entry.nodeid);
    assert_eq!(root.write(node, open.fh, 0, b"mine", 0), Ok(4));
    server.died();
    assert_eq!(root.write(node, open.fh, 0, b"mine", 0), Ok(4));
    let beneath = File::options()
        .write(true)
        .open(source.join("photos/new.jpg"));
    Write::write_all(&mut beneath.unwrap(), b"ours").unwrap();
    for _ in 0..2 {
        let refused = root.write(node, open.fh, 0, b"mine", 0);
        assert_eq!(refused, Err(Errno::EACCES));
        server.died();
    }
}
