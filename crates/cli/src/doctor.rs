//! `thrufs doctor`: what this machine supports, and why a mount may be slow or fail.
//!
//! Features are tried rather than derived from versions or sysctls, where that leaves no trace: a
//! container's filter may refuse them. The findings are for a mount with default options by the same
//! user; one is for shares.

mod device;
mod directory;
mod finding;
mod kernel;
mod ring;
mod sandbox;
mod threads;
mod window;

use crate::confinement;
use crate::error::StartupError;
use crate::output::{print, print_json};
use clap::{Parser, ValueHint};
use finding::{Finding, FindingState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what this machine supports, and how to enable what it does not
#[derive(Parser)]
#[command(name = "doctor")]
pub(crate) struct DoctorArguments {
    /// Print an array of objects: name, state (ok, no, --), detail, remedy
    #[arg(long)]
    json: bool,
    /// A directory to serve, which is checked too
    #[arg(id = "DIR", value_hint = ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

/// Prints the findings. Fails when no mount is possible.
pub(crate) fn run(arguments: DoctorArguments) -> Result<ExitCode, StartupError> {
    let findings = look(arguments.directory.as_deref())?;
    match arguments.json {
        true => print_json(&findings),
        false => print(as_text(&findings)),
    }
    let is_hopeless = |finding: &Finding| finding.is_needed && finding.state == FindingState::Bad;
    Ok(if findings.iter().any(is_hopeless) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn look(directory: Option<&Path>) -> Result<Vec<Finding>, StartupError> {
    let of_directory = directory.map(directory::look).transpose()?;
    let descriptors = threads::descriptors();
    // As a server does before it creates rings and threads.
    confinement::raise_descriptor_limit();
    let device = device::device();
    let has_device = device.state == FindingState::Good;
    let mut findings = vec![
        kernel::release().called("kernel").needed(),
        device.called("/dev/fuse").needed(),
    ];
    findings.extend(device::mounting());
    findings.extend(ring::look(has_device));
    findings.extend([
        kernel::passthrough().called("passthrough"),
        threads::pairing().called("pairing"),
        descriptors.called("descriptors"),
        kernel::request_size().called("request size"),
        threads::system_calls().called("seccomp"),
        window::look().called("DAX window"),
    ]);
    findings.push(sandbox::look(has_device));
    findings.extend(of_directory.into_iter().flatten());
    Ok(findings)
}

fn as_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        let Finding {
            name,
            state,
            detail,
            ..
        } = finding;
        text.push_str(&format!("{state}  {name:width$}  {detail}\n"));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("    {:width$}  do: {remedy}\n", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_remedies_follow() {
        let findings = [
            Finding::good("is so").called("a"),
            Finding::bad("is not", "this").called("longer"),
            Finding::note("by the way").called("b"),
        ];
        assert_eq!(
            as_text(&findings),
            "ok  a       is so\n\
             no  longer  is not\n            do: this\n\
             --  b       by the way\n"
        );
    }
}
