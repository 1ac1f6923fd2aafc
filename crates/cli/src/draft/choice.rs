//! Which draft a command is about.

use super::DraftError;
use super::layer::{Draft, DraftPlace, Drafts};
use clap::Args;

/// Which draft, for commands that take paths.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DraftChoice {
    /// The draft [default: the only one of a tree around the working directory]
    #[arg(long = "draft", value_name = "NAME")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    place: DraftPlace,
}

impl DraftChoice {
    /// # Errors
    ///
    /// None of this name; without a name, none at all, or several.
    pub(crate) fn open(&self) -> Result<(Drafts, Draft), DraftError> {
        let drafts = self.drafts()?;
        let draft = match &self.name {
            Some(name) => drafts.named(name),
            None => drafts.only(),
        }?;
        Ok((drafts, draft))
    }

    pub(super) fn drafts(&self) -> Result<Drafts, DraftError> {
        Drafts::open(&self.place)?.ok_or(DraftError::None)
    }
}
