//! What the server answers.

use super::protocol::{Command, Refusal, Reply, borrowed};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use thrufs::session::SessionHandle;
use thrufs_hostdir::HostDir;

/// What is asked about: the server, as far as it can be told from outside its threads.
pub(crate) struct Subject {
    pub(crate) mountpoint: PathBuf,
    pub(crate) file_system: Arc<HostDir>,
    pub(crate) handle: SessionHandle,
}

impl Subject {
    pub(crate) fn answer(&self, command: &Command) -> Reply {
        match command {
            Command::Explain { components } => {
                match self.file_system.explain(&borrowed(components)) {
                    Ok(explanation) => result(serde_json::to_value(explanation)),
                    Err(errno) => Reply::Error(Refusal::failed(errno.raw())),
                }
            }
            Command::Statistics => self.statistics(),
        }
    }

    /// The server's figures, for people.
    pub(crate) fn statistics_text(&self) -> String {
        let mountpoint = self.mountpoint.display();
        let (statistics, metrics) = (self.file_system.statistics(), self.handle.metrics());
        let carrier = match self.handle.carrier() {
            Some(carrier) => format!("requests come by {carrier}"),
            None => "no requests yet: INIT was not answered".to_owned(),
        };
        format!("thrufs: {mountpoint}: {carrier}\nthrufs: {mountpoint}: {statistics}\n{metrics}")
    }

    fn statistics(&self) -> Reply {
        let metrics = self.handle.metrics();
        let operations: Vec<Value> = metrics
            .operations()
            .iter()
            .map(|counts| {
                json!({
                    "name": counts.opcode.name(),
                    "requests": counts.requests(),
                    "errors": counts.errors,
                    "bytes": counts.bytes,
                })
            })
            .collect();
        let figures: serde_json::Map<String, Value> = metrics
            .figures()
            .map(|(name, value)| (name.replace(' ', "_"), value.into()))
            .collect();
        let carrier = self.handle.carrier();
        Reply::Result(json!({
            "requests_come_by": carrier.as_ref().map(ToString::to_string),
            "tables": self.file_system.statistics(),
            "operations": operations,
            "figures": figures,
            "text": self.statistics_text(),
        }))
    }
}

fn result(value: serde_json::Result<Value>) -> Reply {
    // Texts, numbers and truths alone are in it.
    value.map_or_else(|_| Reply::Error(Refusal::failed(libc::EIO)), Reply::Result)
}
