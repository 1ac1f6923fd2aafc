//! Small sources, and what is found in them.
#![allow(clippy::unwrap_used)]

use super::*;

/// `file -> file: names` of a crate whose files are these; the first is its root.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned())
    };
    let modules = source::modules(Path::new(files[0].0), &read);
    let imports = imports_of(&modules).into_iter();
    let line = |((from, to), names): ((String, String), BTreeSet<String>)| {
        let names: Vec<String> = names.into_iter().collect();
        format!("{from} -> {to}: {}", names.join(" "))
    };
    imports.map(line).collect()
}

#[test]
fn imports_are_trees_names_and_paths() {
    let root = "mod a; mod b; mod c; pub struct Root;";
    let a = "use crate::{b::{self, One, Two as Three}, c::*, Root}; use std::fmt::{self, Display};
             fn f() { b::four(crate::b::Five::new::<b::Six>()); x.c::<u8>(); Vec::<crate::Root>::new() }";
    let files = [("lib.rs", root), ("a.rs", a), ("b.rs", ""), ("c.rs", "")];
    assert_eq!(
        found(&files),
        [
            "a.rs -> b.rs: Five One Six Two four",
            "a.rs -> c.rs: *",
            "a.rs -> lib.rs: Root"
        ]
    );
}

#[test]
fn children_and_parents_import_each_other() {
    let files = [
        ("main.rs", "mod a; fn main() { a::run() }"),
        ("a.rs", "mod b; mod c { use super::b::InLine; }"),
        ("a/b.rs", "mod d;"),
        (
            "a/b/d.rs",
            "use super::super::run; use self::inner::Own; mod inner { use super::super::made; }",
        ),
    ];
    assert_eq!(
        found(&files),
        [
            "a.rs -> a/b.rs: InLine",
            "a/b/d.rs -> a.rs: run",
            "a/b/d.rs -> a/b.rs: made",
            "main.rs -> a.rs: run"
        ]
    );
}

#[test]
fn a_reexport_leads_to_the_file_that_defines() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; mod log; pub use a::{Given, Used}; pub use log::log; fn f(_: Used) {}",
        ),
        (
            "a.rs",
            "pub(crate) use self::c::Deep; pub use parking_lot::Mutex; mod c;",
        ),
        ("a/c.rs", ""),
        (
            "b.rs",
            "use crate::{Given, log}; use crate::a::{Deep, Mutex as Lock}; fn f() { log(1) }",
        ),
        ("log.rs", ""),
    ];
    assert_eq!(
        found(&files),
        [
            "b.rs -> a.rs: Given Mutex",
            "b.rs -> a/c.rs: Deep",
            "lib.rs -> a.rs: Used"
        ]
    );
}

#[test]
fn comments_literals_and_tests_are_left_out() {
    let a = r##"
        // use crate::b::Line;
        /* use crate::b::Block; */
        const TEXT: &str = "use crate::b::Text; \" crate::b::Text";
        const RAW: &str = r#"crate::b::Raw " crate::b::Raw"#;
        const SIGNS: [char; 3] = ['"', '\'', '{'];
        fn f<'a>(_: &'a str) -> &'a str { concat!(b'"', crate::b::Counts) }
        macro_rules! m { ($x:expr) => { $crate::b::InMacro($x) } }
        #[cfg(test)] use crate::b::{InTest, Other};
        #[cfg(test)] fn g<A, B>() -> Vec<A> { crate::b::InTest }
        #[cfg(all(test, unix))] mod tests { use crate::b::InTest; }
        struct S { #[cfg(test)] x: crate::b::InTest<u8, u8>, y: crate::b::Field }
        #[cfg(not(test))] use crate::b::Without;
        #[cfg(test)] mod more;
    "##;
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", a),
        ("a/more.rs", "use crate::b::InTest;"),
        ("b.rs", ""),
    ];
    assert_eq!(
        found(&files),
        ["a.rs -> b.rs: Counts Field InMacro Without"]
    );
}

#[test]
fn modules_lie_where_rust_looks_for_them() {
    let files = [
        ("src/lib.rs", "mod a; mod inline { mod deep; }"),
        ("src/a/mod.rs", "mod b;"),
        ("src/a/b.rs", "use super::Y; use crate::inline::deep::Z;"),
        ("src/inline/deep.rs", ""),
    ];
    assert_eq!(
        found(&files),
        [
            "src/a/b.rs -> src/a/mod.rs: Y",
            "src/a/b.rs -> src/inline/deep.rs: Z"
        ]
    );
}

#[test]
fn a_circle_is_named() {
    let arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")];
    let names = || BTreeSet::from(["N".to_owned()]);
    let imports = arrows.map(|(from, to)| ((from.to_owned(), to.to_owned()), names()));
    let circle = "circle of 3 files:\n  a -> b: N\n  b -> c: N\n  c -> a: N";
    assert_eq!(circles(&Imports::from(imports)), [circle]);
    let open =
        arrows.map(|(from, to)| ((from.min(to).to_owned(), to.max(from).to_owned()), names()));
    assert!(circles(&Imports::from(open)).is_empty());
}

#[test]
fn dependencies_run_down() {
    let manifest = |name: &str, on: &str| {
        format!(
            "[package]\nname = \"{name}\"\n[dependencies]\nclap = \"4\"\n{on}.workspace = true\n"
        )
    };
    for (name, on, is_wrong) in [
        ("thrufs-cli", "thrufs-sys", false),
        ("thrufs-testing", "thrufs", false),
        ("thrufs-virtio", "thrufs-hostdir", true),
        ("thrufs", "thrufs-policy", true),
        ("thrufs-cli", "thrufs-bench", true),
        ("thrufs-client", "thrufs-bench", true),
        ("thrufs-cli", "thrufs-client", true),
    ] {
        let expected: &[String] = match is_wrong {
            true => &[format!("{name} -> {on}")],
            false => &[],
        };
        assert_eq!(direction::wrong(&manifest(name, on)), expected);
    }
    let dev = manifest("thrufs-cli", "thrufs-client").replace("[dep", "[dev-dep");
    assert_eq!(direction::wrong(&dev), [""; 0]);
}
