//! The POSIX cases: what programs may expect of a file system.
//!
//! A case gets an [`Env`]: a fresh directory in the tree under test and the same directory in the lower tree. It
//! asserts the results of calls and, where it makes sense, that the lower tree agrees. Every case must pass
//! natively, where both trees are the same.
//!
//! A case that needs more than every file system has names it ([`Need`]), and is skipped with a reason otherwise.

mod env;
mod prelude;

mod acl;
mod allocate;
mod append;
mod attributes;
mod concurrent;
mod copy;
mod create;
mod directory;
mod durability;
mod file_flags;
mod hard_link;
mod killpriv;
mod lock;
mod lock_description;
mod lock_flock;
mod lock_process;
mod lookup;
mod map;
mod names;
mod node;
mod open;
mod permission;
mod read_write;
mod remove;
mod rename;
mod rename_flags;
mod statistics;
mod steps;
mod symbolic_link;
mod times;
mod tmpfile;
mod truncate;
mod unlinked;
mod xattr;

use crate::setup::Need;
pub use env::Env;

/// One named case.
#[derive(Clone, Copy)]
pub struct Case {
    /// `subject::what_is_expected`.
    pub path: &'static str,
    /// What the file system must support.
    pub needs: &'static [Need],
    /// The case.
    pub run: Run,
}

/// What a case does: it panics when the tree does not behave.
#[derive(Clone, Copy)]
pub enum Run {
    /// Code.
    Code(fn(&Env)),
    /// Steps, as [`steps`] describes them.
    Steps(&'static str),
}

impl Case {
    /// `subject::what_is_expected`, without the path of this crate.
    pub fn name(&self) -> &'static str {
        self.path
            .strip_prefix(concat!(module_path!(), "::"))
            .unwrap_or(self.path)
    }

    /// Runs it, in a fresh directory.
    pub fn run(&self, env: &Env) {
        match self.run {
            Run::Code(code) => code(env),
            Run::Steps(steps) => steps::run(env, steps),
        }
    }
}

/// Builds the table of a subject: `name [Need, Need]: "steps", …`, and `name [Need, Need], …` for a function.
macro_rules! cases {
    ($($name:ident $([$($need:ident),*])? $(: $steps:literal)?),* $(,)?) => {
        &[$($crate::posix::Case {
            path: concat!(module_path!(), "::", stringify!($name)),
            needs: &[$($($crate::Need::$need),*)?],
            run: $crate::posix::cases!(@run $name $($steps)?),
        }),*]
    };
    (@run $name:ident) => { $crate::posix::Run::Code($name) };
    (@run $name:ident $steps:literal) => { $crate::posix::Run::Steps($steps) };
}
use cases;

/// All cases, by subject.
pub fn all() -> Vec<Case> {
    let subjects: &[&[Case]] = &[
        names::CASES,
        lookup::CASES,
        create::CASES,
        node::CASES,
        hard_link::CASES,
        symbolic_link::CASES,
        remove::CASES,
        rename::CASES,
        rename_flags::CASES,
        open::CASES,
        append::CASES,
        tmpfile::CASES,
        read_write::CASES,
        truncate::CASES,
        times::CASES,
        attributes::CASES,
        killpriv::CASES,
        permission::CASES,
        xattr::CASES,
        acl::CASES,
        statistics::CASES,
        durability::CASES,
        directory::CASES,
        allocate::CASES,
        copy::CASES,
        file_flags::CASES,
        map::CASES,
        lock_flock::CASES,
        lock_process::CASES,
        lock_description::CASES,
        unlinked::CASES,
        concurrent::CASES,
    ];
    subjects.concat()
}
