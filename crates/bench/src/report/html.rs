//! The page for the browser: one file that needs no network and no script.
//!
//! The plot is SVG of our own: it follows the width of the screen, the reader's choice of light or dark and the
//! page's letters, and has a text for every mark.
//!
//! All that comes from outside (names, options, texts of errors) passes [`page::Plain`].

mod lanes;
mod marks;
mod page;
mod ratios;
mod tables;

use super::figure;
use super::standing_out::standing_out;
use super::table::{Section, sections};
use super::terminal::{absences, method};
use crate::results::{Ending, Results};
use page::{Plain, add, folded, section};

const STYLE: &str = include_str!("html/style.css");

/// The page.
#[must_use]
pub fn html(results: &Results) -> String {
    let sections = sections(results);
    let title = format!(
        "thrufs bench: {}, {}",
        results.suite,
        figure::date(results.started)
    );
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}<main>\n",
        Plain(&title),
        marks::DEFINITIONS
    );
    text += &head(results, &sections);
    text += &section("out", "What stands out", &found(results));
    text += &section("ratios", "Against native", &ratios(results, &sections));
    let against: String = sections.iter().map(tables::against).collect();
    text += &section("against", "One against another", &against);
    let costs: String = sections
        .iter()
        .map(|one| tables::costs(results, one))
        .collect();
    text += &section("costs", "What an operation costs", &costs);
    text += &section("numbers", "Raw numbers", &numbers(results, &sections));
    text += &section("what", "What was measured", &definitions(results));
    text += &section("where", "Where, and how to repeat it", &place(results));
    text += "</main>\n</body>\n</html>\n";
    text
}

fn head(results: &Results, sections: &[Section<'_>]) -> String {
    let machine = &results.machine;
    let ended = match results.ending {
        Ending::Complete => "",
        Ending::Interrupted => " <b class=\"missed\">Stopped before its end.</b>",
    };
    let lowers: Vec<&str> = sections.iter().map(|one| one.lower).collect();
    format!(
        "<header>\n<p class=\"over\">thrufs bench · suite {} · {}</p>\n<h1>How fast it is here</h1>\n\
         <p class=\"facts\">{}, {} processors, {}, Linux {}; {} beneath. {}{ended}</p>\n</header>\n",
        Plain(&results.suite),
        Plain(&figure::date(results.started)),
        Plain(&machine.processor),
        machine.processors,
        Plain(&figure::bytes(machine.memory_bytes)),
        Plain(&machine.kernel),
        Plain(&lowers.join(" and ")),
        Plain(&method(results, sections)),
    )
}

fn found(results: &Results) -> String {
    let findings = standing_out(results);
    if findings.is_empty() && !results.cells.is_empty() {
        return "<p>Nothing: no row is slow beyond what its requests explain.</p>\n".to_owned();
    }
    let mut found = String::new();
    for finding in &findings {
        add!(
            found,
            "<p class=\"finding\"><b>{}</b> on <b>{}</b>, {}: {} times as long as it should. {}.</p>\n",
            Plain(&finding.row),
            Plain(&finding.target),
            Plain(&finding.lower),
            figure::times(finding.times()),
            Plain(&finding.to_string())
        );
    }
    found
}

fn ratios(results: &Results, sections: &[Section<'_>]) -> String {
    let mut text = String::new();
    for one in sections {
        let part = ratios::all(results, one);
        if sections.len() > 1 && !part.is_empty() {
            add!(text, "<h3>{} beneath</h3>\n", Plain(one.lower));
        }
        text += &part;
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "<p class=\"intro\">How many times the rate of the file system beneath, used without any mount: further \
         to the right is faster. The dot is the median of the rounds, the line through it the interval; what ends \
         in a question mark was too noisy to tell whether it is faster or slower. The figures of the best, and of \
         those that the rounds do not separate from it, are bold.</p>\n{text}"
    )
}

fn numbers(results: &Results, sections: &[Section<'_>]) -> String {
    let mut text = String::new();
    for one in sections {
        let title = format!("Rates and ratios, {} beneath", one.lower);
        text += &folded(&title, &tables::raw(results, one));
        let latencies = tables::latencies(one, results);
        if !latencies.is_empty() {
            let title = format!("Times of single operations, {} beneath", one.lower);
            text += &folded(&title, &latencies);
        }
    }
    text
}

fn definitions(results: &Results) -> String {
    folded("Targets", &tables::targets(results)) + &folded("Rows", &tables::rows(results))
}

fn place(results: &Results) -> String {
    let machine = &results.machine;
    let mut facts: Vec<(&str, String)> = vec![
        ("Began", figure::moment(results.started)),
        ("Took", figure::duration(results.seconds * 1e9)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        (
            "Processor",
            format!("{}, {} in use", machine.processor, machine.processors),
        ),
        ("Memory", figure::bytes(machine.memory_bytes)),
        ("Load before", format!("{:.2}", machine.load_before)),
    ];
    if let Some(hypervisor) = &machine.hypervisor {
        facts.push(("Virtual", format!("{hypervisor}: the machine is shared")));
    }
    for (name, version) in &machine.versions {
        facts.push((name, version.clone()));
    }
    let mut text = "<dl class=\"facts\">\n".to_owned();
    for (name, fact) in &facts {
        add!(
            text,
            "<div><dt>{}</dt><dd>{}</dd></div>\n",
            Plain(name),
            Plain(fact)
        );
    }
    add!(
        text,
        "</dl>\n<p>To repeat it, and to see how what is found differs:</p>\n\
         <pre><code>thrufs bench --repeat results.json</code></pre>\n\
         <p>It was started by</p>\n<pre><code>{}</code></pre>\n",
        Plain(&figure::command(&results.command))
    );
    let mut listed = |title: &str, sentences: &[String]| {
        if !sentences.is_empty() {
            add!(text, "<h3>{title}</h3>\n<ul class=\"said\">\n");
            for sentence in sentences {
                add!(text, "<li>{}</li>\n", Plain(sentence));
            }
            text += "</ul>\n";
        }
    };
    listed("Remarks", &results.remarks);
    listed("Not there, and why", &absences(results));
    text
}

#[cfg(test)]
mod tests;
