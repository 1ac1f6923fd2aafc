//! The TIFF structure of an EXIF block: finds the GPS directories and how to remove them.
//!
//! A directory that points to GPS is rewritten without that entry: the following entries move up, the count
//! is one less, and the end is zeroed. No value moves. The GPS directory and its values are zeroed.
//!
//! Hostile blocks have directories in loops, shared by two pointers, or overlapping. So all that stays is
//! recorded; if something that is removed overlaps it, the block is refused. The result is walked again and
//! must be free of GPS.

use super::error::{RedactError, Result, ensure, refuse};
use super::limits::{DIRECTORIES_MAX, ENTRIES_MAX};
use std::collections::BTreeMap;
use std::ops::Range;

const SUB_DIRECTORIES: u16 = 0x014a;
/// Where images inside the block are, and how long: as JPEG, or as a strip.
const THUMBNAILS: [(u16, u16); 2] = [(0x0201, 0x0202), (0x0111, 0x0117)];
/// The type of offsets of directories.
const DIRECTORY: u16 = 13;
const XMP: u16 = 0x02bc;
const EXIF: u16 = 0x8769;
const GPS: u16 = 0x8825;
/// Kodak's, which needs not have the type of offsets.
const KODAK: u16 = 0x8290;
/// TIFF/FX.
const GLOBAL_PARAMETERS: u16 = 0x0190;
const INTEROPERABILITY: u16 = 0xa005;
/// Padding as Windows writes it: an entry without meaning.
const PADDING: u16 = 0xea1c;
/// GeoTIFF: the position of a map.
const GEO: [u16; 8] = [
    0x830e, 0x8480, 0x8482, 0x85d8, 0x87af, 0x87b0, 0x87b1, 0x87b2,
];
/// Comments, and texts that Windows writes.
const TEXTS: [u16; 6] = [0x9286, 0x9c9b, 0x9c9c, 0x9c9d, 0x9c9e, 0x9c9f];
const ENTRY_BYTES: usize = 12;
/// Bytes of values that are searched, in addition to some times those of the block.
const SEARCHED_MAX: u64 = 1 << 20;
/// Byte order, magic number, and the offset of the first directory.
const HEADER: Range<usize> = 0..8;

fn is_text(kind: u16, tag: u16) -> bool {
    matches!(kind, 2 | 129) || TEXTS.contains(&tag)
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    /// To be zeroed.
    pub(super) zeros: Vec<Range<usize>>,
    /// Rewritten directories.
    pub(super) tables: Vec<(usize, Vec<u8>)>,
    pub(super) packets: Vec<Range<usize>>,
    /// Texts and comments.
    pub(super) texts: Vec<Range<usize>>,
    /// Other values: maker notes, records of Photoshop and IPTC.
    pub(super) notes: Vec<Range<usize>>,
    /// What may be values of unknown type.
    pub(super) unknown: Vec<Range<usize>>,
    /// Images inside the block.
    pub(super) thumbnails: Vec<Range<usize>>,
}

/// Walks an EXIF block, which begins with the TIFF header.
pub(super) fn walk(bytes: &[u8]) -> Result<Findings> {
    let findings = Walk::new(bytes)?.run()?;
    if !findings.zeros.is_empty() || !findings.tables.is_empty() {
        let mut redacted = bytes.to_vec();
        findings.apply(&mut redacted);
        let again = Walk::new(&redacted)?.run()?;
        ensure(
            again.zeros.is_empty() && again.tables.is_empty(),
            "directories that depend on each other",
        )?;
    }
    Ok(findings)
}

impl Findings {
    /// Patches a copy of the block.
    fn apply(&self, bytes: &mut [u8]) {
        for range in &self.zeros {
            bytes[range.clone()].fill(0);
        }
        for (start, table) in &self.tables {
            bytes[*start..*start + table.len()].copy_from_slice(table);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In the chain that begins in the header.
    Main,
    /// Pointed to by an entry.
    Sub,
    Gps,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    tag: u16,
    kind: u16,
    count: u32,
    /// The value or its offset, as a number in the block's byte order.
    word: u32,
}

impl Entry {
    /// Bytes of the value; `None` for an unknown type.
    fn size(&self) -> Option<usize> {
        let each = match self.kind {
            1 | 2 | 6 | 7 | 129 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16..=18 => 8,
            _ => return None,
        };
        (self.count as usize).checked_mul(each)
    }

    fn outside(&self) -> Option<Range<usize>> {
        self.outside_with(self.size()?)
    }

    fn outside_with(&self, size: usize) -> Option<Range<usize>> {
        let start = self.word as usize;
        (size > 4).then(|| start..start.saturating_add(size))
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    big: bool,
    todo: Vec<(usize, Kind)>,
    seen: BTreeMap<usize, Kind>,
    kept: Vec<Range<usize>>,
    findings: Findings,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let big = match bytes.get(..4) {
            Some(b"II*\0") => false,
            Some(b"MM\0*") => true,
            _ => return refuse("an EXIF block without a TIFF header"),
        };
        let mut walk = Self {
            bytes,
            big,
            todo: Vec::new(),
            seen: BTreeMap::new(),
            kept: Vec::from([HEADER]),
            findings: Findings::default(),
        };
        let first = walk.u32(4)? as usize;
        walk.todo.push((first, Kind::Main));
        Ok(walk)
    }

    fn run(mut self) -> Result<Findings> {
        while let Some((at, kind)) = self.todo.pop() {
            if let Some(before) = self.seen.insert(at, kind) {
                let is_shared = (before == Kind::Gps) != (kind == Kind::Gps);
                ensure(!is_shared, "a shared directory")?;
                continue;
            }
            ensure(self.seen.len() <= DIRECTORIES_MAX, "too many directories")?;
            match kind {
                Kind::Gps => self.gps(at)?,
                Kind::Main | Kind::Sub => self.ordinary(at, kind)?,
            }
        }
        self.check_overlap()?;
        let findings = &self.findings;
        let all = [
            &findings.packets,
            &findings.texts,
            &findings.notes,
            &findings.unknown,
            &findings.thumbnails,
        ];
        let all = all.into_iter().flatten().map(|range| range.len() as u64);
        // Each is searched.
        let most = SEARCHED_MAX + 4 * self.bytes.len() as u64;
        ensure(all.sum::<u64>() <= most, "values that share their bytes")?;
        Ok(self.findings)
    }

    /// The bytes of a number in the block's order, or from it to that of `from_be_bytes`.
    fn in_order<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if !self.big {
            bytes.reverse();
        }
        bytes
    }

    fn number<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        let outside = RedactError::Unparsable("an EXIF directory outside its block");
        bytes.map(|bytes| self.in_order(*bytes)).ok_or(outside)
    }

    fn u16(&self, at: usize) -> Result<u16> {
        self.number(at).map(u16::from_be_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32> {
        self.number(at).map(u32::from_be_bytes)
    }

    fn entries(&self, at: usize) -> Result<Vec<Entry>> {
        let count = usize::from(self.u16(at)?);
        ensure(count <= ENTRIES_MAX, "too many entries in a directory")?;
        (0..count)
            .map(|index| {
                let at = at + 2 + index * ENTRY_BYTES;
                Ok(Entry {
                    at,
                    tag: self.u16(at)?,
                    kind: self.u16(at + 2)?,
                    count: self.u32(at + 4)?,
                    word: self.u32(at + 8)?,
                })
            })
            .collect()
    }

    /// Only what is in the block can be read.
    fn inside(&self, range: Range<usize>) -> Option<Range<usize>> {
        (range.end <= self.bytes.len() && range.start < range.end).then_some(range)
    }

    /// Some readers read values that are cut off.
    fn clipped(&self, range: Range<usize>) -> Option<Range<usize>> {
        self.inside(range.start..range.end.min(self.bytes.len()))
    }

    fn gps(&mut self, at: usize) -> Result<()> {
        let entries = self.entries(at)?;
        self.zero(at..at + 2 + entries.len() * ENTRY_BYTES)?;
        for entry in entries {
            ensure(entry.size().is_some(), "a GPS entry of unknown type")?;
            if let Some(range) = entry.outside() {
                self.zero(range)?;
            }
        }
        Ok(())
    }

    fn zero(&mut self, range: Range<usize>) -> Result<()> {
        let inside = self.inside(range);
        let range = inside.ok_or(RedactError::Unparsable("a GPS value outside its block"))?;
        self.findings.zeros.push(range);
        Ok(())
    }

    fn ordinary(&mut self, at: usize, kind: Kind) -> Result<()> {
        let entries = self.entries(at)?;
        let end = at + 2 + entries.len() * ENTRY_BYTES;
        self.kept.push(at..end);
        let mut staying = Vec::new();
        for entry in &entries {
            if self.stays(entry)? {
                staying.push(*entry);
            }
        }
        self.thumbnail(&entries)?;
        // Some writers leave out the last pointer at the end of a block.
        let next = self.u32(end).ok();
        let onward = next.map_or(0, |next| next as usize);
        if kind == Kind::Main && onward != 0 && onward < self.bytes.len() {
            self.todo.push((onward, Kind::Main));
        }
        if staying.len() < entries.len() {
            let table = self.table(&staying, entries.len(), next);
            self.findings.tables.push((at, table));
        }
        Ok(())
    }

    /// Scans an entry of an ordinary directory; returns whether it stays.
    fn stays(&mut self, entry: &Entry) -> Result<bool> {
        match entry.tag {
            GPS => {
                let pointer = self.pointer(entry)?;
                if pointer != 0 {
                    self.todo.push((pointer, Kind::Gps));
                }
                return Ok(false);
            }
            tag if GEO.contains(&tag) => {
                if let Some(range) = entry.outside().and_then(|range| self.clipped(range)) {
                    self.findings.zeros.push(range);
                }
                return Ok(false);
            }
            EXIF | INTEROPERABILITY => {
                let pointer = self.pointer(entry)?;
                self.todo.push((pointer, Kind::Sub));
            }
            SUB_DIRECTORIES | KODAK | GLOBAL_PARAMETERS => self.sub_directories(entry)?,
            _ if entry.kind == DIRECTORY => self.sub_directories(entry)?,
            _ => {}
        }
        let outside = entry.outside();
        self.kept
            .extend(outside.clone().and_then(|range| self.inside(range)));
        if let Some(range) = outside.and_then(|range| self.clipped(range)) {
            match entry.tag {
                XMP => self.findings.packets.push(range),
                tag if is_text(entry.kind, tag) => self.findings.texts.push(range),
                _ => self.findings.notes.push(range),
            }
        }
        if entry.size().is_none() {
            let longest = entry.outside_with((entry.count as usize).saturating_mul(8));
            let range = longest.and_then(|range| self.clipped(range));
            self.findings.unknown.extend(range);
        }
        Ok(true)
    }

    /// The offset to which an entry points.
    fn pointer(&self, entry: &Entry) -> Result<usize> {
        match (entry.kind, entry.count) {
            (4 | 13, 1) => Ok(entry.word as usize),
            (3, 1) => Ok(usize::from(self.u16(entry.at + 8)?)),
            _ => refuse("a pointer to a directory that is none"),
        }
    }

    fn sub_directories(&mut self, entry: &Entry) -> Result<()> {
        ensure(
            entry.count as usize <= DIRECTORIES_MAX,
            "too many directories",
        )?;
        match entry.outside() {
            Some(range) if matches!(entry.kind, 4 | 13) => {
                for at in range.step_by(4) {
                    let pointer = self.u32(at)? as usize;
                    self.todo.push((pointer, Kind::Sub));
                }
            }
            _ => {
                let pointer = self.pointer(entry)?;
                self.todo.push((pointer, Kind::Sub));
            }
        }
        Ok(())
    }

    fn thumbnail(&mut self, entries: &[Entry]) -> Result<()> {
        for (place, length) in THUMBNAILS {
            for tag in [place, length] {
                let same = entries.iter().filter(|entry| entry.tag == tag).count();
                ensure(same < 2, "two thumbnails in a directory")?;
            }
            let find = |tag| entries.iter().find(|entry| entry.tag == tag);
            let (Some(place), Some(length)) = (find(place), find(length)) else {
                continue;
            };
            // One that is cut off at the end of its block, or has a length of an odd type, can still be read.
            let length = self.pointer(length).unwrap_or(usize::MAX);
            let start = match self.pointer(place) {
                Ok(start) => start,
                Err(_) if place.tag == THUMBNAILS[0].0 => place.word as usize,
                Err(_) => continue,
            };
            let all = start..start.saturating_add(length);
            // Strips are of the picture that the block was taken from, or stale.
            if place.tag == THUMBNAILS[0].0 {
                self.kept.extend(self.inside(all.clone()));
            }
            self.findings.thumbnails.extend(self.clipped(all));
        }
        Ok(())
    }

    /// A directory with the entries that stay, as long as before.
    fn table(&self, staying: &[Entry], before: usize, next: Option<u32>) -> Vec<u8> {
        let mut table = Vec::with_capacity(2 + before * ENTRY_BYTES + 4);
        let number = |value: u16| self.in_order(value.to_be_bytes());
        let word = |value: u32| self.in_order(value.to_be_bytes());
        // A directory has one entry at least.
        table.extend(number(staying.len().max(1) as u16));
        for entry in staying {
            table.extend(&self.bytes[entry.at..entry.at + ENTRY_BYTES]);
        }
        if staying.is_empty() {
            table.extend(number(PADDING));
            table.extend(number(7));
            table.extend(word(4));
            table.extend(word(0));
        }
        table.extend(next.map(word).unwrap_or_default());
        table.resize(2 + before * ENTRY_BYTES + next.map_or(0, |_| 4), 0);
        table
    }

    /// What is removed must not overlap what stays.
    fn check_overlap(&mut self) -> Result<()> {
        self.kept.sort_by_key(|range| range.start);
        let ends = self.kept.iter().scan(0, |furthest, range| {
            *furthest = range.end.max(*furthest);
            Some(*furthest)
        });
        let ends: Vec<usize> = ends.collect();
        for zero in &self.findings.zeros {
            let before = self.kept.partition_point(|kept| kept.start < zero.end);
            let is_apart = before == 0 || ends[before - 1] <= zero.start;
            ensure(is_apart, "GPS data that other data share")?;
        }
        Ok(())
    }
}
