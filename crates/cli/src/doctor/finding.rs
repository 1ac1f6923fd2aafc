//! What was tried, and how it went.

use serde::Serialize;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum FindingState {
    #[serde(rename = "ok")]
    Good,
    #[serde(rename = "no")]
    Bad,
    /// Information.
    #[serde(rename = "--")]
    Note,
}

impl fmt::Display for FindingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FindingState::Good => "ok",
            FindingState::Bad => "no",
            FindingState::Note => "--",
        })
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) state: FindingState,
    pub(super) detail: String,
    /// One line, for every [`FindingState::Bad`].
    pub(super) remedy: Option<String>,
    /// Whether mounting fails without it.
    #[serde(skip)]
    pub(super) is_needed: bool,
}

impl Finding {
    pub(super) fn good(detail: impl Into<String>) -> Finding {
        Finding {
            name: "",
            state: FindingState::Good,
            detail: detail.into(),
            remedy: None,
            is_needed: false,
        }
    }

    pub(super) fn note(detail: impl Into<String>) -> Finding {
        Finding {
            state: FindingState::Note,
            ..Finding::good(detail)
        }
    }

    pub(super) fn bad(detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            state: FindingState::Bad,
            remedy: Some(remedy.into()),
            ..Finding::good(detail)
        }
    }

    pub(super) fn called(self, name: &'static str) -> Finding {
        Finding { name, ..self }
    }

    pub(super) fn needed(self) -> Finding {
        Finding {
            is_needed: true,
            ..self
        }
    }
}
