//! The statistics and explanations of all workers of a share.
//!
//! The supervisor answers queries of the share: it queries each worker over a private socket. Replies are
//! limited in length and time: a guest may control a worker.

use crate::config::ShareConfig;
use crate::control::answer::{configured, set_log_level};
use crate::control::client::{exchange, receive_line};
use crate::control::protocol::{Command, Refusal, Reply, escape};
use crate::foreign::Foreign;
use crate::waiting;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_hostdir::Explanation;

/// A worker that does not reply in time is not queried again until it has.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct QueryChannel(Mutex<Queries>);

#[derive(Debug)]
struct Queries {
    stream: Option<Foreign<UnixStream>>,
    /// A reply is late.
    is_owed: bool,
}

impl QueryChannel {
    /// Our end, and the worker's.
    pub(super) fn pair() -> io::Result<(QueryChannel, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let queries = Queries {
            stream: Some(Foreign::new(ours)),
            is_owed: false,
        };
        Ok((QueryChannel(Mutex::new(queries)), theirs.into()))
    }

    /// Once nobody waits for a reply. It is asked nothing more.
    pub(super) fn close(&self) {
        self.0.lock().stream = None;
    }

    fn ask(&self, command: &Command) -> Option<Reply> {
        let mut queries = self.0.lock();
        let stream = queries.stream.as_ref()?;
        if queries.is_owed {
            // The late reply would be taken for that of this query.
            if !waiting::readable([Some(stream.as_fd())], Some(Instant::now()))[0] {
                return None;
            }
            if receive_line(stream, ANSWER_TIMEOUT).is_err() {
                queries.stream = None;
                return None;
            }
        }
        let line = exchange(stream, command, ANSWER_TIMEOUT).ok();
        queries.is_owed = line.is_none();
        let reply = line.map(|line| Reply::decode(&line).ok())?;
        if reply.is_none() {
            queries.stream = None;
        }
        reply
    }
}

/// The connected machines, and the last statistics of disconnected ones.
#[derive(Debug)]
pub(super) struct Machines {
    place: PathBuf,
    configured: Value,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By process id of the worker.
    connected: Vec<(u32, Arc<QueryChannel>)>,
    /// Count of disconnected ones.
    left: u64,
    /// The final statistics of the last one.
    last: Option<Map<String, Value>>,
}

impl Machines {
    pub(super) fn new(config: &ShareConfig) -> Machines {
        Machines {
            place: config.socket.clone(),
            configured: configured(&config.source, &config.serving),
            state: Mutex::default(),
        }
    }

    /// The socket, as text.
    pub(super) fn shown_place(&self) -> String {
        escape(self.place.as_os_str().as_bytes())
    }

    pub(super) fn add(&self, process: u32, queries: Arc<QueryChannel>) {
        self.state.lock().connected.push((process, queries));
    }

    /// Removes a worker; unless the next one resumes its connection, the machine has disconnected.
    pub(super) fn remove(&self, process: u32, is_resumed: bool) {
        let mut state = self.state.lock();
        state.connected.retain(|(other, _)| *other != process);
        state.left += u64::from(!is_resumed);
    }

    /// Stores the final statistics of a worker.
    pub(super) fn record_exit(&self, text: &str) {
        match Reply::decode(text.trim_end().as_bytes()) {
            Ok(Reply::Result(Value::Object(figures))) => self.state.lock().last = Some(figures),
            _ => tracing::debug!("malformed figures from a worker"),
        }
    }

    /// Answers a query of the control socket.
    pub(super) fn answer(&self, command: &Command) -> Reply {
        let connected = self.state.lock().connected.clone();
        match command {
            Command::Explain { .. } => explain(&connected, command),
            Command::Statistics => self.statistics(&connected),
            Command::Settle => Reply::Error(Refusal::not_followed()),
            Command::Options => Reply::Error(Refusal::not_mounted()),
            Command::DropCaches { .. } => Reply::Error(Refusal::of_guests()),
            Command::LogLevel { level } => {
                let own = set_log_level(level);
                if matches!(own, Reply::Result(_)) {
                    connected.iter().for_each(|(_, it)| drop(it.ask(command)));
                }
                own
            }
            // By the thread of the supervisor.
            Command::Reload => Reply::Error(Refusal::failed(libc::EOPNOTSUPP)),
        }
    }

    fn statistics(&self, connected: &[(u32, Arc<QueryChannel>)]) -> Reply {
        let mut text = self.heading();
        let (mut machines, mut silent) = (Vec::new(), Vec::new());
        for (process, queries) in connected {
            let Some(Reply::Result(Value::Object(mut figures))) = queries.ask(&Command::Statistics)
            else {
                let _ = writeln!(text, "process {process} does not answer");
                silent.push(*process);
                continue;
            };
            let _ = writeln!(text, "process {process}:");
            text.push_str(&take_text(&mut figures));
            figures.insert("process".to_owned(), (*process).into());
            machines.push(figures);
        }
        let (left, mut last) = {
            let state = self.state.lock();
            (state.left, state.last.clone())
        };
        if let Some(figures) = &mut last {
            text.push_str("last disconnected:\n");
            text.push_str(&take_text(figures));
        }
        Reply::Result(json!({
            "share": self.shown_place(),
            "configured": self.configured,
            "machines": machines,
            "silent": silent,
            "left": left,
            "last_left": last,
            "text": text,
        }))
    }

    /// The line with the counts.
    pub(super) fn heading(&self) -> String {
        let (connected, left) = {
            let state = self.state.lock();
            (state.connected.len(), state.left)
        };
        let place = self.place.display();
        if (connected, left) == (0, 0) {
            return format!("thrufs: {place}: no requests yet: no virtual machine has connected\n");
        }
        format!("thrufs: {place}: virtual machines: {connected} connected, {left} disconnected\n")
    }
}

/// The explanations of all machines that have one; the first refusal if there are none, of a machine that has
/// mounted the share if there is one.
fn explain(connected: &[(u32, Arc<QueryChannel>)], command: &Command) -> Reply {
    let reason = match connected {
        [] => "no machine is connected",
        _ => "the server processes do not answer",
    };
    let mut refusal = Refusal::because(libc::ENOTCONN, reason);
    let mut machines = Vec::new();
    for (process, queries) in connected {
        match queries.ask(command) {
            Some(Reply::Error(other)) if refusal.errno == Some(libc::ENOTCONN) => refusal = other,
            // A malformed one does not spoil the others.
            Some(Reply::Result(Value::Object(mut fields)))
                if Explanation::deserialize(&fields).is_ok() =>
            {
                fields.insert("process".to_owned(), (*process).into());
                machines.push(fields);
            }
            _ => {}
        }
    }
    match machines.is_empty() {
        true => Reply::Error(refusal),
        false => Reply::Result(json!({ "machines": machines })),
    }
}

fn take_text(figures: &mut Map<String, Value>) -> String {
    let text = figures.remove("text");
    let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write as _};
    use std::thread::JoinHandle;

    const EXPLANATION: &str = concat!(
        r#"{"version":1,"result":{"kind":"regular","ino":7,"data_path":"cached","reason":"r","#,
        r#""opens":{"total":0,"writable":0},"cache":{"mode":"auto","writeback":false,"#,
        r#""entry_timeout_s":1.0,"attr_timeout_s":1.0,"negative_timeout_s":0.0,"#,
        r#""data_version_remembered":false},"lower":{"file_system":null,"magic":1,"#,
        r#""handles":true,"remote":false,"memory":false}}}"#,
        "\n"
    );

    fn machines() -> Machines {
        Machines::new(&ShareConfig {
            socket: "/run/s".into(),
            ..ShareConfig::default()
        })
    }

    /// Adds a worker that replies to one query.
    fn add(machines: &Machines, process: u32, line: &'static str) -> JoinHandle<String> {
        let (ours, theirs) = QueryChannel::pair().unwrap();
        machines.add(process, Arc::new(ours));
        let stream = UnixStream::from(theirs);
        std::thread::spawn(move || {
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            (&stream).write_all(line.as_bytes()).unwrap();
            asked
        })
    }

    fn explain(machines: &Machines) -> Reply {
        machines.answer(&Command::Explain { components: vec![] })
    }

    fn refusal(machines: &Machines) -> String {
        match explain(machines) {
            Reply::Error(refusal) => refusal.message,
            Reply::Result(value) => panic!("{value}"),
        }
    }

    fn result(reply: Reply) -> Value {
        match reply {
            Reply::Result(value) => value,
            Reply::Error(refusal) => panic!("{refusal:?}"),
        }
    }

    #[test]
    fn statistics_include_all_workers_and_the_last_disconnected() {
        let machines = machines();
        let text = |machines: &Machines| {
            let all = result(machines.answer(&Command::Statistics));
            all["text"].as_str().unwrap().to_owned()
        };
        assert!(text(&machines).contains("no requests yet"));
        let figures = "{\"version\":1,\"result\":{\"text\":\"one\",\"a\":1}}\n";
        let first = add(&machines, 11, figures);
        add(&machines, 22, "nonsense\n");
        add(&machines, 33, "{\"version\":1,\"result\":5}\n");
        let all = result(machines.answer(&Command::Statistics));
        assert_eq!(all["machines"], json!([{"process": 11, "a": 1}]));
        assert_eq!(
            (&all["share"], &all["silent"]),
            (&json!("/run/s"), &json!([22, 33]))
        );
        assert_eq!(all["configured"]["cache"], "auto");
        let shown = all["text"].as_str().unwrap();
        for part in [
            "3 connected, 0 disconnected\nprocess 11:\none\n",
            "process 22 does not answer",
            "process 33 does not answer",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(first.join().unwrap().contains("statistics"));
        machines.record_exit("{\"version\":1,\"result\":{\"text\":\"bye\"}}\n");
        for malformed in [
            "{\"version\":1,\"error\":null}",
            "{\"version\":1,\"result\":5}",
        ] {
            machines.record_exit(malformed);
        }
        for process in [11, 22, 33] {
            machines.remove(process, false);
        }
        let shown = text(&machines);
        let end = "0 connected, 3 disconnected\nlast disconnected:\nbye\n";
        assert!(shown.ends_with(end), "{shown}");
    }

    #[test]
    fn unresponsive_worker_is_waited_for_once_and_asked_again_after_its_late_reply() {
        let machines = machines();
        let (silent, theirs) = QueryChannel::pair().unwrap();
        machines.add(11, Arc::new(silent));
        machines.answer(&Command::Statistics);
        let begun = Instant::now();
        machines.answer(&Command::Statistics);
        assert!(begun.elapsed() < ANSWER_TIMEOUT);
        assert!(refusal(&machines).contains("do not answer"));
        let stream = UnixStream::from(theirs);
        let late = "{\"version\":1,\"result\":{\"a\":1}}\n";
        (&stream).write_all(late.as_bytes()).unwrap();
        let next = std::thread::spawn(move || {
            let mut asked = BufReader::new(&stream).lines();
            assert!(asked.nth(1).unwrap().unwrap().contains("statistics"));
            (&stream).write_all(late.replace('1', "2").replacen('2', "1", 1).as_bytes())
        });
        let all = result(machines.answer(&Command::Statistics));
        assert_eq!(all["machines"], json!([{"process": 11, "a": 2}]));
        next.join().unwrap().unwrap();
    }

    #[test]
    fn every_machine_explains_and_malformed_replies_are_left_out() {
        let machines = machines();
        for (process, line) in [
            (11, EXPLANATION),
            (12, "{\"version\":1,\"result\":[\"regular\",7]}\n"),
            (13, "nonsense\n"),
            (14, EXPLANATION),
        ] {
            add(&machines, process, line);
        }
        let explained = result(explain(&machines));
        let of = explained["machines"].as_array().unwrap().iter();
        let of: Vec<_> = of.map(|it| (&it["process"], &it["ino"])).collect();
        assert_eq!(of, [(&json!(11), &json!(7)), (&json!(14), &json!(7))]);
    }

    #[test]
    fn a_machine_that_has_mounted_the_share_says_why_none_explains() {
        let machines = machines();
        assert_eq!(refusal(&machines), "no machine is connected");
        let idle =
            "{\"version\":1,\"error\":{\"code\":\"failed\",\"message\":\"idle\",\"errno\":107}}\n";
        let absent =
            "{\"version\":1,\"error\":{\"code\":\"failed\",\"message\":\"absent\",\"errno\":2}}\n";
        for (process, line) in [(11, idle), (12, absent), (13, idle)] {
            add(&machines, process, line);
        }
        assert_eq!(refusal(&machines), "absent");
    }
}
