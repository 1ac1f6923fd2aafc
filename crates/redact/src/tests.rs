//! Files in the layouts of real cameras, made by libraries where possible, and what their readers see.

mod damage;
mod jpeg;
mod make;
mod still;
mod tables;

use super::{Outcome, RedactError, RedactionPlan, plan};
use exif::{Context, In, Reader, Tag, Value};
use std::io::{self, Cursor};

fn reader(bytes: &[u8]) -> impl Fn(&mut [u8], u64) -> io::Result<usize> {
    move |buffer, offset| {
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn outcome(bytes: &[u8]) -> Result<Outcome, RedactError> {
    plan(&reader(bytes), bytes.len() as u64)
}

fn planned(bytes: &[u8]) -> RedactionPlan {
    match outcome(bytes) {
        Ok(Outcome::Plan(plan)) => plan,
        other => panic!("no plan: {other:?}"),
    }
}

fn is_refused(bytes: &[u8]) -> bool {
    matches!(outcome(bytes), Err(RedactError::Unparsable(_)))
}

/// What readers see; nothing outside the plan's ranges may differ.
fn redacted(bytes: &[u8]) -> Vec<u8> {
    let plan = planned(bytes);
    let mut seen = bytes.to_vec();
    plan.apply(0, &mut seen);
    let mut at = 0;
    for (range, _) in plan.ranges() {
        assert!(
            range.start >= at && range.end > range.start,
            "sorted, not overlapping"
        );
        let kept = at as usize..range.start as usize;
        assert_eq!(seen[kept.clone()], bytes[kept]);
        at = range.end;
    }
    assert_eq!(seen[at as usize..], bytes[at as usize..]);
    let mut again = seen.clone();
    planned(&seen).apply(0, &mut again);
    assert!(again == seen, "a redacted file stays as it is");
    seen
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

/// None of the secrets that [`make`] puts into files is left.
fn assert_no_secret(bytes: &[u8]) {
    for secret in make::secrets() {
        assert!(!holds(bytes, &secret), "{secret:02x?} is still there");
    }
}

/// What readers see of a file with secrets: none of them.
fn cleaned(bytes: &[u8]) -> Vec<u8> {
    let found = make::secrets().iter().any(|secret| holds(bytes, secret));
    assert!(found, "the test's file has no secret");
    let seen = redacted(bytes);
    assert_no_secret(&seen);
    seen
}

fn exif_of(bytes: &[u8]) -> Result<exif::Exif, exif::Error> {
    Reader::new().read_from_container(&mut Cursor::new(bytes))
}

/// Another EXIF reader finds no GPS, and everything else unchanged.
fn assert_exif_without_gps(before: &[u8], after: &[u8]) {
    let [before, after] = [before, after].map(|bytes| exif_of(bytes).expect("an EXIF block"));
    let is_gps = |field: &&exif::Field| field.tag.context() == Context::Gps;
    assert!(
        before.fields().any(|field| is_gps(&field)),
        "no GPS in the test's file"
    );
    assert!(!after.fields().any(|field| is_gps(&field)));
    let others = |exif: &exif::Exif| -> Vec<(Tag, In, Value)> {
        let fields = exif.fields().filter(|field| !is_gps(field));
        fields
            .map(|f| (f.tag, f.ifd_num, f.value.clone()))
            .collect()
    };
    assert_eq!(
        format!("{:?}", others(&before)),
        format!("{:?}", others(&after))
    );
    let make = after.get_field(Tag::Make, In::PRIMARY).unwrap();
    assert_eq!(make.display_value().to_string(), "\"Maker\"");
}

fn assert_same_picture(before: &[u8], after: &[u8]) {
    let decode = |bytes: &[u8]| {
        image::load_from_memory(bytes)
            .expect("a picture")
            .to_rgba8()
    };
    assert!(decode(before) == decode(after));
}
