//! Another program goes on with this mount ([`upgrade`](crate::upgrade)).
//!
//! Until the program is executed, this one holds everything, and starts a worker of its own should the other's not
//! serve. The program has then read the state and served the mount; what it still has to do is start its worker.

use super::given::Given;
use super::{MountSupervisor, begin_again, ends_on_hangup, start_worker};
use crate::auto_unmount::AutoUnmount;
use crate::channel::{Order, wait_for_threads};
use crate::listening::SocketFile;
use crate::mounting::MountTarget;
use crate::process::{OWN_PROGRAM, Role, start_with_socket};
use crate::upgrade::check::Upgrade;
use crate::upgrade::execute::{execute, inherited};
use crate::upgrade::handover::{MountState, Outgoing, Slot, State, put, receive};
use crate::upgrade::request::{self, Request};
use rustix::process::Pid;
use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The process (see [`Role::Supervisor`]) that another program has executed; `number` is of what that hands over.
pub(crate) fn main(number: &OsStr) -> ExitCode {
    let served =
        MountSupervisor::take_over(number).and_then(|mut supervisor| Ok(supervisor.serve()?));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Of this program. The mount exists.
fn start_auto_unmount_again(supervisor: &MountSupervisor) -> Option<AutoUnmount> {
    let started = AutoUnmount::start_if_wanted(&supervisor.config);
    let process = started
        .inspect_err(|error| tracing::error!("{error}"))
        .ok()??;
    if !supervisor.config.server.foreground {
        process.send(&Order::Background);
    }
    process.send(&supervisor.mounted());
    Some(process)
}

/// For a worker of the new program to begin. Callers wait meanwhile.
const PROVING_TIMEOUT: Duration = Duration::from_secs(10);

/// For what is written to logs.
const LOGS_TIMEOUT: Duration = Duration::from_secs(1);

impl MountSupervisor {
    /// Begins to upgrade, or says why not.
    pub(super) fn begin_upgrade(&mut self, request: Request) {
        let mounted = self.target.mounted.as_ref();
        let why = match () {
            () if self.upgrade.is_some() => "another upgrade is in progress",
            () if self.launcher.is_some() => "it is being mounted: try again",
            () if !self.may_resume() => {
                "it cannot be resumed now: its session has not begun, or has ended"
            }
            () if mounted.is_some_and(|mounted| request.is_on(mounted.device)) => {
                "the new program is a file of this mount, which is not served while the program starts: name a copy \
                 elsewhere"
            }
            () => return self.check(request),
        };
        request.finish(Err(why.to_owned()));
    }

    fn check(&mut self, request: Request) {
        match self.hand_over(&request, Vec::new()) {
            Ok((ours, theirs)) => {
                let program = request.program();
                let start = move || start_with_socket(&program, Role::UpgradeCheck, theirs);
                match Upgrade::begin(request, ours, start) {
                    Ok(upgrade) => self.upgrade = Some(upgrade),
                    Err(error) => tracing::error!("cannot upgrade: {error}"),
                }
            }
            Err(error) => request.finish(Err(format!("cannot hand over: {error}"))),
        }
    }

    /// Puts into a socket what the next program needs.
    fn hand_over(&self, command: &Request, left: Vec<i32>) -> io::Result<(OwnedFd, OwnedFd)> {
        let record = self.given.record.as_ref();
        let record = record.ok_or_else(|| io::Error::other("nothing is recorded"))?;
        let state = MountState {
            config: self.config.clone(),
            mounted: self.target.mounted.clone(),
            deaths: record.deaths.ages(),
            left,
        };
        let mut files = Outgoing::default();
        files.add_if(Slot::Device, self.device.as_ref());
        files.add_if(Slot::Abort, self.abort.as_ref());
        self.given.hand_over(&mut files);
        for (number, file) in (0..).zip(&self.socket_files) {
            files.add(Slot::SocketFile(number), file);
        }
        files.add_if(Slot::Upgrades, self.upgrades.as_ref());
        files.add(Slot::Command, command);
        let stored = record.stored();
        stored
            .iter()
            .for_each(|(key, file)| files.add(Slot::Stored(*key), file));
        put(&State::Mount(Box::new(state)), &files)
    }

    /// The new program has answered. If it can take over, a worker of it is next.
    pub(super) fn on_checked(&mut self) {
        let Some(upgrade) = &mut self.upgrade else {
            return;
        };
        let checked = upgrade.checked();
        let checked = checked.and_then(|()| match self.may_resume() {
            true => Ok(()),
            false => Err("the mount has ended".to_owned()),
        });
        match checked {
            Ok(()) => {
                tracing::info!("upgrading: another program serves {}", self.shown());
                self.replace_worker();
            }
            Err(why) => self.finish_upgrade(Err(why)),
        }
    }

    fn shown(&self) -> String {
        self.config.mountpoint.display().to_string()
    }

    fn finish_upgrade(&mut self, outcome: Result<(), String>) {
        if let Some(upgrade) = self.upgrade.take() {
            if let Err(why) = &outcome {
                tracing::error!("{} is not upgraded: {why}", self.shown());
            }
            upgrade.request.finish(outcome);
        }
    }

    /// Ends the worker as if it had died, and starts the next: of the new program, if that is being upgraded to.
    fn replace_worker(&mut self) {
        self.end_worker();
        if let Err(error) = self.start_next() {
            // As after any start that fails, `WorkerEnded` is the next event.
            tracing::error!("cannot start the next server: {error}");
        }
        if self.upgrade.is_some() {
            self.begins_until = Some(Instant::now() + PROVING_TIMEOUT);
        }
    }

    /// Kills the worker; what it has written to logs is in them.
    fn end_worker(&mut self) {
        self.kill_worker();
        if self.worker.has_ended_within(Duration::ZERO) {
            let _ = self.worker.wait();
        }
        self.reap_left();
    }

    /// A worker of the new program does not serve: the old one goes on. Returns whether it does.
    pub(super) fn go_back(&mut self, why: &str) -> bool {
        let proving = self.upgrade.as_ref().and_then(Upgrade::proving);
        if proving.is_none() || !self.may_resume() {
            return false;
        }
        let failure = self.upgrade.as_mut().and_then(|it| it.failure.take());
        let said = failure.map_or(String::new(), |failure| format!(" ({failure})"));
        let why = format!("the new program {why}{said}; the old one goes on");
        self.finish_upgrade(Err(why));
        self.replace_worker();
        true
    }

    /// A worker has begun. If it is of the new program, that is executed.
    pub(super) fn on_begun(&mut self) {
        self.begins_until = None;
        self.reap_left();
        if let Some(command) = self.command.take() {
            tracing::info!("upgraded: {} is served by another program", self.shown());
            request::finish(command);
        }
        if self.upgrade.as_ref().and_then(Upgrade::proving).is_none() {
            return;
        }
        if !self
            .upgrade
            .as_ref()
            .is_some_and(|it| it.request.is_executed_by(self.worker.id()))
        {
            self.go_back("is a script, or executed by another program");
            return;
        }
        self.end_worker();
        // It would take the end of this program for its death.
        let auto_unmount = self.auto_unmount.take().map(drop);
        // They may write an audit record for a dead worker; those of one that is left behind do not end.
        let are_left = !self.worker.has_ended_within(Duration::ZERO) || !self.left.is_empty();
        wait_for_threads(if are_left {
            LOGS_TIMEOUT / 50
        } else {
            LOGS_TIMEOUT
        });
        let error = self.execute();
        self.finish_upgrade(Err(format!(
            "cannot execute the new program: {error}; the old one goes on"
        )));
        if auto_unmount.is_some() {
            self.auto_unmount = start_auto_unmount_again(self);
        }
        self.replace_worker();
    }

    /// Executes the new program in this process; returns only with an error.
    fn execute(&mut self) -> io::Error {
        let worker_is_left = !self.worker.has_ended_within(Duration::ZERO);
        let left = self
            .left
            .iter()
            .chain(worker_is_left.then_some(&self.worker));
        let left = left.map(|process| process.id() as i32);
        let earlier = self.left_earlier.iter().map(|it| it.as_raw_nonzero().get());
        let left = left.chain(earlier).collect();
        let Some(upgrade) = &self.upgrade else {
            return io::ErrorKind::NotFound.into();
        };
        let (_ours, theirs) = match self.hand_over(&upgrade.request, left) {
            Ok(ends) => ends,
            Err(error) => return error,
        };
        execute(
            &upgrade.request,
            Role::Supervisor,
            self.config.paths(),
            &theirs,
        )
    }

    /// Goes on as the supervisor that another program was, which this process was executed by.
    fn take_over(number: &OsStr) -> Result<MountSupervisor, Box<dyn Error>> {
        let (State::Mount(state), mut files) = receive(&inherited(number)?)? else {
            return Err("it was the supervisor of a share".into());
        };
        let state = *state;
        let (log, signals) = begin_again(&state.config.server)?;
        let mut given = Given::resume(&state, &mut files)?;
        let (device, abort) = (files.take(Slot::Device)?, files.take_if_given(Slot::Abort));
        let (orders, sources) = given.orders()?;
        let program = OWN_PROGRAM.as_ref();
        let worker = start_worker(program, &state.config, &device, sources, orders)?;
        let socket_files = files.take_all(Slot::SocketFile).into_iter();
        let socket_files = socket_files.map(SocketFile::from).collect();
        let mut supervisor = MountSupervisor {
            target: MountTarget {
                mountpoint: state.config.mountpoint.clone(),
                mounted: state.mounted,
            },
            config: state.config,
            log,
            signals,
            worker,
            stuck: false,
            device: Some(device),
            abort,
            auto_unmount: None,
            launcher: None,
            announced: true,
            early_signal: None,
            control: Vec::new(),
            socket_files,
            metrics_at: None,
            upgrades: files.take_if_given(Slot::Upgrades),
            upgrade: None,
            command: files.take_if_given(Slot::Command),
            given,
            left: Vec::new(),
            left_earlier: state.left.into_iter().filter_map(Pid::from_raw).collect(),
            begins_until: Some(Instant::now() + super::resume::RESUME_TIMEOUT),
            ends_on_hangup: ends_on_hangup(),
        };
        supervisor.auto_unmount = start_auto_unmount_again(&supervisor);
        supervisor.tell_of_mount();
        Ok(supervisor)
    }
}
