//! Maps the names of extended attributes that clients see to names on the host.
//!
//! A map is a list of rules, of which the first that matches decides. A client's name is matched by a
//! rule's *key* at its beginning, a name on the host by the rule's *prepend*. The first character of a rule
//! separates and ends its fields:
//!
//! ```text
//! :TYPE:SCOPE:KEY:PREPEND:    TYPE prefix, ok, bad or unsupported; SCOPE client, server or all
//! :map:KEY:PREPEND:           short for the rules of a safe prefix; the last rule of its list
//! ```
//!
//! The language is virtiofsd's. A name that no rule matches is refused to clients and hidden from them.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::str::FromStr;
use thrufs::Errno;

/// Most rules of a list.
const RULES_MAX: usize = 256;

/// Rules for names of extended attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XattrMap {
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Effect {
    /// The name on the host begins with `prepend`.
    Prefix,
    /// The same on both sides.
    Pass,
    /// EPERM, or hidden.
    Deny,
    /// EOPNOTSUPP, or hidden.
    Unsupported,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    effect: Effect,
    of_clients: bool,
    of_host: bool,
    key: String,
    prepend: String,
}

/// What is wrong with the text of a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XattrMapError {
    /// It has no rule.
    #[error("there is no rule in it")]
    Empty,
    /// More than `RULES_MAX`.
    #[error("it has more than {RULES_MAX} rules")]
    TooLong,
    /// A rule that is cut off.
    #[error("rule {0} is cut off: each of its fields ends with the character that it begins with")]
    CutOff(usize),
    /// The first field.
    #[error("rule {0} has the unknown type `{1}`: use prefix, ok, bad, unsupported or map")]
    Type(usize, String),
    /// The second field.
    #[error("rule {0} has the unknown scope `{1}`: use client, server or all")]
    Scope(usize, String),
    /// A rule after a `map` rule, which matches everything.
    #[error("rule {0} comes after a rule `map`, which must be the last")]
    AfterMap(usize),
    /// A NUL cannot be in a name.
    #[error("rule {0} holds a NUL")]
    Nul(usize),
}

impl XattrMap {
    /// The name on the host of a client's name. Fails with `EPERM` or `EOPNOTSUPP`, as the rules say.
    pub(crate) fn on_host<'a>(&self, name: &'a CStr) -> thrufs::Result<Cow<'a, CStr>> {
        let bytes = name.to_bytes();
        let mut rules = self.rules.iter().filter(|rule| rule.of_clients);
        let Some(rule) = rules.find(|rule| bytes.starts_with(rule.key.as_bytes())) else {
            return Err(Errno::EPERM);
        };
        match rule.effect {
            Effect::Pass => Ok(Cow::Borrowed(name)),
            Effect::Deny => Err(Errno::EPERM),
            Effect::Unsupported => Err(Errno::EOPNOTSUPP),
            Effect::Prefix => {
                let whole = [rule.prepend.as_bytes(), bytes].concat();
                let whole = CString::new(whole).expect("neither part holds a NUL");
                Ok(Cow::Owned(whole))
            }
        }
    }

    /// The name that clients see for a name on the host; `None` if they do not see it.
    pub(crate) fn for_clients<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let mut rules = self.rules.iter().filter(|rule| rule.of_host);
        let rule = rules.find(|rule| name.starts_with(rule.prepend.as_bytes()))?;
        match rule.effect {
            Effect::Pass => Some(name),
            Effect::Deny | Effect::Unsupported => None,
            // A bare prefix would be an attribute without a name.
            Effect::Prefix => name
                .get(rule.prepend.len()..)
                .filter(|rest| !rest.is_empty()),
        }
    }

    /// Whether a name is another one on the host, or none.
    pub(crate) fn alters(&self, name: &CStr) -> bool {
        self.on_host(name) != Ok(Cow::Borrowed(name))
    }
}

impl FromStr for XattrMap {
    type Err = XattrMapError;

    fn from_str(text: &str) -> Result<XattrMap, XattrMapError> {
        let mut rules = Vec::new();
        let mut rest = text.trim_start();
        let mut number = 0;
        let mut ended = false;
        while let Some(separator) = rest.chars().next() {
            number += 1;
            if ended {
                return Err(XattrMapError::AfterMap(number));
            }
            if rules.len() >= RULES_MAX {
                return Err(XattrMapError::TooLong);
            }
            let mut fields = Fields {
                rest: &rest[separator.len_utf8()..],
                separator,
                number,
            };
            let kind = fields.next()?;
            if kind == "map" {
                rules.extend(mapped(fields.next()?, fields.next()?));
                ended = true;
            } else {
                rules.push(fields.rule(kind)?);
            }
            rest = fields.rest.trim_start();
        }
        if rules.is_empty() {
            Err(XattrMapError::Empty)
        } else {
            Ok(XattrMap { rules })
        }
    }
}

struct Fields<'a> {
    rest: &'a str,
    separator: char,
    /// The number of the rule, for messages.
    number: usize,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a str, XattrMapError> {
        let cut = self.rest.split_once(self.separator);
        let (field, rest) = cut.ok_or(XattrMapError::CutOff(self.number))?;
        if field.contains('\0') {
            return Err(XattrMapError::Nul(self.number));
        }
        self.rest = rest;
        Ok(field)
    }

    fn rule(&mut self, kind: &str) -> Result<Rule, XattrMapError> {
        let effect = match kind {
            "prefix" => Effect::Prefix,
            "ok" => Effect::Pass,
            "bad" => Effect::Deny,
            "unsupported" => Effect::Unsupported,
            other => return Err(XattrMapError::Type(self.number, other.to_owned())),
        };
        let (of_clients, of_host) = match self.next()? {
            "client" => (true, false),
            "server" => (false, true),
            "all" => (true, true),
            other => return Err(XattrMapError::Scope(self.number, other.to_owned())),
        };
        Ok(Rule {
            effect,
            of_clients,
            of_host,
            key: self.next()?.to_owned(),
            prepend: self.next()?.to_owned(),
        })
    }
}

/// The rules for `map`: names that begin with `key` get the prefix; clients can neither use the prefix
/// themselves nor see names on the host that begin with `key`; other names stay as they are, or do not
/// exist if all names get the prefix.
fn mapped(key: &str, prepend: &str) -> Vec<Rule> {
    let rule = |effect, key: &str, prepend: &str| Rule {
        effect,
        of_clients: true,
        of_host: true,
        key: key.to_owned(),
        prepend: prepend.to_owned(),
    };
    let mut rules = vec![rule(Effect::Prefix, key, prepend)];
    if key.is_empty() {
        rules.push(rule(Effect::Deny, "", ""));
    } else {
        rules.push(rule(Effect::Deny, prepend, key));
        rules.push(rule(Effect::Pass, "", ""));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> XattrMap {
        text.parse().unwrap()
    }

    fn on_host(map: &XattrMap, name: &str) -> String {
        let name = CString::new(name).unwrap();
        match map.on_host(&name) {
            Ok(name) => name.to_str().unwrap().to_owned(),
            Err(Errno::EPERM) => "EPERM".to_owned(),
            Err(Errno::EOPNOTSUPP) => "EOPNOTSUPP".to_owned(),
            Err(error) => panic!("{error}"),
        }
    }

    fn for_clients<'a>(map: &XattrMap, name: &'a str) -> Option<&'a str> {
        let seen = map.for_clients(name.as_bytes())?;
        Some(std::str::from_utf8(seen).unwrap())
    }

    #[test]
    fn map_rule_for_all_names() {
        for text in [
            ":map::user.virtiofs.:",
            ":prefix:all::user.virtiofs.::bad:all:::",
        ] {
            let map = map(text);
            assert_eq!(on_host(&map, "trusted.x"), "user.virtiofs.trusted.x");
            let name = on_host(&map, "user.virtiofs.y");
            assert_eq!(name, "user.virtiofs.user.virtiofs.y");
            let seen = for_clients(&map, "user.virtiofs.trusted.x");
            assert_eq!(seen, Some("trusted.x"));
            assert_eq!(for_clients(&map, "security.selinux"), None);
            assert_eq!(for_clients(&map, "user.virtiofs."), None, "no name is left");
            assert!(map.alters(c"security.capability"));
        }
    }

    #[test]
    fn map_rule_for_some_names() {
        let long = "/prefix/all/trusted./user.virtiofs./
                    /bad/server//trusted./
                    /bad/client/user.virtiofs.//
                    /ok/all///";
        for text in [long, "/map/trusted./user.virtiofs./"] {
            let map = map(text);
            assert_eq!(on_host(&map, "trusted.x"), "user.virtiofs.trusted.x");
            assert_eq!(on_host(&map, "user.virtiofs.trusted.x"), "EPERM");
            assert_eq!(on_host(&map, "user.x"), "user.x");
            let seen = for_clients(&map, "user.virtiofs.trusted.x");
            assert_eq!(seen, Some("trusted.x"));
            assert_eq!(for_clients(&map, "trusted.x"), None);
            assert_eq!(for_clients(&map, "user.x"), Some("user.x"));
            assert!(!map.alters(c"security.capability"));
        }
    }

    #[test]
    fn first_matching_rule_counts_and_others_are_refused() {
        let map = map(
            " :unsupported:client:user.secret.:: ,ok,client,user.,, |bad|server||user.a|
                       :ok:server::user.:",
        );
        assert_eq!(on_host(&map, "user.secret.x"), "EOPNOTSUPP");
        assert_eq!(on_host(&map, "user.x"), "user.x");
        assert_eq!(on_host(&map, "trusted.x"), "EPERM");
        assert_eq!(for_clients(&map, "user.a"), None);
        assert_eq!(for_clients(&map, "user.b"), Some("user.b"));
        assert_eq!(for_clients(&map, "trusted.x"), None);
    }

    #[test]
    fn invalid_maps_have_messages() {
        let error = |text: &str| XattrMap::from_str(text).unwrap_err();
        assert_eq!(error("  "), XattrMapError::Empty);
        assert_eq!(error(":ok:all::"), XattrMapError::CutOff(1));
        let unknown = error(":good:all:::");
        assert_eq!(unknown, XattrMapError::Type(1, "good".to_owned()));
        let scope = error(":ok:all::: :ok:some:::");
        assert_eq!(scope, XattrMapError::Scope(2, "some".to_owned()));
        assert_eq!(error(":map:a:b: :ok:all:::"), XattrMapError::AfterMap(2));
        assert_eq!(error(":map:a:b: :map:c:d:"), XattrMapError::AfterMap(2));
        assert_eq!(error(":ok:all:a\0::"), XattrMapError::Nul(1));
        assert_eq!(error(&":ok:all:::".repeat(257)), XattrMapError::TooLong);
    }
}
