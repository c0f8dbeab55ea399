//! What a bronze table that is taken back to an earlier version says in the same commit: which batches it has no records of
//! any more, though the ledger knows them.

use lake::Result;
use lake::restore::{Along, Moved, Way};
use lake::taken_out::TakenOut;

/// What the commit says that takes a table back. Batches stay taken: only the property tells that they are gone.
///
/// # Errors
/// [`lake::ErrorKind::Table`] when what was taken out before cannot be read.
pub fn along(way: &Way, moved: &[Moved]) -> Result<Along> {
    let own = moved.iter().find(|moved| moved.app == way.now.name().name);
    let Some((then, now)) = own.and_then(|moved| Some((moved.then.unwrap_or(0), moved.now?))) else {
        return Ok(Along::default());
    };
    if then >= now {
        return Ok(Along::default());
    }
    let out = TakenOut::of(&way.then)?.and_batches(then + 1, now);
    Ok(Along { properties: vec![out.property()?], ..Along::default() })
}
