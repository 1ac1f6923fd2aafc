//! The structure that a change must keep: within a crate no circle of files, imports between crates in one
//! direction, no file over 800 lines, no more lines than [`budget`] allows.
//!
//! A file imports another when it names something that the other defines, also a child module or the parent.
//! A re-export is followed to the file that defines, and is no import itself. Methods have no paths: a call
//! of one is not seen, but the type is named somewhere.

mod budget;
mod direction;
mod source;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::project;
use source::Module;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const BUDGET: &str = "budget.toml";
const LINES_MAX: usize = 800;
/// Imports that are followed to a definition: `use log::log` leads to itself.
const HOPS_MAX: usize = 16;

/// What each file takes from each other.
type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// Other files by file.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn run() -> Result<(), Failure> {
    let mut faults = Vec::new();
    let mut imports = Imports::new();
    let mut lengths = BTreeMap::new();
    for file in &project::tree(&|name| name.ends_with(".rs") || name == "Cargo.toml")? {
        let name = relative(file);
        let text = fs::read_to_string(file).map_err(Failure::of(file))?;
        if name.ends_with("Cargo.toml") {
            faults.extend(direction::wrong(&text));
            continue;
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{name}: {lines} lines, {LINES_MAX} are allowed"));
        }
        lengths.insert(name, lines);
        if is_crate_root(file) {
            let read = |path: &Path| fs::read_to_string(path).ok();
            imports.append(&mut imports_of(&source::modules(file, &read)));
        }
    }
    faults.extend(circles(&imports));
    let path = project::root().join(BUDGET);
    let budget = fs::read_to_string(&path).map_err(Failure::of(&path))?;
    faults.extend(budget::exceeded(&budget, &lengths));
    match faults.as_slice() {
        [] => Ok(()),
        _ => Err(Failure::new(faults.join("\n"))),
    }
}

fn relative(path: &Path) -> String {
    let path = path.strip_prefix(project::root()).unwrap_or(path);
    path.to_string_lossy().into_owned()
}

fn is_crate_root(file: &Path) -> bool {
    let directory = file.parent().unwrap_or(file);
    file.ends_with("src/lib.rs") || file.ends_with("src/main.rs") || directory.ends_with("src/bin")
}

/// What the files of one crate take from each other.
fn imports_of(modules: &[Module]) -> Imports {
    let mut found = Imports::new();
    for (at, module) in modules.iter().enumerate() {
        let imports = module.imports.iter().filter(|import| !import.is_public);
        let paths = imports.map(|import| &import.path).chain(&module.paths);
        for (from, name) in paths.filter_map(|path| definition(modules, at, path, 0)) {
            let (file, from) = (relative(&module.file), relative(&modules[from].file));
            if file != from {
                found.entry((file, from)).or_default().insert(name);
            }
        }
    }
    found
}

/// The module that defines what a path in the module `at` names, and its name there. None for modules
/// themselves; what other crates define counts for the module that hands it on.
fn definition(
    modules: &[Module],
    at: usize,
    path: &[String],
    hops: usize,
) -> Option<(usize, String)> {
    let (name, rest) = path.split_first()?;
    let module = &modules[at];
    let next = match name.as_str() {
        "crate" => Some(0),
        "self" => Some(at),
        "super" => Some(module.parent),
        name => module.children.get(name).copied(),
    };
    if let Some(next) = next {
        return definition(modules, next, rest, hops);
    }
    let here = Some((at, name.clone()));
    let import = module.imports.iter().find(|import| import.name == *name);
    let Some(import) = import.filter(|_| hops < HOPS_MAX) else {
        return here;
    };
    let path = [&import.path, rest].concat();
    let found = definition(modules, at, &path, hops + 1);
    match found {
        Some((module, _)) if module == at => here,
        _ => found,
    }
}

/// The circles of files, each with the imports that close it.
fn circles(imports: &Imports) -> Vec<String> {
    let mut graph = Graph::new();
    for (from, to) in imports.keys() {
        graph.entry(from).or_default().insert(to);
    }
    let beyond = graph.keys().map(|file| (*file, reached(&graph, file)));
    let beyond: Graph = beyond.collect();
    let leads = |from: &str, to: &str| beyond.get(from).is_some_and(|files| files.contains(to));
    let mut lines: BTreeMap<Vec<&str>, String> = BTreeMap::new();
    for ((from, to), names) in imports.iter().filter(|((from, to), _)| leads(to, from)) {
        let members = beyond.keys().copied();
        let members = members.filter(|file| leads(file, to) && leads(to, file));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let line = format!("\n  {from} -> {to}: {}", names.join(", "));
        *lines.entry(members.collect()).or_default() += &line;
    }
    let circle =
        |(files, lines): (Vec<&str>, String)| format!("circle of {} files:{lines}", files.len());
    lines.into_iter().map(circle).collect()
}

/// The files that one of them imports, directly or not.
fn reached<'a>(graph: &Graph<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut left = vec![from];
    while let Some(file) = left.pop() {
        let next = graph.get(file).into_iter().flatten();
        left.extend(next.filter(|file| found.insert(**file)));
    }
    found
}
