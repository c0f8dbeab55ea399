//! Column names of a file: given where they are missing, and refused where they would lose or shadow a column.

use std::borrow::Cow;
use std::collections::HashMap;

use lake::{Result, columns};

use super::{COLUMNS_MAX, refused};

/// Characters of a name that a message shows at most.
const SHOWN_CHARS_MAX: usize = 60;

/// What to do with a file that names two columns alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DuplicateColumns {
    /// Refuse the file.
    #[default]
    Fail,
    /// Call the second `name_2`, the third `name_3`.
    Rename,
}

/// The names of the columns of a file, by position. A column without a name is called `_c` and its 0-based position.
///
/// Table columns are told apart without regard to case, so two names that differ only in case are two alike.
///
/// # Errors
/// [`ErrorKind::File`](lake::ErrorKind::File) when two are alike, when one is a technical column of ours, or when
/// there are too many.
pub(super) fn column_names(raw: Vec<String>, duplicates: DuplicateColumns) -> Result<Vec<String>> {
    if raw.len() > COLUMNS_MAX {
        return Err(refused(format!("the file has {} columns, the limit is {COLUMNS_MAX}", raw.len())));
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(raw.len());
    let mut names: Vec<String> = Vec::with_capacity(raw.len());
    for (index, name) in raw.into_iter().enumerate() {
        let mut name = if name.is_empty() { format!("_c{index}") } else { name };
        if let Some(first) = seen.get(&folded(&name)).copied() {
            name = match duplicates {
                DuplicateColumns::Fail => return Err(alike(&names[first], first, &name, index)),
                DuplicateColumns::Rename => free_name(&name, &seen),
            };
        }
        check_name(&name)?;
        seen.insert(folded(&name), index);
        names.push(name);
    }
    Ok(names)
}

/// Refuses a column that has the name of a technical column, or one that programs cannot read back.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.contains('\0') {
        return Err(refused(format!("the column name {:?} holds a NUL character", shown_name(name))));
    }
    match columns::is_technical(name) {
        false => Ok(()),
        true => Err(refused(format!("the column `{name}` has the name of a technical column")).hint(
            "rename it at its source; for CSV, `csv: {header: false, columns: [...]}` names the columns by position",
        )),
    }
}

/// The form in which two names are the same column.
pub(crate) fn folded(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_ascii_lowercase(),
        false => name.to_lowercase(),
    }
}

/// A name for a message: what has no header has names of any length.
pub(crate) fn shown_name(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(SHOWN_CHARS_MAX) {
        None => Cow::Borrowed(name),
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
    }
}

fn alike(first_name: &str, first: usize, name: &str, index: usize) -> lake::Error {
    let (first, second) = (first + 1, index + 1);
    let (first_shown, shown) = (shown_name(first_name), shown_name(name));
    let reason = match first_name == name {
        true => format!("columns {first} and {second} are both named `{shown}`"),
        false => format!("columns {first} (`{first_shown}`) and {second} (`{shown}`) differ only in case"),
    };
    refused(reason).hint("`duplicate_columns: rename` calls the second one `value_2`")
}

fn free_name(name: &str, seen: &HashMap<String, usize>) -> String {
    let mut number = 2_usize;
    loop {
        let candidate = format!("{name}_{number}");
        if !seen.contains_key(&folded(&candidate)) {
            return candidate;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(raw: &[&str], duplicates: DuplicateColumns) -> Result<Vec<String>> {
        column_names(raw.iter().map(|name| (*name).to_owned()).collect(), duplicates)
    }

    #[test]
    fn two_names_alike_are_refused_with_both_positions() {
        let error = names(&["id", "value", "value"], DuplicateColumns::Fail).expect_err("alike").to_string();
        assert_eq!(error, "columns 2 and 3 are both named `value`");
        let error = names(&["Id", "value", "ID"], DuplicateColumns::Fail).expect_err("alike").to_string();
        assert_eq!(error, "columns 1 (`Id`) and 3 (`ID`) differ only in case");
        let error = names(&["É", "é"], DuplicateColumns::Fail).expect_err("alike").to_string();
        assert!(error.contains("differ only in case"), "{error}");
    }

    #[test]
    fn renamed_columns_never_collide() {
        let renamed = names(&["value", "value", "value_2", "VALUE"], DuplicateColumns::Rename).expect("names");
        assert_eq!(renamed, ["value", "value_2", "value_2_2", "VALUE_3"]);
    }

    #[test]
    fn a_missing_name_is_given_by_position() {
        assert_eq!(names(&["", "a", ""], DuplicateColumns::Fail).expect("names"), ["_c0", "a", "_c2"]);
    }

    #[test]
    fn technical_names_are_refused_and_sources_own_underscores_stay() {
        let error = names(&["id", "_Batch_ID"], DuplicateColumns::Fail).expect_err("ours");
        assert!(error.to_string().contains("`_Batch_ID`"), "{error}");
        assert!(error.hint_text().is_some());
        assert!(names(&["a\0b"], DuplicateColumns::Fail).is_err());
        let error = names(&["a\0".repeat(300).as_str()], DuplicateColumns::Fail).expect_err("no name").to_string();
        assert!(error.len() < 250 && error.contains('…'), "{error}");
        assert!(names(&["_id", "__op", "_airbyte_data"], DuplicateColumns::Fail).is_ok());
    }
}
