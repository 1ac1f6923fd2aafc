//! `thrufs draft diff`: the changes of a draft, as git shows them.
//!
//! What is written to a file or a pipe is a patch, which `git apply` and `patch -p1` take, but for binary files. On a
//! terminal, control characters are escaped in the contents too.

use super::beneath::{open_directory, open_in, target, type_of};
use super::change::{Change, Kind};
use super::changes::Sides;
use super::selection::{Selection, letter, quoted, quoted_after};
use super::{DraftChoice, DraftError};
use crate::error::system;
use crate::output::{lines_of, report};
use clap::Args;
use imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token, sources::byte_lines};
use rustix::fs::{FileType, OFlags, Stat};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use thrufs_hostdir::printable;
use thrufs_sys::signal::{SIGINT, block};

/// Larger files are shown as binary ones.
const TEXT_BYTES_MAX: u64 = 32 << 20;

/// A file with a NUL in these is a binary one, as for git.
const HEAD_BYTES: usize = 8000;

const CONTEXT_LINES: u32 = 3;

/// Of the signs in a line of --stat.
const GRAPH_MAX: u32 = 50;

/// Show what a draft changes
///
/// A change that conflicts with one in the tree, or that the rules of the draft do not permit, is named at the end.
/// The latter are not shown.
#[derive(Args)]
pub(crate) struct DiffArguments {
    /// Files and directories of the tree [default: all]
    #[arg(id = "PATH")]
    paths: Vec<std::path::PathBuf>,
    /// Show how many lines of each file change
    #[arg(long, group = "form")]
    stat: bool,
    /// Show the names of changed files
    #[arg(long, group = "form")]
    name_only: bool,
    /// Show the names, after A (added), M (modified), D (deleted) or T (another type)
    #[arg(long, group = "form")]
    name_status: bool,
    /// End names with a NUL, and do not quote them
    #[arg(short = 'z')]
    nul: bool,
    /// Use no pager: by default $PAGER, or less
    #[arg(long)]
    no_pager: bool,
    #[command(flatten)]
    draft: DraftChoice,
}

pub(super) fn run(arguments: &DiffArguments) -> Result<ExitCode, DraftError> {
    let (_, draft) = arguments.draft.open()?;
    let sides = Sides::of(&draft)?;
    let changes = sides.changes()?;
    let selection = Selection::of(&arguments.paths, draft.record.tree(), &changes)?;
    let selected: Vec<&Change> = changes
        .iter()
        .filter(|it| it.kind != Kind::Same && selection.has(&it.path))
        .collect();
    let is_alone = |at: usize, change: &Change| {
        let next = selected.get(at + 1);
        next.is_none_or(|next| !next.path.starts_with(&change.path))
    };
    // Of a directory that comes or goes, what is in it says so, but for a mode that is not a usual one.
    let is_shown = |at: usize, change: &Change| {
        let directory = Some(FileType::Directory);
        let types = (change.layer_type(), change.tree_type());
        let is_usual = change.layer.is_none_or(|it| it.st_mode & 0o7002 == 0);
        let is_told = types == (directory, None) && is_usual || types == (None, directory);
        change.refused.is_none() && (!is_told || is_alone(at, change))
    };
    let shown = selected.iter().enumerate();
    let shown = shown
        .filter(|(at, change)| is_shown(*at, change))
        .map(|(_, change)| *change);
    let mut screen = Screen::open(!arguments.no_pager);
    let written = show(arguments, &sides, shown, &mut screen).and_then(|()| io::stdout().flush());
    screen.close();
    match written {
        // A pager that has ended wants no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.map_err(system("write the difference"))?,
    }
    for change in selected {
        let path = quoted(&change.path);
        if let Some(why) = &change.refused {
            report(format_args!("thrufs: {path}: will not be applied: {why}"));
        } else if let Some(why) = change.conflict {
            report(format_args!("thrufs: {path}: conflict: {why}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show<'a>(
    arguments: &DiffArguments,
    sides: &Sides,
    shown: impl Iterator<Item = &'a Change>,
    screen: &mut Screen,
) -> io::Result<()> {
    let mut lines = Vec::new();
    for change in shown {
        if arguments.stat {
            lines.push(Stats::of(sides, change));
        } else if arguments.name_only || arguments.name_status {
            let status = match (arguments.name_status, arguments.nul) {
                (true, true) => format!("{}\0", letter(change)),
                (true, false) => format!("{}\t", letter(change)),
                (false, _) => String::new(),
            };
            screen.write(status.as_bytes())?;
            match arguments.nul {
                true => screen.write(&[change.path.as_os_str().as_bytes(), b"\0"].concat())?,
                false => screen.write(format!("{}\n", quoted(&change.path)).as_bytes())?,
            }
        } else {
            patch(sides, change, screen)?;
        }
    }
    match arguments.stat {
        true => screen.write(stat_text(&lines).as_bytes()),
        false => Ok(()),
    }
}

/// Standard output, or a pager before it.
struct Screen {
    pager: Option<Child>,
    is_terminal: bool,
    has_colors: bool,
}

impl Screen {
    fn open(may_page: bool) -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let is_set =
            |name| std::env::var_os(name).is_some_and(|it: std::ffi::OsString| !it.is_empty());
        let pager = (is_terminal && may_page).then(start_pager).flatten();
        if pager.is_some() {
            // It is the pager that the user interrupts.
            let _ = block(&[SIGINT]);
        }
        Screen {
            pager,
            is_terminal,
            has_colors: is_terminal && !is_set("NO_COLOR"),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) {
            Some(pager) => pager.write_all(bytes),
            None => io::stdout().write_all(bytes),
        }
    }

    /// Writes a line, which may have no end, in a colour of the terminal (SGR).
    fn line(&mut self, color: &str, start: &str, text: &[u8]) -> io::Result<()> {
        let body = text.strip_suffix(b"\n").unwrap_or(text);
        let mut line = start.as_bytes().to_vec();
        match self.is_terminal {
            true => line.extend(lines_of(&String::from_utf8_lossy(body), printable).bytes()),
            false => line.extend(body),
        }
        if self.has_colors && !color.is_empty() {
            line = [b"\x1b[", color.as_bytes(), b"m", &line[..], b"\x1b[m"].concat();
        }
        line.push(b'\n');
        self.write(&line)
    }

    fn close(mut self) {
        if let Some(pager) = &mut self.pager {
            drop(pager.stdin.take());
            let _ = pager.wait();
        }
    }
}

fn start_pager() -> Option<Child> {
    let named = std::env::var_os("PAGER");
    let mut command = match named {
        Some(pager) if pager.is_empty() || pager == "cat" => return None,
        Some(pager) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            shell
        }
        None => Command::new("less"),
    };
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    command.stdin(Stdio::piped()).spawn().ok()
}

/// One side of a file.
struct Blob {
    mode: u32,
    size: i64,
    /// `None` for a binary file.
    text: Option<Vec<u8>>,
}

impl Blob {
    /// `None` where there is none, or nothing that git keeps.
    fn read(top: &OwnedFd, path: &Path, stat: Option<&Stat>) -> io::Result<Option<Blob>> {
        let (Some(stat), Some(above), Some(name)) = (stat, path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let text = match type_of(stat) {
            FileType::Symlink => {
                let directory = open_directory(top, above)?;
                Some(target(&directory, name)?.into_vec())
            }
            FileType::RegularFile if stat.st_size as u64 > TEXT_BYTES_MAX => None,
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let file = File::from(open_in(&open_directory(top, above)?, name, flags)?);
                let mut text = Vec::new();
                file.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
                Some(text).filter(|text| !text[..text.len().min(HEAD_BYTES)].contains(&0))
            }
            _ => return Ok(None),
        };
        Ok(Some(Blob {
            mode: match type_of(stat) {
                FileType::Symlink => libc::S_IFLNK,
                _ => stat.st_mode,
            },
            size: stat.st_size,
            text,
        }))
    }
}

/// The tree's and the draft's.
fn blobs(sides: &Sides, change: &Change) -> io::Result<[Option<Blob>; 2]> {
    Ok([
        Blob::read(&sides.tree, &change.path, change.tree.as_ref())?,
        Blob::read(&sides.upper, &change.path, change.layer.as_ref())?,
    ])
}

fn patch(sides: &Sides, change: &Change, screen: &mut Screen) -> io::Result<()> {
    let path = &change.path;
    let [old, new] = match blobs(sides, change) {
        Ok(blobs) => blobs,
        Err(error) => {
            report(format_args!(
                "thrufs: {}: cannot be read: {error}",
                quoted(path)
            ));
            return Ok(());
        }
    };
    let is_link = |blob: &Blob| FileType::from_raw_mode(blob.mode) == FileType::Symlink;
    match (old, new) {
        (None, None) => special(change, screen),
        // patch(1) changes no link.
        (Some(old), Some(new)) if (is_link(&old) || is_link(&new)) && old.text != new.text => {
            file_patch(path, Some(&old), None, screen)?;
            file_patch(path, None, Some(&new), screen)
        }
        (old, new) => file_patch(path, old.as_ref(), new.as_ref(), screen),
    }
}

/// What git does not keep: programs that read a patch skip the line.
fn special(change: &Change, screen: &mut Screen) -> io::Result<()> {
    let what = |stat: &Stat| match type_of(stat) {
        FileType::Directory => "directory",
        FileType::Fifo => "FIFO",
        _ => "special file",
    };
    let mode = |stat: &Stat| format!("{:06o}", stat.st_mode);
    let path = quoted(&change.path);
    let line = match (&change.tree, &change.layer) {
        (Some(old), Some(new)) => format!(
            "{} changed: {path} (mode {}, was {})",
            what(new),
            mode(new),
            mode(old)
        ),
        (Some(old), None) => format!("{} deleted: {path}", what(old)),
        (None, Some(new)) => format!("{} created: {path} (mode {})", what(new), mode(new)),
        (None, None) => return Ok(()),
    };
    screen.line("1", "", line.as_bytes())
}

fn file_patch(
    path: &Path,
    old: Option<&Blob>,
    new: Option<&Blob>,
    screen: &mut Screen,
) -> io::Result<()> {
    let [a, b] = ["a/", "b/"].map(|prefix| quoted_after(prefix, path));
    let mut header = vec![format!("diff --git {a} {b}")];
    match (old, new) {
        (None, Some(new)) => header.push(format!("new file mode {:06o}", new.mode)),
        (Some(old), None) => header.push(format!("deleted file mode {:06o}", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            header.push(format!("old mode {:06o}", old.mode));
            header.push(format!("new mode {:06o}", new.mode));
        }
        // Times, attributes or links.
        (Some(old), Some(new))
            if old.size == new.size && old.text == new.text && old.text.is_some() =>
        {
            header = vec![format!("attributes changed: {}", quoted(path))];
        }
        _ => {}
    }
    let name = |blob: Option<&Blob>, name: String| blob.map_or("/dev/null".to_owned(), |_| name);
    let (a, b) = (name(old, a), name(new, b));
    let text = |blob: Option<&Blob>| blob.map_or(Some(Vec::new()), |blob| blob.text.clone());
    let (Some(before), Some(after)) = (text(old), text(new)) else {
        header.push(format!("Binary files {a} and {b} differ"));
        return header
            .iter()
            .try_for_each(|line| screen.line("1", "", line.as_bytes()));
    };
    if before != after {
        // The end of a name with spaces.
        let end = |name: &str| if name.contains(' ') { "\t" } else { "" };
        header.push(format!("--- {a}{}", end(&a)));
        header.push(format!("+++ {b}{}", end(&b)));
    }
    header
        .iter()
        .try_for_each(|line| screen.line("1", "", line.as_bytes()))?;
    let lines = Lines::of(&before, &after);
    lines
        .groups()
        .into_iter()
        .try_for_each(|group| lines.write(&group, screen))
}

/// The lines of two texts, and how they differ.
struct Lines<'a> {
    input: InternedInput<&'a [u8]>,
    hunks: Vec<Hunk>,
    counts: (u32, u32),
}

impl<'a> Lines<'a> {
    fn of(before: &'a [u8], after: &'a [u8]) -> Lines<'a> {
        let input = InternedInput::new(byte_lines(before), byte_lines(after));
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        Lines {
            hunks: diff.hunks().collect(),
            counts: (diff.count_additions(), diff.count_removals()),
            input,
        }
    }

    /// Hunks that are shown together, because their context touches.
    fn groups(&self) -> Vec<Vec<Hunk>> {
        let mut groups: Vec<Vec<Hunk>> = Vec::new();
        for hunk in &self.hunks {
            let last = groups.last_mut();
            let near = last.filter(|group| {
                let end = group.last().map_or(0, |last| last.before.end);
                hunk.before.start - end <= 2 * CONTEXT_LINES
            });
            match near {
                Some(group) => group.push(hunk.clone()),
                None => groups.push(vec![hunk.clone()]),
            }
        }
        groups
    }

    fn write(&self, group: &[Hunk], screen: &mut Screen) -> io::Result<()> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return Ok(());
        };
        let lead = first.before.start.min(CONTEXT_LINES);
        let trail = (self.input.before.len() as u32 - last.before.end).min(CONTEXT_LINES);
        let range = |start: u32, end: u32| {
            let (start, end) = (start - lead, end + trail);
            let length = end - start;
            format!("{},{length}", start + u32::from(length > 0))
        };
        let old = range(first.before.start, last.before.end);
        let new = range(first.after.start, last.after.end);
        screen.line("36", "", format!("@@ -{old} +{new} @@").as_bytes())?;
        let mut at = first.before.start - lead;
        for hunk in group {
            self.lines(&self.input.before, at..hunk.before.start, " ", "", screen)?;
            self.lines(&self.input.before, hunk.before.clone(), "-", "31", screen)?;
            self.lines(&self.input.after, hunk.after.clone(), "+", "32", screen)?;
            at = hunk.before.end;
        }
        self.lines(&self.input.before, at..at + trail, " ", "", screen)
    }

    fn lines(
        &self,
        side: &[Token],
        range: Range<u32>,
        start: &str,
        color: &str,
        screen: &mut Screen,
    ) -> io::Result<()> {
        for token in &side[range.start as usize..range.end as usize] {
            let line = self.input.interner[*token];
            screen.line(color, start, line)?;
            if !line.ends_with(b"\n") {
                screen.line("", "", b"\\ No newline at end of file")?;
            }
        }
        Ok(())
    }
}

/// A line of --stat.
struct Stats {
    name: String,
    /// Lines added and removed; `None` for binary files, with the sizes.
    lines: Result<(u32, u32), (i64, i64)>,
}

impl Stats {
    fn of(sides: &Sides, change: &Change) -> Stats {
        let [old, new] = blobs(sides, change).unwrap_or_default();
        let text =
            |blob: &Option<Blob>| blob.as_ref().map_or(Some(Vec::new()), |it| it.text.clone());
        let size = |blob: &Option<Blob>| blob.as_ref().map_or(0, |it| it.size);
        let lines = match (text(&old), text(&new)) {
            (Some(before), Some(after)) => Ok(Lines::of(&before, &after).counts),
            _ => Err((size(&old), size(&new))),
        };
        Stats {
            name: quoted(&change.path),
            lines,
        }
    }
}

fn stat_text(stats: &[Stats]) -> String {
    let longest = stats.iter().map(|it| it.name.chars().count()).max();
    let names = longest.unwrap_or(0);
    let totals = || stats.iter().filter_map(|it| it.lines.ok());
    let most = totals().map(|(added, removed)| added + removed).max();
    let most = most.unwrap_or(0);
    let has_binary = stats.iter().any(|it| it.lines.is_err());
    let width = most.to_string().len().max(if has_binary { 3 } else { 1 });
    let signs = |sign: &str, count: u32| match most <= GRAPH_MAX {
        true => sign.repeat(count as usize),
        false => {
            sign.repeat((u64::from(count) * u64::from(GRAPH_MAX)).div_ceil(most.into()) as usize)
        }
    };
    let mut text = String::new();
    for stat in stats {
        let graph = match stat.lines {
            Ok((added, removed)) => {
                let (count, signs) = (added + removed, signs("+", added) + &signs("-", removed));
                format!("{count:>width$} {signs}")
            }
            Err((old, new)) => format!("{:>width$} {old} -> {new} bytes", "Bin"),
        };
        text += format!(" {:names$} | {graph}", stat.name).trim_end();
        text.push('\n');
    }
    let s = |count| if count == 1 { "" } else { "s" };
    let (added, removed) = totals().fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
    text + &format!(
        " {} file{} changed, {added} insertion{}(+), {removed} deletion{}(-)\n",
        stats.len(),
        s(stats.len() as u32),
        s(added),
        s(removed),
    )
}
