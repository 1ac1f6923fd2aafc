//! The line of each check, and how many there were of each kind.

use super::finding::{Finding, Verdict};
use crate::tool::ToolError;
use std::io::Write;

pub(super) struct Report<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) only: &'a [String],
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl Report<'_> {
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    pub(super) fn tell(&mut self, name: &str, verdict: Verdict) -> Result<(), ToolError> {
        match verdict {
            Ok(()) => {
                self.passed += 1;
                writeln!(self.out, "pass  {name}")?;
            }
            Err(Finding::Fail(why)) => {
                self.failed += 1;
                writeln!(self.out, "FAIL  {name}: {why}")?;
            }
            Err(Finding::Skip(why)) => {
                self.skipped += 1;
                writeln!(self.out, "skip  {name}: {why}")?;
            }
        }
        Ok(())
    }
}
