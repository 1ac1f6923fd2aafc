//! The report as text, on one page of the terminal.

use super::counts::{Counts, Refusal};
use super::text::{path, shortened};
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, stderr};
use std::path::Path;
use thrufs_hostdir::printable;
use thrufs_policy::Policy;

/// What a line has of a refusal, but for the path, in characters.
const VERDICT_MAX: usize = 36;
const PROGRAM_MAX: usize = 16;
const PATH_MIN: usize = 12;

/// Of a path, in characters, where there is no terminal; longer than [`ALIGNED_MAX`], it moves its line.
const PATH_MAX: usize = 1000;
const ALIGNED_MAX: usize = 100;

/// Of the page, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) lines: usize,
    /// Without limit where it is no terminal.
    pub(super) columns: Option<usize>,
}

impl Size {
    pub(super) fn of_standard_error() -> Size {
        let known = |size: u16| (size > 0).then_some(usize::from(size));
        let size = tcgetwinsize(stderr()).ok();
        let columns = size.map_or(80, |size| known(size.ws_col).unwrap_or(80));
        Size {
            lines: size.and_then(|size| known(size.ws_row)).unwrap_or(24),
            columns: stderr().is_terminal().then_some(columns),
        }
    }
}

impl Counts {
    /// At most `size.lines`, with one for the shell's prompt.
    pub(super) fn page(&self, policy: &Policy, size: Size) -> String {
        let sorted = self.sorted();
        let all = self.refused;
        let mut notes = Vec::new();
        if self.lost > 0 {
            let records = counted(self.lost, "record");
            notes.push(format!("{records} could not be written to the audit log"));
        }
        if self.no_network {
            notes.push("there was no network".to_owned());
        }
        let room = size.lines.saturating_sub(2 + notes.len()).max(1);
        let fits = sorted.len() <= room && self.unlisted == 0;
        let shown = if fits { sorted.len() } else { room - 1 };
        let (shown, rest) = sorted.split_at(shown.min(sorted.len()));
        if !fits {
            let listed: u64 = shown.iter().map(|(_, count)| count).sum();
            let others = counted(all - listed, "more access");
            let hint = match rest.is_empty() {
                true => "--audit FILE records all",
                false => "--json lists them",
            };
            notes.insert(0, format!("… and {others} refused: {hint}"));
        }
        let mut page = self.summary(all);
        for line in lines(shown, policy, size.columns) {
            page.push_str(&format!("  {line}\n"));
        }
        for note in notes {
            page.push_str(&format!("  {note}\n"));
        }
        page
    }

    fn summary(&self, refused: u64) -> String {
        let totals = self.totals;
        let at_least = if self.uncounted_opens > 0 {
            "at least "
        } else {
            ""
        };
        let refused = match refused {
            0 => "no access refused\n".to_owned(),
            refused => counted(refused, "access") + " refused:\n",
        };
        format!(
            "thrufs: {at_least}{} read, {} written, {} created; {refused}",
            counted(totals.read, "file"),
            totals.written,
            totals.created,
        )
    }
}

/// `1 file`, `2 files`.
fn counted(count: u64, what: &str) -> String {
    match (count, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{count} {what}es"),
        (_, false) => format!("{count} {what}s"),
    }
}

/// Path, decision, program, count: aligned.
fn lines(refusals: &[(&Refusal, u64)], policy: &Policy, columns: Option<usize>) -> Vec<String> {
    let cells: Vec<[String; 4]> = refusals
        .iter()
        .map(|(refusal, count)| cells(refusal, *count, policy))
        .collect();
    let mut widths = [0; 4];
    for cells in &cells {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [path_width, second, third, _] = widths;
    let others = widths.iter().skip(1).sum::<usize>() + "  ".len() * 4;
    let longest = columns.map_or(PATH_MAX, |columns| {
        columns.saturating_sub(others).max(PATH_MIN)
    });
    let first = path_width.min(longest).min(ALIGNED_MAX);
    let line = |[path, verdict, program, count]: [String; 4]| {
        let path = shortened(&path, longest);
        format!("{path:first$}  {verdict:second$}  {program:third$}  {count}")
    };
    cells.into_iter().map(line).collect()
}

fn cells(refusal: &Refusal, count: u64, policy: &Policy) -> [String; 4] {
    let done = match refusal.action(policy) {
        "hide" => "hidden",
        "deny" => "denied",
        "redact" => "redacted",
        other => other,
    };
    let rule = match refusal.rule_name.as_deref() {
        Some(name @ ("option-hide" | "option-deny" | "option-redact" | "option-read-only")) => {
            name.replacen("option-", "--", 1)
        }
        Some(name) => printable(name),
        None => format!("rule {}", refusal.rule),
    };
    let program = refusal.executable.as_deref().map(Path::new);
    let program = program.and_then(Path::file_name);
    let program = program.map_or_else(|| "?".into(), |name| name.to_string_lossy());
    [
        path(&refusal.path, refusal.path_hex.as_deref()),
        shortened(&format!("{done} by {rule}"), VERDICT_MAX),
        shortened(&printable(&program), PROGRAM_MAX),
        counted(count, &printable(&refusal.event)),
    ]
}
