//! The manual pages: text files, with parts generated from the tables of options.

mod roff;

use crate::arguments::capitalized;
use crate::error::CommandError;
use crate::options::{Form, Group, MountOption, NEEDLESS, Use};
use crate::virtiofsd;
use clap::Parser;
use roff::Page;
use std::io;
use std::path::{Path, PathBuf};

/// The page of the benchmark.
pub(crate) const BENCH: &str = include_str!("../manual/thrufs-bench.txt");

const TEXTS: [&str; 12] = [
    include_str!("../manual/thrufs.txt"),
    include_str!("../manual/thrufs-mount.txt"),
    include_str!("../manual/thrufs-share.txt"),
    include_str!("../manual/thrufs-run.txt"),
    include_str!("../manual/thrufs-virtiofsd.txt"),
    include_str!("../manual/thrufs-unmount.txt"),
    BENCH,
    include_str!("../manual/thrufs-doctor.txt"),
    include_str!("../manual/thrufs-policy.txt"),
    include_str!("../manual/thrufs-explain.txt"),
    include_str!("../manual/thrufs-ctl.txt"),
    include_str!("../manual/mount.thrufs.txt"),
];

/// File name and text of every page.
pub(crate) fn pages() -> [(String, String); 12] {
    // The texts are compiled in, and the unit tests render every page.
    TEXTS.map(|text| Page::of(text, generated).unwrap_or_else(|fault| panic!("{fault}")))
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub(crate) struct WriteError {
    path: PathBuf,
    source: io::Error,
}

impl CommandError for WriteError {}

/// Write the manual pages
#[derive(Parser)]
#[command(name = "man")]
pub(crate) struct ManArguments {
    /// Where to write them
    #[arg(id = "DIR", default_value = ".")]
    directory: PathBuf,
}

/// Writes every page into a directory, which is created if needed.
pub(crate) fn write_pages(arguments: ManArguments) -> Result<(), WriteError> {
    let directory = arguments.directory;
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteError { path, source }
    };
    std::fs::create_dir_all(&directory).map_err(wrong(&directory))?;
    for (name, text) in pages() {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(wrong(&path))?;
    }
    Ok(())
}

/// Adds the part for a mark `@ what`.
fn generated(page: &mut Page, what: &str) -> Result<(), String> {
    match what {
        "exit status" => page.add(include_str!("../manual/parts/exit-status.txt"), generated)?,
        "option --control" => page.add(include_str!("../manual/parts/control.txt"), generated)?,
        "options of mount" => options(page, Use::Mount),
        "options of share" => options(page, Use::Share),
        "names of options" => names(page),
        "options of other servers" => {
            for (name, why) in NEEDLESS {
                page.item(name, &sentence(why));
            }
        }
        "options of virtiofsd" => {
            for (option, help) in virtiofsd::described() {
                page.item(&option, &help);
            }
        }
        _ => return Err(format!("nothing is made for: @ {what}")),
    }
    Ok(())
}

fn options(page: &mut Page, used: Use) {
    for group in Group::ALL {
        let mut options = group.options(used).peekable();
        if options.peek().is_some() {
            page.subsection(group.title());
        }
        if group == Group::Mount && used == Use::Mount {
            page.text("After -o alone, and without effect on the server:");
        }
        for option in options {
            page.item(&heading(option), &description(option));
        }
    }
}

fn heading(option: &MountOption) -> String {
    let flag = option.flag();
    let flag = match option.value.pattern() {
        pattern if pattern.is_empty() => format!("--{flag}"),
        pattern => format!("--{flag}={pattern}"),
    };
    match option.form {
        Form::List => option.pattern(),
        Form::Flag => format!("-{}, {flag}", &option.name[..1]),
        Form::Both => format!("{}, {flag}", option.pattern()),
    }
}

fn description(option: &MountOption) -> String {
    let mut text = sentence(option.help);
    if !option.long.is_empty() {
        text.push(' ');
        text.push_str(option.long);
    }
    for (with, _) in option.conflicts {
        text.push_str(&format!(" Not together with {with}."));
    }
    match option.default {
        "" => {}
        "on" => text.push_str(" This is the default."),
        default => text.push_str(&format!(" The default is {default}.")),
    }
    if !option.aliases.is_empty() {
        text.push_str(&format!(" Also written {}.", option.aliases.join(", ")));
    }
    text
}

fn sentence(text: &str) -> String {
    capitalized(text) + "."
}

/// Names of the mount options for -o.
fn names(page: &mut Page) {
    for group in Group::ALL {
        let options = group.options(Use::Mount).filter(|o| o.form != Form::Flag);
        let names: Vec<String> = options.map(MountOption::pattern).collect();
        if !names.is_empty() {
            page.subsection(group.title());
            page.text(&format!("{}.", names.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OPTIONS;

    #[test]
    fn every_option_is_in_the_manual() {
        let pages = pages();
        let text = |name| {
            pages
                .iter()
                .find(|page| page.0 == name)
                .map(|page| page.1.clone())
        };
        let mount = text("thrufs-mount.1").unwrap().replace("\\-", "-");
        let helper = text("mount.thrufs.8").unwrap().replace("\\-", "-");
        let share = text("thrufs-share.1").unwrap().replace("\\-", "-");
        for option in OPTIONS.iter() {
            let name = option.name;
            let heading = heading(option).replace('\\', "\\e");
            let is_in = |page: &str| page.contains(&format!("\\fB{heading}\\fR"));
            assert_eq!(is_in(&mount), option.used().includes(Use::Mount), "{name}");
            assert_eq!(is_in(&share), option.used().includes(Use::Share), "{name}");
            if option.form != Form::Flag && option.used().includes(Use::Mount) {
                assert!(helper.contains(&option.pattern()), "{name}");
            }
        }
        for (name, _) in NEEDLESS {
            assert!(mount.contains(name), "{name}");
        }
    }
}
