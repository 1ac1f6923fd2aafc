//! Reads the arguments of one request in order: a structure, then names, strings and bytes. Never beyond
//! their end; what is left over at the end is an error.

use crate::name::Name;
use crate::parse_error::ParseErrorKind;
use std::ffi::CStr;
use zerocopy::FromBytes;

/// The bytes of a request's arguments, in the two pieces of io_uring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    structure: &'a [u8],
    rest: &'a [u8],
}

type Result<T> = std::result::Result<T, ParseErrorKind>;

impl<'a> Arguments<'a> {
    pub(crate) const fn new(structure: &'a [u8], rest: &'a [u8]) -> Arguments<'a> {
        Arguments { structure, rest }
    }

    /// The structure that the operation starts with.
    pub(crate) fn structure<T: FromBytes>(&mut self) -> Result<T> {
        let (value, _) =
            T::read_from_prefix(self.structure).map_err(|_| ParseErrorKind::TooShort {
                need: size_of::<T>(),
                got: self.structure.len(),
            })?;
        self.structure = &[];
        Ok(value)
    }

    /// A string, up to its NUL.
    pub(crate) fn string(&mut self) -> Result<&'a CStr> {
        let string =
            CStr::from_bytes_until_nul(self.rest).map_err(|_| ParseErrorKind::NoTerminator)?;
        self.rest = &self.rest[string.to_bytes_with_nul().len()..];
        Ok(string)
    }

    pub(crate) fn name(&mut self) -> Result<Name<'a>> {
        Name::new(self.string()?).map_err(|_| ParseErrorKind::BadName)
    }

    pub(crate) fn bytes(&mut self, count: u32) -> Result<&'a [u8]> {
        let count = count as usize;
        let (bytes, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(ParseErrorKind::TooShort {
                need: count,
                got: self.rest.len(),
            })?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn remainder(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Fails when something is left.
    pub(crate) const fn end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(ParseErrorKind::TrailingBytes(left)),
        }
    }
}
