//! XMP packets: kept, or replaced by an empty one of the same length.

use super::error::Result;
use super::extents::Extents;
use super::search::Search;
use super::words;

const EMPTY: &[u8] = b"<x:xmpmeta xmlns:x=\"adobe:ns:meta/\">\
<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\"/></x:xmpmeta>";
/// Where there is less room.
const EMPTY_SHORT: &[u8] = b"<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"/>";

/// Whether a packet may name a place. Packets that are not UTF-8 are not scanned.
pub(super) fn names_place(packet: &[u8]) -> bool {
    let padding = packet.iter().rev().take_while(|byte| **byte == 0).count();
    let packet = &packet[..packet.len() - padding];
    std::str::from_utf8(packet).is_err() || words::text_names_place(packet)
}

pub(super) fn empty_packet(length: usize) -> Vec<u8> {
    let mut packet = vec![b' '; length];
    let text = [EMPTY, EMPTY_SHORT]
        .into_iter()
        .find(|text| text.len() <= length);
    if let Some(text) = text {
        packet[..text.len()].copy_from_slice(text);
    }
    packet
}

impl Search<'_> {
    /// Scans a packet, and empties it if it may name a place.
    pub(super) fn xmp(&mut self, extents: &Extents) -> Result<()> {
        let packet = extents.read(&mut self.source)?;
        if names_place(&packet) {
            self.empty_xmp(extents, packet.len())?;
        }
        Ok(())
    }

    pub(super) fn empty_xmp(&mut self, extents: &Extents, length: usize) -> Result<()> {
        match extents.contiguous() {
            Some(range) if length >= EMPTY.len() => {
                self.edits.bytes(range.start, EMPTY)?;
                self.edits
                    .spaces(range.start + EMPTY.len() as u64..range.end)
            }
            _ => extents.replace(&mut self.edits, 0, &empty_packet(length)),
        }
    }
}
