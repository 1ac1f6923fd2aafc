//! Arguments that several commands have: the options of the table, and paths.

use crate::options::{self, Form, Group, MountOption, OPTIONS, OptionError, Setting, Use, Value};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Parsing,
    Completion,
}

pub(crate) fn directory(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .value_hint(clap::ValueHint::DirPath)
        .help(help)
}

pub(crate) fn option_list(purpose: Purpose, used: Use) -> Arg {
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

pub(crate) fn flags(mut command: Command, used: Use) -> Command {
    for group in Group::ALL {
        for option in group.options(used).filter(|o| o.form != Form::List) {
            command = command.arg(flag(option));
        }
    }
    command
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
    if option.value.is_switch() {
        // Given twice, the position of the last one counts.
        return arg.action(ArgAction::SetTrue).overrides_with(option.name);
    }
    let arg = arg
        .action(ArgAction::Append)
        .value_name(option.value.placeholder());
    match &option.value {
        Value::Choice(words, _) => {
            arg.value_parser(PossibleValuesParser::new(*words).map(OsString::from))
        }
        _ => arg.value_parser(value_parser!(OsString)),
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

/// The arguments of one command.
pub(crate) fn parsed<T: FromArgMatches>(matches: &mut ArgMatches) -> T {
    T::from_arg_matches_mut(matches).expect("clap has parsed them by the same description")
}

pub(crate) fn required<T: Clone + Send + Sync + 'static>(
    matches: &mut ArgMatches,
    name: &str,
) -> T {
    matches
        .remove_one(name)
        .expect("clap requires it or has a default")
}

/// All settings in the order of the command line, from lists and flags.
pub(crate) fn settings(matches: &ArgMatches, used: Use) -> Result<Vec<Setting>, OptionError> {
    let mut found: Vec<(usize, Vec<Setting>)> = Vec::new();
    for (index, list) in occurrences(matches, "options") {
        found.push((index, options::parse(text(list)?)?));
    }
    let options = OPTIONS.iter().filter(|option| option.used().includes(used));
    for option in options.filter(|option| option.form != Form::List) {
        if !option.value.is_switch() {
            for (index, value) in occurrences(matches, option.name) {
                found.push((index, vec![options::setting(option, Some(text(value)?))?]));
            }
        } else if matches.get_flag(option.name) {
            let last = matches.indices_of(option.name).and_then(Iterator::last);
            let setting = options::setting(option, None)?;
            found.push((last.unwrap_or_default(), vec![setting]));
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found
        .into_iter()
        .flat_map(|(_, settings)| settings)
        .collect())
}

pub(crate) fn occurrences<'a>(
    matches: &'a ArgMatches,
    name: &str,
) -> impl Iterator<Item = (usize, &'a OsString)> {
    let indices = matches.indices_of(name).into_iter().flatten();
    indices.zip(matches.get_many::<OsString>(name).into_iter().flatten())
}

pub(crate) fn text(value: &OsString) -> Result<&str, OptionError> {
    value
        .to_str()
        .ok_or_else(|| OptionError::NotText(value.clone()))
}

/// Prints an error of clap, or help or the version, which are errors of clap with status 0.
pub(crate) fn refuse(error: &clap::Error, status: u8) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        status.into()
    } else {
        ExitCode::SUCCESS
    }
}
