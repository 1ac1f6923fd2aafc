//! `thrufs-client`: drives a virtio-fs server as a guest would, without a virtual machine.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use clap::error::ErrorKind as ClapErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use thrufs_client::tool::{self, Bench, Connection, Mount, Target, WindowBench};

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
             thrufs-client --socket /run/vm1-home.sock bench --against virtiofsd=/run/other.sock",
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
        .subcommand(bench_command())
        .subcommand(window_command())
}

fn window_command() -> Command {
    let usual = WindowBench::default();
    Command::new("window")
        .about("Measure reads through the server's DAX window beside reads by requests")
        .arg(
            number("rounds", "N", usual.rounds.into(), 1..=1000)
                .help("How often each row is measured"),
        )
        .arg(
            number("sample", "MS", millis(usual.sample), 1..=600_000)
                .help("For how many milliseconds, each time"),
        )
        .arg(switch("as-qemu").help("Behave as QEMU 11.1, not as specified"))
        .arg(
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write every sample"),
        )
}

fn bench_command() -> Command {
    let usual = Bench::default();
    Command::new("bench")
        .about("Measure the server, and others beside it, in interleaved rounds")
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .default_value(usual.name)
                .help("What to call the server at --socket"),
        )
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("NAME=SOCKET")
                .action(ArgAction::Append)
                .value_parser(parse::<Target>)
                .help("Another server to compare it with; may be given several times"),
        )
        .arg(
            number("rounds", "N", usual.rounds.into(), 1..=1000)
                .help("Rounds, each with every server"),
        )
        .arg(
            number("sample", "MILLISECONDS", millis(usual.sample), 1..=60_000)
                .help("How long a row is measured in each round"),
        )
        .arg(
            Arg::new("directory")
                .long("directory")
                .value_name("NAME")
                .default_value(usual.directory)
                .help("The directory in each share to work in; made, and removed at the end"),
        )
        .arg(
            number("file-bytes", "BYTES", usual.file_bytes, 4096..=1 << 40)
                .help("Size of the file that is read and written"),
        )
        .arg(
            number("entries", "N", usual.entries.into(), 1..=10_000_000)
                .help("Entries of the directory that is listed"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .value_hint(clap::ValueHint::FilePath)
                .help("Write every sample there"),
        )
        .arg(Arg::new("ROW").num_args(0..).help(format!(
            "Which rows, by name or its beginning [default: all]: {}",
            { tool::row_names().join(", ") }
        )))
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

fn parse<T: FromStr>(text: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
                name: taken(&mut own, "name"),
                against: all(&mut own, "against"),
                rows: all(&mut own, "ROW"),
                rounds: narrow(taken(&mut own, "rounds")),
                sample: Duration::from_millis(taken(&mut own, "sample")),
                directory: taken(&mut own, "directory"),
                file_bytes: taken(&mut own, "file-bytes"),
                entries: narrow(taken(&mut own, "entries")),
                json: own.remove_one("json"),
            }),
            "window" => tool::Command::Window(WindowBench {
                rounds: narrow(taken(&mut own, "rounds")),
                sample: Duration::from_millis(taken(&mut own, "sample")),
                as_qemu: own.get_flag("as-qemu"),
                json: own.remove_one("json"),
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

fn all<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> Vec<T> {
    matches.remove_many(name).into_iter().flatten().collect()
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
        let list =
            "bench --against=other=/o --rounds 2 --sample 50 --entries 7 --json /j getattr read";
        let tool::Command::Bench(bench) = command(list).unwrap() else {
            panic!("not bench");
        };
        assert_eq!((bench.rounds, bench.entries), (2, 7));
        assert_eq!(bench.sample, Duration::from_millis(50));
        assert_eq!(bench.against[0].name, "other");
        assert_eq!(bench.rows, ["getattr", "read"]);
        let usual = Bench::default();
        let tool::Command::Bench(bench) = command("bench").unwrap() else {
            panic!("not bench");
        };
        assert_eq!(
            (bench.name, bench.file_bytes),
            (usual.name, usual.file_bytes)
        );
        for wrong in [
            "bench --rounds 0",
            "bench --against nowhere",
            "mount",
            "mv a b",
        ] {
            assert!(command(wrong).is_err(), "{wrong}");
        }
    }
}
