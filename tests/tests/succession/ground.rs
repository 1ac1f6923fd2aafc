//! A client whose server is replaced.

use rustix::fs::SeekFrom;
use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, RwLock};
use thrufs::{Begun, Dispatcher};
use thrufs_hostdir::{
    Config, FdStore, HostDir, Ledger, Locks, Migration, MigrationMode, Resources,
};
use thrufs_policy::Policy;
use thrufs_testing::{Caller, Carrier, Client, OFFERED_BY_GUESTS};
use thrufs_tests::prelude::*;

/// What a supervisor keeps for its workers.
#[derive(Default)]
pub struct Box {
    kept: Mutex<HashMap<u64, OwnedFd>>,
    when_keeping: Mutex<Option<WhenKeeping>>,
    /// Takes no descriptors of files that are only open.
    is_small: AtomicBool,
}

type WhenKeeping = std::boxed::Box<dyn FnMut() + Send>;

impl Box {
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

impl FdStore for Box {
    fn keep(&self, key: u64, fd: BorrowedFd<'_>) -> io::Result<()> {
        let fd = fd.try_clone_to_owned()?;
        if let Some(when_keeping) = self.when_keeping.lock().unwrap().as_mut() {
            when_keeping();
        }
        self.kept.lock().unwrap().insert(key, fd);
        Ok(())
    }

    fn kept_max(&self) -> usize {
        match self.is_small.load(Ordering::SeqCst) {
            true => 0,
            false => usize::MAX,
        }
    }

    fn discard(&self, key: u64) {
        self.kept.lock().unwrap().remove(&key);
    }

    fn take(&self) -> Vec<(u64, OwnedFd)> {
        let kept = self.kept.lock().unwrap();
        let duplicate = |(key, fd): (&u64, &OwnedFd)| (*key, fd.try_clone().unwrap());
        kept.iter().map(duplicate).collect()
    }
}

/// How a worker serves a directory.
#[derive(Clone)]
pub struct Setup {
    pub config: Config,
    pub resources: Resources,
}

impl From<Config> for Setup {
    fn from(config: Config) -> Setup {
        Setup {
            config,
            resources: Resources::default(),
        }
    }
}

/// Sends requests to the current server.
pub struct Server {
    current: RwLock<Option<Dispatcher<HostDir>>>,
    /// What a supervisor gives to its workers, and keeps for them.
    setup: RwLock<(Setup, Arc<Box>)>,
    source: RwLock<PathBuf>,
}

impl Carrier for Server {
    fn transact(&self, request: &[u8], reply_bytes_max: usize) -> Vec<u8> {
        let mut reply = vec![0; reply_bytes_max.max(1 << 20) + 4096];
        let current = self.current.read().unwrap();
        let length = current.as_ref().unwrap().answer(request, &mut reply);
        reply.truncate(length);
        reply
    }
}

/// How a session gets to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Paths,
    Handles,
    Death,
}

pub const WAYS: [Way; 3] = [Way::Paths, Way::Handles, Way::Death];

impl Server {
    pub fn new(source: &Path, setup: impl Into<Setup>) -> Server {
        let server = Server {
            current: RwLock::new(None),
            setup: RwLock::new(supervised(setup.into())),
            source: RwLock::new(source.to_owned()),
        };
        *server.current.write().unwrap() = Some(server.next());
        server
    }

    /// A worker of the present supervisor.
    fn next(&self) -> Dispatcher<HostDir> {
        made(
            &self.source.read().unwrap(),
            self.setup.read().unwrap().0.clone(),
        )
    }

    /// Waits until the supervisor keeps so many: a thread has those of open files stored and discarded.
    pub fn wait_for_kept(&self, expected: usize) {
        wait_until(&format!("{expected} to be kept"), || {
            self.setup.read().unwrap().1.len() == expected
        });
    }

    pub fn statistics(&self) -> thrufs_hostdir::Statistics {
        let current = self.current.read().unwrap();
        current.as_ref().unwrap().file_system().statistics()
    }

    /// The state of the session, in the form that `change` asks for.
    pub fn saved(&self) -> io::Result<Vec<u8>> {
        let mut state = Vec::new();
        let current = self.current.read().unwrap();
        current.as_ref().unwrap().save(&mut state)?;
        Ok(state)
    }

    /// Restores a state in a server that has a supervisor of its own.
    pub fn restored(&self, migration: Migration, state: &[u8]) -> io::Result<()> {
        let source = self.source.read().unwrap().clone();
        self.restored_in(&source, migration, state)
    }

    /// The same on another tree.
    pub fn restored_in(&self, source: &Path, migration: Migration, state: &[u8]) -> io::Result<()> {
        let mut setup = self.setup.read().unwrap().0.clone();
        setup.config.migration = migration;
        let supervised = supervised(setup);
        let next = made(source, supervised.0.clone());
        next.restore(&mut &*state)?;
        *self.current.write().unwrap() = Some(next);
        *self.setup.write().unwrap() = supervised;
        source.clone_into(&mut self.source.write().unwrap());
        Ok(())
    }

    pub fn passed_on(&self, way: Way) {
        if way == Way::Death {
            return self.died();
        }
        let mode = match way {
            Way::Handles => MigrationMode::FileHandles,
            _ => MigrationMode::FindPaths,
        };
        let migration = Migration {
            mode,
            ..Migration::default()
        };
        let state = self.saved().unwrap();
        self.restored(migration, &state).unwrap();
    }

    /// Without notice: only the ledger and the fd store are left.
    pub fn died(&self) {
        self.died_while(|| {});
    }

    /// As [`died`](Self::died), with an action while no server runs.
    pub fn died_while(&self, act: impl FnOnce()) {
        let mut current = self.current.write().unwrap();
        let before = current.take().unwrap();
        let init = before.init_request().unwrap();
        drop(before);
        act();
        let next = self.next();
        next.resume(&init, next.services()).unwrap();
        *current = Some(next);
    }

    /// What a worker records before an operation that must not be repeated.
    pub fn begin(&self, request: &[u8]) -> Begun {
        let current = self.current.read().unwrap();
        let before = current.as_ref().unwrap().look_before(request, false);
        Begun {
            nanoseconds: thrufs_sys::clock::coarse_time().as_nanos() as u64,
            before,
        }
    }

    /// Replays a request that may have been carried out.
    pub fn answer_again(&self, request: &[u8], begun: Begun) -> Vec<u8> {
        let mut reply = vec![0; 4096];
        let current = self.current.read().unwrap();
        let length = current
            .as_ref()
            .unwrap()
            .answer_again(request, &mut reply, begun);
        reply.truncate(length);
        reply
    }

    /// The next server uses another policy.
    pub fn serve_by(&self, policy: Arc<Policy>) {
        self.setup.write().unwrap().0.resources.policy = Some(policy);
    }

    /// For the workers to come.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut self.setup.write().unwrap().0.config);
    }

    /// Takes no descriptors of files that are only open from now on.
    pub fn keeps_no_open_files(&self) {
        let setup = self.setup.read().unwrap();
        setup.1.is_small.store(true, Ordering::SeqCst);
    }

    /// Runs `act` while a descriptor is being kept.
    pub fn when_keeping(&self, act: impl FnMut() + Send + 'static) {
        let setup = self.setup.read().unwrap();
        *setup.1.when_keeping.lock().unwrap() = Some(std::boxed::Box::new(act));
    }

    /// Restores the ledger as it was before a rename, which has come about: the old name is there, and the
    /// new one perhaps.
    pub fn forget_that_it_was_renamed(&self, old: &[u8], new: &[u8]) {
        let ledger = self.ledger();
        for (name, state) in [(old, 1u64), (new, 3)] {
            // A name is 40 bytes behind the state of its record, and 8 behind its length.
            let at = last_place_of(&ledger, name) - 40;
            rustix::io::pwrite(ledger.as_fd(), &state.to_ne_bytes(), at).unwrap();
        }
    }

    pub fn ledger(&self) -> Ledger {
        let setup = &self.setup.read().unwrap().0;
        setup.resources.ledger.clone().unwrap()
    }

    /// As [`died`](Self::died), of a worker whose successor is dropped at once.
    pub fn could_go_on(&self) -> io::Result<()> {
        let init = self
            .current
            .read()
            .unwrap()
            .as_ref()
            .unwrap()
            .init_request();
        let next = self.next();
        next.resume(&init.unwrap(), next.services())
    }
}

/// Where a name, with its length before it, is in the last table of a ledger.
pub fn last_place_of(ledger: &Ledger, name: &[u8]) -> u64 {
    let wanted = [&(name.len() as u64).to_ne_bytes()[..], name, &[0]].concat();
    let (mut at, mut found) = (0, None);
    while let Ok(data) = rustix::fs::seek(ledger.as_fd(), SeekFrom::Data(at)) {
        let mut page = [0; 4096];
        rustix::io::pread(ledger.as_fd(), &mut page, data & !0xfff).unwrap();
        let inside = page
            .windows(wanted.len())
            .rposition(|bytes| bytes == wanted);
        found = inside
            .map(|inside| (data & !0xfff) + inside as u64)
            .or(found);
        at = (data | 0xfff) + 1;
    }
    found.unwrap() + 8
}

fn made(source: &Path, setup: Setup) -> Dispatcher<HostDir> {
    let host = HostDir::open(source, setup.config, setup.resources);
    Dispatcher::new(Arc::new(host.unwrap()))
}

fn supervised(mut setup: Setup) -> (Setup, Arc<Box>) {
    let fd_store = Arc::<Box>::default();
    setup.resources.ledger = Some(Ledger::new().unwrap());
    setup.resources.fd_store = Some(Arc::clone(&fd_store) as Arc<dyn FdStore>);
    (setup, fd_store)
}

pub fn config(mode: MigrationMode) -> Config {
    Config {
        locks: Locks::Shared,
        // As over virtio-fs.
        passthrough: false,
        migration: Migration {
            mode,
            ..Migration::default()
        },
        ..Config::default()
    }
}

pub fn config_for(way: Way) -> Config {
    config(match way {
        Way::Handles => MigrationMode::FileHandles,
        Way::Paths | Way::Death => MigrationMode::FindPaths,
    })
}

pub fn mounted(server: &Server) -> Client<&Server> {
    Client::over_offering(server, 45, OFFERED_BY_GUESTS).unwrap()
}

/// A tree, its server, and a client.
pub struct Session {
    pub client: Client<Arc<Server>>,
    server: Arc<Server>,
    ground: Ground,
}

pub type Root<'a> = Caller<'a, Arc<Server>>;

impl Session {
    /// In a tree that `fill` makes.
    pub fn new(fill: impl FnOnce(&Path), setup: impl Into<Setup>) -> Session {
        let ground = Ground::prepare(Lower::Default).unwrap();
        fill(ground.source());
        Session::on(ground, setup)
    }

    pub fn on(ground: Ground, setup: impl Into<Setup>) -> Session {
        let server = Arc::new(Server::new(ground.source(), setup));
        let client = Client::over_offering(Arc::clone(&server), 45, OFFERED_BY_GUESTS).unwrap();
        Session {
            client,
            server,
            ground,
        }
    }

    pub fn parts(&self) -> (&Path, &Server, Root<'_>) {
        (self.ground.source(), &self.server, self.client.root())
    }
}
