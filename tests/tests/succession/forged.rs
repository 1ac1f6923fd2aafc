//! States that no server has written: what a client could not have got by requests, it does not get by one.

use crate::ground::{Server, Session, Setup, Way, config_for};
use crate::rules::{POLICY, filled, under};
use crate::samples;
use serde::Serialize;
use thrufs_hostdir::{AuditLog, Config, IdMap, IdRange, Migration, MigrationOnError};
use thrufs_tests::prelude::*;

const ROOT: NodeId = NodeId::ROOT;
const ABORT: MigrationOnError = MigrationOnError::Abort;
const TOLERATE: MigrationOnError = MigrationOnError::GuestError;
/// A photograph that is read, and one that is written.
const FILTERED: u32 = 3 | 1 << 8 | (libc::EACCES as u32) << 16;
const WRITTEN: u32 = FILTERED + 1;
const CACHED: u32 = 1;

fn id(index: u64) -> NodeId {
    NodeId(1 << 32 | index)
}

/// Whole records in each chunk.
struct Chunks {
    state: Vec<u8>,
    chunk: Vec<u8>,
}

impl Chunks {
    fn put(&mut self, record: &impl Serialize) {
        let chunk = std::mem::take(&mut self.chunk);
        self.chunk = postcard::to_extend(record, chunk).unwrap();
        if self.chunk.len() > 1 << 19 {
            self.end_chunk();
        }
    }

    fn end_chunk(&mut self) {
        self.state.extend((self.chunk.len() as u32).to_le_bytes());
        self.state.append(&mut self.chunk);
    }

    fn finish(mut self) -> Vec<u8> {
        self.end_chunk();
        self.end_chunk();
        self.state
    }
}

#[derive(Clone, Default)]
struct State {
    is_under_policy: bool,
    /// Numbers, directories, names.
    mounts: Vec<(u32, NodeId, &'static str)>,
    /// Node, type, path; lost without a path.
    nodes: Vec<(NodeId, u32, Option<&'static str>)>,
    names: Vec<(NodeId, NodeId, &'static str)>,
    /// Handle, node, flags, route.
    files: Vec<(u64, NodeId, i32, u32)>,
    /// Its files say what belongs to a session under a policy if this one is not, and the other way round.
    is_mixed: bool,
    /// How many locks each owner has, of which none is written.
    owners: Vec<u32>,
}

impl State {
    fn under_policy(nodes: &[(NodeId, &'static str)]) -> State {
        let node = |&(node, path): &(NodeId, &'static str)| {
            let is_file = path.ends_with("/x") || path.ends_with(".jpg") || path.ends_with(".png");
            let file_type = if is_file {
                libc::S_IFREG
            } else {
                libc::S_IFDIR
            };
            (node, file_type, Some(path))
        };
        State {
            is_under_policy: true,
            nodes: nodes.iter().map(node).collect(),
            ..State::default()
        }
    }

    /// Its directory and name; without a node of that directory, all of it as a name in the root.
    fn place_of(&self, path: &'static str) -> (u64, &[u8]) {
        let at = path.rsplit_once('/').and_then(|(above, name)| {
            let mut nodes = self.nodes.iter();
            let above = nodes.find(|(_, _, path)| *path == Some(above))?;
            Some((above.0.0, name.as_bytes()))
        });
        at.unwrap_or((ROOT.0, path.as_bytes()))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut state = Chunks {
            state: Vec::new(),
            chunk: b"THRUHOST".to_vec(),
        };
        // The first version of it.
        state.put(&(0_u8, self.is_under_policy, [5_u32; 3]));
        let [mounts, nodes] = [self.mounts.len(), self.nodes.len()];
        let [names, files] = [self.names.len(), self.files.len()];
        state.put(&[mounts, nodes, names, files, 0, self.owners.len()]);
        for (number, directory, name) in &self.mounts {
            state.put(&(number, directory.0, name.as_bytes()));
        }
        let identity = None::<()>;
        for (node, file_type, path) in &self.nodes {
            let place = path.map(|path| self.place_of(path));
            state.put(&(node.0, 1_u64, file_type, identity, place));
        }
        for (node, directory, name) in &self.names {
            state.put(&(node.0, directory.0, name.as_bytes()));
        }
        for (handle, node, flags, route) in &self.files {
            let route = (self.is_under_policy != self.is_mixed).then_some(route);
            let note = (1 << 32 | handle, node.0, flags, route, [0_u32; 2]);
            state.put(&(note, 0_u8, true, None::<()>));
        }
        for ranges in &self.owners {
            state.put(&(2_u64, 5_u64, 0_u64, 1_u32, ranges));
        }
        state.finish()
    }

    fn restored(
        &self,
        server: &Server,
        source: &Path,
        on_error: MigrationOnError,
    ) -> io::Result<()> {
        let migration = Migration {
            on_error,
            ..Migration::default()
        };
        // INIT stands before it, as the client sent it.
        let mut state = server.saved()?;
        let begins = state.windows(8).position(|it| it == b"THRUHOST").unwrap();
        state.truncate(begins - 4);
        state.extend(self.bytes());
        server.restored_in(source, migration, &state)
    }
}

fn handle(number: u64) -> u64 {
    1 << 32 | number
}

fn served(setup: impl Into<Setup>) -> Session {
    Session::new(filled, setup)
}

/// Nodes 2 and 3 are a file and its directory.
#[test]
fn no_node_has_a_name_that_does_not_lead_to_it() {
    const RULES: &str = "[[rule]]\npath = \"denied\"\naction = \"hide\"\n\
         [[rule]]\npath = \"photos/**\"\naction = \"redact\"\nredact = \"gps\"\n";
    let session = served(under(Way::Paths, RULES));
    let (source, server, root) = session.parts();
    let (file, directory) = (id(2), id(3));
    let names = [
        "harmless",
        "./denied/x",
        "denied//x",
        "./photos/a.jpg",
        "photos/a.jpg",
        "x",
        "a.jpg",
    ];
    for (path, above) in [("denied/x", "denied"), ("photos/a.jpg", "photos")] {
        for name in names {
            let with = |nodes: &[(NodeId, &'static str)]| State {
                names: vec![
                    (file, ROOT, name),
                    (file, id(4), name),
                    (directory, ROOT, name),
                ],
                ..State::under_policy(nodes)
            };
            // Without its directory, also if that comes later.
            for state in [
                with(&[(file, path)]),
                with(&[(file, path), (directory, above)]),
            ] {
                assert!(state.restored(server, source, ABORT).is_err(), "{name}");
                state.restored(server, source, TOLERATE).unwrap();
                let shown = root.getattr(file).map(drop);
                assert_eq!(shown, Err(Errno::ESTALE), "{path} as {name}");
                let opened = root.open(file, libc::O_RDONLY).map(drop);
                assert_eq!(opened, Err(Errno::ESTALE), "{path} as {name}");
            }
            // A second node of the same file.
            let twice = with(&[(directory, above), (id(4), path), (file, path)]);
            assert!(twice.restored(server, source, ABORT).is_err(), "{name}");
            // With it: the other names are none.
            with(&[(directory, above), (file, path), (id(4), "plain")])
                .restored(server, source, ABORT)
                .unwrap();
            if above == "photos" {
                let opened = root.open(file, libc::O_RDONLY).unwrap().fh;
                let shown = root.read(file, opened, 0, 1 << 20).unwrap();
                assert!(samples::is_clean(&shown), "{name}");
                continue;
            }
            for node in [directory, file] {
                assert_eq!(root.getattr(node).map(drop), Err(Errno::ENOENT), "{name}");
            }
            let opened = root.open(file, libc::O_RDONLY).map(drop);
            assert_eq!(opened, Err(Errno::ENOENT), "{name}");
            let inside = root.lookup(directory, b"x").unwrap();
            assert_eq!(inside.nodeid, 0, "{name}");
            assert!(root.opendir(directory).is_err(), "{name}");
        }
    }
}

#[test]
fn no_state_makes_the_writer_of_a_redacted_file() {
    let session = served(under(Way::Paths, POLICY));
    let (source, server, root) = session.parts();
    let mut state = State::under_policy(&[(id(3), "photos"), (id(2), "photos/a.jpg")]);
    for (route, written) in [(WRITTEN, Errno::EBADF), (FILTERED, Errno::EACCES)] {
        state.files = vec![(1, id(2), libc::O_RDWR, route)];
        let is_refused = state.restored(server, source, ABORT).is_err();
        assert_eq!(is_refused, route == WRITTEN);
        state.restored(server, source, TOLERATE).unwrap();
        assert_eq!(root.write(id(2), handle(1), 22, b"\x99", 0), Err(written));
        let opened = root.open(id(2), libc::O_RDONLY).unwrap().fh;
        let shown = root.read(id(2), opened, 0, 1 << 20).unwrap();
        assert!(samples::is_clean(&shown));
    }
}

#[test]
fn an_open_file_of_a_state_has_the_types_of_the_rule_here() {
    let rules = "[[rule]]\npath = \"photos/**\"\ncontent = \"image/png\"\naction = \"redact\"\nredact = \"gps\"\n";
    let session = served(under(Way::Paths, rules));
    let (source, server, root) = session.parts();
    let mut state = State::under_policy(&[(id(3), "photos"), (id(2), "photos/a.jpg")]);
    state.files = vec![(1, id(2), libc::O_RDONLY, FILTERED)];
    state.restored(server, source, TOLERATE).unwrap();
    assert!(root.open(id(2), libc::O_RDONLY).is_err());
    assert!(root.read(id(2), handle(1), 0, 1 << 20).is_err());
}

#[test]
fn an_audited_file_that_a_state_has_open_is_recorded() {
    let mut setup = under(
        Way::Paths,
        "[[rule]]\npath = \"plain/**\"\naction = \"audit\"\n",
    );
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = File::options().append(true).open(log.path());
    setup.resources.audit_log = AuditLog::new(Some(file.unwrap().into()));
    let session = served(setup);
    let (source, server, _) = session.parts();
    let mut state = State::under_policy(&[(id(3), "plain"), (id(2), "plain/x")]);
    state.files = vec![(1, id(2), libc::O_RDWR, CACHED)];
    state.restored(server, source, ABORT).unwrap();
    let text = fs::read_to_string(log.path()).unwrap();
    assert_eq!(
        text.matches("\"outcome\":\"migrated\"").count(),
        1,
        "{text}"
    );
    assert!(
        text.contains("\"path\":\"plain/x\",\"access\":\"read and write\""),
        "{text}"
    );
}

#[test]
fn files_of_a_state_are_opened_as_by_a_request() {
    // As user 1000, clients have files of the host's root.
    let map = IdMap::Ranges(vec![IdRange {
        client: 1000,
        host: 0,
        count: 1,
    }]);
    let session = served(Config {
        uid_map: map.clone(),
        gid_map: map,
        callers_are_local: false,
        ..config_for(Way::Paths)
    });
    let (source, server, root) = session.parts();
    chown(source.join("denied/x"), Some(5), None).unwrap();
    fs::set_permissions(source.join("plain/x"), PermissionsExt::from_mode(0o4755)).unwrap();
    let mut state = State::under_policy(&[
        (id(4), "denied"),
        (id(5), "plain"),
        (id(2), "denied/x"),
        (id(3), "plain/x"),
    ]);
    state.is_under_policy = false;
    state.files = vec![
        (1, id(2), libc::O_RDWR, 0),
        (2, id(3), libc::O_RDONLY | libc::O_DIRECT, 0),
    ];
    assert!(
        state.restored(server, source, ABORT).is_err(),
        "of no user of the map"
    );
    state.restored(server, source, TOLERATE).unwrap();
    assert_eq!(root.write(id(2), handle(1), 0, b"C", 0), Err(Errno::EBADF));
    assert_eq!(
        root.read(id(3), handle(2), 1, 3).unwrap(),
        b"ont",
        "not O_DIRECT"
    );
    let mode = || {
        fs::metadata(source.join("plain/x"))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode(), 0o10_4755);
    state.files = vec![(1, id(3), libc::O_RDWR, 0)];
    state.restored(server, source, ABORT).unwrap();
    assert_eq!(mode(), 0o10_0755, "a store through a map drops nothing");
}

#[test]
fn nodes_without_a_file_of_their_own_take_bounded_memory() {
    let session = served(config_for(Way::Paths));
    let (source, server, _) = session.parts();
    let node = |path| move |at: u64| (id(2 + at), libc::S_IFREG, path);
    for path in [None, Some("of-one")] {
        let state = State {
            nodes: (0..300_000).map(node(path)).collect(),
            ..State::default()
        };
        let refused = state.restored(server, source, TOLERATE).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("have no file here"), "{refused}");
    }
}

#[test]
fn states_that_contradict_themselves_are_refused() {
    for (is_under_policy, rules) in [(false, ""), (true, POLICY)] {
        let session = match is_under_policy {
            true => served(under(Way::Paths, rules)),
            false => served(config_for(Way::Paths)),
        };
        let (source, server, _) = session.parts();
        let plain = State {
            is_under_policy,
            ..State::under_policy(&[(id(3), "plain"), (id(2), "plain/x")])
        };
        let refused = |state: &State| {
            let refused = state.restored(server, source, TOLERATE);
            refused.map_or_else(|error| error.to_string(), |()| "taken".to_owned())
        };
        let mut opened = plain.clone();
        opened.files = vec![(1, id(2), libc::O_RDONLY, CACHED)];
        assert_eq!(refused(&opened), "taken");
        if is_under_policy {
            opened.files[0].3 = 9;
            assert!(refused(&opened).contains("damaged"), "{}", refused(&opened));
        }
        opened.is_mixed = true;
        assert!(refused(&opened).contains("is unknown"));
        let mut named = plain.clone();
        named.names = vec![(id(2), ROOT, "x")];
        let expected = if is_under_policy { "taken" } else { "names" };
        assert!(refused(&named).contains(expected));
        let mut twice = plain.clone();
        twice.nodes.push((id(2), libc::S_IFREG, Some("of-one")));
        assert!(refused(&twice).contains("there can be no node 0x100000002"));
        let mut mounted = plain.clone();
        for numbers in [&[0][..], &[1, 2, 1]] {
            let mounts = numbers.iter().map(|number| (*number, ROOT, "plain"));
            mounted.mounts = mounts.collect();
            assert!(refused(&mounted).contains("there can be no mount"));
        }
        let mut locked = plain.clone();
        for (ranges, why) in [(1 << 16, "too early"), (1 << 16 | 1, "too many locks")] {
            locked.owners = vec![ranges];
            assert!(refused(&locked).contains(why), "{}", refused(&locked));
        }
    }
}

/// The other direction: what an honest server saves is in directories that the state has.
#[test]
fn files_that_the_host_moved_to_unknown_directories_end_no_migration() {
    let rules = "[[rule]]\npath = \"denied/**\"\naction = \"deny\"\n";
    let session = served(under(Way::Paths, rules));
    let (source, server, root) = session.parts();
    fs::create_dir(source.join("beside")).unwrap();
    let [moved, linked] = ["plain/x", "direct"].map(|path| root.walk(path).unwrap());
    fs::rename(source.join("plain/x"), source.join("beside/x")).unwrap();
    fs::hard_link(source.join("direct"), source.join("beside/direct")).unwrap();
    server.passed_on(Way::Paths);
    for node in [moved, linked] {
        assert!(root.open(node, libc::O_RDONLY).is_ok());
    }
    assert_eq!(root.walk("beside/x"), Ok(moved));
}
