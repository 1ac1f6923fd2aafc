//! Small charts of curves, one for each row: throughput against jobs, and latencies. They are drawn to a
//! fixed size, for which there is room on every screen.

use super::marks::{self, Mark};
use super::page::{Plain, add};
use crate::report::figure;
use crate::report::table::{self, Section};
use crate::results::statistics::Middle;
use crate::results::{Cell, Latency, Results};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 216.0;
/// Around what is plotted: left, right, top, bottom.
const MARGINS: (f64, f64, f64, f64) = (54.0, 14.0, 12.0, 26.0);

/// A chart, with places as shares of what is plotted: from the left, and from the bottom.
struct Chart {
    text: String,
}

impl Chart {
    fn new() -> Self {
        Chart {
            text: String::new(),
        }
    }

    fn x(share: f64) -> f64 {
        MARGINS.0 + share * (WIDTH - MARGINS.0 - MARGINS.1)
    }

    fn y(share: f64) -> f64 {
        HEIGHT - MARGINS.3 - share * (HEIGHT - MARGINS.2 - MARGINS.3)
    }

    fn across(&mut self, share: f64, label: &str) {
        let (from, to, y) = (Self::x(0.0), Self::x(1.0), Self::y(share));
        add!(
            self.text,
            "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid minor\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" class=\"y\">{}</text>",
            from - 7.0,
            y + 3.8,
            Plain(label)
        );
    }

    fn upwards(&mut self, share: f64, label: &str) {
        let (from, to, x) = (Self::y(0.0), Self::y(1.0), Self::x(share));
        add!(
            self.text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" class=\"grid minor\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" class=\"x\">{}</text>",
            from + 17.0,
            Plain(label)
        );
    }

    /// A curve, with its contestant's mark on the points that are to have one.
    fn curve(&mut self, mark: Mark, about: &str, points: &[(f64, f64)], marked: &[usize]) {
        let Mark { class, shape } = mark;
        add!(
            self.text,
            "<g class=\"{class}\"><title>{}</title><polyline class=\"curve\" points=\"",
            Plain(about)
        );
        for (x, y) in points {
            add!(self.text, "{:.1},{:.1} ", Self::x(*x), Self::y(*y));
        }
        self.text += "\"/>";
        for (x, y) in marked.iter().filter_map(|at| points.get(*at)) {
            add!(
                self.text,
                "<use href=\"#{shape}\" x=\"{:.1}\" y=\"{:.1}\"/>",
                Self::x(*x),
                Self::y(*y)
            );
        }
        self.text += "</g>";
    }

    fn whisker(&mut self, mark: Mark, x: f64, from: f64, to: f64) {
        add!(
            self.text,
            "<line class=\"whisker {}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            mark.class,
            Self::y(from),
            Self::y(to),
            x = Self::x(x)
        );
    }

    fn figure(self, title: &str, about: &str) -> String {
        format!(
            "<figure class=\"chart\"><figcaption>{}</figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{}</svg></figure>\n",
            Plain(title),
            Plain(about),
            self.text
        )
    }
}

fn all(results: &Results, cells: &[&Cell], charts: &str) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let present = |name: &&str| cells.iter().any(|cell| cell.contestant == *name);
    let names = results.contestants.iter().map(|one| one.name.as_str());
    let key = marks::key(results, &names.filter(present).collect::<Vec<_>>());
    format!("{key}<div class=\"charts\">\n{charts}</div>\n")
}

/// A chart for each row that was measured by several numbers of jobs.
pub(super) fn by_jobs(results: &Results, section: &Section<'_>) -> String {
    let (mut charts, mut shown) = (String::new(), Vec::new());
    for name in table::each(section.lines.iter().map(|line| &line.row.name)) {
        let here = |cell: &&Cell| cell.row == *name && cell.lower == section.lower;
        let cells = results.cells.iter().filter(here);
        let cells: Vec<&Cell> = cells.filter(|cell| table::is_sound(cell)).collect();
        let mut jobs: Vec<u32> = cells.iter().map(|cell| cell.jobs).collect();
        jobs.sort_unstable();
        jobs.dedup();
        if jobs.len() > 1 {
            charts += &throughput(results, name, &cells, &jobs);
            shown.extend(cells);
        }
    }
    all(results, &shown, &charts)
}

fn throughput(results: &Results, name: &str, cells: &[&Cell], jobs: &[u32]) -> String {
    let Some(row) = results.rows.iter().find(|row| row.name == name) else {
        return String::new();
    };
    let rates: Vec<Middle> = cells.iter().filter_map(|cell| table::rate(cell)).collect();
    let greatest = rates.iter().map(|rate| rate.greatest).fold(0.0, f64::max);
    let least = rates.iter().map(|rate| rate.least).fold(greatest, f64::min);
    // Native may leave the others far below it: steps are as wide as their factor.
    let (from, to) = (least.log10() - 0.08, greatest.log10() + 0.08);
    let share = |rate: f64| (rate.log10() - from) / (to - from);
    // Round values of what people read.
    let unit = (row.operation_bytes.max(1) as f64).log10();
    let mut chart = Chart::new();
    for tick in ticks(from + unit, to + unit) {
        let rate = tick / row.operation_bytes.max(1) as f64;
        chart.across(share(rate), &rounded(&figure::rate(row, rate)));
    }
    let place = |count: u32| {
        let at = jobs
            .iter()
            .position(|jobs| *jobs == count)
            .unwrap_or_default();
        0.08 + 0.84 * at as f64 / (jobs.len() - 1).max(1) as f64
    };
    for count in jobs {
        let unit = if *count == 1 { "job" } else { "jobs" };
        chart.upwards(place(*count), &format!("{count} {unit}"));
    }
    let mut said = format!("{name}, throughput against jobs");
    for contestant in &results.contestants {
        let mine = cells
            .iter()
            .filter(|cell| cell.contestant == contestant.name);
        let mut points: Vec<(u32, f64)> = Vec::new();
        let mark = marks::of(results, &contestant.name);
        for cell in mine {
            let Some(rate) = table::rate(cell) else {
                continue;
            };
            chart.whisker(
                mark,
                place(cell.jobs),
                share(rate.least),
                share(rate.greatest),
            );
            points.push((cell.jobs, rate.median));
        }
        if points.is_empty() {
            continue;
        }
        points.sort_by_key(|(jobs, _)| *jobs);
        let told = points
            .iter()
            .map(|(jobs, rate)| format!("{} × {jobs}", figure::rate(row, *rate)));
        let told = format!(
            "{}: {}",
            contestant.name,
            told.collect::<Vec<_>>().join(", ")
        );
        add!(said, "; {told}");
        let places: Vec<(f64, f64)> = points
            .iter()
            .map(|(jobs, rate)| (place(*jobs), share(*rate)))
            .collect();
        let marked: Vec<usize> = (0..places.len()).collect();
        chart.curve(mark, &told, &places, &marked);
    }
    chart.figure(name, &said)
}

/// A round figure without its nothings behind the point.
fn rounded(figure: &str) -> String {
    let (number, unit) = figure.split_once(' ').unwrap_or((figure, ""));
    if !number.contains('.') {
        return figure.to_owned();
    }
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number} {unit}")
}

/// Round values between powers of ten.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let powers = from.floor() as i32..=to.ceil() as i32;
    let of = |steps: &[f64]| -> Vec<f64> {
        let all = powers.clone().flat_map(|power| {
            let all = steps.iter().map(move |step| step * 10_f64.powi(power));
            all.collect::<Vec<_>>()
        });
        all.filter(|tick| (from..=to).contains(&tick.log10()))
            .collect()
    };
    let fine = of(&[1.0, 2.0, 5.0]);
    let coarse = of(&[1.0]);
    if fine.len() <= 6 || coarse.len() < 2 {
        fine
    } else {
        coarse
    }
}

/// A chart for each row of which single operations were timed.
pub(super) fn latencies(results: &Results, section: &Section<'_>) -> String {
    let (mut charts, mut shown) = (String::new(), Vec::new());
    for line in &section.lines {
        let timed = |cell: &&Cell| {
            let latency = cell.latency.as_ref();
            latency.is_some_and(|latency| latency.within.iter().any(|(_, time)| *time > 0))
                && (cell.row.as_str(), cell.lower.as_str(), cell.jobs)
                    == (line.row.name.as_str(), section.lower, line.jobs)
        };
        let cells: Vec<&Cell> = results.cells.iter().filter(timed).collect();
        if !cells.is_empty() {
            charts += &latency(results, &line.label(), &cells);
            shown.extend(cells);
        }
    }
    all(results, &shown, &charts)
}

/// The place of a share of operations, in thousandths: each nine is as high as the one before.
fn nines(thousandths: u32) -> f64 {
    let beyond = (1000.0 - f64::from(thousandths.min(1000))).max(0.4);
    (1000.0 / beyond).log10() / (1000.0_f64 / 0.4).log10()
}

fn latency(results: &Results, title: &str, cells: &[&Cell]) -> String {
    let latencies: Vec<(&Cell, &Latency)> = cells
        .iter()
        .filter_map(|cell| Some((*cell, cell.latency.as_ref()?)))
        .collect();
    let times = latencies.iter().flat_map(|(_, latency)| &latency.within);
    let times: Vec<f64> = times.map(|(_, time)| (*time).max(1) as f64).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = times.iter().copied().fold(1.0, f64::max);
    let (from, to) = (
        least.log10() - 0.05,
        (greatest.log10() + 0.05).max(least.log10() + 0.5),
    );
    let share = |time: f64| (time.log10() - from) / (to - from);
    let mut chart = Chart::new();
    for (thousandths, label) in [
        (0, "0"),
        (500, "50 %"),
        (900, "90 %"),
        (990, "99 %"),
        (999, "99.9 %"),
        (1000, "all"),
    ] {
        chart.across(nines(thousandths), label);
    }
    for tick in ticks(from, to) {
        chart.upwards(share(tick), &rounded(&figure::duration(tick)));
    }
    let mut said = format!("{title}, time of single operations");
    // In the order of the contestants; native beneath the others.
    for contestant in &results.contestants {
        let mine = latencies
            .iter()
            .find(|(cell, _)| cell.contestant == contestant.name);
        let Some((_, latency)) = mine else { continue };
        let told = format!("{}: {}", contestant.name, quantiles(latency));
        add!(said, "; {told}");
        let points: Vec<(f64, f64)> = latency
            .within
            .iter()
            .map(|(thousandths, time)| (share((*time).max(1) as f64), nines(*thousandths)))
            .collect();
        let marked = [500, 990].into_iter().filter_map(|wanted| {
            let mut within = latency.within.iter();
            within.position(|(thousandths, _)| *thousandths >= wanted)
        });
        let marked: Vec<usize> = marked.collect();
        chart.curve(
            marks::of(results, &contestant.name),
            &told,
            &points,
            &marked,
        );
    }
    chart.figure(title, &said)
}

/// `half within 810 ns, 99 % within 2.10 µs, the longest 30.2 µs`.
fn quantiles(latency: &Latency) -> String {
    let within = |wanted: u32| {
        let mut within = latency.within.iter();
        let found = within.find(|(thousandths, _)| *thousandths >= wanted);
        found.map_or("–".to_owned(), |(_, time)| figure::duration(*time as f64))
    };
    format!(
        "half within {}, 99 % within {}, the longest {}",
        within(500),
        within(990),
        within(1000)
    )
}

#[cfg(test)]
mod tests {
    use super::{nines, ticks};

    #[test]
    fn each_nine_is_as_high_as_the_one_before() {
        assert_eq!(nines(0), 0.0);
        assert_eq!(nines(1000), 1.0);
        let steps = [nines(900), nines(990) - nines(900), nines(999) - nines(990)];
        assert!((steps[0] - steps[1]).abs() < 1e-9 && (steps[1] - steps[2]).abs() < 1e-9);
    }

    #[test]
    fn there_are_some_ticks_and_not_too_many() {
        assert_eq!(ticks(2.9, 5.1), [1e3, 1e4, 1e5]);
        assert_eq!(ticks(3.2, 3.9), [2e3, 5e3]);
    }
}
