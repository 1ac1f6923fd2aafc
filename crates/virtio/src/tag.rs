//! The tag by which a guest mounts a device.

/// Size of the field in the configuration space, in bytes.
pub(crate) const TAG_BYTES: usize = 36;

/// 1 to 36 bytes of UTF-8 without NUL (virtio 1.2, section 5.11.4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(String);

/// Why a tag is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// Empty.
    #[error("a tag has at least one byte")]
    Empty,
    /// More than 36 bytes.
    #[error("a tag has at most {TAG_BYTES} bytes; this one has {0}")]
    TooLong(usize),
    /// A NUL byte, which would end it.
    #[error("a tag has no NUL byte")]
    Nul,
}

impl Tag {
    /// Checks `tag`.
    pub fn new(tag: &str) -> Result<Tag, TagError> {
        match tag.len() {
            0 => Err(TagError::Empty),
            length if length > TAG_BYTES => Err(TagError::TooLong(length)),
            _ if tag.contains('\0') => Err(TagError::Nul),
            _ => Ok(Tag(tag.to_owned())),
        }
    }

    /// As in the configuration space: padded with NULs.
    pub(crate) fn to_field(&self) -> [u8; TAG_BYTES] {
        let mut field = [0; TAG_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_1_to_36_bytes() {
        assert_eq!(Tag::new(""), Err(TagError::Empty));
        assert_eq!(Tag::new("a\0b"), Err(TagError::Nul));
        let longest = "é".repeat(18);
        assert_eq!(Tag::new(&longest).unwrap().to_field(), longest.as_bytes());
        assert_eq!(Tag::new(&"x".repeat(37)), Err(TagError::TooLong(37)));
        assert_eq!(Tag::new("home").unwrap().to_field()[..5], *b"home\0");
    }
}
