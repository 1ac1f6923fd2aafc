//! The reports of a run, all made from its [`Results`]: a table for the terminal and a page for the browser.
//!
//! | room | what it does |
//! |---|---|
//! | `table` | rows, ratios and verdicts: what all of them show |
//! | `compared` | one target against another |
//! | [`standing_out()`] | what is slow beyond what its requests explain |
//! | `figure` | figures as people read them |
//! | `terminal`, `html` | the forms |
//! | `repeated` | a run beside the one that it repeats |

mod again;
mod compared;
pub mod figure;
mod grid;
mod html;
mod repeated;
#[cfg(test)]
pub(crate) mod sample;
mod screen;
mod standing_out;
pub mod table;
mod terminal;

pub(crate) use again::again;
pub use html::html;
pub(crate) use repeated::repeated;
pub use screen::Screen;
pub use standing_out::{Finding, Measure, standing_out};
pub use terminal::{so_far, terminal};

use crate::Outcome;
use crate::results::Results;

/// The files of a report: names and texts.
///
/// # Errors
///
/// None that is known of: see [`Results::to_json`].
pub fn files(results: &Results) -> Outcome<Vec<(&'static str, String)>> {
    let json = results.to_json().map_err(|error| error.to_string())?;
    Ok(vec![
        ("results.json", json),
        ("report.txt", terminal(results, Screen::file())),
        ("report.html", html(results)),
    ])
}
