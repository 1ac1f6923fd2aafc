//! The reports of a run, all made from its results: tables for people.

mod compare;
pub(crate) mod figure;
mod grid;
#[cfg(test)]
pub(crate) mod sample;
mod table;
mod terminal;

pub(crate) use compare::compared;
pub(crate) use grid::{WIDTH_ELSEWHERE, width};
pub(crate) use table::label;
pub(crate) use terminal::{absent_targets, terminal};
