//! Draws plots of lanes: one line for each row and target, with a label, a strip with marks, and figures.
//! Decides no figure: it gets values and an axis.
//!
//! The strips are SVG whose places are shares of their width and whose sizes are pixels, so that marks and
//! letters stay as they are on a screen of any width; names and figures are text of the page.

use super::page::{Plain, add};

/// An axis from left to right, on which each step is as wide as its factor.
pub(super) struct Axis {
    least: f64,
    greatest: f64,
    ticks: Vec<f64>,
}

/// Where the first and the last value lie, in hundredths of the width.
const EDGES: (f64, f64) = (1.5, 98.5);
/// Pixels from a mark's lane to the next.
pub(super) const PITCH: usize = 18;

impl Axis {
    /// For ratios, with 1 on it.
    pub(super) fn ratios(values: impl Iterator<Item = f64>) -> Axis {
        let values: Vec<f64> = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .collect();
        let least = values.iter().copied().fold(1.0, f64::min);
        let greatest = values.iter().copied().fold(1.0, f64::max);
        let steps =
            (-6..=6).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        let steps: Vec<f64> = steps.collect();
        let from = steps
            .iter()
            .rfind(|step| **step <= least * 0.98)
            .unwrap_or(&1e-6);
        let to = steps
            .iter()
            .find(|step| **step >= greatest * 1.02)
            .unwrap_or(&1e7);
        Axis {
            least: *from,
            greatest: *to,
            ticks: steps
                .iter()
                .copied()
                .filter(|step| (from..=to).contains(&step))
                .collect(),
        }
    }

    /// The place of a value, in hundredths of the width.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.least, self.greatest);
        let share = (value / self.least).ln() / (self.greatest / self.least).ln();
        EDGES.0 + share * (EDGES.1 - EDGES.0)
    }

    /// The lane that names the ticks.
    pub(super) fn lane(&self, about: &str) -> String {
        let mut text = format!(
            "<div class=\"lane axis\"><span class=\"label\">{}</span>\
             <svg height=\"20\" aria-hidden=\"true\">",
            Plain(about)
        );
        for tick in &self.ticks {
            let class = if is_major(*tick) { "major" } else { "minor" };
            add!(
                text,
                "<text x=\"{:.2}%\" y=\"14\" class=\"{class}\">{}</text>",
                self.at(*tick),
                label(*tick)
            );
        }
        text + "</svg><span class=\"figures\"></span></div>\n"
    }

    /// Lines beneath the marks of a lane, so high.
    pub(super) fn lines(&self, height: usize) -> String {
        let mut text = String::new();
        for tick in &self.ticks {
            let class = match *tick {
                1.0 => "one",
                tick if is_major(tick) => "major",
                _ => "minor",
            };
            let at = self.at(*tick);
            add!(
                text,
                "<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"{height}\" class=\"grid {class}\"/>"
            );
        }
        text
    }
}

/// Whether a tick is named on a narrow screen as well.
fn is_major(tick: f64) -> bool {
    (tick.log10() - tick.log10().round()).abs() < 1e-9
}

fn label(tick: f64) -> String {
    let text = format!("{tick:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A lane: what it is about, a strip of so many pixels, and lines of figures beside it.
pub(super) fn lane(label: &str, about: &str, height: usize, strip: &str, figures: &str) -> String {
    format!(
        "<div class=\"lane\"><div class=\"label\">{label}</div>\
         <svg height=\"{height}\" role=\"img\" aria-label=\"{}\">{strip}</svg>\
         <ul class=\"figures\">{figures}</ul></div>\n",
        Plain(about)
    )
}

#[cfg(test)]
mod tests {
    use super::{Axis, label};

    #[test]
    fn an_axis_of_ratios_has_one_and_all_values() {
        let axis = Axis::ratios([0.043, 0.9].into_iter());
        assert_eq!(axis.ticks.first(), Some(&0.02));
        assert_eq!(axis.ticks.last(), Some(&2.0));
        assert!(axis.at(0.043) < axis.at(0.9) && axis.at(0.9) < axis.at(1.0));
        let steps = (axis.at(1.0) - axis.at(0.1)) - (axis.at(0.5) - axis.at(0.05));
        assert!(steps.abs() < 1e-9);
        // No measurement gives this.
        let odd = Axis::ratios([0.0, f64::INFINITY, f64::NAN].into_iter());
        assert!(odd.at(1e-30).is_finite());
    }

    #[test]
    fn ticks_are_written_short() {
        assert_eq!(
            [0.005, 0.1, 1.0, 20.0].map(label),
            ["0.005", "0.1", "1", "20"]
        );
    }
}
