//! Bounds of the work for one file. A file beyond any of them counts as not understood.

/// Bytes of metadata read.
pub(super) const METADATA_BYTES_MAX: u64 = 64 << 20;
/// Bytes scanned for markers: the compressed data of JPEGs and what follows them.
pub(super) const SCAN_BYTES_MAX: u64 = 2 << 30;
/// Bytes that the second parser may read.
pub(super) const VERIFY_BYTES_MAX: u64 = 128 << 20;
/// Bytes of one block of metadata that is parsed in memory.
pub(super) const BLOCK_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a padding box that are read before it is emptied unseen.
pub(super) const PADDING_BYTES_MAX: u64 = 1 << 20;
/// Segments of a JPEG, with those of the images inside and behind it.
pub(super) const SEGMENTS_MAX: u32 = 1 << 16;
/// Chunks of a PNG or WebP.
pub(super) const CHUNKS_MAX: u32 = 1 << 18;
/// Boxes of a HEIF file.
pub(super) const BOXES_MAX: u32 = 1 << 18;
/// Items of a HEIF file.
pub(super) const ITEMS_MAX: u32 = 1 << 16;
/// Ranges in a plan, and pieces of items.
pub(super) const RANGES_MAX: usize = 1 << 18;
/// Bytes of replacement in a plan.
pub(super) const REPLACEMENT_BYTES_MAX: usize = 16 << 20;
/// Directories of one EXIF block.
pub(super) const DIRECTORIES_MAX: usize = 64;
/// Entries of one EXIF directory.
pub(super) const ENTRIES_MAX: usize = 4096;
/// Files, or what looks like files, in the bytes behind a JPEG.
pub(super) const TRAILING_FILES_MAX: u32 = 64;
/// Nesting of images.
pub(super) const DEPTH_MAX: u32 = 4;
