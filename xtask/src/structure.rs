//! The structure that a change must keep: within a crate no circle of files, imports between crates in one
//! direction, no file over 800 lines, no more lines than [`budget`] allows. `structure.known` lists what is not so yet; it may only shrink.
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
use std::path::{Path, PathBuf};

const KNOWN: &str = "xtask/structure.known";
const BUDGET: &str = "budget.toml";
const LINES_MAX: usize = 800;
/// Imports that are followed to a definition: `use log::log` leads to itself.
const HOPS_MAX: usize = 16;

/// What each file takes from each other.
type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// Other files by file.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn run() -> Result<(), Failure> {
    let known_path = project::root().join(KNOWN);
    let known = fs::read_to_string(&known_path).map_err(Failure::of(&known_path))?;
    let known = known.lines().filter(|line| !line.starts_with('#'));
    let mut known: BTreeSet<&str> = known.collect();
    let mut faults = Vec::new();
    let mut imports = Imports::new();
    let mut lengths = BTreeMap::new();
    let files = files(project::root())?;
    for file in &files {
        let name = relative(file);
        let text = || fs::read_to_string(file).map_err(Failure::of(file));
        if name.ends_with("Cargo.toml") {
            let wrong = direction::wrong(&text()?);
            faults.extend(wrong.into_iter().filter(|it| !known.remove(it.as_str())));
            continue;
        }
        let lines = text()?.lines().count();
        if lines > LINES_MAX && !known.remove(name.as_str()) {
            faults.push(format!("{name}: {lines} lines, {LINES_MAX} are allowed"));
        }
        lengths.insert(name, lines);
        if is_crate_root(file) {
            let read = |path: &Path| fs::read_to_string(path).ok();
            imports.append(&mut imports_of(&source::modules(file, &read)));
        }
    }
    faults.extend(circles(&imports, &mut known));
    let path = project::root().join(BUDGET);
    let budget = fs::read_to_string(&path).map_err(Failure::of(&path))?;
    faults.extend(budget::exceeded(&budget, &lengths));
    let stale = known
        .iter()
        .map(|line| format!("{line}: is no longer so: remove the line from {KNOWN}"));
    faults.extend(stale);
    match faults.as_slice() {
        [] => Ok(()),
        _ => Err(Failure::new(faults.join("\n"))),
    }
}

/// All Rust sources and manifests.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(Failure::of(directory))? {
        let path = entry.map_err(Failure::of(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.append(&mut files(&path)?);
        } else if name.ends_with(".rs") || name == "Cargo.toml" {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
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

/// The circles that are left without the imports that are known. Those of `known` that close none stay in it.
fn circles(imports: &Imports, known: &mut BTreeSet<&str>) -> Vec<String> {
    let all = imports
        .keys()
        .map(|(from, to)| (from.as_str(), to.as_str()));
    let is_known = |(from, to): &(&str, &str)| known.contains(key(from, to).as_str());
    let (excused, arrows): (Vec<_>, Vec<_>) = all.partition(is_known);
    let mut graph = Graph::new();
    for (from, to) in arrows {
        graph.entry(from).or_default().insert(to);
    }
    for (from, to) in excused {
        match reached(&graph, to).contains(from) {
            true => _ = known.remove(key(from, to).as_str()),
            false => _ = graph.entry(from).or_default().insert(to),
        }
    }
    let beyond = graph.keys().map(|file| (*file, reached(&graph, file)));
    let beyond: Graph = beyond.collect();
    let leads = |from: &str, to: &str| beyond.get(from).is_some_and(|files| files.contains(to));
    let mut lines: BTreeMap<Vec<&str>, String> = BTreeMap::new();
    for (from, to) in graph
        .iter()
        .flat_map(|(from, all)| all.iter().map(move |to| (*from, *to)))
    {
        if leads(to, from) {
            let members = beyond
                .keys()
                .filter(|file| leads(file, to) && leads(to, file));
            let names = &imports[&(from.to_owned(), to.to_owned())];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let line = format!("\n  {}: {}", key(from, to), names.join(", "));
            *lines.entry(members.copied().collect()).or_default() += &line;
        }
    }
    let circle =
        |(files, lines): (Vec<&str>, String)| format!("circle of {} files:{lines}", files.len());
    lines.into_iter().map(circle).collect()
}

fn key(from: &str, to: &str) -> String {
    format!("{from} -> {to}")
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
