//! By what a target is known in every plot: a colour and a shape. Ours are filled, those of others
//! hollow, and so they differ without colours.

use super::page::{Plain, add};
use crate::results::{Kind, Results};

/// The mark of a target.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// The class that brings the colour, a name of the style sheet.
    pub(super) class: &'static str,
    /// The shape's id in [`DEFINITIONS`].
    pub(super) shape: &'static str,
}

const NATIVE: Mark = mark("native", "bar");
const OURS: [Mark; 6] = [
    mark("o1", "disc"),
    mark("o2", "box"),
    mark("o3", "diamond"),
    mark("o4", "up"),
    mark("o5", "down"),
    mark("o6", "hexagon"),
];
const OTHERS: [Mark; 5] = [
    mark("x1", "ring"),
    mark("x2", "frame"),
    mark("x3", "rhomb"),
    mark("x4", "cross"),
    mark("x5", "plus"),
];
const FLOORS: [Mark; 2] = [mark("f1", "bar"), mark("f2", "stroke")];

const fn mark(class: &'static str, shape: &'static str) -> Mark {
    Mark { class, shape }
}

/// The shapes, around (0, 0).
pub(super) const DEFINITIONS: &str = r#"<svg width="0" height="0" class="shapes" aria-hidden="true" focusable="false"><defs>
<circle id="disc" r="4.6"/><rect id="box" x="-4.1" y="-4.1" width="8.2" height="8.2" rx="1"/>
<path id="diamond" d="M0-5.6 5.6 0 0 5.6-5.6 0Z"/><path id="up" d="M0-5.2 5.2 4-5.2 4Z"/>
<path id="down" d="M0 5.2 5.2-4-5.2-4Z"/><path id="hexagon" d="M-5.2 0-2.6-4.5 2.6-4.5 5.2 0 2.6 4.5-2.6 4.5Z"/>
<circle id="ring" r="3.9" class="hollow"/><rect id="frame" x="-3.6" y="-3.6" width="7.2" height="7.2" class="hollow"/>
<path id="rhomb" d="M0-4.9 4.9 0 0 4.9-4.9 0Z" class="hollow"/><path id="cross" d="M-3.7-3.7 3.7 3.7M-3.7 3.7 3.7-3.7" class="hollow"/>
<path id="plus" d="M-4.8 0H4.8M0-4.8V4.8" class="hollow"/><path id="bar" d="M0-6V6" class="hollow"/>
<path id="stroke" d="M-3-6 3 6" class="hollow"/>
</defs></svg>
"#;

/// The mark of the target of that name: its place among those of its kind.
pub(super) fn of(results: &Results, name: &str) -> Mark {
    let target = results.targets.iter().find(|one| one.name == name);
    let kind = target.map_or(Kind::Other, |one| one.kind);
    let mut kin = results.targets.iter().filter(|one| one.kind == kind);
    let place = kin.position(|one| one.name == name).unwrap_or_default();
    match kind {
        Kind::Native => NATIVE,
        Kind::Ours => OURS[place % OURS.len()],
        Kind::Other => OTHERS[place % OTHERS.len()],
        Kind::Floor => FLOORS[place % FLOORS.len()],
    }
}

/// A key: the marks of these targets with their names and titles.
pub(super) fn key(results: &Results, names: &[&str]) -> String {
    let mut text = "<ul class=\"key\">".to_owned();
    for name in names {
        let title = results.targets.iter().find(|one| one.name == *name);
        let title = title.map_or("", |one| one.title.as_str());
        add!(
            text,
            "<li title=\"{}\">{} {}</li>",
            Plain(title),
            alone(of(results, name)),
            Plain(name)
        );
    }
    text + "</ul>\n"
}

/// A mark beside text.
pub(super) fn alone(mark: Mark) -> String {
    let Mark { class, shape } = mark;
    format!(
        "<svg class=\"mark {class}\" width=\"14\" height=\"14\" viewBox=\"-7 -7 14 14\" aria-hidden=\"true\">\
         <use href=\"#{shape}\"/></svg>"
    )
}
