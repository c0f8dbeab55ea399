//! The column `_set_at`: which changes set those columns of a row that its last change did not set.
//!
//! It is null where the last change set all. Else it is a JSON array of groups `[position, column, …]`, in which a
//! position is the values of `_sequence_1`, … and `_batch_id`, and null for columns that nothing has set. The group
//! without columns is that of all columns that no group names; columns that remain were set by the last change.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use serde_json::Value;

use crate::position::Position;

/// When the columns of one row were set.
#[derive(Debug, Default)]
pub(crate) struct SetAt {
    named: BTreeMap<String, Option<Arc<Position>>>,
    others: Option<Option<Arc<Position>>>,
}

impl SetAt {
    /// Reads the text of a row; what cannot be read says nothing.
    pub(crate) fn read(text: &str, kinds: &[DataType]) -> Self {
        let mut read = Self::default();
        let Ok(groups) = serde_json::from_str::<Vec<Vec<Value>>>(text) else { return read };
        for group in groups {
            let Some((position, columns)) = group.split_first() else { continue };
            let position = Position::from_json(position, kinds).map(Arc::new);
            if columns.is_empty() {
                read.others = Some(position);
                continue;
            }
            for column in columns.iter().filter_map(Value::as_str) {
                read.named.insert(column.to_owned(), position.clone());
            }
        }
        read
    }

    /// When a column was set: `None` for never; `row` is the position of the row.
    pub(crate) fn of(&self, column: &str, row: &Arc<Position>) -> Option<Arc<Position>> {
        let known = self.named.get(column).or(self.others.as_ref());
        known.map_or_else(|| Some(Arc::clone(row)), Clone::clone)
    }

    /// The text for a row whose columns were set at these positions; `None` when its last change set all.
    pub(crate) fn write<'a>(
        columns: impl Iterator<Item = (&'a str, Option<&'a Position>)>,
        row: &Position,
    ) -> Option<String> {
        let mut groups: Vec<(Option<&Position>, Vec<&str>)> = Vec::new();
        for (column, position) in columns {
            let same = |other: &Option<&Position>| match (other, position) {
                (Some(other), Some(position)) => other.is_kept_as(position),
                (other, position) => other.is_none() && position.is_none(),
            };
            match groups.iter_mut().find(|(other, _)| same(other)) {
                Some((_, columns)) => columns.push(column),
                None => groups.push((position, vec![column])),
            }
        }
        let is_rows = |position: &Option<&Position>| position.is_some_and(|position| position.is_kept_as(row));
        if groups.iter().all(|(position, _)| is_rows(position)) {
            return None;
        }
        // The largest group needs no names; where it is the row's own, it needs no group either.
        groups.sort_by_key(|(_, columns)| std::cmp::Reverse(columns.len()));
        let mut texts = Vec::new();
        for (number, (position, columns)) in groups.iter().enumerate() {
            let is_named = number > 0;
            if is_named || !is_rows(position) {
                let position = position.map_or(Value::Null, Position::to_json);
                let names = columns.iter().filter(|_| is_named).map(|name| Value::from(*name));
                texts.push([position].into_iter().chain(names).collect::<Value>());
            }
        }
        Some(Value::Array(texts).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::at;

    const KINDS: [DataType; 1] = [DataType::Int64];

    fn written(columns: &[(&str, Option<i128>)], row: i128) -> Option<String> {
        let positions: Vec<Option<Position>> = columns.iter().map(|(_, at_)| at_.map(|n| at(n, 2, 7))).collect();
        let columns = columns.iter().zip(&positions).map(|((name, _), position)| (*name, position.as_ref()));
        SetAt::write(columns, &at(row, 2, 9))
    }

    #[test]
    fn a_row_that_its_last_change_set_needs_no_text() {
        assert_eq!(written(&[("a", Some(5)), ("b", Some(5))], 5), None);
        assert_eq!(written(&[], 5), None);
    }

    #[test]
    fn every_column_comes_back_with_its_position() {
        for columns in [
            vec![("a", Some(5)), ("b", Some(3)), ("c", None)],
            vec![("a", Some(3)), ("b", Some(3)), ("c", Some(5))],
            vec![("a", None), ("b", None), ("c", None)],
            vec![("a", Some(5)), ("b", Some(5)), ("c", Some(4))],
            vec![("a", Some(1)), ("b", Some(2)), ("c", Some(2)), ("d", None), ("e", Some(5))],
        ] {
            let text = written(&columns, 5).expect("a text");
            let read = SetAt::read(&text, &KINDS);
            let row = Arc::new(at(5, 2, 9).kept());
            for (name, position) in columns {
                let expected = position.map(|number| at(number, 2, 7).kept());
                assert_eq!(read.of(name, &row).as_deref(), expected.as_ref(), "{name} of {text}");
            }
        }
    }

    #[test]
    fn the_text_is_short() {
        let columns = [("status", Some(5)), ("a", Some(3)), ("b", Some(3)), ("c", Some(3))];
        assert_eq!(written(&columns, 5).as_deref(), Some(r#"[[[3,2]],[[5,2],"status"]]"#));
        assert_eq!(written(&[("a", Some(5)), ("b", None)], 5).as_deref(), Some(r#"[[null,"b"]]"#));
    }
}
