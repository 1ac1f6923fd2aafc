//! Everything that an installation has, and where.

use crate::manual;
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// A path in the system that is installed into, and what is there.
pub(super) struct Row {
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

pub(super) enum Content {
    /// A program beside the running one, mode 755.
    Program(&'static str),
    /// A file, mode 644.
    Text(String),
    /// A symbolic link, and where it leads.
    Link(PathBuf),
}

pub(super) const PROGRAMS: [&str; 2] = ["thrufs", "thrufs-bench"];

/// By which mount(8) knows the types `thrufs` and `fuse.thrufs`.
const HELPERS: [&str; 2] = ["mount.thrufs", "mount.fuse.thrufs"];

/// The prefix that the texts are written for.
const USUAL: &str = "/usr";

macro_rules! texts {
    ($($place:literal: $($name:literal)*;)*) => {
        [$($(($place, $name, include_str!(concat!("../../../../", $name)))),*),*]
    };
}

/// Directories beneath the prefix, and the files of the repository that go there by their names.
const TEXTS: [(&str, &str, &str); 20] = texts! {
    "lib/systemd/system": "dist/systemd/thrufs-share@.service";
    "share/qemu/vhost-user": "dist/60-thrufs.json";
    "share/thrufs/apparmor": "dist/apparmor/thrufs";
    "share/thrufs/policies": "dist/policies/workspace.toml";
    "share/doc/thrufs/examples":
        "dist/fstab.example" "dist/systemd/mnt-data.mount" "dist/systemd/thrufs-data.service"
        "dist/systemd/thrufs-vm1-home.service";
    "share/doc/thrufs": "README.md" "CHANGELOG.md" "LICENSE-APACHE" "LICENSE-MIT" "dist/copyright";
    "share/doc/thrufs/docs":
        "docs/mounting.md" "docs/sharing.md" "docs/operating.md" "docs/policies.md" "docs/redaction.md"
        "docs/security.md" "docs/workspaces.md";
};

/// Shells, and where each looks for completions. zsh has another place on Debian.
const COMPLETIONS: [(Shell, &str); 4] = [
    (Shell::Bash, "share/bash-completion/completions/thrufs"),
    (Shell::Zsh, "share/zsh/site-functions/_thrufs"),
    (Shell::Zsh, "share/zsh/vendor-completions/_thrufs"),
    (Shell::Fish, "share/fish/vendor_completions.d/thrufs.fish"),
];

/// What makes the completions of a shell.
pub(crate) type Completions = fn(Shell) -> String;

/// All rows for a prefix, an absolute path.
pub(super) fn rows(prefix: &Path, completions: Completions) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |path: PathBuf, content| rows.push(Row { path, content });
    for name in PROGRAMS {
        add(prefix.join("bin").join(name), Content::Program(name));
    }
    let libexec = prefix.join("libexec/thrufs/virtiofsd");
    add(libexec, Content::Link("../../bin/thrufs".into()));
    let is_usual = prefix == Path::new(USUAL);
    for name in HELPERS {
        // mount(8) looks in /sbin, which is /usr/sbin on systems that have merged the two.
        let (directory, program) = match is_usual {
            true => ("/usr/sbin", PathBuf::from("../bin/thrufs")),
            false => ("/sbin", prefix.join("bin/thrufs")),
        };
        add(Path::new(directory).join(name), Content::Link(program));
    }
    let mut text = |path: PathBuf, text: String| add(path, Content::Text(text));
    for (directory, source, content) in TEXTS {
        let name = Path::new(source).file_name().unwrap_or_default();
        let directory = prefix.join(directory);
        text(directory.join(name), moved(content, prefix));
    }
    for (name, page) in manual::pages() {
        let section = &name[name.len() - 1..];
        let directory = prefix.join(format!("share/man/man{section}"));
        text(directory.join(name), page);
    }
    for (shell, path) in COMPLETIONS {
        text(prefix.join(path), completions(shell));
    }
    if !is_usual {
        // Of descriptions of virtiofsds, libvirt reads those beneath /usr and /etc.
        let description = "qemu/vhost-user/60-thrufs.json";
        let link = Path::new("/etc").join(description);
        add(link, Content::Link(prefix.join("share").join(description)));
    }
    rows
}

/// The text with the programs where they are installed.
fn moved(text: &str, prefix: &Path) -> String {
    let prefix = prefix.to_string_lossy();
    ["/bin/thrufs", "/libexec/thrufs"]
        .iter()
        .fold(text.to_owned(), |text, place| {
            let usual = format!("{USUAL}{place}");
            text.replace(&usual, &format!("{}{place}", prefix.trim_end_matches('/')))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;

    #[test]
    fn everything_of_dist_is_installed_but_what_packages_alone_have() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut missing = Vec::new();
        for directory in ["dist", "dist/systemd", "dist/policies", "dist/apparmor"] {
            for entry in fs::read_dir(root.join(directory)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
                let is_in = TEXTS.iter().any(|(_, source, _)| *source == name);
                if entry.file_type().unwrap().is_file() && !is_in {
                    missing.push(name);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn paths_are_different_and_absolute_and_follow_the_prefix() {
        for prefix in ["/usr", "/usr/local", "/opt/thrufs/"] {
            let rows = rows(Path::new(prefix), |_| String::new());
            let paths: HashSet<_> = rows.iter().map(|row| &row.path).collect();
            assert_eq!(paths.len(), rows.len(), "no path twice");
            for Row { path, content } in &rows {
                assert!(path.is_absolute(), "{}", path.display());
                if let Content::Text(text) = content {
                    let is_unit = path.extension().is_some_and(|it| it == "service");
                    let program = format!("{}/bin/thrufs", prefix.trim_end_matches('/'));
                    assert!(!is_unit || text.contains(&program), "{}", path.display());
                    let foreign = prefix != USUAL && text.contains("/usr/bin/thrufs");
                    assert!(!foreign, "{}", path.display());
                }
            }
        }
    }
}
