//! `thrufs-client`: drives a virtio-fs server as a guest would, without a virtual machine.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use clap::error::ErrorKind as ClapErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use thrufs_client::WindowConfig;
use thrufs_client::tool::{self, Bench, Connection, Mount};

#[derive(Debug)]
struct Arguments {
    connection: Connection,
    command: tool::Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::of(command().get_matches()).unwrap_or_else(|error| error.exit());
    let mut out = io::stdout().lock();
    match tool::run(&arguments.connection, &arguments.command, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thrufs-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let connection = Connection::to("");
    Command::new("thrufs-client")
        .about("Drive a virtio-fs server by hand, as a guest would")
        .long_about(
            "Drives a virtio-fs server, thrufs share or any other: connects to its vhost-user socket \
             as a machine monitor does, and makes requests as the kernel of a guest does, without a \
             guest.",
        )
        .version(env!("CARGO_PKG_VERSION"))
        // Usages begin with it, also those of subcommands.
        .bin_name("thrufs-client --socket PATH")
        .after_help(
            "Examples:\n  \
             thrufs-client --socket /run/vm1-home.sock mount /mnt\n  \
             echo 1000 getattr | thrufs-client --socket /run/vm1-home.sock bench",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("socket")
                .long("socket")
                .visible_alias("socket-path")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .value_hint(clap::ValueHint::AnyPath)
                .help("The socket of the server: of thrufs share, or of any other"),
        )
        .arg(
            number("queues", "N", connection.request_queues.into(), 1..=64)
                .help("Request queues to use"),
        )
        .arg(
            number("queue-size", "N", connection.queue_size.into(), 8..=1024)
                .help("Descriptors of a queue, a power of two"),
        )
        .arg(switch("no-indirect").help("Use no indirect descriptors"))
        .arg(
            number(
                "time-limit",
                "SECONDS",
                connection.time_limit.as_secs(),
                1..=3600,
            )
            .help("How long an answer may take"),
        )
        .subcommand(
            Command::new("mount")
                .about("Mount the share on this machine, until it is unmounted or a signal comes")
                .long_about(
                    "Mounts the share on this machine: its kernel makes the requests, and they go over \
                     the queues as a guest's would. Root mounts for all users, another user through \
                     fusermount3 for itself. Prints a line when it is mounted, and ends when it is \
                     unmounted, or at SIGTERM or SIGINT. When the server goes away, so does the mount, \
                     and the command fails. Symbolic links are followed by this machine, also those \
                     that lead out of the share.",
                )
                .arg(
                    Arg::new("DIR")
                        .required(true)
                        .value_parser(value_parser!(PathBuf))
                        .value_hint(clap::ValueHint::DirPath)
                        .help("The directory to mount on"),
                ),
        )
        .subcommand(
            Command::new("bench")
                .about("Carry out the rows that standard input names, and say how long each took")
                .arg(
                    number("file-bytes", "BYTES", 64 << 20, 1 << 20..=1 << 40)
                        .help("Size of the file that is read and written"),
                )
                .arg(
                    number("entries", "N", 10_000, 1..=10_000_000)
                        .help("Entries of the directory that is listed"),
                )
                .arg(
                    Arg::new("window")
                        .long("window")
                        .value_name("HOW")
                        .value_parser(["as-specified", "as-qemu"])
                        .help("Use the server's DAX window, and behave as specified or as QEMU 11.1"),
                ),
        )
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn number(
    name: &'static str,
    value_name: &'static str,
    usual: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value_name)
        .default_value(usual.to_string())
        .value_parser(value_parser!(u64).range(range))
}

impl Arguments {
    fn of(mut matches: ArgMatches) -> Result<Arguments, clap::Error> {
        let (name, mut own) = matches
            .remove_subcommand()
            .expect("clap requires a subcommand");
        let Some(socket) = matches.remove_one::<PathBuf>("socket") else {
            let problem = "say where the server listens: --socket PATH";
            return Err(command().error(ClapErrorKind::MissingRequiredArgument, problem));
        };
        let connection = Connection {
            request_queues: narrow(taken(&mut matches, "queues")),
            queue_size: narrow(taken(&mut matches, "queue-size")),
            indirect: !matches.get_flag("no-indirect"),
            time_limit: Duration::from_secs(taken(&mut matches, "time-limit")),
            ..Connection::to(socket)
        };
        let command = match name.as_str() {
            "mount" => tool::Command::Mount(Mount {
                target: taken(&mut own, "DIR"),
            }),
            "bench" => tool::Command::Bench(Bench {
                file_bytes: taken(&mut own, "file-bytes"),
                entries: narrow(taken(&mut own, "entries")),
                window: own
                    .remove_one::<String>("window")
                    .map(|how| match how.as_str() {
                        "as-qemu" => WindowConfig::as_qemu(),
                        _ => WindowConfig::as_specified(),
                    }),
            }),
            other => unreachable!("clap knows no subcommand {other}"),
        };
        Ok(Arguments {
            connection,
            command,
        })
    }
}

fn taken<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> T {
    matches
        .remove_one(name)
        .expect("clap requires it or has a default")
}

/// A number within a range that clap has checked.
fn narrow<T: TryFrom<u64>>(number: u64) -> T {
    let fits = T::try_from(number).ok();
    fits.expect("clap has checked that it fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &str) -> Result<Arguments, clap::Error> {
        let words = arguments.split_whitespace();
        let matches = command().no_binary_name(true).try_get_matches_from(words)?;
        Arguments::of(matches)
    }

    #[test]
    fn where_and_how_to_connect() {
        let usual = parsed("--socket /s mount /m").unwrap().connection;
        assert_eq!(usual.socket, PathBuf::from("/s"));
        assert!(usual.indirect);
        let said =
            "--socket-path=/s --queues 3 --queue-size=128 --no-indirect --time-limit 2 mount /m";
        let said = parsed(said).unwrap().connection;
        assert_eq!((said.request_queues, said.queue_size), (3, 128));
        assert!(!said.indirect);
        assert_eq!(said.time_limit, Duration::from_secs(2));
        assert!(parsed("mount /m").is_err(), "nowhere");
        assert!(parsed("--socket /s --queues 65 mount /m").is_err());
    }

    #[test]
    fn what_to_do() {
        let command =
            |arguments: &str| parsed(&format!("--socket /s {arguments}")).map(|a| a.command);
        let tool::Command::Mount(mount) = command("mount /mnt").unwrap() else {
            panic!("not mount");
        };
        assert_eq!(mount.target, PathBuf::from("/mnt"));
        let tool::Command::Bench(bench) = command("bench --entries 7 --window as-qemu").unwrap()
        else {
            panic!("not bench");
        };
        assert_eq!((bench.file_bytes, bench.entries), (64 << 20, 7));
        assert!(bench.window.is_some());
        for wrong in ["bench --entries 0", "bench --window", "mount", "mv a b"] {
            assert!(command(wrong).is_err(), "{wrong}");
        }
    }
}
