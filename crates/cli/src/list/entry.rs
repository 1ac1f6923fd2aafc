//! What is known of a mount or share.

use super::probe::Answer;
use super::processes::{Namespace, Processes};
use crate::control::protocol::escape;
use crate::metrics::transport;
use crate::mount_table::Mount;
use serde::Serialize;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Most other mount namespaces of a mount that are named.
const NAMESPACES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Mount,
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Serving,
    /// There is a server, and no answer of it in time.
    Silent,
    /// There is a server, and no control socket to ask it.
    Running,
    /// The server has ended.
    Dead,
    /// No server is found.
    Unknown,
}

/// Another mount namespace that it is mounted in.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Elsewhere {
    path: String,
    /// How many processes are in it.
    pub(super) processes: usize,
    /// One of them.
    pub(super) process: i32,
    pub(super) name: String,
}

impl Elsewhere {
    pub(super) fn of(namespace: &Namespace, mount: &Mount) -> Elsewhere {
        Elsewhere {
            path: text(&mount.path),
            processes: namespace.processes,
            process: namespace.process,
            name: namespace.name.clone(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// Mount point, or socket.
    pub(super) place: String,
    pub(super) source: Option<String>,
    user: u32,
    pub(super) state: State,
    /// `dev`, `uring` or `vhost-user`.
    pub(super) transport: Option<&'static str>,
    pub(super) passthrough: Option<bool>,
    /// `never`, `metadata`, `auto` or `always`.
    pub(super) cache: Option<String>,
    pub(super) writeback: bool,
    /// What is watched for changes: `directories` or `filesystem`.
    pub(super) follow: Option<&'static str>,
    /// The supervisor.
    pub(super) server: Option<i32>,
    /// Those that serve.
    pub(super) workers: Vec<i32>,
    pub(super) age_s: Option<u64>,
    pub(super) requests: Option<u64>,
    pub(super) requests_per_s: Option<f64>,
    pub(super) is_mounted_here: bool,
    /// The number of a mount's connection.
    #[serde(skip)]
    connection: Option<u32>,
    /// Other mount namespaces: the first ones, and how many there are.
    pub(super) elsewhere: Vec<Elsewhere>,
    pub(super) elsewhere_count: usize,
    /// What to do about its state.
    pub(super) remedy: Option<String>,
    /// What the server has answered.
    #[serde(skip)]
    pub(super) statistics: Option<Value>,
}

fn text(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

impl Entry {
    fn new(kind: Kind, place: &Path, user: u32) -> Entry {
        Entry {
            kind,
            place: text(place),
            source: None,
            user,
            state: State::Unknown,
            transport: None,
            passthrough: None,
            cache: None,
            writeback: false,
            follow: None,
            server: None,
            workers: Vec::new(),
            age_s: None,
            requests: None,
            requests_per_s: None,
            is_mounted_here: false,
            connection: None,
            elsewhere: Vec::new(),
            elsewhere_count: 0,
            remedy: None,
            statistics: None,
        }
    }

    pub(super) fn of_mount(
        mount: &Mount,
        user: u32,
        is_mounted_here: bool,
        mut elsewhere: Vec<Elsewhere>,
    ) -> Entry {
        let elsewhere_count = elsewhere.len();
        elsewhere.truncate(NAMESPACES_MAX);
        Entry {
            source: Some(escape(mount.source.as_bytes())),
            is_mounted_here,
            elsewhere,
            elsewhere_count,
            connection: Some(mount.device.minor),
            ..Entry::new(Kind::Mount, &mount.path, user)
        }
    }

    /// By its control socket.
    pub(super) fn of_share(user: u32, control: &Path) -> Entry {
        Entry::new(Kind::Share, control, user)
    }

    /// As the arguments of its workers say.
    pub(super) fn name_share(&mut self, source: &Path, socket: &Path) {
        (self.place, self.source) = (text(socket), Some(text(source)));
    }

    /// Its server was found among the processes.
    pub(super) fn runs_as(&mut self, server: i32, processes: &Processes) {
        self.server = Some(server);
        let workers = processes.workers_of(server).map(|it| it.pid);
        self.workers = workers.collect();
        self.age_s = processes.age(server).map(|age| age.as_secs());
        if self.state == State::Unknown {
            self.state = State::Running;
        }
    }

    /// Adds what was found out.
    pub(super) fn complete(&mut self, answer: Answer, processes: &Processes) {
        let holders = || processes.holding(self.connection.unwrap_or_default());
        let worker = holders().find(|it| it.is_worker);
        let other = holders().find(|it| !it.is_worker).map(|it| it.pid);
        let supervisor = worker.map(|it| it.parent).or(other);
        let is_held = self.connection.is_some() && holders().next().is_some();
        self.state = match &answer {
            it if it.statistics.is_some() => State::Serving,
            it if it.is_silent => State::Silent,
            it if it.is_dead == Some(true) => State::Dead,
            _ if is_held => State::Running,
            // Nobody holds the connection that this user sees.
            it if it.is_left => State::Dead,
            _ => State::Unknown,
        };
        if let Some(server) = answer
            .server
            .or(supervisor.filter(|_| self.connection.is_some()))
        {
            self.runs_as(server, processes);
        }
        if let Some(statistics) = &answer.statistics {
            self.describe(statistics);
            let again = answer.again.as_ref();
            self.requests_per_s = again.map(|(time, later)| {
                let more = requests(later).saturating_sub(requests(statistics));
                more as f64 / time.as_secs_f64()
            });
        }
        self.remedy = self.remedy();
        self.statistics = answer.statistics;
    }

    /// Whether it is what this was, served by the same process.
    pub(super) fn is_same(&self, other: &Entry) -> bool {
        let of = |it: &Entry| (it.kind, it.server, it.workers.clone());
        self.place == other.place && of(self) == of(other)
    }

    /// Adds a rate, by what was known before.
    pub(super) fn compare(&mut self, before: &[Entry], passed: Duration) {
        let before = before.iter().find(|it| it.is_same(self));
        let [now, then] = [Some(&*self), before].map(|it| it?.requests);
        let more = now.zip(then).map(|(now, then)| now.saturating_sub(then));
        self.requests_per_s = more.map(|more| more as f64 / passed.as_secs_f64());
    }

    /// As the server says.
    fn describe(&mut self, statistics: &Value) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let configured = &statistics["configured"];
        self.source = text(&configured["source"]).or(self.source.take());
        self.cache = text(&configured["cache"]);
        self.writeback = configured["writeback"] == true;
        self.requests = Some(requests(statistics));
        if self.kind == Kind::Share {
            self.place = text(&statistics["share"]).unwrap_or_default();
            self.transport = Some("vhost-user");
            self.passthrough = Some(false);
            let machines = statistics["machines"].as_array();
            let processes = machines.into_iter().flatten();
            let processes = processes.filter_map(|it| it["process"].as_i64()?.try_into().ok());
            let silent = statistics["silent"].as_array().into_iter().flatten();
            let silent: Vec<i32> = silent
                .filter_map(|it| it.as_i64()?.try_into().ok())
                .collect();
            if !silent.is_empty() {
                self.state = State::Silent;
            }
            self.workers = processes.chain(silent).collect();
            return;
        }
        let carrier = statistics["requests_come_by"].as_str();
        self.transport = carrier.map(transport);
        let tables = &statistics["tables"];
        self.passthrough = tables["passthrough"].as_bool();
        let whole = tables["following"]["whole"].as_bool();
        self.follow = whole.map(|it| if it { "filesystem" } else { "directories" });
    }

    fn remedy(&self) -> Option<String> {
        let place = &self.place;
        match (self.state, self.kind) {
            (State::Dead, Kind::Mount) => Some(match self.elsewhere.first() {
                Some(it) if !self.is_mounted_here => {
                    format!("nsenter -t {} -m thrufs unmount {place}", it.process)
                }
                _ => format!("thrufs unmount {place}"),
            }),
            (State::Silent, _) => {
                let processes = self.workers.iter().chain(&self.server);
                let processes: Vec<_> = processes.map(i32::to_string).collect();
                Some(format!(
                    "see whether process {} is stopped, or the source does not answer",
                    processes.join(" or ")
                ))
            }
            _ => None,
        }
    }

    /// Whether there is a mount, or a server.
    pub(super) fn is_there(&self) -> bool {
        self.kind == Kind::Mount || !matches!(self.state, State::Unknown | State::Dead)
    }
}

/// The statistics of each connected machine, or of the mount.
pub(super) fn each(statistics: &Value) -> &[Value] {
    let machines = statistics["machines"].as_array();
    machines.map_or(std::slice::from_ref(statistics), Vec::as_slice)
}

/// Requests so far.
fn requests(statistics: &Value) -> u64 {
    let operations = each(statistics).iter();
    let operations = operations.filter_map(|it| it["operations"].as_array());
    let counts = operations
        .flatten()
        .filter_map(|it| it["requests"].as_u64());
    counts.sum()
}
