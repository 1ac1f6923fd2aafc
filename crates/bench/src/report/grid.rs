//! Columns of text that fit a screen: what does not fit side by side comes beneath.

use std::io::IsTerminal;

/// Characters in a line of what is not a terminal.
pub(crate) const WIDTH_ELSEWHERE: usize = 120;
/// With less, tables are not made narrower.
const WIDTH_MIN: usize = 40;
/// Between columns.
const GAP: usize = 2;

/// Of standard output.
pub(crate) fn width() -> usize {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return WIDTH_ELSEWHERE;
    }
    let size = rustix::termios::tcgetwinsize(output);
    match size.map_or(0, |size| usize::from(size.ws_col)) {
        0 => 80,
        columns => columns.max(WIDTH_MIN),
    }
}

/// Lines of cells, the head first. The first column is to the left and stands in every block, the others to the
/// right. A line of one cell is a heading.
pub(super) fn grid(lines: &[Vec<String>], width: usize) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let mut widths = vec![0; columns];
    for line in lines.iter().filter(|line| line.len() > 1) {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for at in 1..columns {
        used = used.saturating_add(GAP + widths[at]);
        if used > width {
            blocks.push(vec![0]);
            used = widths[0] + GAP + widths[at];
        }
        if let Some(block) = blocks.last_mut() {
            block.push(at);
        }
    }
    let shown = |line: &Vec<String>, block: &Vec<usize>| {
        let cells = block.iter().filter_map(|&at| Some((at, line.get(at)?)));
        let text: String = cells
            .map(|(at, cell)| match (at, line.len()) {
                (0, 1) => cell.clone(),
                (0, _) => format!("{cell:<0$}", widths[0]),
                _ => format!("{}{cell:>1$}", " ".repeat(GAP), widths[at]),
            })
            .collect();
        text.trim_end().to_owned() + "\n"
    };
    let block = |block| -> String { lines.iter().map(|line| shown(line, block)).collect() };
    blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

/// A sentence in lines that fit, all but the first indented as `others`. What came from outside brings no control
/// characters along.
pub(super) fn wrapped(sentence: &str, first: &str, others: &str, width: usize) -> String {
    let (mut text, mut line) = (String::new(), first.to_owned());
    let mut is_empty = true;
    for word in sentence.split_whitespace() {
        let word: String = word.chars().filter(|c| !c.is_control()).collect();
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            text += &format!("{line}\n");
            line = others.to_owned();
            is_empty = true;
        }
        line += if is_empty { "" } else { " " };
        line += &word;
        is_empty = false;
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::grid;

    #[test]
    fn columns_that_do_not_fit_come_in_a_block_below() {
        let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let lines = [line("row one two three"), line("Some"), line("a 1 22 333")];
        assert_eq!(
            grid(&lines, 80),
            "row  one  two  three\nSome\na      1   22    333\n"
        );
        assert_eq!(
            grid(&lines, 14),
            "row  one  two\nSome\na      1   22\n\nrow  three\nSome\na      333\n"
        );
    }
}
