//! `thrufs list`: the mounts and shares of this machine.
//!
//! | module | content |
//! |---|---|
//! | `processes` | processes, mount namespaces and servers, from `/proc` |
//! | `probe` | asking servers, for a limited time |
//! | `entry` | what is known of a mount or share |
//! | `table` | as text |
//! | `top` | `thrufs top`: what they do, again and again |
//!
//! Mounts are found in the tables of all mount namespaces, shares by their control sockets and workers. Root finds those
//! of every user, another user its own.

mod entry;
mod probe;
mod processes;
mod table;
pub(crate) mod top;

use crate::control::socket::{file_name, find, may_hang, of_shares};
use crate::error::StartupError;
use crate::mount_table::{FuseFileSystem, Mount, on_top_at};
use crate::output::{print, print_json};
use crate::screen;
use clap::Parser;
use entry::{Elsewhere, Entry};
use probe::{Question, ask_all};
use processes::Processes;
use std::path::Path;
use std::time::{Duration, Instant};

/// List the mounts and shares of this machine
#[derive(Parser)]
#[command(name = "list")]
pub(crate) struct ListArguments {
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// Show requests a second, sampled for half a second, instead of requests so far
    #[arg(long)]
    rates: bool,
    /// Show it again every 2 seconds, or so many, with requests a second
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "2", value_parser = screen::interval, conflicts_with = "json")]
    watch: Option<Duration>,
}

/// What is mounted at least once.
struct Mounted<'a> {
    file_system: FuseFileSystem,
    mount: &'a Mount,
    is_here: bool,
    is_on_top: bool,
    elsewhere: Vec<Elsewhere>,
}

pub(crate) fn list(arguments: ListArguments) -> Result<(), StartupError> {
    if let Some(interval) = arguments.watch {
        let mut found = Found::default();
        // With a rate of its own, until there is one before.
        let mut before: Option<(Instant, Vec<Entry>)> = None;
        screen::refresh(interval, |columns| {
            let (now, mut entries) = (Instant::now(), found.entries(before.is_none()));
            if let Some((at, before)) = &before {
                let passed = now.duration_since(*at);
                entries.iter_mut().for_each(|it| it.compare(before, passed));
            }
            let text = table::of(&entries, true, columns);
            before = Some((now, entries));
            text
        });
        return Ok(());
    }
    let entries = Found::default().entries(arguments.rates);
    match arguments.json {
        true => print_json(&entries),
        false => print(table::of(&entries, arguments.rates, table::WIDTH)),
    }
    Ok(())
}

/// How often servers are asked before `/proc` is walked again, which costs more.
const ASKED_MAX: u32 = 5;

/// The mounts and shares that were found, to be asked again and again.
#[derive(Default)]
struct Found {
    processes: Processes,
    known: Vec<(Entry, Question)>,
    asked: u32,
    /// How many have answered.
    serving: usize,
}

impl Found {
    /// All mounts and shares, as they are now; new ones a little later.
    fn entries(&mut self, with_rate: bool) -> Vec<Entry> {
        if self.asked.is_multiple_of(ASKED_MAX) {
            self.processes = Processes::read();
            self.known = known(&self.processes);
        }
        let (mut entries, mut questions): (Vec<_>, Vec<_>) = self.known.iter().cloned().unzip();
        questions.iter_mut().for_each(|it| it.with_rate = with_rate);
        for (entry, answer) in entries.iter_mut().zip(ask_all(questions)) {
            entry.complete(answer, &self.processes);
        }
        // What another program has called a mount of ours, or of which only a socket is left.
        entries.retain(Entry::is_there);
        add_unasked_shares(&mut entries, &self.processes);
        entries.sort_by(|one, other| one.place.cmp(&other.place));
        let serving = entries.iter().filter(|it| it.statistics.is_some()).count();
        // One that has ended is looked for at once.
        self.asked = match serving == self.serving || self.asked == 0 {
            true => self.asked + 1,
            false => 0,
        };
        self.serving = serving;
        entries
    }
}

/// What there is without asking, and what to ask each.
fn known(processes: &Processes) -> Vec<(Entry, Question)> {
    let own = rustix::process::geteuid().as_raw();
    let mounts = mounted(processes).into_iter().filter_map(|it| {
        let user = it.mount.user?;
        let is_held = processes.holding(it.mount.device.minor).next().is_some();
        let is_ours = is_held || it.mount.kind == "fuse.thrufs";
        if !is_ours || (own != 0 && user != own) {
            return None;
        }
        // A server that is there could leave it without an answer.
        let mounted = (it.is_here && it.is_on_top && user == own && !is_held)
            .then(|| (it.mount.path.clone(), it.mount.id));
        let control = find(user, &file_name(it.mount.device));
        let control = (!may_hang(&control)).then_some((control, user));
        let question = Question {
            control,
            mounted,
            ..Question::default()
        };
        Some((
            Entry::of_mount(it.mount, user, it.is_here, it.elsewhere),
            question,
        ))
    });
    let shares = of_shares().into_iter().map(|(user, socket)| {
        let entry = Entry::of_share(user, &socket);
        let control = Some((socket, user));
        let question = Question {
            control,
            ..Question::default()
        };
        (entry, question)
    });
    mounts.chain(shares).collect()
}

/// The FUSE file systems of all mount namespaces, by their first mount: in this one, if there is one.
fn mounted(processes: &Processes) -> Vec<Mounted<'_>> {
    let mut all: Vec<Mounted<'_>> = Vec::new();
    for namespace in &processes.namespaces {
        for mount in &namespace.mounts {
            let Some(file_system) = mount.fuse() else {
                continue;
            };
            let known = all.iter_mut().find(|it| it.file_system == file_system);
            let elsewhere = Elsewhere::of(namespace, mount);
            match known {
                Some(known) if !namespace.is_own => {
                    // Once for each namespace.
                    let last = known.elsewhere.last();
                    if last.is_none_or(|it| it.process != elsewhere.process) {
                        known.elsewhere.push(elsewhere);
                    }
                }
                Some(_) => {}
                None => all.push(Mounted {
                    file_system,
                    mount,
                    is_here: namespace.is_own,
                    is_on_top: on_top_at(&namespace.mounts, &mount.path)
                        .is_some_and(|top| top.id == mount.id),
                    elsewhere: match namespace.is_own {
                        true => Vec::new(),
                        false => vec![elsewhere],
                    },
                }),
            }
        }
    }
    all
}

/// Adds shares without a usual control socket.
fn add_unasked_shares(entries: &mut Vec<Entry>, processes: &Processes) {
    let own = rustix::process::geteuid().as_raw();
    for (server, [source, socket]) in processes.sharing() {
        let known = entries.iter_mut().find(|it| it.server == Some(server));
        match known {
            Some(known) => known.name_share(source, socket),
            None => {
                let mut entry = Entry::of_share(own, Path::new(""));
                entry.name_share(source, socket);
                entry.runs_as(server, processes);
                entries.push(entry);
            }
        }
    }
}
