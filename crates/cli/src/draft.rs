//! `thrufs draft`: the layers of `thrufs run --draft`, in which a command's changes of a tree wait.
//!
//! | module | content |
//! |---|---|
//! | `begin` | making a draft, or going on in one |
//! | `change`, `changes`, `base` | comparing a layer with its tree; what the tree was before |
//! | `choice` | which draft a command is about |
//! | `diff`, `apply` | showing the changes, and carrying them out |
//! | `put` | putting one file into the tree |
//! | `beneath`, `selection` | files beneath a directory that is not trusted; the paths that a command is about |
//! | `layer` | drafts on disk: where they are, their record and lock |
//! | `remove` | removing what a command left in a layer |
//! | `summary` | what is said of a draft at the end of a run |

mod apply;
mod base;
mod begin;
mod beneath;
mod change;
mod changes;
mod choice;
mod diff;
mod error;
mod layer;
mod put;
mod remove;
mod selection;
mod summary;

pub(crate) use choice::DraftChoice;
pub(crate) use error::DraftError;
pub(crate) use layer::{Draft, DraftIds, DraftPlace, Drafts, layer_directory};

use crate::output::{print, report};
use clap::{Args, Parser};
use std::process::ExitCode;

/// Look at what commands changed in drafts (thrufs run --draft), apply or discard it
#[derive(Parser)]
#[command(name = "draft", disable_help_subcommand = true)]
pub(crate) enum DraftCommand {
    List(ListArguments),
    Diff(diff::DiffArguments),
    Apply(apply::ApplyArguments),
    Discard(DiscardArguments),
}

/// List the drafts: names, trees, when they were used
#[derive(Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    place: DraftPlace,
}

/// Remove drafts, with all that is in them
#[derive(Args)]
pub(crate) struct DiscardArguments {
    /// The drafts [default: the only one of a tree around the working directory]
    #[arg(id = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    place: DraftPlace,
}

pub(crate) fn run(command: DraftCommand) -> Result<ExitCode, DraftError> {
    match command {
        DraftCommand::List(arguments) => list(&arguments.place),
        DraftCommand::Diff(arguments) => diff::run(&arguments),
        DraftCommand::Apply(arguments) => apply::run(&arguments),
        DraftCommand::Discard(arguments) => discard(&arguments),
    }
}

fn list(place: &DraftPlace) -> Result<ExitCode, DraftError> {
    let Some(drafts) = Drafts::open(place)? else {
        return Ok(ExitCode::SUCCESS);
    };
    for name in drafts.names()? {
        let line = match drafts.named(&name) {
            Ok(draft) => {
                let in_use = if draft.is_in_use() { "\tin use" } else { "" };
                let (tree, age) = (draft.record.tree().display(), draft.record.age());
                format!("{name}\t{tree}\t{age}{in_use}\n")
            }
            Err(error) => format!("{name}\t{error}\n"),
        };
        print(line);
    }
    Ok(ExitCode::SUCCESS)
}

fn discard(arguments: &DiscardArguments) -> Result<ExitCode, DraftError> {
    let drafts = Drafts::open(&arguments.place)?.ok_or(DraftError::None)?;
    let mut names = arguments.names.clone();
    if names.is_empty() {
        names.push(drafts.only("NAME")?.name);
    }
    for name in names {
        drafts.discard(&name)?;
        report(format_args!("thrufs: the draft {name} is discarded"));
    }
    Ok(ExitCode::SUCCESS)
}
