//! The replies of a server to queries of its control socket: explanations and statistics of what it serves.

use super::protocol::{Command, Refusal, Reply, borrowed, escape};
use crate::log;
use crate::share::SharedTree;
use serde_json::{Map, Value, json};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thrufs::session::SessionHandle;
use thrufs::{Errno, OperationCounts, Snapshot};
use thrufs_hostdir::{Config, ConfigError, HostDir};
use thrufs_policy::Policy;
use thrufs_virtio::DeviceHandle;

/// How long a query waits for changes to be told: less than its client waits.
const PATIENCE: Duration = Duration::from_secs(8);

/// Ends of the intervals in which latencies are told, ns: powers of four from 1 us to 17 s, which are ends of buckets.
const LATENCY_ENDS_NS: [u64; 13] = {
    let mut ends = [1 << 10; 13];
    let mut at = 1;
    while at < ends.len() {
        ends[at] = ends[at - 1] << 2;
        at += 1;
    }
    ends
};

/// The server that queries are about.
pub(crate) struct Subject {
    /// Mount point, or socket of the share.
    pub(crate) place: PathBuf,
    pub(crate) served: Served,
    /// How it is served (see [`configured`]).
    pub(crate) configured: Value,
    /// The configuration; of a mount.
    pub(crate) options: Option<Value>,
}

pub(crate) enum Served {
    /// With how many workers have died.
    Mount(Arc<HostDir>, SessionHandle, u64),
    Share(Arc<SharedTree>, DeviceHandle),
}

impl Served {
    /// `None` while no guest has a session.
    pub(crate) fn file_system(&self) -> Option<Arc<HostDir>> {
        match self {
            Served::Mount(file_system, ..) => Some(Arc::clone(file_system)),
            Served::Share(tree, _) => tree.current(),
        }
    }

    /// Activates another policy.
    pub(crate) fn replace_policy(
        &self,
        policy: Arc<Policy>,
        audit: Option<OwnedFd>,
    ) -> Result<(), ConfigError> {
        match self {
            Served::Mount(file_system, ..) => file_system.replace_policy(policy, audit),
            Served::Share(tree, _) => tree.replace_policy(policy, audit),
        }
    }

    fn metrics(&self) -> Snapshot {
        match self {
            Served::Mount(_, handle, _) => handle.metrics(),
            Served::Share(_, device) => device.metrics(),
        }
    }

    /// How often another worker has resumed the session.
    fn resumptions(&self) -> u64 {
        match self {
            Served::Mount(_, _, deaths) => *deaths,
            Served::Share(tree, _) => tree.deaths(),
        }
    }

    /// The transport; `None` before INIT.
    fn carrier(&self) -> Option<String> {
        match self {
            Served::Mount(_, handle, _) => handle.carrier().as_ref().map(ToString::to_string),
            Served::Share(tree, _) => tree.current().map(|_| "virtio-fs".to_owned()),
        }
    }
}

/// Sets the level of this process.
pub(crate) fn set_log_level(level: &str) -> Reply {
    match log::set_level(level) {
        Ok(()) => {
            let text = format!("the log level is {level} until the process ends");
            Reply::Result(json!({ "level": level, "text": text }))
        }
        Err(why) => Reply::Error(Refusal::because(libc::EINVAL, &why)),
    }
}

/// What is served, and how the kernel above caches it.
pub(crate) fn configured(source: &Path, config: &Config) -> Value {
    json!({
        "source": escape(source.as_os_str().as_bytes()),
        "cache": config.cache,
        "writeback": config.writeback,
    })
}

fn operation(counts: &OperationCounts) -> Value {
    let below = |end: u64| {
        let buckets = counts.latencies.buckets();
        let within = buckets.filter(|(to, _)| to.as_nanos() <= u128::from(end));
        (end, within.map(|(_, count)| count).sum())
    };
    let buckets = counts.latencies.buckets();
    let buckets: Vec<_> = buckets
        .map(|(to, count)| (to.as_nanos() as u64, count))
        .collect();
    let by_errno: Map<String, Value> = counts
        .errors_by_errno()
        .map(|(name, count)| (name, count.into()))
        .collect();
    json!({
        "name": counts.opcode.name(),
        "requests": counts.requests(),
        "errors": counts.errors,
        "errors_by_errno": by_errno,
        "bytes": counts.bytes,
        "buckets_ns": buckets,
        "below_ns": LATENCY_ENDS_NS.map(below) as [(u64, u64); _],
    })
}

impl Subject {
    pub(crate) fn answer(&self, command: &Command) -> Reply {
        match command {
            Command::Explain { components } => {
                let Some(file_system) = self.served.file_system() else {
                    let refusal = Refusal::because(libc::ENOTCONN, "no guest has mounted it");
                    return Reply::Error(refusal);
                };
                match file_system.explain(&borrowed(components)) {
                    Ok(explanation) => Reply::Result(json!(explanation)),
                    Err(errno) => Reply::Error(Refusal::failed(errno.raw())),
                }
            }
            Command::Statistics => self.statistics(),
            Command::Options => match &self.options {
                Some(options) => Reply::Result(options.clone()),
                None => Reply::Error(Refusal::not_mounted()),
            },
            Command::Settle => match self.served.file_system().map(|it| it.settle(PATIENCE)) {
                Some(Ok(())) => Reply::Result(json!({ "settled": true })),
                Some(Err(Errno::EOPNOTSUPP)) | None => Reply::Error(Refusal::not_followed()),
                Some(Err(errno)) => Reply::Error(Refusal::failed(errno.raw())),
            },
            Command::DropCaches { keeps_names } => self.drop_caches(!keeps_names),
            Command::LogLevel { level } => set_log_level(level),
            // By the supervisor.
            Command::Reload => Reply::Error(Refusal::failed(libc::EOPNOTSUPP)),
        }
    }

    fn drop_caches(&self, names: bool) -> Reply {
        let Served::Mount(file_system, ..) = &self.served else {
            return Reply::Error(Refusal::of_guests());
        };
        match file_system.drop_caches(names, PATIENCE) {
            Err(errno) => Reply::Error(Refusal::failed(errno.raw())),
            Ok(dropped) => {
                let mut reply = json!(dropped);
                let names = match dropped.names {
                    true => "",
                    false => "; names stay until they time out",
                };
                let late = match dropped.finished {
                    true => "",
                    false => "; not all messages were taken within 8 s",
                };
                let (nodes, descriptors) = (dropped.nodes, dropped.descriptors);
                reply["text"] = format!(
                    "the kernel drops what it has of {nodes} nodes, and {descriptors} descriptors were closed{names}{late}"
                )
                .into();
                Reply::Result(reply)
            }
        }
    }

    /// The statistics as text.
    pub(crate) fn statistics_text(&self) -> String {
        let place = self.place.display();
        let metrics = self.served.metrics();
        let carrier = match self.served.carrier() {
            Some(carrier) => format!("transport: {carrier}"),
            None if metrics.requests() > 0 => "not mounted now".to_owned(),
            None => "no requests yet: INIT was not answered".to_owned(),
        };
        let mut text = format!("thrufs: {place}: {carrier}\n");
        let resumptions = self.served.resumptions();
        if resumptions > 0 {
            text.push_str(&format!(
                "thrufs: {place}: {resumptions} resumptions after a worker died; the figures count from \
                 the last\n"
            ));
        }
        if let Some(file_system) = self.served.file_system() {
            text.push_str(&format!("thrufs: {place}: {}\n", file_system.statistics()));
        }
        text + &metrics.to_string()
    }

    fn statistics(&self) -> Reply {
        let metrics = self.served.metrics();
        let operations: Vec<Value> = metrics.operations().iter().map(operation).collect();
        let figures: Map<String, Value> = metrics
            .figures()
            .map(|(name, value)| (name.replace(' ', "_"), value.into()))
            .collect();
        let file_system = self.served.file_system();
        Reply::Result(json!({
            "requests_come_by": self.served.carrier(),
            "configured": self.configured,
            "tables": file_system.map(|file_system| file_system.statistics()),
            "operations": operations,
            "figures": figures,
            "resumptions": self.served.resumptions(),
            "text": self.statistics_text(),
        }))
    }
}
