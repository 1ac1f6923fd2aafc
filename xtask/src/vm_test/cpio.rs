//! The archive that a kernel unpacks into its first file system: cpio in the form "newc", as the
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst` has it.

use std::collections::BTreeSet;
use std::io::{self, Write};

/// Types of `st_mode`.
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMBOLIC_LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// The name of the entry that ends an archive.
const END: &str = "TRAILER!!!";

/// An archive that is being written. Paths are relative to the root, without a slash in front; every
/// owner is root, and every time is zero, so that the same content makes the same archive.
pub(super) struct Archive<W> {
    out: W,
    inode: u32,
    paths: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            inode: 0,
            paths: BTreeSet::new(),
        }
    }

    /// Whether there is something at `path`.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// A directory with mode 0755, and those above it. One that is there stays as it is.
    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        if path.is_empty() || self.has(path) {
            return Ok(());
        }
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | mode, (0, 0), content)
    }

    pub(super) fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMBOLIC_LINK | 0o777, (0, 0), target.as_bytes())
    }

    pub(super) fn character_device(
        &mut self,
        path: &str,
        mode: u32,
        number: (u32, u32),
    ) -> io::Result<()> {
        self.entry(path, CHARACTER_DEVICE | mode, number, &[])
    }

    /// Ends the archive and gives back what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.write_entry(END, 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above)?;
        }
        if !self.paths.insert(path.to_owned()) {
            return Err(io::Error::other(format!("{path} is in the archive twice")));
        }
        self.inode += 1;
        self.write_entry(path, mode, device, content)
    }

    fn write_entry(
        &mut self,
        path: &str,
        mode: u32,
        (major, minor): (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{path} is too long for the archive"));
        let size = u32::try_from(content.len()).map_err(too_long)?;
        // With its NUL.
        let name_size = u32::try_from(path.len() + 1).map_err(too_long)?;
        let fields = [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        let mut header = String::from("070701");
        for field in fields {
            header += &format!("{field:08X}");
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.align(header.len() + path.len() + 1)?;
        self.out.write_all(content)?;
        self.align(content.len())
    }

    /// Fills up to a multiple of four bytes, at which everything starts.
    fn align(&mut self, written: usize) -> io::Result<()> {
        self.out
            .write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_come_after_their_directories_and_start_at_multiples_of_four() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b/c", 0o644, b"12345").expect("a file");
        archive.symlink("a/d", "b/c").expect("a link");
        archive
            .character_device("e", 0o600, (5, 1))
            .expect("a device");
        assert!(archive.has("a/b") && !archive.has("b"));
        assert!(archive.symlink("a/d", "again").is_err());
        let bytes = archive.finish().expect("the end");
        assert_eq!(bytes.len() % 4, 0);
        let found = entries(&bytes);
        let expected = [
            ("a", 0o040_755, "", 0),
            ("a/b", 0o040_755, "", 0),
            ("a/b/c", 0o100_644, "12345", 0),
            ("a/d", 0o120_777, "b/c", 0),
            ("e", 0o020_600, "", 0x0005_0001),
            ("TRAILER!!!", 0, "", 0),
        ];
        assert_eq!(
            found,
            expected.map(|(name, mode, content, device)| {
                (name.to_owned(), mode, content.to_owned(), device)
            })
        );
    }

    /// Name, mode, content and device of each entry, read as the kernel does.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, String, u32)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let field = |number: usize| {
                let digits = &bytes[6 + 8 * number..][..8];
                u32::from_str_radix(std::str::from_utf8(digits).expect("text"), 16).expect("hex")
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let device = field(9) << 16 | field(10);
            let data = (110 + name_size).next_multiple_of(4);
            let text = |range: std::ops::Range<usize>| {
                String::from_utf8(bytes[range].to_vec()).expect("text")
            };
            assert_eq!(bytes[110 + name_size - 1], 0);
            found.push((
                text(110..110 + name_size - 1),
                mode,
                text(data..data + size),
                device,
            ));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
        }
        found
    }
}
