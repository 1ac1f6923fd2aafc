//! The reports of a run, made again: from its results (`report FILE DIRECTORY`), and with what was measured in
//! guests besides (`guests DIRECTORY RUN.json…`).

use super::{Screen, files, terminal};
use crate::results::{GuestRun, Results};
use crate::{Outcome, machine, published};
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

/// Adds runs in guests to the results in the directory, prints what they say beside what was published, and
/// makes all reports again. Where there are no results yet, they are those of these runs alone.
pub(crate) fn with_guests(arguments: &[String]) -> Outcome<()> {
    let Some((directory, files)) = arguments.split_first() else {
        return Err("guests DIRECTORY RUN.json...".to_owned());
    };
    let directory = Path::new(directory);
    let runs = files.iter().map(|file| GuestRun::read(Path::new(file)));
    let runs: Vec<GuestRun> = runs.collect::<Outcome<_>>()?;
    let found = directory.join("results.json");
    let mut results = if found.exists() {
        Results::read(&found).map_err(|error| error.to_string())?
    } else {
        let mut alone = Results::of_guests(published::SUITE, Vec::new());
        alone.started = machine::seconds_now();
        alone.machine = machine::describe();
        alone.command = ["cargo", "xtask", "bench", "--suite", published::SUITE]
            .map(str::to_owned)
            .to_vec();
        alone.command.push("--only-guest".to_owned());
        alone
    };
    let alone = Results::of_guests(published::SUITE, runs.clone());
    print!("{}", published::terminal(&published::of(&alone)));
    results.guests.extend(runs);
    write(&results, directory)
}

fn write(results: &Results, directory: &Path) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    std::fs::create_dir_all(directory).map_err(failed)?;
    for (name, text) in files(results)? {
        std::fs::write(directory.join(name), text).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::with_guests;
    use crate::published;
    use crate::report::sample;
    use crate::results::Results;
    use std::path::Path;

    const RUN: &str = r#"{"guest": "qemu", "lower": "tmpfs", "cache": "never", "rows": [
        {"row": "read-psync-1", "unit": "/s", "thrufs": [3146.0], "9p": [1449.0]}]}"#;

    fn joined(directory: &Path) -> Results {
        let run = directory.join("guest.json");
        std::fs::write(&run, RUN).unwrap();
        let arguments = [directory, &run].map(|path| path.to_str().unwrap().to_owned());
        with_guests(&arguments).unwrap();
        Results::read(&directory.join("results.json")).unwrap()
    }

    #[test]
    fn what_guests_have_found_stands_in_all_reports_of_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut before = sample::usual();
        published::SUITE.clone_into(&mut before.suite);
        let path = directory.path().join("results.json");
        std::fs::write(path, before.to_json().unwrap()).unwrap();
        let after = joined(directory.path());
        assert_eq!((&after.cells, after.guests.len()), (&before.cells, 1));
        for file in ["report.html", "report.txt"] {
            let text = std::fs::read_to_string(directory.path().join(file)).unwrap();
            for part in [
                "3146",
                "not served",
                "FUSE passthrough",
                "virtio-fs, 9p and DAX",
            ] {
                assert!(text.contains(part), "{file}: {part}");
            }
        }
    }

    #[test]
    fn guests_alone_are_a_run_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let results = joined(directory.path());
        assert!(results.cells.is_empty() && results.started > 0);
        assert_eq!(published::of(&results).len(), 1);
        let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
        assert!(page.contains("1449") && !page.contains("FUSE passthrough"));
    }
}
