//! The properties of a table that a spec sets, beside those that follow from other options.

use super::{Map, Problem, Problems, SpecPath};
use crate::commit::check_property;

/// The properties that a table's entry sets, with what is wrong with them added to `problems`. `options` are those that
/// the layer has an option for, which is named.
pub fn properties(
    raw: &Map<String>,
    place: &SpecPath,
    options: &[(&str, &str)],
    problems: &mut Problems,
) -> Vec<(String, String)> {
    for (key, value) in raw.iter() {
        let place = place.key(key);
        if let Some((_, option)) = options.iter().find(|(property, _)| *property == key) {
            let problem = Problem::at(&place, format!("`{key}` has an option of its own"));
            problems.add(problem.hint(format!("`{option}: …`")));
        } else if let Err(error) = check_property(key, Some(value)) {
            let problem = Problem::at(&place, error.to_string());
            problems.add(match error.hint_text() {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
    }
    raw.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}
