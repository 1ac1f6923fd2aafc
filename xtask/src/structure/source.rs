//! Modules of a crate and the paths that each of them writes, read from its sources without a parser of
//! Rust: comments, literals and what is compiled for tests alone are left out, macros are read as they stand.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A `use` of one name.
pub(super) struct Import {
    /// The name that it has here; `*` for all that there are.
    pub name: String,
    pub path: Vec<String>,
    /// Whether it is handed on (`pub use`).
    pub is_public: bool,
}

pub(super) struct Module {
    pub file: PathBuf,
    pub parent: usize,
    pub children: HashMap<String, usize>,
    pub imports: Vec<Import>,
    /// Paths outside of `use`, single names too.
    pub paths: BTreeSet<Vec<String>>,
}

/// The modules of one crate, its root first. `read` answers with the text of a file, if there is one.
pub(super) fn modules(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Vec<Module> {
    let mut found = Vec::new();
    add_file(&mut found, root, root.with_file_name(""), 0, read);
    found
}

/// A file is a module; those that it declares lie in `directory`.
fn add_file(
    found: &mut Vec<Module>,
    file: &Path,
    directory: PathBuf,
    parent: usize,
    read: &dyn Fn(&Path) -> Option<String>,
) -> Option<usize> {
    let text = read(file)?;
    let tokens = tokens(&text);
    let module = add(found, file, parent);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        found,
        read,
    };
    reader.module(module, &directory);
    Some(module)
}

fn add(found: &mut Vec<Module>, file: &Path, parent: usize) -> usize {
    found.push(Module {
        file: file.to_owned(),
        parent,
        children: HashMap::new(),
        imports: Vec::new(),
        paths: BTreeSet::new(),
    });
    found.len() - 1
}

struct Reader<'a> {
    tokens: &'a [&'a str],
    at: usize,
    found: &'a mut Vec<Module>,
    read: &'a dyn Fn(&Path) -> Option<String>,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or("")
    }

    /// Reads up to the brace that closes the module.
    fn module(&mut self, module: usize, directory: &Path) {
        let mut depth = 0;
        let mut is_public = false;
        while self.at < self.tokens.len() {
            let token = self.tokens[self.at];
            self.at += 1;
            match token {
                "{" => depth += 1,
                "}" if depth == 0 => return,
                "}" => depth -= 1,
                "#" if matches!(self.peek(0), "[" | "!") => {
                    let start = self.at;
                    self.at += usize::from(self.peek(0) == "!");
                    self.skip_brackets();
                    let words = self.tokens[start..self.at].concat();
                    if words == "[cfg(test)]" || words.starts_with("[cfg(all(test,") {
                        self.skip_item();
                    }
                }
                "pub" => {
                    if self.peek(0) == "(" {
                        self.skip_brackets();
                    }
                    is_public = true;
                    continue;
                }
                "use" if is_name(self.peek(0)) || matches!(self.peek(0), "{" | "::") => {
                    self.imports(module, &[], is_public);
                }
                "mod" if is_name(self.peek(0)) && matches!(self.peek(1), ";" | "{") => {
                    self.child(module, directory);
                }
                name if is_name(name) => {
                    let before = self.at.checked_sub(2).map_or("", |at| self.tokens[at]);
                    let path = self.path(name);
                    if before != "." && before != "::" {
                        self.found[module].paths.insert(path);
                    }
                }
                _ => {}
            }
            is_public = false;
        }
    }

    /// The rest of a path that begins with this name.
    fn path(&mut self, first: &str) -> Vec<String> {
        let mut path = vec![first.to_owned()];
        while self.peek(0) == "::" && is_name(self.peek(1)) {
            path.push(self.peek(1).to_owned());
            self.at += 2;
        }
        path
    }

    /// One branch of a tree of imports, beneath `prefix`, and the comma or semicolon behind it.
    fn imports(&mut self, module: usize, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        loop {
            let token = self.peek(0);
            self.at += 1;
            match token {
                "::" => continue,
                "{" => {
                    while !matches!(self.peek(0), "}" | "") {
                        self.imports(module, &path, is_public);
                    }
                    self.at += 1;
                    break;
                }
                // `a::{self}` is `a`.
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
            if self.peek(0) != "::" {
                let mut name = path.last().cloned().unwrap_or_default();
                if self.peek(0) == "as" {
                    name = self.peek(1).to_owned();
                    self.at += 2;
                }
                self.found[module].imports.push(Import {
                    name,
                    path,
                    is_public,
                });
                break;
            }
        }
        if matches!(self.peek(0), "," | ";") {
            self.at += 1;
        }
    }

    /// `mod name;` or `mod name { … }`.
    fn child(&mut self, module: usize, directory: &Path) {
        let (name, opens) = (self.peek(0).to_owned(), self.peek(1) == "{");
        self.at += 2;
        let own = self.found[module].file.clone();
        let child = if opens {
            let child = add(self.found, &own, module);
            self.module(child, &directory.join(&name));
            Some(child)
        } else {
            let beneath = directory.join(&name);
            let files = [directory.join(format!("{name}.rs")), beneath.join("mod.rs")];
            files
                .into_iter()
                .find_map(|file| add_file(self.found, &file, beneath.clone(), module, self.read))
        };
        if let Some(child) = child {
            self.found[module].children.insert(name, child);
        }
    }

    /// Goes behind the bracket that closes the one here.
    fn skip_brackets(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.tokens[self.at] {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Goes behind the item, statement or field here.
    fn skip_item(&mut self) {
        let mut angles = 0;
        loop {
            match self.peek(0) {
                "" | "}" | ")" => return,
                "{" => return self.skip_brackets(),
                "(" | "[" => {
                    self.skip_brackets();
                    continue;
                }
                "<" => angles += 1,
                ">" => angles -= 1,
                _ => {}
            }
            self.at += 1;
            match self.tokens[self.at - 1] {
                ";" => return,
                "," if angles == 0 => return,
                _ => {}
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, strings, `::`, arrows and single signs; no comments, characters, lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, counts) = token(rest, first);
        let (token, behind) = rest.split_at(length);
        if counts {
            found.push(token);
        }
        rest = behind;
    }
    found
}

/// The length of the token at the start of `text` in bytes, and whether it counts.
fn token(text: &str, first: char) -> (usize, bool) {
    let find = |from: usize, what: &str| {
        let at = text[from..].find(what);
        at.map_or(text.len(), |at| from + at + what.len())
    };
    if is_name(text) || first.is_ascii_digit() {
        let word = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = word.unwrap_or(text.len());
        let quote = word + text[word..].bytes().take_while(|&it| it == b'#').count();
        let is_raw = matches!(&text[..word], "r" | "br" | "cr");
        if is_raw && text[quote..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(quote - word));
            return (find(quote + 1, &end), true);
        }
        return (word, true);
    }
    match first {
        '/' if text.starts_with("//") => (find(0, "\n"), false),
        '/' if text.starts_with("/*") => (find(0, "*/"), false),
        '"' => (literal(text, '"'), true),
        '\'' if text[1..].starts_with('\\') || text.chars().nth(2) == Some('\'') => {
            (literal(text, '\''), false)
        }
        '\'' => (1, false),
        _ if ["::", "->", "=>"].iter().any(|sign| text.starts_with(sign)) => (2, true),
        _ => (first.len_utf8(), !first.is_whitespace()),
    }
}

/// The length of what stands between two quotes, with them.
fn literal(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let mut within = text.char_indices().skip(1);
    let end = within.find(|(_, c)| {
        let ends = *c == quote && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}
