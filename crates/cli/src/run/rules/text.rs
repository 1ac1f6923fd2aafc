//! Writes the policy as TOML, and merges files into it.

use super::error::RuleError;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The audit log of records that are only counted.
pub(super) const NO_LOG: &str = "/dev/null";

/// The policy so far.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// The lines at the top, by their key.
    top: Vec<(String, String)>,
    audit_log: Option<String>,
    /// Whether an option set it.
    is_log_set: bool,
    /// Whether it must have one.
    audits: bool,
    rules: String,
    names: HashSet<String>,
}

impl Text {
    /// Keeps the names of a built-in profile's rules from other rules. To compile it takes milliseconds.
    pub(super) fn reserve_names(&mut self, profile: &str) {
        let profile = DeTable::parse(profile).expect("a profile is TOML");
        let rules = profile.get_ref().get("rule");
        let rules = rules.and_then(|rules| rules.get_ref().as_array());
        for rule in rules.into_iter().flatten() {
            let name = rule
                .get_ref()
                .get("name")
                .and_then(|name| name.get_ref().as_str());
            self.names.extend(name.map(str::to_owned));
        }
    }

    /// Records every open, and what the rules refuse, in `log` instead of the audit log of a policy file. Without
    /// either, in [`NO_LOG`].
    pub(super) fn audit(&mut self, log: Option<&Path>) -> Result<(), RuleError> {
        if let Some(log) = log {
            let absolute = std::path::absolute(log).unwrap_or_else(|_| log.into());
            let bad = || RuleError::AuditLogName(log.into());
            self.audit_log_line(absolute.to_str().ok_or_else(bad)?);
            self.is_log_set = true;
        }
        self.audits = true;
        self.top_line("audit-refused", "audit-refused = true".to_owned());
        self.add_rule("option-audit", "audit", "", ["**".to_owned()]);
        Ok(())
    }

    /// Adds a rule made from options, unless it has no paths. `keys` are further lines.
    pub(super) fn add_rule(
        &mut self,
        name: &str,
        action: &str,
        keys: &str,
        paths: impl IntoIterator<Item = String>,
    ) {
        let mut seen = HashSet::new();
        let paths = paths
            .into_iter()
            .map(|path| format!("    {},\n", quoted(&path)));
        let paths: String = paths.filter(|path| seen.insert(path.clone())).collect();
        if paths.is_empty() {
            return;
        }
        let name = quoted(&self.unique(name));
        self.rules.push_str(&format!(
            "[[rule]]\nname = {name}\naction = \"{action}\"\n{keys}path = [\n{paths}]\n\n"
        ));
    }

    /// Adds the rules and the keys of a file, a valid policy.
    pub(super) fn add_file(&mut self, path: &Path, text: &str) -> Result<(), RuleError> {
        let table = DeTable::parse(text).expect("a valid policy is TOML");
        self.rules.push_str(&format!("# {path:?}\n"));
        for (key, line, value) in lines(table.get_ref(), text) {
            match (key, value) {
                ("rule", DeValue::Array(rules)) => {
                    let rules = rules.iter().filter_map(|rule| rule.get_ref().as_table());
                    rules.for_each(|rule| self.add_rule_of_file(rule, text));
                }
                ("audit-log", value) => self.audit_log_of_file(path, line, value)?,
                _ => self.top_line(key, line.to_owned()),
            }
        }
        Ok(())
    }

    fn add_rule_of_file(&mut self, rule: &DeTable<'_>, text: &str) {
        self.rules.push_str("[[rule]]\n");
        for (key, line, value) in lines(rule, text) {
            match (key, value.as_str()) {
                ("name", Some(name)) => {
                    let name = quoted(&self.unique(name));
                    self.rules.push_str(&format!("name = {name}\n"));
                }
                _ => self.rules.push_str(&format!("{line}\n")),
            }
        }
        self.rules.push('\n');
    }

    fn audit_log_of_file(
        &mut self,
        path: &Path,
        line: &str,
        value: &DeValue<'_>,
    ) -> Result<(), RuleError> {
        let log = value.as_str().expect("a valid policy has a text there");
        let earlier = self.audit_log.get_or_insert_with(|| log.to_owned());
        if !self.is_log_set && earlier != log {
            return Err(RuleError::AuditLogs {
                path: PathBuf::from(path),
                log: log.to_owned(),
            });
        }
        self.top_line("audit-log", line.to_owned());
        Ok(())
    }

    fn audit_log_line(&mut self, log: &str) {
        self.top_line("audit-log", format!("audit-log = {}", quoted(log)));
    }

    /// The first line of a key counts.
    fn top_line(&mut self, key: &str, line: String) {
        if !self.top.iter().any(|(known, _)| known == key) {
            self.top.push((key.to_owned(), line));
        }
    }

    /// A name that no other rule has, beginning with this one.
    fn unique(&mut self, name: &str) -> String {
        // A name has at most 64 characters, a policy at most 4096 rules.
        let stem: String = name.chars().take(58).collect();
        let others = (2..).map(|number| format!("{stem} {number}"));
        let all = std::iter::once(name.to_owned()).chain(others);
        let mut free = all.skip_while(|name| self.names.contains(name));
        let name = free.next().expect("there are more numbers than rules");
        self.names.insert(name.clone());
        name
    }

    /// The whole text, with profiles at its end as they are.
    pub(super) fn with_profiles(mut self, profiles: &[&str]) -> String {
        if self.audits {
            self.audit_log_line(NO_LOG);
        }
        let mut text: String = self
            .top
            .iter()
            .map(|(_, line)| format!("{line}\n"))
            .collect();
        if !text.is_empty() {
            text.push('\n');
        }
        text + &self.rules + &profiles.concat()
    }
}

/// The entries of a table in their order: key, `KEY = VALUE` as in the text, and value.
fn lines<'d>(
    table: &'d DeTable<'_>,
    text: &'d str,
) -> impl Iterator<Item = (&'d str, &'d str, &'d DeValue<'d>)> {
    let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'_>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries.into_iter().map(move |(key, value)| {
        let line = text.get(key.span().start..value.span().end);
        (
            key.get_ref().as_ref(),
            line.unwrap_or_default(),
            value.get_ref(),
        )
    })
}

/// A text in TOML: as in JSON, but that DEL is escaped too.
pub(in crate::run) fn quoted(text: &str) -> String {
    let json = serde_json::to_string(text).expect("every text is JSON");
    json.replace('\u{7f}', "\\u007F")
}
