//! Facts of work that was undone: the silver table was taken back to an earlier version.
//!
//! Facts stay where they are; that they do not count any more, the silver table says itself, in the commit that takes it
//! back: a property names them by their numbers, and the number named last moves on, past all that may yet come from
//! who has not seen it. They stay in their tables: a table that is taken back once more, to where they counted, has them
//! again.

use std::collections::BTreeMap;

use lake::restore::{Along, Moved, Way};
use lake::{Error, ErrorKind, Layer, Result, Table};

use super::number::Undone;
use super::{LAYERS, beside, named};

/// The property that tells what was undone, by the table of the facts: a table that is made anew has others.
const UNDONE: &str = "lakehouse.undone";

/// What was undone of a layer's facts.
pub(super) fn undone(silver: &Table, layer: Layer) -> Result<Vec<Undone>> {
    Ok(held(silver)?.remove(&beside(silver, layer)?.to_string()).unwrap_or_default())
}

fn held(silver: &Table) -> Result<BTreeMap<String, Vec<Undone>>> {
    let Some(text) = silver.property(UNDONE)? else { return Ok(BTreeMap::new()) };
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("the property `{UNDONE}` of {} cannot be read", silver.name());
        Error::new(ErrorKind::Table, message).with_source(error)
    })
}

/// What the commit says of facts that takes a silver table back. Both versions have the same tables beside them.
pub(crate) fn undo(way: &Way, moved: &[Moved]) -> Result<Along> {
    let (mut along, mut all) = (Along::default(), held(&way.then)?);
    for layer in LAYERS {
        let facts = beside(&way.now, layer)?;
        let app = named(way.now.name(), &facts);
        let Some(Moved { then, now: Some(now), .. }) = moved.iter().find(|moved| moved.app == app) else { continue };
        let (undone, number) = Undone::new(*then, *now);
        all.entry(facts.to_string()).or_default().push(undone);
        along.txns.push((app, number));
    }
    if !all.is_empty() {
        let text = serde_json::to_string(&all)
            .map_err(|error| Error::internal("what was undone cannot be written").with_source(error))?;
        along.properties.push((UNDONE.to_owned(), text));
    }
    Ok(along)
}
