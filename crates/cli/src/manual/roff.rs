//! The few requests of man(7) that the pages need.

use std::fmt::Write;

/// A page that is being written.
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Begins a page with its title and its line for apropos(1).
    pub(super) fn new(name: &str, section: u8, purpose: &str) -> Page {
        let mut page = Page {
            text: String::new(),
        };
        let version = env!("CARGO_PKG_VERSION");
        let title = escape(&name.to_uppercase());
        page.line(&format!(".TH {title} {section} \"\" \"thrufs {version}\""));
        page.section("NAME");
        page.line(&format!("{} \\- {}", escape(name), escape(purpose)));
        page
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("writing to a String does not fail");
    }

    pub(super) fn section(&mut self, title: &str) {
        self.line(&format!(".SH {title}"));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.line(&format!(".SS {}", escape(title)));
    }

    /// One way to call the command.
    pub(super) fn synopsis(&mut self, command: &str, arguments: &str) {
        if !self.text.ends_with(".SH SYNOPSIS\n") {
            self.line(".br");
        }
        self.line(&format!(".B {}", escape(command)));
        self.line(&escape(arguments));
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) {
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

    /// Something, and what it is.
    pub(super) fn item(&mut self, term: &str, text: &str) {
        self.line(".TP");
        self.line(&format!("\\fB{}\\fR", escape(term)));
        self.line(&escape(text));
    }

    /// A line to be typed.
    pub(super) fn verbatim(&mut self, line: &str) {
        for line in [".PP", ".RS 4", ".nf", &escape(line), ".fi", ".RE"] {
            self.line(line);
        }
    }

    pub(super) fn see_also(&mut self, pages: &[&str]) {
        self.section("SEE ALSO");
        let pages: Vec<String> = pages
            .iter()
            .map(|page| match page.split_once('(') {
                Some((name, section)) => format!("\\fB{}\\fR({section}", escape(name)),
                None => escape(page),
            })
            .collect();
        self.line(&pages.join(", "));
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Text as troff takes it: backslashes and hyphens as they are, no line that begins like a request.
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
    fn nothing_is_taken_for_a_request() {
        assert_eq!(escape(".TH"), "\\&.TH");
        assert_eq!(escape("'quoted"), "\\&'quoted");
        assert_eq!(escape("a\\,b --c"), "a\\e,b \\-\\-c");
    }

    #[test]
    fn a_page() {
        let mut page = Page::new("a-b", 1, "test");
        page.section("X");
        page.text("one");
        page.text("two");
        page.item("-f", "does");
        let page = page.finish();
        assert!(page.starts_with(".TH A\\-B 1 "), "{page}");
        assert!(
            page.ends_with(".SH X\none\n.PP\ntwo\n.TP\n\\fB\\-f\\fR\ndoes\n"),
            "{page}"
        );
    }
}
