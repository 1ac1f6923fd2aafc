//! The page is whole, speaks of everything, and takes nothing from outside for markup.

use super::html;
use crate::report::sample::{self, Builder};
use crate::results::{Absence, Ending, Kind, Results};

/// Checks that every element that begins ends, in order, and returns the names of all.
fn elements(page: &str) -> Vec<String> {
    const EMPTY: [&str; 3] = ["meta", "!DOCTYPE", "br"];
    let (mut open, mut all): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for part in page.split('<').skip(1) {
        let (tag, _) = part
            .split_once('>')
            .unwrap_or_else(|| panic!("no end: {part}"));
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/', '\n'])
            .next()
            .unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before {part}");
        } else {
            all.push(name.to_owned());
            if !tag.ends_with('/') && !EMPTY.contains(&name) {
                open.push(name.to_owned());
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let page = html(&sample::usual());
    let elements = elements(&page);
    for foreign in ["script", "link", "img", "iframe", "object"] {
        assert!(!elements.iter().any(|name| name == foreign), "{foreign}");
    }
    for foreign in ["http://", "https://", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn the_page_speaks_of_everything() {
    let page = html(&sample::usual());
    for part in [
        "random-read-4k",
        "create × 2",
        "1 CREATE, 1 LOOKUP, 1 RELEASE",
        "Time of single operations",
        "ring / dev",
        "build-c on libfuse: failed: make ended: exit status 2",
        "The ring was switched on for this run.",
        "thrufs bench --suite quick .",
        "A Processor @ 2.10GHz",
        "3.33",
        "One operation is a create.",
        "-o something",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn nothing_from_outside_is_markup() {
    let evil = "\"'><script>alert(1)</script><b x='";
    let mut results = sample::usual();
    results.suite = evil.to_owned();
    results.command = vec![evil.to_owned()];
    results.machine.kernel = evil.to_owned();
    results.machine.processor = evil.to_owned();
    results.machine.hypervisor = Some(evil.to_owned());
    results
        .machine
        .versions
        .insert(evil.to_owned(), evil.to_owned());
    results.remarks.push(evil.to_owned());
    let names = |name: &mut String| *name = format!("{name}{evil}");
    for target in &mut results.targets {
        names(&mut target.name);
        names(&mut target.title);
        names(&mut target.options);
        target.absent = Some(evil.to_owned());
    }
    for row in &mut results.rows {
        for text in [
            &mut row.name,
            &mut row.title,
            &mut row.about,
            &mut row.engine,
        ] {
            names(text);
        }
    }
    for cell in &mut results.cells {
        for text in [&mut cell.row, &mut cell.target, &mut cell.lower] {
            names(text);
        }
        if let Some(counts) = &mut cell.counts {
            let requests = counts.requests.iter_mut();
            requests.for_each(|requests| {
                requests.insert(evil.to_owned(), 4_000_000);
            });
        }
        if cell.samples.is_empty() {
            let (failed, why) = (false, evil.to_owned());
            cell.absence = Some(Absence { failed, why });
        }
    }
    let page = html(&results);
    let elements = elements(&page);
    assert!(
        !elements
            .iter()
            .any(|name| name == "script" || name == "b x=")
    );
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn every_kind_of_results_has_a_page() {
    let empty = Builder::new().results();
    let alone = Builder::new().targets(&[("native", Kind::Native)]).cell(
        "create",
        "native",
        &[1000, 1000, 1000],
    );
    let floors = Builder::new()
        .targets(&[("native", Kind::Native), ("floor-dev", Kind::Floor)])
        .cell("create", "native", &[1000])
        .cell("create", "floor-dev", &[9000]);
    let odd = Builder::new()
        .targets(&[("native", Kind::Native), ("ring", Kind::Ours)])
        .cell("create", "native", &[0, 1000])
        .cell("create", "ring", &[])
        .latency(&[(1000, 0)]);
    let unknown = Builder::new().cell("create", "unknown", &[1]);
    let built = [alone, floors, odd, unknown].map(Builder::results);
    for results in built.into_iter().chain([empty]) {
        let interrupted = Results {
            ending: Ending::Interrupted,
            ..results
        };
        let page = html(&interrupted);
        elements(&page);
        assert!(page.contains("Stopped before its end"));
        for odd in ["NaN", "inf%", "inf\""] {
            assert!(!page.contains(odd), "{odd}: {page}");
        }
    }
}
