//! The command line: its description for clap, and the command that it names.

use crate::arguments::{Purpose, parsed};
use crate::ctl::CtlArguments;
use crate::doctor::DoctorArguments;
use crate::draft::DraftCommand;
use crate::error::finish;
use crate::explain::ExplainArguments;
use crate::install::InstallArguments;
use crate::list::ListArguments;
use crate::list::top::TopArguments;
use crate::manual::ManArguments;
use crate::output::print;
use crate::policy::PolicyCommand;
use crate::unmount::UnmountArguments;
use crate::upgrade::command::{self as upgrade, UpgradeArguments};
use crate::{
    bench_command, ctl, doctor, draft, explain, install, launch, list, manual, policy, run, share,
    unmount, version, virtiofsd,
};
use clap::{ArgMatches, Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) const NAME: &str = "thrufs";

pub(crate) fn command(purpose: Purpose) -> Command {
    Command::new(NAME)
        .about("Serve a directory through FUSE, to the host and to virtual machines")
        .version(env!("CARGO_PKG_VERSION"))
        .long_version(version::long())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(launch::command(purpose))
        .subcommand(UnmountArguments::command())
        .subcommand(UpgradeArguments::command())
        .subcommand(share::launch::command(purpose))
        .subcommand(run::command(purpose))
        .subcommand(DraftCommand::command())
        .subcommand(virtiofsd::command(virtiofsd::NAME))
        .subcommand(bench_command::command())
        .subcommand(DoctorArguments::command())
        .subcommand(PolicyCommand::command())
        .subcommand(ExplainArguments::command())
        .subcommand(CtlArguments::command())
        .subcommand(ListArguments::command())
        .subcommand(TopArguments::command())
        .subcommand(CompletionsArguments::command())
        .subcommand(ManArguments::command())
        .subcommand(InstallArguments::command())
        .subcommand(install::uninstall_command())
}

/// Print the completions for a shell
#[derive(Parser)]
#[command(name = "completions")]
struct CompletionsArguments {
    /// The shell
    #[arg(id = "SHELL")]
    shell: clap_complete::Shell,
}

/// Parses the arguments, the program's name first.
///
/// # Errors
///
/// Invalid arguments; also help and version.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
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
        "unmount" => finish(NAME, unmount::run(parsed(matches))),
        "upgrade" => finish(NAME, upgrade::run(parsed(matches))),
        "run" => finish(NAME, run::run(matches)),
        "draft" => finish(NAME, draft::run(parsed(matches))),
        "doctor" => finish(NAME, doctor::run(parsed(matches))),
        "policy" => finish(NAME, policy::check(parsed(matches))),
        "explain" => finish(NAME, explain::explain(parsed(matches))),
        "ctl" => finish(NAME, ctl::ctl(parsed(matches))),
        "list" => finish(NAME, list::list(parsed(matches))),
        "top" => finish(NAME, list::top::top(parsed(matches))),
        "completions" => {
            let CompletionsArguments { shell } = parsed(matches);
            print(completions(shell));
            ExitCode::SUCCESS
        }
        "man" => finish(NAME, manual::write_pages(parsed(matches))),
        "install" => finish(NAME, install::install(parsed(matches), completions)),
        "uninstall" => finish(NAME, install::uninstall(parsed(matches), completions)),
        other => unreachable!("clap knows no subcommand {other}"),
    }
}

/// The completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(Purpose::Completion), NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
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
                    let text = settings[0].to_string();
                    let again = options::parse(&text).unwrap();
                    assert_eq!(again[0].option.name, option.name);
                    assert_eq!(again[0].to_string(), text);
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
