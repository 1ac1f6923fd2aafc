//! Converts the texts of the manual to man(7). A text begins with `= NAME(SECTION): PURPOSE`. A mark
//! begins a line, followed by a space, and applies until an empty line or the next mark; its other lines
//! are indented. Without a mark, a line is part of a paragraph; beneath SEE ALSO, of a list of pages.
//!
//! - `== SECTION`, `=== Subsection`: headings.
//! - `$ COMMAND ARGUMENTS`: a synopsis; the command is its first lower-case words.
//! - `* TERM`, and its description.
//! - `> LINE`: a literal line.
//! - `@ WHAT`: a generated part.

use std::fmt::Write;

type Part = fn(&mut Page, &str) -> Result<(), String>;

#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// The file name and the content of the page.
    pub(super) fn of(text: &str, part: Part) -> Result<(String, String), String> {
        let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
        let (name, section, purpose) = parse_title(title).ok_or(format!("no title: {title}"))?;
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        let capitals = escape(&name.to_uppercase());
        page.line(&format!(
            ".TH {capitals} {section} \"\" \"thrufs {version}\""
        ));
        page.section("NAME");
        page.line(&format!("{} \\- {}", escape(name), escape(purpose)));
        page.add(rest, part)?;
        Ok((format!("{name}.{section}"), page.text))
    }

    /// Adds a text without title.
    pub(super) fn add(&mut self, text: &str, part: Part) -> Result<(), String> {
        blocks(text)
            .iter()
            .try_for_each(|block| self.block(block, part))
    }

    fn block(&mut self, lines: &[&str], part: Part) -> Result<(), String> {
        let all = joined(lines);
        if !is_marked(lines[0]) {
            self.text(&all);
            return Ok(());
        }
        let first = lines[0].split_once(' ').unwrap_or_default().1;
        match all.split_once(' ') {
            Some(("==", title)) => self.section(title),
            Some(("===", title)) => self.subsection(title),
            Some(("$", call)) => self.synopsis(call),
            Some(("*", _)) if lines.len() > 1 => self.item(first, &joined(&lines[1..])),
            Some((">", line)) => self.verbatim(line),
            Some(("@", what)) => part(self, what)?,
            _ => return Err(format!("no such mark, or nothing after it: {all}")),
        }
        Ok(())
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("writing to a String does not fail");
    }

    fn section(&mut self, title: &str) {
        self.line(&format!(".SH {}", escape(title)));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.line(&format!(".SS {}", escape(title)));
    }

    fn synopsis(&mut self, call: &str) {
        if !self.text.ends_with(".SH SYNOPSIS\n") {
            self.line(".br");
        }
        let is_command = |word: &str| word.bytes().all(|b| b == b'.' || b.is_ascii_lowercase());
        let words = call.split_inclusive(' ');
        let command: String = words.take_while(|word| is_command(word.trim())).collect();
        self.line(&format!(".B {}", escape(command.trim())));
        let arguments = &call[command.len()..];
        if !arguments.is_empty() {
            self.line(&escape(arguments));
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.text.ends_with(".SH SEE ALSO\n") {
            return self.see_also(text);
        }
        let after_heading = self
            .text
            .lines()
            .next_back()
            .is_some_and(|line| line.starts_with(".SH") || line.starts_with(".SS"));
        if !after_heading {
            self.line(".PP");
        }
        self.line(&escape(text));
    }

    pub(super) fn item(&mut self, term: &str, text: &str) {
        self.line(".TP");
        self.line(&format!("\\fB{}\\fR", escape(term)));
        self.line(&escape(text));
    }

    fn verbatim(&mut self, line: &str) {
        for line in [".PP", ".RS 4", ".nf", &escape(line), ".fi", ".RE"] {
            self.line(line);
        }
    }

    fn see_also(&mut self, pages: &str) {
        let pages: Vec<String> = pages
            .split(", ")
            .map(|page| match page.split_once('(') {
                Some((name, section)) => format!("\\fB{}\\fR({section}", escape(name)),
                None => escape(page),
            })
            .collect();
        self.line(&pages.join(", "));
    }
}

fn parse_title(line: &str) -> Option<(&str, &str, &str)> {
    let (page, purpose) = line.strip_prefix("= ")?.split_once("): ")?;
    let (name, section) = page.split_once('(')?;
    Some((name, section, purpose))
}

/// Splits a text into headings, items, paragraphs and so on.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks = vec![Vec::new()];
    let mut in_marked = false;
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() || is_marked(line) || in_marked && !line.starts_with(' ') {
            blocks.push(Vec::new());
            in_marked = is_marked(line);
        }
        if !line.is_empty() {
            blocks.last_mut().expect("never empty").push(line);
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn is_marked(line: &str) -> bool {
    line.starts_with(|first: char| !first.is_alphanumeric() && first != ' ')
}

fn joined(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

/// Escapes backslashes, hyphens, and the first character of a line that would be a request.
fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.chars().next() {
        Some('.' | '\'') => format!("\\&{escaped}"),
        _ => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_from_roff_requests() {
        assert_eq!(escape(".TH"), "\\&.TH");
        assert_eq!(escape("'quoted"), "\\&'quoted");
        assert_eq!(escape("a\\,b --c"), "a\\e,b \\-\\-c");
    }

    fn part(page: &mut Page, what: &str) -> Result<(), String> {
        page.item("part", what);
        match what {
            "none" => Err("none".into()),
            _ => Ok(()),
        }
    }

    #[test]
    fn every_mark() {
        let text = "\
= a-b(8): test it

== SYNOPSIS
$ a.b none
$ a b C [-d]
  [e]
== X

one
line

 /two
=== Y-z
three
> x  -y
* -f, FILE
  does
  much
* 0
  zero
@ of all

== SEE ALSO

a-b(1), c(2),
d
";
        let (name, page) = Page::of(text, part).unwrap();
        assert_eq!(name, "a-b.8");
        let (title, page) = page.split_once('\n').unwrap();
        assert!(title.starts_with(".TH A\\-B 8 "), "{title}");
        let expected = "\
.SH NAME
a\\-b \\- test it
.SH SYNOPSIS
.B a.b none
.br
.B a b
C [\\-d] [e]
.SH X
one line
.PP
/two
.SS Y\\-z
three
.PP
.RS 4
.nf
x  \\-y
.fi
.RE
.TP
\\fB\\-f, FILE\\fR
does much
.TP
\\fB0\\fR
zero
.TP
\\fBpart\\fR
of all
.SH SEE ALSO
\\fBa\\-b\\fR(1), \\fBc\\fR(2), d
";
        assert_eq!(page, expected);
    }

    #[test]
    fn unknown_marks_are_refused() {
        let wrong = [
            "# what",
            "-- what",
            "==== what",
            "==what",
            "==",
            "= a(1): b",
            "* term",
            "*",
            "@none",
            "@ none",
            "* term\ntext",
            "a\n/b",
        ];
        for text in wrong {
            assert!(Page::default().add(text, part).is_err(), "{text}");
        }
        for title in ["", "== X", "= a: b", "= a(1) b"] {
            assert!(Page::of(title, part).is_err(), "{title}");
        }
    }
}
