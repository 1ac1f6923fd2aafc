//! Parses the text of a policy: the keys at its top, and its rules, each by [`draft`](super::draft).

use super::document::{Entry, entries};
use super::draft::Draft;
use super::error::Fault;
use super::globs::{GLOBS_MAX, Patterns};
use super::rule::data_path_named;
use super::{Accounts, DataPath};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Most rules of one policy.
pub const RULES_MAX: usize = 4096;

pub(super) const TOP_KEYS: &[&str] = &["default", "audit-log", "audit-refused", "rule"];

#[derive(Debug)]
pub(super) struct Document {
    pub(super) default: DataPath,
    pub(super) audit_log: Option<PathBuf>,
    /// Where the text says that refusals are audited.
    pub(super) audit_refused: Option<usize>,
    pub(super) rules: Vec<Draft>,
}

pub(super) fn document(text: &str, accounts: &Accounts) -> Result<Document, Fault> {
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Fault::new(offset, error.message())
    })?;
    let mut document = Document {
        default: DataPath::Passthrough,
        audit_log: None,
        audit_refused: None,
        rules: Vec::new(),
    };
    for entry in entries(table.get_ref()) {
        match entry.key {
            "default" => document.default = default(&entry)?,
            "audit-log" => document.audit_log = Some(audit_log(&entry)?),
            "audit-refused" => document.audit_refused = entry.boolean()?.then_some(entry.offset),
            "rule" => document.rules = rules(&entry, accounts)?,
            _ => return Err(entry.unknown(TOP_KEYS)),
        }
    }
    Ok(document)
}

fn default(entry: &Entry<'_>) -> Result<DataPath, Fault> {
    let word = entry.text()?;
    data_path_named(word).ok_or_else(|| {
        entry.fault("the default is passthrough, cached or direct; for anything else, make a last rule with path = \"**\"")
    })
}

fn audit_log(entry: &Entry<'_>) -> Result<PathBuf, Fault> {
    let path = Path::new(entry.text()?);
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(entry.fault("the audit log is an absolute path"));
    }
    Ok(path.into())
}

fn rules(entry: &Entry<'_>, accounts: &Accounts) -> Result<Vec<Draft>, Fault> {
    let not_rules = || Fault::new(entry.offset, "rules are tables: begin each with [[rule]]");
    let DeValue::Array(list) = entry.value.get_ref() else {
        return Err(not_rules());
    };
    let (mut names, mut globs) = (HashSet::new(), 0);
    let mut rules = Vec::new();
    for item in list.iter() {
        let fault = |message: String| Err(Fault::new(item.span().start, message));
        let DeValue::Table(table) = item.get_ref() else {
            return Err(not_rules());
        };
        if rules.len() == RULES_MAX {
            return fault(format!("a policy has at most {RULES_MAX} rules"));
        }
        let draft = Draft::read(item.span().start, table, accounts)?;
        if let Some(name) = &draft.name
            && !names.insert(name.clone())
        {
            return fault(format!("an earlier rule is named `{name}` too"));
        }
        globs += draft.paths.as_ref().map_or(0, Patterns::len);
        globs += draft.executables.as_ref().map_or(0, Patterns::len);
        if globs > GLOBS_MAX {
            return fault(format!("a policy has at most {GLOBS_MAX} patterns"));
        }
        rules.push(draft);
    }
    Ok(rules)
}
