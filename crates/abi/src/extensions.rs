//! Extensions of a creation's arguments: security labels and a group.

use crate::layout::{ExtHeader, Secctx, SecctxHeader, SuppGroups};
use crate::parse_error::ParseErrorKind;
use std::ffi::CStr;
use zerocopy::FromBytes;

/// The largest count of security labels (`FUSE_MAX_NR_SECCTX`). An extension's type up to here is that
/// count.
const SECURITY_CONTEXTS_MAX: u32 = 31;
/// The type of the extension with supplementary groups (`FUSE_EXT_GROUPS`).
const GROUPS: u32 = 32;

/// The extensions of a request, checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    security_context: Option<(&'a CStr, &'a [u8])>,
    supplementary_group: Option<u32>,
}

impl<'a> Extensions<'a> {
    /// Name and value of the security label for the new file, the first if there are several.
    #[must_use]
    pub const fn security_context(&self) -> Option<(&'a CStr, &'a [u8])> {
        self.security_context
    }

    /// The caller's supplementary group that owns the parent.
    #[must_use]
    pub const fn supplementary_group(&self) -> Option<u32> {
        self.supplementary_group
    }

    pub(crate) fn parse(mut bytes: &'a [u8]) -> Result<Extensions<'a>, ParseErrorKind> {
        let mut extensions = Extensions::default();
        while !bytes.is_empty() {
            let (header, _) =
                ExtHeader::read_from_prefix(bytes).map_err(|_| ParseErrorKind::BadExtension)?;
            let size = header.size as usize;
            if size < size_of::<ExtHeader>() || !size.is_multiple_of(8) {
                return Err(ParseErrorKind::BadExtension);
            }
            let (record, rest) = bytes
                .split_at_checked(size)
                .ok_or(ParseErrorKind::BadExtension)?;
            match header.kind {
                0..=SECURITY_CONTEXTS_MAX => extensions.take_security_contexts(record)?,
                GROUPS => extensions.take_groups(&record[size_of::<ExtHeader>()..])?,
                // Skips unknown kinds by their size.
                _ => {}
            }
            bytes = rest;
        }
        Ok(extensions)
    }

    fn take_security_contexts(&mut self, record: &'a [u8]) -> Result<(), ParseErrorKind> {
        let bad = ParseErrorKind::BadExtension;
        let (header, mut rest) = SecctxHeader::read_from_prefix(record).map_err(|_| bad)?;
        for _ in 0..header.nr_secctx {
            let (context, after) = Secctx::read_from_prefix(rest).map_err(|_| bad)?;
            let name = CStr::from_bytes_until_nul(after).map_err(|_| bad)?;
            let after = &after[name.to_bytes_with_nul().len()..];
            let (value, after) = after.split_at_checked(context.size as usize).ok_or(bad)?;
            self.security_context.get_or_insert((name, value));
            // The next one starts at a multiple of eight bytes; the record may end before it.
            let used = rest.len() - after.len();
            let aligned = used.next_multiple_of(8);
            rest = rest.get(aligned..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn take_groups(&mut self, record: &'a [u8]) -> Result<(), ParseErrorKind> {
        let bad = ParseErrorKind::BadExtension;
        let (header, rest) = SuppGroups::read_from_prefix(record).map_err(|_| bad)?;
        let bytes = (header.nr_groups as usize).checked_mul(4).ok_or(bad)?;
        let groups = rest.get(..bytes).ok_or(bad)?;
        if let Ok((group, _)) = u32::read_from_prefix(groups) {
            self.supplementary_group = Some(group);
        }
        Ok(())
    }
}
