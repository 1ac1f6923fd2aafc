//! `thrufs-client`: drives a virtio-fs server as a guest would, without a virtual machine.
#![forbid(unsafe_code)]

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use thrufs_client::tool::{self, Bench, ToolError};
use thrufs_client::{FrontEndConfig, WindowConfig};

fn main() -> ExitCode {
    match run(command().get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thrufs-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut matches: ArgMatches) -> Result<(), ToolError> {
    let (name, mut own) = matches.remove_subcommand().expect("it is required");
    let socket: PathBuf = taken(&mut matches, "socket");
    let mut config = FrontEndConfig {
        request_queues: taken(&mut matches, "queues"),
        queue_size: taken(&mut matches, "queue-size"),
        indirect_descriptors: !matches.get_flag("no-indirect"),
        ..FrontEndConfig::default()
    };
    let mut out = io::stdout().lock();
    if name == "mount" {
        return tool::mount(
            &socket,
            &config,
            &taken::<PathBuf>(&mut own, "DIR"),
            &mut out,
        );
    }
    config.window = own
        .remove_one::<String>("window")
        .map(|how| match how.as_str() {
            "as-qemu" => WindowConfig::as_qemu(),
            _ => WindowConfig::as_specified(),
        });
    let bench = Bench {
        file_bytes: taken(&mut own, "file-bytes"),
        entries: taken(&mut own, "entries"),
    };
    tool::bench(&socket, &config, &bench, &mut io::stdin().lock(), &mut out)
}

fn taken<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> T {
    let taken = matches.remove_one(name);
    taken.expect("it is required, or has a default")
}

fn command() -> Command {
    Command::new("thrufs-client")
        .about("Drive a virtio-fs server by hand, as a guest would")
        .long_about(
            "Drives a virtio-fs server, thrufs share or any other: connects to its vhost-user socket \
             as a machine monitor does, and makes requests as the kernel of a guest does, without a \
             guest.",
        )
        .version(env!("CARGO_PKG_VERSION"))
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
                .required(true)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .value_hint(clap::ValueHint::AnyPath)
                .help("The socket of the server: of thrufs share, or of any other"),
        )
        .arg(
            number("queues", "N", "1")
                .value_parser(value_parser!(u16).range(1..=64))
                .help("Request queues to use"),
        )
        .arg(
            number("queue-size", "N", "1024")
                .value_parser(value_parser!(u16).range(8..=1024))
                .help("Descriptors of a queue, a power of two"),
        )
        .arg(
            Arg::new("no-indirect")
                .long("no-indirect")
                .action(ArgAction::SetTrue)
                .help("Use no indirect descriptors"),
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
                    number("file-bytes", "BYTES", "67108864")
                        .value_parser(value_parser!(u64).range(1 << 20..=1 << 40))
                        .help("Size of the file that is read and written"),
                )
                .arg(
                    number("entries", "N", "10000")
                        .value_parser(value_parser!(u32).range(1..=10_000_000))
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

fn number(name: &'static str, value_name: &'static str, usual: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value_name)
        .default_value(usual)
}
