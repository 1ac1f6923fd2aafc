//! A run beside an earlier one: how each ratio to native differs.

use super::figure;
use super::grid::{grid, wrapped};
use super::table::{Line, is_few, lines};
use super::terminal::with_bar;
use crate::results::Results;
use crate::results::statistics::Middle;

const NOTE: &str = "It differs where the two intervals do not overlap. Rates of two runs are not compared: the machine may \
    have been busier.";

pub(crate) fn compared(then: &Results, now: &Results, width: usize) -> String {
    let head = ["row", "target", "then", "now", "now/then", "differs"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let before = lines(then);
    for line in lines(now) {
        let is_it = |one: &&Line<'_>| one.row.name == line.row.name && one.jobs == line.jobs;
        let then = before.iter().find(is_it);
        for entry in &line.entries {
            let name = &entry.target.name;
            let then = then.and_then(|then| then.entry(name)?.ratio);
            if let (Some(then), Some(now)) = (then, entry.ratio) {
                rows.push(vec![
                    line.label(),
                    name.clone(),
                    with_bar(&then),
                    with_bar(&now),
                    figure::times(now.median / then.median),
                    differs(&then, &now).to_owned(),
                ]);
            }
        }
    }
    let moment = figure::moment(then.started, figure::MOMENT);
    let mut text = format!(
        "\nAgainst {moment}: shares of native then and now\n{}",
        grid(&rows, width)
    );
    text += &wrapped(NOTE, "", "", width);
    for (what, then, now) in [
        ("file system", then.lower(), now.lower()),
        ("processor", &then.machine.processor, &now.machine.processor),
        (
            "--percent",
            &*then.percent.to_string(),
            &*now.percent.to_string(),
        ),
    ] {
        if then != now {
            text += &wrapped(
                &format!("Another {what}: {then} then, {now} now."),
                "",
                "",
                width,
            );
        }
    }
    text
}

fn differs(then: &Middle, now: &Middle) -> &'static str {
    match (then, now) {
        _ if is_few(then) || is_few(now) => "too few rounds",
        _ if now.least > then.greatest => "faster",
        _ if now.greatest < then.least => "slower",
        _ => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::compared;
    use crate::report::sample::run;

    #[test]
    fn ratios_that_differ_are_told_from_those_that_do_not() {
        let of = |ring: &[u64], dev: &[u64]| {
            run(&[
                ("stat-cold", "native", &[1000; 5]),
                ("stat-cold", "ring", ring),
                ("stat-cold", "dev", dev),
            ])
        };
        let then = of(
            &[2000, 2010, 1990, 2020, 1980],
            &[4000, 6000, 5000, 5500, 4500],
        );
        let mut now = of(&[4000, 4010, 3990, 4020, 3980], &[5000, 4800]);
        now.cells
            .iter_mut()
            .for_each(|cell| cell.lower = "tmpfs".to_owned());
        let text = compared(&then, &now, 120);
        let ends = |target: &str, end: [&str; 2]| {
            let is_it = |words: &Vec<&str>| words.get(1) == Some(&target);
            let mut lines = text.lines().map(|line| line.split_whitespace().collect());
            assert!(lines.find(is_it).unwrap().ends_with(&end), "{text}");
        };
        ends("ring", ["0.50", "slower"]);
        ends("dev", ["few", "rounds"]);
        assert!(text.contains("Another file system: ext4 then, tmpfs now."));
        assert!(compared(&now, &then, 120).contains("faster"));
    }
}
