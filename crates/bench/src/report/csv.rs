//! One line for each sample, for other programs, after RFC 4180.

use crate::results::Results;

/// The names of the columns. Times are in nanoseconds; `started` in seconds since 1970 (UTC).
const HEAD: [&str; 13] = [
    "started",
    "suite",
    "lower",
    "group",
    "row",
    "jobs",
    "contestant",
    "round",
    "operations",
    "nanoseconds",
    "operations_per_second",
    "operation_bytes",
    "absence",
];

/// All samples of a run, and a line without figures for each cell that has none.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text = line(&HEAD.map(str::to_owned));
    for cell in &results.cells {
        let row = results.rows.iter().find(|row| row.name == cell.row);
        let group = row.and_then(|row| serde_json::to_value(row.group).ok());
        let group = group.and_then(|group| Some(group.as_str()?.to_owned()));
        let bytes = row.map_or(0, |row| row.operation_bytes);
        let absence = cell.absence.as_ref().map(|absence| absence.why.as_str());
        let with = |figures: [String; 4]| {
            let [round, operations, nanoseconds, rate] = figures;
            line(&[
                results.started.to_string(),
                results.suite.clone(),
                cell.lower.clone(),
                group.clone().unwrap_or_default(),
                cell.row.clone(),
                cell.jobs.to_string(),
                cell.contestant.clone(),
                round,
                operations,
                nanoseconds,
                rate,
                bytes.to_string(),
                absence.unwrap_or_default().to_owned(),
            ])
        };
        for sample in &cell.samples {
            text += &with([
                sample.round.to_string(),
                sample.operations.to_string(),
                sample.nanoseconds.to_string(),
                format!("{:.3}", sample.per_second()),
            ]);
        }
        if cell.samples.is_empty() {
            text += &with(Default::default());
        }
    }
    text
}

fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    fields.join(",") + "\r\n"
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{HEAD, csv};
    use crate::report::sample::Builder;
    use crate::results::Kind;

    #[test]
    fn every_sample_is_a_line_and_every_absence_too() {
        let results = Builder::new()
            .contestants(&[("native", Kind::Native), ("ring", Kind::Ours)])
            .cell("create", "native", &[1000, 2000])
            .cell("create", "ring", &[])
            .failing("create", "ring", "it said \"no\", and\nended")
            .results();
        let text = csv(&results);
        let head = HEAD.join(",");
        assert_eq!(
            text,
            format!(
                "{head}\r\n\
                 1795279109,quick,ext4,metadata,create,1,native,0,1000,1000000,1000000.000,0,\r\n\
                 1795279109,quick,ext4,metadata,create,1,native,1,1000,2000000,500000.000,0,\r\n\
                 1795279109,quick,ext4,metadata,create,1,ring,,,,,0,\"it said \"\"no\"\", and\nended\"\r\n"
            )
        );
    }
}
