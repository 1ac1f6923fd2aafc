//! The command line: its description for clap, and the command that it names.

use crate::arguments::{Purpose, required};
use crate::error::finish;
use crate::output::print;
use crate::{
    bench_command, doctor, explain, launch, manual, policy, run, share, unmount, virtiofsd,
};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) const NAME: &str = "thrufs";

pub(crate) fn command(purpose: Purpose) -> Command {
    Command::new(NAME)
        .about("Serve a directory through FUSE, to the host and to virtual machines")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(launch::command(purpose))
        .subcommand(unmount::command())
        .subcommand(share::launch::command(purpose))
        .subcommand(run::command(purpose))
        .subcommand(virtiofsd::command(virtiofsd::NAME))
        .subcommand(bench_command::command())
        .subcommand(doctor::command())
        .subcommand(policy::command())
        .subcommand(explain::command())
        .subcommand(explain::ctl_command())
        .subcommand(completions_command())
        .subcommand(manual::command())
}

fn completions_command() -> Command {
    Command::new("completions")
        .about("Print the completions for a shell")
        .arg(
            Arg::new("SHELL")
                .required(true)
                .value_parser(value_parser!(clap_complete::Shell))
                .help("The shell"),
        )
}

fn ctl_command() -> Command {
    Command::new("ctl")
        .about("Query the server of a mount or share")
        .arg(json("Print an object"))
        .arg(control())
        .arg(
            path("PATH")
                .required(true)
                .help("The mount point, or anything on the mount; the socket of a share"),
        )
        .arg(
            Arg::new("COMMAND")
                .required(true)
                .value_parser(PossibleValuesParser::new(["statistics"]))
                .help("The query: statistics, as logged on SIGUSR1"),
        )
}

fn json(help: &'static str) -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help(help)
}

fn control() -> Arg {
    path("control")
        .long("control")
        .value_name("PATH")
        .help("The control socket, where the mount was given control=PATH")
}

fn path(name: &'static str) -> Arg {
    Arg::new(name)
        .value_parser(value_parser!(PathBuf))
        .value_hint(clap::ValueHint::AnyPath)
}

fn option_list(purpose: Purpose, used: Use) -> Arg {
    let list = Arg::new("options")
        .short('o')
        .value_name("OPT[,OPT…]")
        .action(ArgAction::Append)
        .value_parser(value_parser!(OsString))
        .help("Options as for mount(8): each flag below, with _ for -, and some more");
    match purpose {
        Purpose::Parsing => list,
        Purpose::Completion => list
            .value_parser(PossibleValuesParser::new(list_words(used)))
            .value_delimiter(','),
    }
}

fn directory(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .value_hint(clap::ValueHint::DirPath)
        .help(help)
}

fn flags(mut command: Command, used: Use) -> Command {
    for group in Group::ALL {
        for option in group.options(used).filter(|o| o.form != Form::List) {
            command = command.arg(flag(option));
        }
    }
    command
}

fn share_command(purpose: Purpose) -> Command {
    let device = Group::Device.title();
    let command = Command::new("share")
        .about("Share a directory with virtual machines, by virtio-fs over vhost-user")
        .args_override_self(false)
        .arg(
            path("socket")
                .long("socket")
                .visible_alias("socket-path")
                .value_name("PATH")
                .required_unless_present("fd")
                .help_heading(device)
                .help(
                    "The socket that virtual machine monitors connect to; created at the start, \
                       removed at the end",
                ),
        )
        .arg(
            Arg::new("fd")
                .long("fd")
                .value_name("N")
                .value_parser(value_parser!(i32).range(0..))
                .conflicts_with_all(["socket", "socket-group"])
                .help_heading(device)
                .help("Number of a listening socket to use instead"),
        )
        .arg(
            Arg::new("socket-group")
                .long("socket-group")
                .value_name("GROUP")
                .value_parser(options::parse_group)
                .help_heading(device)
                .help("Group that may connect besides the user"),
        )
        .arg(option_list(purpose, Use::Share))
        .arg(directory("DIR", "The directory to share"));
    flags(command, Use::Share)
}

fn mount_command(purpose: Purpose) -> Command {
    let command = Command::new("mount")
        .about("Mount a directory somewhere else, served by thrufs")
        .args_override_self(false)
        .arg(option_list(purpose, Use::Mount))
        .arg(directory("SOURCE", "The directory to serve"))
        .arg(directory("MOUNTPOINT", "The directory to mount it on"))
        .after_help(list_only_help());
    flags(command, Use::Mount)
}

fn flag(option: &'static MountOption) -> Arg {
    let mut arg = Arg::new(option.name)
        .long(option.flag())
        .help_heading(option.group.title())
        .help(sentence(option.help, option.default));
    if !option.long.is_empty() {
        let short = sentence(option.help, option.default);
        arg = arg.long_help(format!("{short}\n{}", option.long));
    }
    if option.name.contains('_') {
        arg = arg.alias(option.name);
    }
    if option.name == "foreground" {
        arg = arg.short('f');
    }
    match &option.value {
        // Given twice, the position of the last one counts.
        value if value.is_switch() => arg.action(ArgAction::SetTrue).overrides_with(option.name),
        Value::Choice(words, _) => arg
            .action(ArgAction::Append)
            .value_name(option.value.placeholder())
            .value_parser(PossibleValuesParser::new(*words)),
        kind => arg
            .action(ArgAction::Append)
            .value_name(kind.placeholder())
            .value_parser(value_parser!(OsString)),
    }
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

fn sentence(help: &str, default: &str) -> String {
    let mut text = capitalized(help);
    match default {
        "" => {}
        "on" => text.push_str(" [the default]"),
        other => text.push_str(&format!(" [default: {other}]")),
    }
    text
}

/// The words of a list after `-o`, for completions.
fn list_words(used: Use) -> Vec<String> {
    let mut words = Vec::new();
    let options = OPTIONS.iter().filter(|option| option.used().includes(used));
    for option in options.filter(|option| option.form != Form::Flag) {
        match &option.value {
            _ if option.name.ends_with('*') => {}
            value if value.is_switch() => words.push(option.name.to_owned()),
            Value::Choice(values, _) => {
                words.extend(
                    values
                        .iter()
                        .map(|value| format!("{}={value}", option.name)),
                );
            }
            _ => words.push(format!("{}=", option.name)),
        }
    }
    words
}

fn list_only_help() -> String {
    let names: Vec<&str> = OPTIONS
        .iter()
        .filter(|option| option.form == Form::List)
        .map(|o| o.name)
        .collect();
    format!(
        "{}, after -o alone:\n  {}",
        Group::Mount.title(),
        names.join(", ")
    )
}

/// Parses the arguments, the program's name first.
///
/// # Errors
///
/// Invalid arguments; also help and version.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(String, ArgMatches), clap::Error> {
    let mut matches = command(Purpose::Parsing).try_get_matches_from(arguments)?;
    Ok(matches
        .remove_subcommand()
        .expect("clap requires a subcommand"))
}

/// Carries out the command of this name, and prints its error.
pub(crate) fn carry_out(name: &str, matches: &mut ArgMatches) -> ExitCode {
    match name {
        "mount" => finish(NAME, launch::run(matches)),
        "share" => finish(NAME, share::launch::run(matches)),
        "unmount" => finish(NAME, unmount::run(matches)),
        "run" => finish(NAME, run::run(matches)),
        "doctor" => finish(NAME, doctor::run(matches)),
        "policy" => finish(NAME, policy::check(matches)),
        "explain" => finish(NAME, explain::explain(matches)),
        "ctl" => finish(NAME, explain::ctl(matches)),
        "completions" => {
            let shell: clap_complete::Shell = required(matches, "SHELL");
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(Purpose::Completion), NAME, &mut script);
            print(script);
            ExitCode::SUCCESS
        }
        "man" => finish(NAME, manual::write_pages(matches)),
        other => unreachable!("clap knows no subcommand {other}"),
    }
}

fn share_arguments(matches: &mut ArgMatches) -> Result<ShareArguments, OptionError> {
    let listening = match matches.remove_one("fd") {
        Some(number) => ListenAddress::Inherited(number),
        None => ListenAddress::At {
            path: required(matches, "socket"),
            group: matches.remove_one("socket-group"),
            pid_file: false,
        },
    };
    Ok(ShareArguments {
        listening,
        settings: settings(matches, Use::Share)?,
        source: required(matches, "DIR"),
        once: false,
    })
}

fn required<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> T {
    matches
        .remove_one(name)
        .expect("clap requires it or has a default")
}

fn all(matches: &mut ArgMatches, name: &str) -> Vec<PathBuf> {
    matches.remove_many(name).into_iter().flatten().collect()
}

/// All settings in the order of the command line, from lists and flags.
fn settings(matches: &ArgMatches, used: Use) -> Result<Vec<Setting>, OptionError> {
    let mut found: Vec<(usize, Vec<Setting>)> = Vec::new();
    for (index, list) in occurrences(matches, "options") {
        found.push((index, options::parse(text(list)?)?));
    }
    let options = OPTIONS.iter().filter(|option| option.used().includes(used));
    for option in options.filter(|option| option.form != Form::List) {
        match option.value {
            ref value if value.is_switch() => {
                if matches.get_flag(option.name) {
                    let last = matches.indices_of(option.name).and_then(Iterator::last);
                    let setting = options::setting(option, None)?;
                    found.push((last.unwrap_or_default(), vec![setting]));
                }
            }
            Value::Choice(..) => {
                let values = matches
                    .get_many::<String>(option.name)
                    .into_iter()
                    .flatten();
                let indices = matches.indices_of(option.name).into_iter().flatten();
                for (index, value) in indices.zip(values) {
                    found.push((index, vec![options::setting(option, Some(value))?]));
                }
            }
            _ => {
                for (index, value) in occurrences(matches, option.name) {
                    found.push((index, vec![options::setting(option, Some(text(value)?))?]));
                }
            }
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found
        .into_iter()
        .flat_map(|(_, settings)| settings)
        .collect())
}

fn occurrences<'a>(
    matches: &'a ArgMatches,
    name: &str,
) -> impl Iterator<Item = (usize, &'a OsString)> {
    let indices = matches.indices_of(name).into_iter().flatten();
    indices.zip(matches.get_many::<OsString>(name).into_iter().flatten())
}

fn text(value: &OsString) -> Result<&str, OptionError> {
    value
        .to_str()
        .ok_or_else(|| OptionError::NotText(value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::MountArguments;
    use crate::options::{self, Form, Group, OPTIONS, Use};
    use crate::share::ShareArguments;
    use crate::share::listener::ListenAddress;
    use std::error::Error;

    fn matches(name: &str, arguments: &str) -> Result<ArgMatches, clap::Error> {
        let words = ["thrufs", name].into_iter();
        let words = words.chain(arguments.split_whitespace());
        parse(words.map(OsString::from)).map(|(_, matches)| matches)
    }

    fn mount(arguments: &str) -> Result<MountArguments, Box<dyn Error>> {
        Ok(launch::arguments(&mut matches("mount", arguments)?)?)
    }

    fn share(arguments: &str) -> Result<ShareArguments, Box<dyn Error>> {
        let mut matches = matches("share", arguments)?;
        Ok(share::launch::arguments(&mut matches)?)
    }

    fn shown(arguments: &str) -> String {
        let settings = mount(arguments).unwrap().settings;
        settings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn clap_debug_assert_passes() {
        command(Purpose::Parsing).debug_assert();
        command(Purpose::Completion).debug_assert();
    }

    #[test]
    fn flags_and_lists_are_ordered_together() {
        assert_eq!(
            shown("--cache=never -o ro,cache=auto --rw -f s m --cache always -o noatime"),
            "cache=never ro cache=auto rw foreground cache=always noatime"
        );
        assert_eq!(
            shown("--ro s m -o rw --ro"),
            "rw ro",
            "the last place of a switch counts"
        );
        assert_eq!(
            shown("--allow-other --attr_timeout=3 s m"),
            "allow_other attr_timeout=3"
        );
        assert_eq!(
            shown("--uidmap 0:1:1 s m --uidmap=1:2:1"),
            "uidmap=0:1:1 uidmap=1:2:1"
        );
    }

    #[test]
    fn every_flag_of_the_table_is_a_flag() {
        for option in OPTIONS.iter().filter(|option| option.form != Form::List) {
            let flag = match option.sample() {
                None => format!("--{}", option.flag()),
                Some(value) => format!("--{}={value}", option.flag()),
            };
            let mounted = mount(&format!("{flag} s m")).map(|mount| mount.settings);
            let shared = share(&format!("--socket k {flag} d")).map(|share| share.settings);
            assert_eq!(
                mounted.is_ok(),
                option.used().includes(Use::Mount),
                "{flag}"
            );
            assert_eq!(shared.is_ok(), option.used().includes(Use::Share), "{flag}");
            for settings in [mounted, shared].into_iter().flatten() {
                assert_eq!(settings.len(), 1);
                assert_eq!(settings[0].option.name, option.name);
                if option.form == Form::Both {
                    assert_eq!(options::parse(&settings[0].to_string()).unwrap(), settings);
                }
            }
        }
    }

    #[test]
    fn listen_address_of_a_share() {
        let listening = |arguments: &str| share(arguments).map(|share| share.listening);
        let at = |path: &str, group| ListenAddress::At {
            path: path.into(),
            group,
            pid_file: false,
        };
        assert_eq!(listening("--socket k d").unwrap(), at("k", None));
        assert_eq!(
            listening("--socket-path=/k --socket-group 7 d").unwrap(),
            at("/k", Some(7))
        );
        assert_eq!(listening("--fd 3 d").unwrap(), ListenAddress::Inherited(3));
        for arguments in [
            "d",
            "--socket k",
            "--socket k --fd 3 d",
            "--fd 3 --socket-group 7 d",
            "--fd -1 d",
        ] {
            assert!(listening(arguments).is_err(), "{arguments}");
        }
    }

    #[test]
    fn help_has_every_option() {
        let mut command = command(Purpose::Parsing);
        for (name, used) in [("mount", Use::Mount), ("share", Use::Share)] {
            let subcommand = command.find_subcommand_mut(name).unwrap();
            for help in [
                subcommand.render_help().to_string(),
                subcommand.render_long_help().to_string(),
            ] {
                for option in OPTIONS.iter() {
                    let name = match option.form {
                        Form::List => option.name.to_owned(),
                        _ => format!("--{} ", option.flag()),
                    };
                    let is_there = help.replace('\n', " ").contains(&name);
                    let wanted = option.used().includes(used);
                    assert!(is_there || !wanted, "{name} is missing in\n{help}");
                }
                for group in Group::ALL {
                    let wanted = group.options(used).next().is_some();
                    assert_eq!(help.contains(group.title()), wanted, "{}", group.title());
                }
            }
        }
    }

    #[test]
    fn bad_values_of_flags_are_refused() {
        let error = mount("--threads=0 s m").unwrap_err().to_string();
        assert!(
            error.contains("`threads`") && error.contains("between 1"),
            "{error}"
        );
        let error = mount("--alow-other s m").unwrap_err().to_string();
        assert!(error.contains("--allow-other"), "{error}");
    }
}
