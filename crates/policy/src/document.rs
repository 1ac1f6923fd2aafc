//! Reads values from TOML, each with its place in the text.

use super::error::Fault;
use super::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Copy)]
pub(super) struct Entry<'d> {
    pub(super) key: &'d str,
    pub(super) offset: usize,
    pub(super) value: &'d Spanned<DeValue<'d>>,
}

/// The entries of a table in the order of the text.
pub(super) fn entries<'d>(table: &'d DeTable<'d>) -> Vec<Entry<'d>> {
    let mut entries: Vec<Entry<'d>> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref(),
            offset: key.span().start,
            value,
        })
        .collect();
    entries.sort_by_key(|entry| entry.offset);
    entries
}

impl<'d> Entry<'d> {
    /// A fault of its value.
    pub(super) fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.value.span().start, message)
    }

    /// The fault of an unknown key.
    pub(super) fn unknown(&self, known: &'static [&'static str]) -> Fault {
        let all = format!("there are {}", known.join(", "));
        let message = nearest::unknown("key", self.key, known.iter().copied(), &all);
        Fault::new(self.offset, message)
    }

    pub(super) fn text(&self) -> Result<&'d str, Fault> {
        as_text(self.value, self.key).map(|(_, text)| text)
    }

    pub(super) fn boolean(&self) -> Result<bool, Fault> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(*value),
            _ => Err(self.fault(format!("`{}` is true or false", self.key))),
        }
    }

    /// One value or a list of them, each with its place. Plain decimal numbers count as text too.
    pub(super) fn texts(&self) -> Result<Vec<(usize, &'d str)>, Fault> {
        let DeValue::Array(list) = self.value.get_ref() else {
            return Ok(vec![as_text(self.value, self.key)?]);
        };
        if list.is_empty() {
            return Err(self.fault(format!("`{}` lists nothing: leave it out", self.key)));
        }
        list.iter().map(|item| as_text(item, self.key)).collect()
    }
}

fn as_text<'d>(value: &'d Spanned<DeValue<'d>>, key: &str) -> Result<(usize, &'d str), Fault> {
    let offset = value.span().start;
    match value.get_ref() {
        DeValue::String(text) => Ok((offset, text)),
        DeValue::Integer(number) if number.radix() == 10 && takes_numbers(key) => {
            Ok((offset, number.as_str()))
        }
        DeValue::Integer(number) if number.radix() == 8 && key == "mode" => {
            Ok((offset, number.as_str()))
        }
        DeValue::Integer(_) if key == "mode" => Err(Fault::new(
            offset,
            "a mode is written in octal: `0o4000` or `\"4000\"`",
        )),
        other => Err(Fault::new(
            offset,
            format!(
                "`{key}` takes a text in quotes{}, not {}",
                if takes_numbers(key) {
                    " or a number"
                } else {
                    ""
                },
                kind(other)
            ),
        )),
    }
}

fn takes_numbers(key: &str) -> bool {
    matches!(key, "owner" | "group" | "caller-uid" | "caller-gid")
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
