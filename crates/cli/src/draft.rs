//! `thrufs draft`: the layers of `thrufs run --draft`, in which a command's changes of a tree wait.
//!
//! | module | content |
//! |---|---|
//! | `begin` | making a draft, or going on in one |
//! | `change`, `changes`, `compared`, `base` | comparing a layer with its tree; what the tree was before |
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
mod compared;
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
    /// The drafts, as --draft
    #[arg(id = "NAME", conflicts_with_all = ["name", "all"])]
    names: Vec<String>,
    /// All drafts
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    draft: DraftChoice,
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
    let drafts = arguments.draft.drafts()?;
    let names = match (arguments.all, &arguments.draft.name) {
        (true, _) => drafts.names()?,
        (false, Some(name)) => vec![name.clone()],
        _ if arguments.names.is_empty() => vec![drafts.only()?.name],
        _ => arguments.names.clone(),
    };
    for name in names {
        drafts.discard(&name)?;
        report(format_args!("thrufs: the draft {name} is discarded"));
    }
    Ok(ExitCode::SUCCESS)
}
