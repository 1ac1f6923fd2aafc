//! Published comparisons for the page: parts with a table each. The page has the style; a bar shows the
//! ratio to the first column, published and here.

use super::terminal::cell;
use crate::results::published::{Pair, Published};
use std::fmt::Write;

/// Parts, for a page that has [`STYLE`] in its head. Everything is escaped.
#[must_use]
pub fn html(published: &[Published]) -> String {
    let mut page = String::new();
    for comparison in published {
        write_one(&mut page, comparison);
    }
    page
}

/// What the parts need of a style sheet: colours are those of the text around.
pub const STYLE: &str = "\
.published{margin-bottom:3em}\
.published .wide{overflow-x:auto;margin:1em 0}\
.published table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
.published th,.published td{padding:.15em .75em;text-align:right;white-space:nowrap;border:0}\
.published td:first-child,.published th[scope=rowgroup]{text-align:left;padding-left:0}\
.published th[scope=rowgroup]{font-weight:normal;padding-top:.5em}\
.published thead th{border-bottom:1px solid currentColor;vertical-align:bottom}\
.published .here{font-weight:bold}\
.published svg{vertical-align:middle;margin-left:.5em}\
@media(max-width:40em){.published svg{display:none}.published th,.published td{padding:.15em .5em}}\n";

/// Units of the bar that are a ratio of one.
const BAR: f64 = 24.0;
/// A bar ends there, however great the ratio is.
const BAR_MAX: f64 = 72.0;

/// Writing into a string does not fail.
fn write_one(page: &mut String, comparison: &Published) {
    let name = escaped(&comparison.name);
    let _ = writeln!(
        page,
        "<div class=\"published\" id=\"published-{name}\"><h3>{}, published and here</h3>",
        escaped(&comparison.title)
    );
    for source in &comparison.sources {
        let place = escaped(&source.place);
        let _ = writeln!(
            page,
            "<p>{}: <cite>{}</cite>, <time>{}</time>. {place}</p>",
            escaped(&source.author),
            escaped(&source.title),
            escaped(&source.date)
        );
    }
    write_table(page, comparison);
    let _ = writeln!(
        page,
        "<p>Published with: {}</p><p>Different here:</p><ul>",
        escaped(&comparison.original)
    );
    for sentence in comparison.differences.iter().chain(&comparison.missing) {
        let _ = writeln!(page, "<li>{}</li>", prose(sentence));
    }
    page.push_str("</ul></div>\n");
}

fn write_table(page: &mut String, comparison: &Published) {
    page.push_str("<div class=\"wide\"><table><thead><tr><td></td>");
    for column in &comparison.columns {
        let here = match column.name_here() {
            "-" => String::new(),
            here => format!("<br><span class=\"here\">{}</span>", escaped(here)),
        };
        let _ = write!(
            page,
            "<th scope=\"col\">{}{here}</th>",
            escaped(&column.original)
        );
    }
    page.push_str("</tr></thead>\n");
    for line in &comparison.lines {
        let jobs = match line.jobs {
            1 => String::new(),
            jobs => format!(", {jobs} at once"),
        };
        let _ = write!(
            page,
            "<tbody><tr><th scope=\"rowgroup\" colspan=\"{}\">{}{jobs}, {}</th></tr>\n<tr><td>published</td>",
            comparison.columns.len() + 1,
            escaped(&line.what),
            line.unit.symbol()
        );
        write_cells(page, &line.pairs, |pair| {
            (pair.original, pair.original_ratio)
        });
        page.push_str("</tr>\n<tr class=\"here\"><td>here</td>");
        write_cells(page, &line.pairs, |pair| (pair.here, pair.here_ratio));
        page.push_str("</tr></tbody>\n");
    }
    page.push_str("</table></div>\n");
}

fn write_cells(page: &mut String, pairs: &[Pair], of: fn(&Pair) -> (Option<f64>, Option<f64>)) {
    for (at, pair) in pairs.iter().enumerate() {
        let (figure, ratio) = of(pair);
        let shown = escaped(&cell(figure, ratio.filter(|_| at > 0)));
        let bar = ratio.map_or_else(String::new, bar);
        let _ = write!(page, "<td>{shown}{bar}</td>");
    }
}

/// The figure stands beside it: those who do not see it miss nothing.
fn bar(ratio: f64) -> String {
    let length = (ratio * BAR).clamp(0.5, BAR_MAX);
    format!(
        "<svg aria-hidden=\"true\" width=\"{BAR_MAX}\" height=\"8\"><rect width=\"{length:.1}\" height=\"8\" \
         fill=\"currentColor\" opacity=\".45\"/><path d=\"M{BAR} 0v8\" stroke=\"currentColor\"/></svg>"
    )
}

/// With names of contestants, which stand between backticks, as code.
fn prose(text: &str) -> String {
    let mut parts = escaped(text);
    while let Some((before, rest)) = parts.split_once('`') {
        let Some((name, after)) = rest.split_once('`') else {
            break;
        };
        parts = format!("{before}<code>{name}</code>{after}");
    }
    parts
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}
