//! The reports of a run, made again from its results (`report FILE DIRECTORY`).

use super::{Screen, files, terminal};
use crate::Outcome;
use crate::results::Results;
use std::path::Path;

/// Reads the results, prints the table, and writes all reports into the directory, which is made if it is
/// not there.
pub(crate) fn again(arguments: &[String]) -> Outcome<()> {
    let [file, directory] = arguments else {
        return Err("report FILE DIRECTORY".to_owned());
    };
    let results = Results::read(Path::new(file)).map_err(|error| error.to_string())?;
    print!("{}", terminal(&results, Screen::standard_output()));
    write(&results, Path::new(directory))
}

fn write(results: &Results, directory: &Path) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    for (name, text) in files(results)? {
        std::fs::write(directory.join(name), text).map_err(failed)?;
    }
    Ok(())
}
