//! What the arguments of virtiofsd come to.

use crate::error::{CommandError, USAGE};
use crate::options::{self, OptionError, Setting};
use crate::share::listener::ListenAddress;
use crate::share::{ShareArguments, ShareError};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum VirtiofsdError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error("bad value `{value}` for {option}: {problem}")]
    Value {
        option: String,
        value: String,
        problem: String,
    },
    #[error("`-o {0}` is not an option of virtiofsd")]
    Unknown(String),
    #[error("no directory to share: add --shared-dir DIR")]
    NoDirectory,
    #[error("no socket to listen at: add --socket-path PATH or --fd N")]
    NoSocket,
    #[error("{0} is not UTF-8 text")]
    NotText(String),
    #[error(transparent)]
    Share(#[from] ShareError),
}

impl VirtiofsdError {
    pub(super) fn value(option: &str, value: &str, problem: impl Into<String>) -> VirtiofsdError {
        VirtiofsdError::Value {
            option: option.to_owned(),
            value: value.to_owned(),
            problem: problem.into(),
        }
    }
}

impl CommandError for VirtiofsdError {
    fn status(&self) -> u8 {
        match self {
            VirtiofsdError::Share(error) => error.status(),
            _ => USAGE,
        }
    }
}

/// The collected arguments.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) shared_dir: Option<PathBuf>,
    pub(super) socket: Option<PathBuf>,
    pub(super) descriptor: Option<i32>,
    pub(super) group: Option<u32>,
    /// In order: the last of opposites counts.
    pub(super) settings: Vec<Setting>,
}

impl Collected {
    /// Adds an option of the common table.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), VirtiofsdError> {
        let option = options::find(name).expect("the table of options has what this one names");
        self.settings.push(options::setting(option, value)?);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<ShareArguments, VirtiofsdError> {
        let listening = match (self.descriptor, self.socket) {
            (Some(number), _) => ListenAddress::Inherited(number),
            (None, Some(path)) => ListenAddress::At {
                path,
                group: self.group,
                pid_file: true,
            },
            (None, None) => return Err(VirtiofsdError::NoSocket),
        };
        Ok(ShareArguments {
            source: self.shared_dir.ok_or(VirtiofsdError::NoDirectory)?,
            listening,
            settings: self.settings,
            once: true,
        })
    }
}
