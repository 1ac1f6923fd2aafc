//! Checks that after each attack of a hostile guest or front end the server serves another connection.

use super::finding::{Finding, Verdict, fail, skip};
use super::report::Report;
use crate::front_end::{FrontEnd, QueueError, Step};
use crate::misbehave::chain::{self, Fault};
use crate::misbehave::{leave_after, socket, steps};
use crate::tool::{Connection, ToolError};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thrufs_abi::NodeId;
use thrufs_testing::Client;

/// How long to wait for a faulty chain, which need not return.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long to wait for the end of a connection, which need not end.
const CLOSING: Duration = Duration::from_millis(50);

fn all_steps() -> Vec<Step> {
    steps(1)
}

fn step_name(step: Step) -> String {
    let text = match step {
        Step::Features => "features".to_owned(),
        Step::ProtocolFeatures => "protocol-features".to_owned(),
        Step::QueueCount => "queue-count".to_owned(),
        Step::ConfigSpace => "config-space".to_owned(),
        Step::Owner => "owner".to_owned(),
        Step::AcceptFeatures => "accept-features".to_owned(),
        Step::Memory => "memory".to_owned(),
        Step::Queue(index) => format!("queue-{index}"),
        Step::Window => "window".to_owned(),
        Step::Enable(index) => format!("enable-{index}"),
    };
    format!("leave-after-{text}")
}

pub(super) fn names() -> impl Iterator<Item = String> {
    let chains = Fault::ALL.iter().map(|(name, _)| format!("chain-{name}"));
    let messages = socket::odd_messages().into_iter();
    let messages = messages.map(|(name, _)| format!("message-{name}"));
    let leaving = all_steps().into_iter().map(step_name);
    chains
        .chain(messages)
        .chain(leaving)
        .chain(["leave-with-requests".to_owned()])
}

pub(super) fn run(connection: &Connection, report: &mut Report<'_>) -> Result<(), ToolError> {
    if !names().any(|name| report.is_wanted(&name)) {
        return Ok(());
    }
    // The precondition of all these checks.
    let alone = serves(connection).is_err();
    let mut tell = |name: String, check: &dyn Fn() -> Verdict| {
        if !report.is_wanted(&name) {
            return Ok(());
        }
        let verdict = if alone {
            skip("the server takes no second connection")
        } else {
            check().and_then(|()| serves(connection))
        };
        report.tell(&name, verdict)
    };
    for &(name, fault) in Fault::ALL {
        tell(format!("chain-{name}"), &|| faulty_chain(connection, fault))?;
    }
    for (name, message) in socket::odd_messages() {
        tell(format!("message-{name}"), &|| {
            odd_message(connection, &message)
        })?;
    }
    for step in all_steps() {
        tell(step_name(step), &|| leave(connection, step))?;
    }
    tell("leave-with-requests".to_owned(), &|| {
        leave_with_requests(connection)
    })
}

fn mount(connection: &Connection) -> Result<Client<FrontEnd>, Finding> {
    let front_end = connection
        .connect()
        .map_err(|error| Finding::Fail(format!("no more connections: {error}")))?;
    Client::mount(front_end).map_err(|error| Finding::Fail(error.to_string()))
}

fn serves(connection: &Connection) -> Verdict {
    let client = mount(connection)?;
    let answer = client.root().getattr(NodeId::ROOT);
    client.unmount();
    answer.map(drop).map_err(Finding::from)
}

fn faulty_chain(connection: &Connection, fault: Fault) -> Verdict {
    let client = mount(connection)?;
    match chain::inject(client.carrier(), fault, PATIENCE) {
        // The server may close the connection or break the ring.
        Ok(_) | Err(QueueError::Gone | QueueError::Broken(_)) => Ok(()),
        Err(error) => fail(error.to_string()),
    }
}

fn connect(connection: &Connection) -> Result<UnixStream, Finding> {
    UnixStream::connect(&connection.socket)
        .map_err(|error| Finding::Fail(format!("no more connections: {error}")))
}

fn odd_message(connection: &Connection, message: &socket::RawMessage) -> Verdict {
    let stream = connect(connection)?;
    let broken = |error: std::io::Error| Finding::Fail(error.to_string());
    stream.set_read_timeout(Some(CLOSING)).map_err(broken)?;
    // The server may close the connection before all is sent.
    let _ = socket::send(&stream, &message.bytes(), &[]);
    socket::is_closed(&stream).map_err(broken)?;
    Ok(())
}

fn leave(connection: &Connection, step: Step) -> Verdict {
    let stream = connect(connection)?;
    match leave_after(stream, &connection.config(), step) {
        Ok(true) => Ok(()),
        Ok(false) => skip("there is no such step with this server"),
        Err(error) => fail(error.to_string()),
    }
}

fn leave_with_requests(connection: &Connection) -> Verdict {
    let client = mount(connection)?;
    let request = || {
        let root = client.root();
        let request = root.request(thrufs_abi::Opcode::Statfs, NodeId::ROOT);
        request.finish()
    };
    let queue = client.carrier().queue(crate::FIRST_REQUEST_QUEUE);
    if let Some(mut queue) = queue {
        while queue.submit_request(&request()).is_ok() {}
        queue.notify()?;
    }
    Ok(())
}
