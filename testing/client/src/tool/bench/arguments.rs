//! Arguments of `bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Arguments of `bench`.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The name of the [`Connection`](crate::tool::Connection)'s server in the report.
    pub name: String,
    /// Servers to compare with.
    pub against: Vec<Target>,
    /// Names or prefixes of rows. Empty for all.
    pub rows: Vec<String>,
    /// Samples of each row and target.
    pub rounds: u32,
    /// Duration of a sample.
    pub sample: Duration,
    /// Prefix of the temporary directory in each share.
    pub directory: String,
    /// The size of the file that is read and written.
    pub file_bytes: u64,
    /// The number of files in the directory that is listed.
    pub entries: u32,
    /// Where to write the raw figures.
    pub json: Option<PathBuf>,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench {
            name: "thrufs".to_owned(),
            against: Vec::new(),
            rows: Vec::new(),
            rounds: 5,
            sample: Duration::from_millis(300),
            directory: "thrufs-bench".to_owned(),
            file_bytes: 64 << 20,
            entries: 10_000,
            json: None,
        }
    }
}

/// A server to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in the report.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
}

impl FromStr for Target {
    type Err = String;

    /// `NAME=SOCKET`.
    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once('=') {
            Some((name, socket)) if !name.is_empty() && !socket.is_empty() => Ok(Target {
                name: name.to_owned(),
                socket: socket.into(),
            }),
            _ => Err(format!("`{text}` is not NAME=SOCKET")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_name_and_a_socket() {
        let parsed: Target = "virtiofsd=/run/a=b".parse().unwrap();
        assert_eq!(parsed.name, "virtiofsd");
        assert_eq!(parsed.socket, PathBuf::from("/run/a=b"));
        for bad in ["", "name", "=/x", "name="] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
