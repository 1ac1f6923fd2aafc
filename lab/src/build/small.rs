//! A C project that is made up: short files with many headers, as programs have them. A compiler each, no `make`:
//! a C compiler is all that is needed.

use crate::command::done;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is built.
pub(super) const PROGRAM: &str = "program";

/// C files at the usual amount of work.
const FILES: usize = 160;
const FILES_MIN: usize = 16;
/// C files in a directory.
const FILES_OF_A_PART: usize = 20;
const HEADERS: usize = 80;
/// Headers that each C file includes.
const INCLUDED: usize = 12;

/// Why nothing can be compiled, if nothing can.
pub(super) fn missing_compiler() -> Option<String> {
    let version = Command::new("cc")
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    match version {
        Ok(output) if output.status.success() => None,
        _ => Some("there is no C compiler (cc)".to_owned()),
    }
}

/// Writes the sources into a directory that is there.
pub(super) fn write(project: &Path, percent: usize) -> io::Result<()> {
    let include = project.join("include");
    fs::create_dir(&include)?;
    for header in 0..HEADERS {
        let text = format!(
            "#ifndef HEADER_{header}\n#define HEADER_{header}\nstruct part_{header} {{ int value; char text[64]; }};\n\
             static inline int get_{header}(const struct part_{header} *part) {{ return part->value + {header}; }}\n\
             #endif\n"
        );
        fs::write(include.join(format!("part-{header}.h")), text)?;
    }
    for file in 0..files(percent) {
        let source = source(project, file);
        if file.is_multiple_of(FILES_OF_A_PART) {
            fs::create_dir_all(source.parent().unwrap_or(project))?;
        }
        fs::write(source, text(file))?;
    }
    fs::write(project.join("main.c"), main_text(files(percent)))
}

/// Compiles every file and links them.
pub(super) fn build(project: &Path, jobs: usize, percent: usize) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let file = next.fetch_add(1, Ordering::Relaxed);
                    if file >= files(percent) {
                        break;
                    }
                    if let Err(error) = compile(project, file) {
                        next.store(files(percent), Ordering::Relaxed);
                        if let Ok(mut failure) = failure.lock() {
                            *failure = Some(error);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().ok().flatten() {
        return Err(error);
    }
    let mut link = Command::new("cc");
    link.arg("-Iinclude")
        .arg("main.c")
        .args((0..files(percent)).map(|file| source(Path::new(""), file).with_extension("o")))
        .args(["-o", PROGRAM])
        .current_dir(project);
    done(&mut link).map(drop)
}

fn compile(project: &Path, file: usize) -> io::Result<()> {
    let source = source(Path::new(""), file);
    let mut command = Command::new("cc");
    command
        .args(["-Iinclude", "-O0", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(source.with_extension("o"))
        .current_dir(project);
    done(&mut command).map(drop)
}

/// The files that are compiled, in the project's directory.
pub(super) fn sources(percent: usize) -> impl Iterator<Item = PathBuf> {
    let parts = (0..files(percent)).map(|file| source(Path::new(""), file));
    parts.chain([PathBuf::from("main.c")])
}

fn files(percent: usize) -> usize {
    (FILES * percent / 100).max(FILES_MIN)
}

fn source(top: &Path, file: usize) -> PathBuf {
    let part = file / FILES_OF_A_PART;
    top.join(format!("source/part-{part}/file-{file}.c"))
}

fn text(file: usize) -> String {
    let headers = (0..INCLUDED).map(|n| (file * 7 + n * 5) % HEADERS);
    let mut text = String::new();
    let mut sum = String::new();
    for header in headers {
        // A String takes whatever is written to it.
        let _ = writeln!(text, "#include \"part-{header}.h\"");
        let _ = writeln!(
            sum,
            "    struct part_{header} part_{header} = {{ argument, \"text\" }};\n    sum += get_{header}(&part_{header});"
        );
    }
    let _ = writeln!(
        text,
        "int function_{file}(int argument) {{\n    int sum = 0;\n{sum}    return sum;\n}}"
    );
    text
}

fn main_text(files: usize) -> String {
    let mut text = String::new();
    let mut sum = String::new();
    for file in 0..files {
        let _ = writeln!(text, "int function_{file}(int argument);");
        let _ = writeln!(sum, "    sum += function_{file}({file});");
    }
    let _ = writeln!(
        text,
        "int main(void) {{\n    int sum = 0;\n{sum}    return sum == 0;\n}}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::{PROGRAM, build, files, missing_compiler, write};
    use std::process::Command;

    #[test]
    fn the_made_up_project_builds_and_runs() {
        assert_eq!(missing_compiler(), None, "the tests need a C compiler");
        let project = tempfile::tempdir().unwrap();
        write(project.path(), 1).unwrap();
        build(project.path(), 4, 1).unwrap();
        let status = Command::new(project.path().join(PROGRAM)).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_compiler_error_is_an_error() {
        let project = tempfile::tempdir().unwrap();
        write(project.path(), 1).unwrap();
        let broken = project.path().join("source/part-0/file-3.c");
        std::fs::write(broken, "this is no C").unwrap();
        let error = build(project.path(), 2, 1).unwrap_err();
        assert!(error.to_string().contains("cc"), "{error}");
        assert_eq!(files(1), 16);
    }
}
