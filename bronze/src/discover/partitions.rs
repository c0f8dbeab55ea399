//! The values of `key=value` folders, as Hive writes them.

use super::below;
use crate::plan::SourcePlan;

/// The folder name of a null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// What the folders of a file say of a partition column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderValue {
    /// There is no folder of that name.
    Absent,
    /// The folder stands for null, or has a value.
    Given(Option<String>),
}

/// The partition columns of a file with what its folders say; `path` is below the landing root. Of two folders of one
/// name the inner one counts.
pub fn folder_values(plan: &SourcePlan, path: &str) -> Vec<(String, FolderValue)> {
    let folders = below(&plan.folder, path).unwrap_or(path).rsplit_once('/').map_or("", |(folders, _)| folders);
    let pairs: Vec<(String, &str)> = folders
        .split('/')
        .filter_map(|folder| folder.split_once('='))
        .map(|(key, value)| (decoded(key), value))
        .collect();
    let value = |name: &String| match pairs.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case(name)) {
        None => FolderValue::Absent,
        Some((_, value)) if *value == NULL => FolderValue::Given(None),
        Some((_, value)) => FolderValue::Given(Some(decoded(value))),
    };
    plan.partition_columns.iter().map(|name| (name.clone(), value(name))).collect()
}

/// A text without its percent escapes; what is no escape stays as it is, and so does all when it makes no UTF-8.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escape = digit(at + 1).zip(digit(at + 2)).filter(|_| bytes[at] == b'%');
        let byte = escape.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        plain.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_everything_else_stays() {
        for (text, plain) in [
            ("2024-05-01 00%3A00", "2024-05-01 00:00"),
            ("a%2Fb%25", "a/b%"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%C3%A9", "é"),
            ("%ff", "%ff"),
            ("R&D = $5 #1?", "R&D = $5 #1?"),
            ("é", "é"),
        ] {
            assert_eq!(decoded(text), plain);
        }
    }
}
