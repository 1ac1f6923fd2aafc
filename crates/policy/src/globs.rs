//! Patterns of paths: `path` and `caller-exe`.
//!
//! All patterns of all rules are one automaton, so that a path is matched in one pass. The result is the
//! sorted numbers of the matching patterns; a rule's own are two ranges of them.

use super::error::{Fault, Problem};
use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use std::cell::RefCell;
use std::ops::Range;

/// The longest pattern, in bytes: no path is longer.
pub const GLOB_BYTES_MAX: usize = 4096;
/// Most alternatives (`{`) in one pattern, which bounds how deep they nest.
pub const GLOB_BRACES_MAX: usize = 16;
/// Most patterns of one policy.
pub const GLOBS_MAX: usize = 16_384;

/// A rule's patterns: it matches if one of the first matches (or there are none), and none of the second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GlobList {
    wanted: Range<usize>,
    unwanted: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct GlobTable(GlobSet);

impl GlobTable {
    /// Runs `ask` with the patterns that match this path. A leading `/` is ignored.
    pub(super) fn with_matches<T>(
        &self,
        path: &[u8],
        look: impl FnOnce(&GlobMatches<'_>) -> T,
    ) -> T {
        thread_local! {
            /// Kept, so that nothing is allocated for a path.
            static MATCHED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        }
        if self.0.is_empty() {
            return look(&GlobMatches(&[]));
        }
        let path = path.strip_prefix(b"/").unwrap_or(path);
        // Another table may be asked during `ask`.
        let mut matched = MATCHED.take();
        self.0
            .matches_candidate_into(&Candidate::from_bytes(path), &mut matched);
        let answer = look(&GlobMatches(&matched));
        MATCHED.replace(matched);
        answer
    }
}

/// The sorted numbers of the patterns that match a path.
#[derive(Debug)]
pub(super) struct GlobMatches<'a>(&'a [usize]);

impl GlobMatches<'_> {
    pub(super) fn contains(&self, list: &GlobList) -> bool {
        let is_in = |range: &Range<usize>| {
            let first = self.0.partition_point(|&matched| matched < range.start);
            self.0
                .get(first)
                .is_some_and(|matched| range.contains(matched))
        };
        (list.wanted.is_empty() || is_in(&list.wanted)) && !is_in(&list.unwanted)
    }
}

/// The text of one rule's patterns, checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    wanted: Vec<Glob>,
    unwanted: Vec<Glob>,
    ignore_case: bool,
}

impl Patterns {
    /// Adds a pattern; with a leading `!`, as an exception.
    pub(super) fn add(&mut self, item: &str, ignore_case: bool) -> Result<(), Problem> {
        self.ignore_case = ignore_case;
        match item.strip_prefix('!') {
            Some(item) => self.unwanted.push(glob(item, ignore_case)?),
            None => self.wanted.push(glob(item, ignore_case)?),
        }
        Ok(())
    }

    /// Whether the pattern that was added last ignores case.
    pub(super) fn ignore_case(&self) -> bool {
        self.ignore_case
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len() + self.unwanted.len()
    }

    pub(super) fn texts(&self) -> (Vec<&str>, Vec<&str>) {
        fn texts(globs: &[Glob]) -> Vec<&str> {
            globs.iter().map(Glob::glob).collect()
        }
        (texts(&self.wanted), texts(&self.unwanted))
    }
}

#[derive(Debug, Default)]
pub(super) struct GlobTableBuilder {
    globs: Vec<Glob>,
}

impl GlobTableBuilder {
    /// Adds a rule's patterns, with higher numbers than those of earlier rules.
    pub(super) fn add(&mut self, patterns: &Patterns) -> GlobList {
        let mut append = |globs: &[Glob]| {
            let start = self.globs.len();
            self.globs.extend_from_slice(globs);
            start..self.globs.len()
        };
        GlobList {
            wanted: append(&patterns.wanted),
            unwanted: append(&patterns.unwanted),
        }
    }

    pub(super) fn build(self) -> Result<GlobTable, Fault> {
        let mut builder = GlobSetBuilder::new();
        for glob in self.globs {
            builder.add(glob);
        }
        let set = builder.build();
        let too_much = |_| {
            let message =
                "all patterns together are too much: use fewer, or such with fewer wildcards";
            Fault::new(0, message)
        };
        set.map(GlobTable).map_err(too_much)
    }
}

fn glob(pattern: &str, ignore_case: bool) -> Result<Glob, Problem> {
    if pattern.len() > GLOB_BYTES_MAX {
        return Err(format!("a pattern has at most {GLOB_BYTES_MAX} bytes"));
    }
    if pattern.matches('{').count() > GLOB_BRACES_MAX {
        return Err(format!(
            "a pattern has at most {GLOB_BRACES_MAX} times `{{`"
        ));
    }
    if pattern.contains('\0') {
        return Err("no path has a NUL in it".to_owned());
    }
    let relative = pattern.strip_prefix('/').unwrap_or(pattern);
    if pattern.is_empty() {
        return Err("an empty pattern matches nothing; the root itself is `/`".to_owned());
    }
    if let Some(directory) = relative.strip_suffix('/') {
        return Err(format!(
            "`{pattern}` matches nothing, for no path ends with /: say `{directory}` for the \
             directory itself, `{directory}/**` for what is in it"
        ));
    }
    let components = relative.split('/').filter(|_| !relative.is_empty());
    if let Some(bad) = components
        .into_iter()
        .find(|part| matches!(*part, "" | "." | ".."))
    {
        return Err(format!(
            "`{pattern}` matches nothing, for no path has `/{bad}/` in it"
        ));
    }
    GlobBuilder::new(relative)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(ignore_case)
        .build()
        .map_err(|error| format!("`{pattern}` is no pattern: {}", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lists: &[&[&str]]) -> (GlobTable, Vec<GlobList>) {
        let mut builder = GlobTableBuilder::default();
        let lists = lists.iter().map(|list| {
            let mut patterns = Patterns::default();
            list.iter()
                .for_each(|item| patterns.add(item, false).unwrap());
            builder.add(&patterns)
        });
        let lists = lists.collect();
        (builder.build().unwrap(), lists)
    }

    fn matches(list: &[&str], path: &[u8]) -> bool {
        // Patterns of other rules before and after.
        let (table, lists) = table(&[&["**", "!x"], list, &["**", "!**"]]);
        table.with_matches(path, |matched| matched.contains(&lists[1]))
    }

    #[test]
    fn glob_matches() {
        for (list, path, expected) in [
            (&["*.jpg"][..], &b"a.jpg"[..], true),
            (&["*.jpg"], b"d/a.jpg", false),
            (&["**/*.jpg"], b"a.jpg", true),
            (&["**/*.jpg"], b"d/e/a.jpg", true),
            (&["/d/*"], b"d/a", true),
            (&["d/*"], b"/d/a", true),
            (&["d/*"], b"d/e/a", false),
            (&["d/**"], b"d/e/a", true),
            (&["d/**"], b"d/.hidden", true),
            (&["d/**"], b"d", false),
            (&["d", "d/**"], b"d", true),
            (&["**"], b"", true),
            (&["/"], b"", true),
            (&["/"], b"a", false),
            (&["d/**", "!d/e/**"], b"d/a", true),
            (&["d/**", "!d/e/**"], b"d/e/a", false),
            (&["!d/**"], b"e", true),
            (&["!d/**"], b"d/a", false),
            (&["{a,b}/[0-9]?"], b"b/7x", true),
            (&["d/*"], b"d/\xff\xfe", true),
            (&["d/?"], b"d/\xff", true),
            (&["\\!d"], b"!d", true),
            (&["A"], b"a", false),
        ] {
            assert_eq!(matches(list, path), expected, "{list:?} {path:?}");
        }
    }

    #[test]
    fn glob_can_ignore_case() {
        let mut patterns = Patterns::default();
        patterns.add("**/*.jpg", true).unwrap();
        let mut builder = GlobTableBuilder::default();
        let list = builder.add(&patterns);
        let table = builder.build().unwrap();
        assert!(table.with_matches(b"DCIM/IMG.JPG", |matched| matched.contains(&list)));
    }

    #[test]
    fn glob_tables_can_be_nested() {
        let (table, lists) = table(&[&["a"], &["b"]]);
        table.with_matches(b"a", |outer| {
            assert!(table.with_matches(b"b", |inner| inner.contains(&lists[1])));
            assert!(outer.contains(&lists[0]) && !outer.contains(&lists[1]));
        });
    }

    #[test]
    fn globs_that_match_nothing_are_refused() {
        let long = "a".repeat(GLOB_BYTES_MAX + 1);
        let deep = "{".repeat(GLOB_BRACES_MAX + 1) + &"}".repeat(GLOB_BRACES_MAX + 1);
        for pattern in [
            "", "!", "d/", "//d", "a//b", "./a", "a/../b", "a/.", "[", "{a", "a\\", "a\0", &long,
            &deep,
        ] {
            assert!(
                Patterns::default().add(pattern, false).is_err(),
                "{pattern}"
            );
        }
        let allowed = "{".repeat(GLOB_BRACES_MAX) + "a" + &"}".repeat(GLOB_BRACES_MAX);
        assert!(Patterns::default().add(&allowed, false).is_ok());
        assert!(Patterns::default().add(&long[1..], false).is_ok());
    }
}
