//! Suggests the word that was probably meant.

use super::error::Problem;

/// The message for an unknown word: the nearest known one, or else how to find one.
pub(super) fn unknown(
    what: &str,
    word: &str,
    known: impl IntoIterator<Item = &'static str>,
    otherwise: &str,
) -> Problem {
    match nearest(word, known) {
        Some(meant) => format!("unknown {what} `{word}`: did you mean `{meant}`?"),
        None => format!("unknown {what} `{word}`: {otherwise}"),
    }
}

/// The value of a word in a table, or the message for an unknown one: `all` and all known words.
pub(super) fn named<T: Copy>(
    what: &str,
    word: &str,
    table: &[(&'static str, T)],
    all: &str,
) -> Result<T, Problem> {
    if let Some((_, value)) = table.iter().find(|(name, _)| *name == word) {
        return Ok(*value);
    }
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    let all = format!("{all}{}", names.join(", "));
    Err(unknown(what, word, names, &all))
}

/// The longest word that is compared with others.
const WORD_BYTES_MAX: usize = 64;

/// The known word that was probably meant: the one that differs least, in at most a third of its letters. Case,
/// and `-` or `_`, do not count.
pub fn nearest(word: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let folded = |word: &str| word.to_ascii_lowercase().replace('_', "-");
    let given = folded(word);
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&given, &folded(known)), known))
        .filter(|(distance, known)| *distance <= known.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_suggested_for_typos_only() {
        let known = ["path", "caller-uid"];
        assert_eq!(nearest("pth", known), Some("path"));
        assert_eq!(nearest("caller_uid", known), Some("caller-uid"));
        assert_eq!(nearest("Path", known), Some("path"));
        assert_eq!(nearest("alow-other", ["allow_other"]), Some("allow_other"));
        assert_eq!(nearest("or", ["rw", "ro"]), Some("ro"));
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest(&"path".repeat(100), known), None);
    }
}
