//! The parts of an HTML page: sections, tables, and text in which nothing is taken for markup ([`Plain`]).

use std::fmt::{self, Display, Formatter, Write};

/// Text from outside, as HTML shows it: nothing in it is markup, and figures stay with their units. For
/// content and for quoted attributes.
pub(super) struct Plain<'a>(pub(super) &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (at, c) in self.0.char_indices() {
            match c {
                ' ' if begins_with_unit(&self.0[at + 1..]) => formatter.write_str("\u{a0}")?,
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                '\n' | '\t' => formatter.write_char(' ')?,
                // Neither HTML nor a reader has a use for them.
                c if c.is_control() => {}
                c => formatter.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Whether a text begins with a unit of measure.
fn begins_with_unit(text: &str) -> bool {
    let units = [
        "%", "ns", "µs", "ms", "s", "/s", "k/s", "M/s", "MB/s", "GB/s", "KiB", "MiB", "GiB",
    ];
    let end = text.find([' ', ',', '.', ';', ')', '(']);
    units.contains(&&text[..end.unwrap_or(text.len())])
}

/// Adds formatted text to a string, which cannot fail.
macro_rules! add {
    ($text:expr, $($format:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($text, $($format)*);
    }};
}
pub(super) use add;

/// A section with its heading; nothing where there is nothing in it.
pub(super) fn section(id: &str, title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{}</h2>\n{content}</section>\n",
        Plain(title)
    )
}

/// A part that is closed at first (`<details>`).
pub(super) fn folded(title: &str, content: &str) -> String {
    format!(
        "<details>\n<summary>{}</summary>\n{content}</details>\n",
        Plain(title)
    )
}

/// A table that is scrolled sideways by itself where it is wider than the page.
pub(super) fn table(caption: &str, head: &[&str], lines: &str) -> String {
    let mut text = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n<table>\n\
         <caption>{0}</caption>\n<thead><tr>",
        Plain(caption)
    );
    for title in head {
        add!(text, "<th scope=\"col\">{}</th>", Plain(title));
    }
    add!(
        text,
        "</tr></thead>\n<tbody>\n{lines}</tbody>\n</table>\n</div>\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn figures_stay_with_their_units() {
        let text = Plain("12 µs, ±3 % (4 MB/s); 2 services").to_string();
        assert_eq!(text, "12\u{a0}µs, ±3\u{a0}% (4\u{a0}MB/s); 2 services");
    }

    #[test]
    fn nothing_from_outside_is_markup() {
        let text = Plain("<b a=\"1\" b='2'>&amp;\u{1b}[0m\n</b>").to_string();
        assert_eq!(
            text,
            "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;amp;[0m &lt;/b&gt;"
        );
    }
}
