//! What is wrong with an option.

use std::ffi::OsString;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("unknown option `{name}`{}", suggestion(nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    #[error("thrufs does not support option `{name}`: {note}")]
    Foreign { name: String, note: &'static str },
    #[error("option `{name}` does not apply to a {what}{}", after_colon(instead))]
    NotFor {
        name: &'static str,
        what: &'static str,
        instead: &'static str,
    },
    #[error("option `{name}` can only be given as a flag: --{name}")]
    FlagOnly { name: &'static str },
    #[error("option `{name}` needs a value: {name}={pattern}")]
    MissingValue { name: &'static str, pattern: String },
    #[error("option `{name}` takes no value (`{value}` was given): use `{name}` alone")]
    UnwantedValue { name: &'static str, value: String },
    #[error("bad value `{value}` for option `{name}`: {problem}")]
    BadValue {
        name: &'static str,
        value: String,
        problem: String,
    },
    #[error("`{0}` contradicts `{1}`: {2}")]
    Contradiction(String, String, &'static str),
    #[error("option list {0:?} has a quote that is not closed")]
    OpenQuote(String),
    #[error("option {0:?} is not UTF-8 text")]
    NotText(OsString),
}

fn after_colon(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean `{name}`?"),
        None => ": see `thrufs mount --help` and `thrufs share --help`".to_owned(),
    }
}
