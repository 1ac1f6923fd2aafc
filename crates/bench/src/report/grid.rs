//! Columns of text that fit a screen: what does not fit side by side comes beneath.

use super::screen::Screen;

/// How a cell looks where that can be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Weight {
    #[default]
    Usual,
    Bold,
    Faint,
    Alarm,
}

/// A cell.
#[derive(Clone, Default)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) weight: Weight,
}

impl Text {
    pub(super) fn new(text: impl Into<String>, weight: Weight) -> Self {
        let text = text.into();
        Text { text, weight }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::new(text, Weight::Usual)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::new(text, Weight::Usual)
    }
}

/// Lines of cells. The first column is to the left and stands in every block, the others to the right.
pub(super) struct Grid {
    head: Vec<Text>,
    lines: Vec<GridLine>,
}

enum GridLine {
    Heading(Text),
    Cells(Vec<Text>),
}

/// Between columns.
const GAP: usize = 2;

impl Grid {
    pub(super) fn new(head: Vec<Text>) -> Self {
        Grid {
            head,
            lines: Vec::new(),
        }
    }

    pub(super) fn heading(&mut self, text: impl Into<Text>) {
        self.lines.push(GridLine::Heading(text.into()));
    }

    /// As many cells as the head has.
    pub(super) fn line(&mut self, cells: Vec<Text>) {
        self.lines.push(GridLine::Cells(cells));
    }

    /// The whole, each line ended.
    pub(super) fn text(&self, screen: Screen) -> String {
        let widths: Vec<usize> = (0..self.head.len()).map(|at| self.width(at)).collect();
        let Some((first, others)) = widths.split_first() else {
            return String::new();
        };
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut used = usize::MAX;
        for (at, width) in others.iter().enumerate() {
            used = used.saturating_add(GAP + width);
            if used > screen.width {
                blocks.push(Vec::new());
                used = first + GAP + width;
            }
            if let Some(block) = blocks.last_mut() {
                block.push(at + 1);
            }
        }
        let blocks = blocks
            .iter()
            .map(|block| self.block(block, &widths, screen));
        blocks.collect::<Vec<_>>().join("\n")
    }

    fn width(&self, at: usize) -> usize {
        let cells = self.lines.iter().filter_map(|line| match line {
            GridLine::Cells(cells) => cells.get(at),
            GridLine::Heading(_) => None,
        });
        let all = cells.chain(self.head.get(at));
        all.map(Text::width).max().unwrap_or_default()
    }

    fn block(&self, columns: &[usize], widths: &[usize], screen: Screen) -> String {
        let line = |cells: &[Text]| {
            let mut text = String::new();
            for &at in [0].iter().chain(columns) {
                let cell = cells.get(at).cloned().unwrap_or_default();
                let padding = " ".repeat(widths[at].saturating_sub(cell.width()));
                let shown = paint(&cell, screen);
                text += &match at {
                    0 => shown + &padding,
                    _ => " ".repeat(GAP) + &padding + &shown,
                };
            }
            text.trim_end().to_owned() + "\n"
        };
        let mut text = line(&self.head);
        for one in &self.lines {
            text += &match one {
                GridLine::Heading(heading) => paint(heading, screen) + "\n",
                GridLine::Cells(cells) => line(cells),
            };
        }
        text
    }
}

/// With the escape sequences of ECMA-48, where they may be used. What came from outside brings none
/// along.
pub(super) fn paint(text: &Text, screen: Screen) -> String {
    let plain: String = text.text.chars().filter(|c| !c.is_control()).collect();
    let code = match text.weight {
        _ if !screen.colours || plain.is_empty() => return plain,
        Weight::Usual => return plain,
        Weight::Bold => "1",
        Weight::Faint => "2",
        Weight::Alarm => "31",
    };
    format!("\u{1b}[{code}m{plain}\u{1b}[0m")
}

/// A sentence in lines that fit, all but the first indented.
pub(super) fn wrapped(sentence: &str, first: &str, others: &str, screen: Screen) -> String {
    let mut text = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    // A figure stays with its unit.
    let units = ["ns", "µs", "ms", "s", "%"];
    let mut words: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        let word: String = word.chars().filter(|c| !c.is_control()).collect();
        let is_unit = units.contains(&word.trim_end_matches([',', '.', ';', ')']));
        match words.last_mut() {
            Some(figure) if is_unit => *figure += &format!(" {word}"),
            _ => words.push(word),
        }
    }
    for word in words {
        let width = line.chars().count() + 1 + word.chars().count();
        if !is_empty && width > screen.width {
            text += &line;
            text.push('\n');
            line = others.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += &word;
        is_empty = false;
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::{Grid, Screen, Text, Weight, paint, wrapped};

    fn screen(width: usize, colours: bool) -> Screen {
        Screen { width, colours }
    }

    #[test]
    fn columns_that_do_not_fit_come_in_a_block_below() {
        let mut grid = Grid::new(["row", "one", "two", "three"].map(Text::from).to_vec());
        grid.heading("Some");
        grid.line(["a", "1", "22", "333"].map(Text::from).to_vec());
        assert_eq!(
            grid.text(screen(80, false)),
            "row  one  two  three\nSome\na      1   22    333\n"
        );
        assert_eq!(
            grid.text(screen(14, false)),
            "row  one  two\nSome\na      1   22\n\nrow  three\nSome\na      333\n"
        );
    }

    #[test]
    fn colours_are_for_terminals_and_none_come_from_outside() {
        let text = Text::new("a\u{1b}[31mb", Weight::Bold);
        assert_eq!(paint(&text, screen(80, true)), "\u{1b}[1ma[31mb\u{1b}[0m");
        assert_eq!(paint(&text, screen(80, false)), "a[31mb");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = wrapped("one two three four", "- ", "  ", screen(11, false));
        assert_eq!(text, "- one two\n  three\n  four\n");
    }
}
