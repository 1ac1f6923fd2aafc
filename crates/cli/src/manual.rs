//! The manual pages, in man(7), with parts generated from the tables of options.
//!
//! `-` is written for `\-`, `@VERSION@` for the version, and a line `.\" @ WHAT` for a generated part.

use crate::arguments::capitalized;
use crate::error::{StartupError, system_at};
use crate::options::{Form, Group, MountOption, Use, needless};
use crate::virtiofsd;
use clap::Parser;
use std::path::PathBuf;

macro_rules! sources {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../manual/", $name)))),*]
    };
}

/// File names and sources. The first is of the benchmark.
const PAGES: [(&str, &str); 16] = sources! {
    "thrufs-bench.1" "thrufs.1" "thrufs-mount.1" "thrufs-share.1" "thrufs-run.1" "thrufs-draft.1"
    "thrufs-virtiofsd.1"
    "thrufs-unmount.1" "thrufs-upgrade.1" "thrufs-doctor.1" "thrufs-policy.1" "thrufs-explain.1" "thrufs-ctl.1"
    "thrufs-list.1"
    "thrufs-install.1" "mount.thrufs.8"
};

/// The source of the benchmark's page.
pub(crate) const BENCH: &str = PAGES[0].1;

const EXIT_STATUS: &str = include_str!("../manual/parts/exit-status.man");
const CONTROL: &str = include_str!("../manual/parts/control.man");

/// File name and text of every page.
pub(crate) fn pages() -> [(&'static str, String); 16] {
    PAGES.map(|(name, source)| (name, page(source)))
}

fn page(source: &str) -> String {
    let mut page = String::new();
    for line in source.lines() {
        match line.strip_prefix(".\\\" @ ") {
            Some(what) => page.push_str(&generated(what)),
            None => page.push_str(&(line.replace('-', "\\-") + "\n")),
        }
    }
    page.replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

/// Write the manual pages
#[derive(Parser)]
#[command(name = "man")]
pub(crate) struct ManArguments {
    /// The directory to write them to, created if needed
    #[arg(id = "DIR")]
    directory: PathBuf,
}

/// Writes every page into a directory, which is created if needed.
pub(crate) fn write_pages(arguments: ManArguments) -> Result<(), StartupError> {
    let directory = arguments.directory;
    std::fs::create_dir_all(&directory).map_err(system_at("write", &directory))?;
    for (name, text) in pages() {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(system_at("write", &path))?;
    }
    Ok(())
}

fn generated(what: &str) -> String {
    match what {
        "exit status" => page(EXIT_STATUS),
        "option --control" => page(CONTROL),
        "options of mount" => options(Use::Mount),
        "options of share" => options(Use::Share),
        "names of options" => names(),
        "options of other servers" => needless()
            .map(|(name, why)| item(name, &sentence(why)))
            .collect(),
        "options of virtiofsd" => {
            let options = virtiofsd::described();
            options.map(|(option, help)| item(&option, &help)).collect()
        }
        // The unit tests make every page.
        _ => unreachable!("no page has a part {what}"),
    }
}

fn item(term: &str, text: &str) -> String {
    format!(".TP\n.B {}\n{}\n", escape(term), escape(text))
}

/// A text of which no part is a request or an escape.
fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

fn options(used: Use) -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let mut options = group.options(used).peekable();
        if options.peek().is_some() {
            text.push_str(&format!(".SS {}\n", group.title()));
        }
        if group == Group::Mount && used == Use::Mount {
            text.push_str("After \\-o alone, and without effect on the server:\n");
        }
        for option in options {
            text.push_str(&item(&heading(option), &description(option)));
        }
    }
    text
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
fn names() -> String {
    let mut text = String::new();
    for group in Group::ALL {
        let options = group.options(Use::Mount).filter(|o| o.form != Form::Flag);
        let names: Vec<String> = options.map(MountOption::pattern).collect();
        if !names.is_empty() {
            let names = escape(&names.join(", "));
            text.push_str(&format!(".SS {}\n{names}.\n", group.title()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OPTIONS;

    #[test]
    fn text_is_escaped_from_roff_requests() {
        assert_eq!(escape(".TH"), "\\&.TH");
        assert_eq!(escape("'quoted"), "\\&'quoted");
        assert_eq!(escape("a\\,b --c"), "a\\e,b \\-\\-c");
    }

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
            let is_in = |page: &str| page.contains(&format!("\n.B {heading}\n"));
            assert_eq!(is_in(&mount), option.used().includes(Use::Mount), "{name}");
            assert_eq!(is_in(&share), option.used().includes(Use::Share), "{name}");
            if option.form != Form::Flag && option.used().includes(Use::Mount) {
                assert!(helper.contains(&option.pattern()), "{name}");
            }
        }
        for (name, _) in needless() {
            assert!(mount.contains(name), "{name}");
        }
    }
}
