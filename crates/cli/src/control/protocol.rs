//! The protocol of the control socket: one JSON object per line, requests and replies in turn.
//!
//! ```text
//! {"version":1,"command":"explain","path":"some/file"}
//! {"version":1,"result":{"kind":"regular",…}}
//! {"version":1,"command":"explain","path":"nothing"}
//! {"version":1,"error":{"code":"failed","message":"No such file or directory","errno":2}}
//! ```
//!
//! Paths are bytes, JSON is text: bytes that are not UTF-8 are written as `%` and two hexadecimal digits,
//! and so is `%`. A path is relative to the root of the mount; the empty path is the root.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::{CStr, CString};

/// Fields and commands may be added within a version; existing ones stay.
pub(crate) const VERSION: u64 = 1;

/// With the line feed.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;

pub(crate) const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// `NAME_MAX`
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Explain {
        components: Vec<CString>,
    },
    Statistics,
    /// Waits until the kernel has been told of the changes in the source.
    Settle,
    /// The configuration of a mount, for a remount by the same version.
    Options,
    /// As SIGHUP: opens the log file again, and reads the policy.
    Reload,
    /// `keeps_names`: names are looked up again when their time has passed, so that what is mounted on them stays.
    DropCaches {
        keeps_names: bool,
    },
    LogLevel {
        level: String,
    },
}

impl Command {
    const WITHOUT_FIELDS: [(&str, Command); 4] = [
        ("statistics", Command::Statistics),
        ("settle", Command::Settle),
        ("options", Command::Options),
        ("reload", Command::Reload),
    ];
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct WrittenRequest {
    version: u64,
    #[serde(default)]
    command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keeps_names: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    Result(Value),
    Error(Refusal),
}

#[derive(Debug, Serialize, Deserialize)]
struct WrittenReply {
    version: u64,
    #[serde(flatten)]
    reply: Reply,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// For programs: `malformed`, `too_long`, `version`, `unknown` or `failed`.
    pub(crate) code: String,
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) errno: Option<i32>,
}

impl Refusal {
    fn new(code: &str, message: impl Into<String>) -> Refusal {
        Refusal {
            code: code.to_owned(),
            message: message.into(),
            errno: None,
        }
    }

    fn malformed(message: impl Into<String>) -> Refusal {
        Refusal::new("malformed", message)
    }

    pub(crate) fn not_followed() -> Refusal {
        Refusal::new(
            "not_followed",
            "changes in the source are not followed here: they show when timeouts have passed",
        )
    }

    pub(crate) fn of_guests() -> Refusal {
        Refusal::new(
            "unsupported",
            "a guest cannot be told to drop its caches: have it write 3 to its /proc/sys/vm/drop_caches",
        )
    }

    pub(crate) fn not_mounted() -> Refusal {
        Refusal::new("unknown", "a share has no options of a mount")
    }

    /// As `failed`, with the reason.
    pub(crate) fn because(errno: i32, message: &str) -> Refusal {
        Refusal {
            errno: Some(errno),
            ..Refusal::new("failed", message)
        }
    }

    pub(crate) fn too_long() -> Refusal {
        let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
        Refusal::new("too_long", message)
    }

    pub(crate) fn failed(errno: i32) -> Refusal {
        let error = std::io::Error::from_raw_os_error(errno);
        Refusal::because(errno, &error.to_string())
    }
}

impl Command {
    /// The line has no line feed.
    pub(crate) fn decode(line: &[u8]) -> Result<Command, Refusal> {
        if line.len() >= REQUEST_BYTES_MAX {
            return Err(Refusal::too_long());
        }
        let request: WrittenRequest =
            serde_json::from_slice(line).map_err(|error| Refusal::malformed(error.to_string()))?;
        if request.version != VERSION {
            let message = format!(
                "this server speaks version {VERSION}, not {}",
                request.version
            );
            return Err(Refusal::new("version", message));
        }
        match request.command.as_str() {
            "explain" => {
                let path = request
                    .path
                    .ok_or_else(|| Refusal::malformed("explain needs a path"))?;
                let components = components(&path)?;
                Ok(Command::Explain { components })
            }
            "drop-caches" => Ok(Command::DropCaches {
                keeps_names: request.keeps_names.unwrap_or(false),
            }),
            "log-level" => {
                let level = request.level;
                let level = level.ok_or_else(|| Refusal::malformed("log-level needs a level"))?;
                Ok(Command::LogLevel { level })
            }
            other => {
                let mut known = Command::WITHOUT_FIELDS.into_iter();
                let known = known.find(|(name, _)| *name == other);
                let shown: String = other.chars().take(40).collect();
                let unknown = || Refusal::new("unknown", format!("unknown command {shown:?}"));
                known.map(|(_, command)| command).ok_or_else(unknown)
            }
        }
    }

    /// With a line feed.
    pub(crate) fn encode(&self) -> String {
        let mut written = WrittenRequest {
            version: VERSION,
            ..WrittenRequest::default()
        };
        written.command = match self {
            Command::Explain { components } => {
                let names: Vec<&[u8]> = components.iter().map(|name| name.to_bytes()).collect();
                written.path = Some(escape(&names.join(&b'/')));
                "explain"
            }
            Command::DropCaches { keeps_names } => {
                written.keeps_names = Some(*keeps_names);
                "drop-caches"
            }
            Command::LogLevel { level } => {
                written.level = Some(level.clone());
                "log-level"
            }
            other => {
                let mut known = Command::WITHOUT_FIELDS.iter();
                let known = known.find(|(_, command)| command == other);
                known.expect("the others have fields").0
            }
        }
        .to_owned();
        serde_json::to_string(&written).expect("texts are always JSON") + "\n"
    }
}

impl Reply {
    /// With a line feed.
    pub(crate) fn encode(self) -> String {
        let written = WrittenReply {
            version: VERSION,
            reply: self,
        };
        serde_json::to_string(&written).expect("a value is always JSON") + "\n"
    }

    /// The line has no line feed.
    pub(crate) fn decode(line: &[u8]) -> Result<Reply, String> {
        let written: WrittenReply =
            serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match written.version {
            VERSION => Ok(written.reply),
            other => Err(format!("version {other}")),
        }
    }
}

fn components(path: &str) -> Result<Vec<CString>, Refusal> {
    let bytes =
        unescape(path).ok_or_else(|| Refusal::malformed("% without two hexadecimal digits"))?;
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let name = |name: &[u8]| {
        let is_one = !name.is_empty() && name != b"." && name != b"..";
        if !is_one || name.len() > NAME_BYTES_MAX {
            return Err(Refusal::malformed(
                "a path is names with a slash between them, none of them empty, `.` or `..`",
            ));
        }
        CString::new(name).map_err(|_| Refusal::malformed("a name with a NUL"))
    };
    bytes.split(|byte| *byte == b'/').map(name).collect()
}

pub(crate) fn borrowed(components: &[CString]) -> Vec<&CStr> {
    components.iter().map(CString::as_c_str).collect()
}

pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push((high << 4 | low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

// A path, because the fuzz target includes this file.
#[cfg(test)]
#[path = "protocol/tests.rs"]
mod tests;
