//! What an option takes, and what it sets.

use super::syntax;
use crate::config::{MountConfig, ServerConfig, ShareConfig};
use rustix::mount::MountAttrFlags;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{Deserialize, IntoDeserializer};
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;
use thrufs_hostdir::{Config, IdRange};

pub(crate) type Checked = Result<(), String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Mount,
    Share,
    Both,
}

impl Use {
    pub(crate) fn includes(self, other: Use) -> bool {
        self == other || self == Use::Both
    }
}

/// Sets a value in the part of the configuration that has it.
#[derive(Clone, Debug)]
pub(crate) enum Setter<V, R = ()> {
    /// Of mounts and shares: the served directory.
    Serving(fn(&mut Config, V) -> R),
    /// Of mounts and shares: the process.
    Server(fn(&mut ServerConfig, V) -> R),
    Mount(fn(&mut MountConfig, V) -> R),
    Share(fn(&mut ShareConfig, V) -> R),
}

/// The configuration that options are applied to.
pub(super) enum Target<'a> {
    /// None: a value is only checked.
    Nothing,
    Mount(&'a mut MountConfig),
    Share(&'a mut ShareConfig),
}

impl<V, R> Setter<V, R> {
    fn used(&self) -> Use {
        match self {
            Setter::Serving(_) | Setter::Server(_) => Use::Both,
            Setter::Mount(_) => Use::Mount,
            Setter::Share(_) => Use::Share,
        }
    }

    fn set(&self, target: &mut Target<'_>, value: V) -> Option<R> {
        Some(match (self, target) {
            (Setter::Serving(set), Target::Mount(config)) => set(&mut config.serving, value),
            (Setter::Serving(set), Target::Share(config)) => set(&mut config.serving, value),
            (Setter::Server(set), Target::Mount(config)) => set(&mut config.server, value),
            (Setter::Server(set), Target::Share(config)) => set(&mut config.server, value),
            (Setter::Mount(set), Target::Mount(config)) => set(config, value),
            (Setter::Share(set), Target::Share(config)) => set(config, value),
            _ => return None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// None, and no effect.
    Ignored,
    /// Anything or nothing, and no effect.
    Any,
    /// None: it is a switch.
    On(Setter<bool>),
    /// None: the opposite of this switch.
    Off(&'static str),
    /// None: one of the ways to keep times of access, or the source's.
    Atime(Option<MountAttrFlags>),
    Choice(&'static [&'static str], Setter<&'static str>),
    /// With a fraction.
    Seconds(Setter<Duration>),
    /// Less than so many GiB; with K, M or G.
    Bytes(u64, Setter<u64>),
    /// Minimum and maximum.
    Count(u64, u64, Setter<u64>),
    /// Number or name.
    User(Setter<u32>),
    /// Number or name.
    Group(Setter<u32>),
    /// `CLIENT:HOST:COUNT`.
    Range(Setter<IdRange, Checked>),
    Text(Setter<String>),
    /// A text in a language of its own.
    Rule(Setter<String, Checked>),
    /// `IP:PORT`, or the path of a socket.
    Address(Setter<String, Checked>),
    Path(Setter<PathBuf>),
}

impl Value {
    /// Whether the option is given without a value.
    pub(crate) fn is_switch(&self) -> bool {
        self.placeholder().is_empty()
    }

    /// The placeholder in help and manual; empty without a value.
    pub(crate) fn placeholder(&self) -> &'static str {
        match self {
            Value::Ignored | Value::Any | Value::On(_) | Value::Off(_) | Value::Atime(_) => "",
            Value::Choice(..) => "WORD",
            Value::Seconds(_) => "SECONDS",
            Value::Bytes(..) => "BYTES",
            Value::Count(..) => "N",
            Value::User(_) => "USER",
            Value::Group(_) => "GROUP",
            Value::Range(_) => "CLIENT:HOST:COUNT",
            Value::Text(_) | Value::Rule(_) => "TEXT",
            Value::Address(_) => "ADDRESS",
            Value::Path(_) => "PATH",
        }
    }

    /// As in `locks=local|shared`.
    pub(crate) fn pattern(&self) -> String {
        match self {
            Value::Choice(words, _) => words.join("|"),
            other => other.placeholder().to_owned(),
        }
    }

    pub(super) fn used(&self) -> Use {
        match self {
            Value::Ignored | Value::Any | Value::Atime(_) => Use::Mount,
            Value::Off(opposite) => unreachable!("{opposite} decides"),
            Value::On(set) => set.used(),
            Value::Choice(_, set) => set.used(),
            Value::Seconds(set) => set.used(),
            Value::User(set) | Value::Group(set) => set.used(),
            Value::Bytes(_, set) | Value::Count(_, _, set) => set.used(),
            Value::Range(set) => set.used(),
            Value::Text(set) => set.used(),
            Value::Rule(set) | Value::Address(set) => set.used(),
            Value::Path(set) => set.used(),
        }
    }

    /// Reads `text`, or what a switch says, and sets it.
    pub(super) fn apply(&self, text: &str, on: bool, target: &mut Target<'_>) -> Checked {
        match self {
            Value::Ignored | Value::Any => None,
            Value::Off(opposite) => unreachable!("{opposite} decides"),
            Value::On(set) => set.set(target, on),
            Value::Atime(atime) => {
                let set = |config: &mut MountConfig, atime: Option<MountAttrFlags>| {
                    config.sets_atime = atime.is_some();
                    config
                        .attributes
                        .insert(atime.unwrap_or(MountAttrFlags::empty()));
                };
                Setter::Mount(set).set(target, *atime)
            }
            Value::Choice(words, set) => set.set(target, syntax::one_of(words, text)?),
            Value::Seconds(set) => set.set(target, syntax::parse_seconds(text)?),
            Value::Bytes(below_gib, set) => set.set(target, syntax::parse_bytes(text, *below_gib)?),
            Value::Count(least, most, set) => {
                set.set(target, syntax::parse_count(text, *least, *most)?)
            }
            Value::User(set) => set.set(target, syntax::parse_user(text)?),
            Value::Group(set) => set.set(target, syntax::parse_group(text)?),
            Value::Range(set) => set.set(target, syntax::parse_range(text)?).transpose()?,
            Value::Text(set) => set.set(target, syntax::parse_text(text)?),
            Value::Rule(set) | Value::Address(set) => {
                set.set(target, syntax::parse_text(text)?).transpose()?
            }
            Value::Path(set) => set.set(target, syntax::parse_text(text)?.into()),
        };
        Ok(())
    }
}

/// The variant that serde calls so.
pub(super) fn named<'de, T: Deserialize<'de>>(word: &'de str) -> T {
    let word: StrDeserializer<'_, Error> = word.into_deserializer();
    T::deserialize(word).expect("the table has the words of the type")
}

/// The number, in the type of its setting.
pub(super) fn count<T: TryFrom<u64>>(number: u64) -> T {
    let number = T::try_from(number).ok();
    number.expect("the table allows no more than the setting holds")
}

/// Sets what was read.
pub(super) fn set<T, E: Display>(place: &mut T, read: Result<T, E>) -> Result<(), String> {
    *place = read.map_err(|error| error.to_string())?;
    Ok(())
}
