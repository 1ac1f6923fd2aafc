//! Where the samples of a track lie: in chunks, each in one piece.

use super::boxes::{BoxAt, Fields};
use super::limits::RANGES_MAX;
use super::movie::Movie;
use super::search::Search;
use super::{RedactError, Result};
use std::ops::Range;

const BROKEN: RedactError = RedactError::Unparsable("a sample table");

/// Sizes of a track's samples.
enum Sizes {
    All { size: u64, count: u64 },
    Each(Vec<u32>),
}

impl Sizes {
    fn count(&self) -> u64 {
        match self {
            Sizes::All { count, .. } => *count,
            Sizes::Each(sizes) => sizes.len() as u64,
        }
    }

    /// Bytes of the samples from `first` on, `count` of them or fewer at the end.
    fn sum(&self, first: u64, count: u64) -> Option<u64> {
        let end = first.checked_add(count)?.min(self.count());
        match self {
            Sizes::All { size, .. } => end.saturating_sub(first).checked_mul(*size),
            Sizes::Each(sizes) => {
                let sizes = sizes.get(first as usize..end as usize)?;
                Some(sizes.iter().map(|size| u64::from(*size)).sum())
            }
        }
    }
}

impl Search<'_> {
    /// The chunks of a track, from the boxes of its sample table.
    pub(super) fn samples(&mut self, table: &[BoxAt], movie: &Movie) -> Result<Vec<Range<u64>>> {
        let offsets = self.chunk_offsets(table)?;
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let sizes = self.sizes(table)?;
        let runs = self.runs(table)?;
        let mut ranges = Vec::new();
        let mut sample = 0;
        let mut run = 0;
        for (index, offset) in offsets.iter().enumerate() {
            let chunk = index as u64 + 1;
            while runs.get(run + 1).is_some_and(|next| next.0 <= chunk) {
                run += 1;
            }
            let count = runs.get(run).ok_or(BROKEN)?.1;
            if sample >= sizes.count() {
                break;
            }
            let bytes = sizes.sum(sample, count).ok_or(BROKEN)?;
            sample = sample.checked_add(count).ok_or(BROKEN)?;
            ranges.push(movie.locate(*offset, bytes)?);
        }
        if sample < sizes.count() {
            return Err(RedactError::Unparsable("samples in no chunk"));
        }
        Ok(ranges)
    }

    fn table_box(&mut self, table: &[BoxAt], kind: &[u8; 4]) -> Result<Option<Vec<u8>>> {
        let mut found = table.iter().filter(|at| &at.kind == kind);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(at), None) => Ok(Some(self.source.bytes(at.body.clone())?)),
            (Some(_), Some(_)) => Err(RedactError::Unparsable("two tables of one kind")),
        }
    }

    fn chunk_offsets(&mut self, table: &[BoxAt]) -> Result<Vec<u64>> {
        let (body, width) = match (
            self.table_box(table, b"stco")?,
            self.table_box(table, b"co64")?,
        ) {
            (Some(body), None) => (body, 4),
            (None, Some(body)) => (body, 8),
            (None, None) => return Ok(Vec::new()),
            (Some(_), Some(_)) => return Err(RedactError::Unparsable("two tables of one kind")),
        };
        let mut fields = Fields::new(&body);
        fields.version()?;
        let count = bounded(fields.number(4)?, RANGES_MAX as u64)?;
        (0..count).map(|_| fields.number(width)).collect()
    }

    /// First chunk of each run, and how many samples its chunks have.
    fn runs(&mut self, table: &[BoxAt]) -> Result<Vec<(u64, u64)>> {
        let body = self.table_box(table, b"stsc")?.ok_or(BROKEN)?;
        let mut fields = Fields::new(&body);
        fields.version()?;
        let count = bounded(fields.number(4)?, RANGES_MAX as u64)?;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for _ in 0..count {
            let run = (fields.number(4)?, fields.number(4)?);
            fields.take(4)?;
            if run.0 == 0 || runs.last().is_some_and(|last| run.0 <= last.0) {
                return Err(BROKEN);
            }
            runs.push(run);
        }
        match runs.first() {
            Some((1, _)) => Ok(runs),
            _ => Err(BROKEN),
        }
    }

    fn sizes(&mut self, table: &[BoxAt]) -> Result<Sizes> {
        if let Some(body) = self.table_box(table, b"stsz")? {
            let mut fields = Fields::new(&body);
            fields.version()?;
            let (size, count) = (fields.number(4)?, fields.number(4)?);
            if size != 0 {
                return Ok(Sizes::All { size, count });
            }
            let count = bounded(count, (fields.rest().len() / 4) as u64)?;
            let sizes: Result<Vec<u32>> =
                (0..count).map(|_| Ok(fields.number(4)? as u32)).collect();
            return Ok(Sizes::Each(sizes?));
        }
        let body = self.table_box(table, b"stz2")?.ok_or(BROKEN)?;
        let mut fields = Fields::new(&body);
        fields.version()?;
        let bits = fields.number(4)? & 0xff;
        let count = bounded(fields.number(4)?, 2 * fields.rest().len() as u64)?;
        compact_sizes(bits, count, fields.rest())
    }
}

fn compact_sizes(bits: u64, count: u64, bytes: &[u8]) -> Result<Sizes> {
    let size = |index: u64| {
        let index = index as usize;
        match bits {
            4 => bytes.get(index / 2).map(|pair| {
                u32::from(if index.is_multiple_of(2) {
                    pair >> 4
                } else {
                    pair & 0xf
                })
            }),
            8 => bytes.get(index).map(|size| u32::from(*size)),
            16 => bytes
                .get(index * 2..index * 2 + 2)
                .map(|size| u32::from(u16::from_be_bytes([size[0], size[1]]))),
            _ => None,
        }
    };
    let sizes: Option<Vec<u32>> = (0..count).map(size).collect();
    Ok(Sizes::Each(sizes.ok_or(BROKEN)?))
}

fn bounded(count: u64, max: u64) -> Result<u64> {
    match count <= max {
        true => Ok(count),
        false => Err(RedactError::Unparsable("a table that is too long")),
    }
}
