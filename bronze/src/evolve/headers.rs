//! Files of delimited text whose first record is no header of their source.
//!
//! The first record of a file without its header would be lost, and its values would be columns for ever. So a file
//! belongs to its source by a column that it has in common with it: with the table, or, in the batch that brings the
//! first columns, with the other files. There the largest group of files that are connected by common columns is the
//! source, of those that are not made of values if there are any. Where that does not tell, all are taken. The order of
//! the files of a batch means nothing.

use std::collections::{HashMap, HashSet};

use arrow::datatypes::Schema;
use lake::{Error, TableName, columns};

use super::SchemaRules;
use crate::decode::{folded, refused, shown_name};

/// Names that a message shows at most.
const SHOWN_MAX: usize = 5;

/// What the columns of a source are held to be.
#[derive(Debug, Clone)]
pub struct Headers {
    table: TableName,
    /// The columns that files have brought, as the table has them; none before the first.
    held: Vec<String>,
    /// The same, folded.
    known: HashSet<String>,
    /// Columns that the spec names, folded.
    hinted: HashSet<String>,
}

impl Headers {
    /// The columns of a table with this schema, and those that the rules name. `partitions` come from folders.
    pub fn new(table: &TableName, schema: &Schema, rules: &SchemaRules, partitions: &[String]) -> Self {
        let is_partition = |name: &str| partitions.iter().any(|partition| folded(partition) == folded(name));
        let names = schema.fields().iter().map(|field| field.name().clone());
        let held: Vec<String> = names.filter(|name| !columns::is_technical(name) && !is_partition(name)).collect();
        let known = held.iter().filter(|name| !is_given(name)).map(|name| folded(name)).collect();
        let hinted = rules.hints.iter().map(|hint| folded(&hint.name)).collect();
        Self { table: table.clone(), held, known, hinted }
    }

    /// Refuses a file whose header has none of the columns of the table. A table without columns refuses nothing.
    ///
    /// # Errors
    /// [`ErrorKind::File`](lake::ErrorKind::File).
    pub fn check(&self, header: &[String]) -> Result<(), Error> {
        let belongs = |name: &String| self.known.contains(&folded(name)) || self.hinted.contains(&folded(name));
        if self.known.is_empty() || header.iter().any(belongs) {
            return Ok(());
        }
        // A table that a file without its header has begun says nothing about those that have one.
        let has_values = |names: &[String]| names.iter().any(|name| is_value(name));
        if has_values(&self.held) && !has_values(header) {
            return Ok(());
        }
        Err(self.stranger(
            header,
            &format!("{} has none of these columns but {}", self.table, quoted(&self.held)),
            &self.held,
        ))
    }

    /// The files of a first batch that belong to another source than most, by their index, with the refusal. `headers`
    /// are those of files that were read well.
    pub fn strangers(&self, headers: &[Option<Vec<String>>]) -> Vec<(usize, Error)> {
        if !self.known.is_empty() {
            return Vec::new();
        }
        let groups = self.groups(headers);
        let Some(source) = largest(&groups, headers) else { return Vec::new() };
        let is_hinted = |index: &usize| {
            let names = headers[*index].iter().flatten();
            names.into_iter().any(|name| self.hinted.contains(&folded(name)))
        };
        let example: &[String] = source.first().and_then(|index| headers[*index].as_deref()).unwrap_or_default();
        let others = groups.iter().filter(|group| *group != source && !group.iter().any(is_hinted));
        let refusal = |index: usize| {
            let header = headers[index].as_deref().unwrap_or_default();
            let others = format!("the other files have none of these columns but {}", quoted(example));
            (index, self.stranger(header, &others, example))
        };
        others.flatten().map(|index| refusal(*index)).collect()
    }

    /// Files that are connected by columns that they have in common, or by a header that is the same. Values connect
    /// nothing; the columns that the spec names belong together.
    fn groups(&self, headers: &[Option<Vec<String>>]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of: HashMap<String, usize> = HashMap::new();
        for (index, header) in headers.iter().enumerate() {
            let Some(header) = header else { continue };
            let folded_names: Vec<String> = header.iter().map(|name| folded(name)).collect();
            let names = folded_names.iter().filter(|name| !is_given(name) && !is_value(name));
            let names = names.map(|name| if self.hinted.contains(name) { "\0hinted".to_owned() } else { name.clone() });
            let keys: Vec<String> = names.chain([folded_names.join("\0")]).collect();
            let met: HashSet<usize> = keys.iter().filter_map(|key| group_of.get(key).copied()).collect();
            let home = met.iter().min().copied().unwrap_or(groups.len());
            groups.resize_with(groups.len().max(home + 1), Vec::new);
            for other in met.iter().filter(|other| **other != home) {
                let moved = std::mem::take(&mut groups[*other]);
                groups[home].extend(moved);
                group_of.values_mut().filter(|group| *group == other).for_each(|group| *group = home);
            }
            groups[home].push(index);
            group_of.extend(keys.into_iter().map(|key| (key, home)));
        }
        groups.retain(|group| !group.is_empty());
        groups
    }

    fn stranger(&self, header: &[String], others: &str, known: &[String]) -> Error {
        let message =
            format!("its first record is no header of this source: it names {}, and {others}", quoted(header));
        let known = |name: &str| known.iter().any(|known| folded(known) == folded(name.trim().trim_matches('"')));
        let divided = header.iter().find_map(|name| {
            let delimiter = delimiter_in(name)?;
            name.split(delimiter).any(known).then_some(delimiter)
        });
        refused(message).hint(match divided {
            Some(delimiter) => format!(
                "`{0}` divides its fields: write it with the delimiter of the other files and take it again with \
                 `bronze reingest`, or give such files a source of their own with `csv: {{delimiter: \"{0}\"}}`",
                delimiter.escape_default()
            ),
            None => {
                "add the header to the file (`csv: {header: false, columns: [...]}` where no file has one) and take \
                     it again with `bronze reingest`; a file that brings other columns on purpose is taken when \
                     `schema_hints` names one of them"
                    .to_owned()
            }
        })
    }
}

/// What divides the names of several columns in one.
pub(crate) fn delimiter_in(name: &str) -> Option<char> {
    let is_name = |part: &str| {
        !part.trim().is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ' | '"' | '.'))
    };
    [';', '\t', '|', ','].into_iter().find(|delimiter| name.contains(*delimiter) && name.split(*delimiter).all(is_name))
}

/// The largest group, of those that are not made of values if there are any; `None` when that is not one alone.
fn largest<'g>(groups: &'g [Vec<usize>], headers: &[Option<Vec<String>>]) -> Option<&'g Vec<usize>> {
    let has_values = |index: &usize| headers[*index].iter().flatten().any(|name| is_value(name));
    let rank = |group: &Vec<usize>| (!group.iter().any(has_values), group.len());
    let best = groups.iter().map(rank).max()?;
    let mut bests = groups.iter().filter(|group| rank(group) == best);
    bests.next().filter(|_| bests.next().is_none())
}

/// True for the name that a column without a name was given.
fn is_given(name: &str) -> bool {
    name.strip_prefix("_c").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for what is rather a value than a name: a number, a day, the beginning of markup or JSON.
fn is_value(name: &str) -> bool {
    let name = name.trim();
    let digits = |range: std::ops::Range<usize>| {
        name.get(range).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_day = digits(0..4) && digits(5..7) && digits(8..10) && matches!(name.as_bytes()[4], b'-' | b'/');
    let is_number = name.parse::<f64>().is_ok() && name.bytes().any(|byte| byte.is_ascii_digit());
    is_day || is_number || name.starts_with(['<', '{', '['])
}

fn quoted(names: &[String]) -> String {
    let mut text =
        names.iter().take(SHOWN_MAX).map(|name| format!("`{}`", shown_name(name))).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN_MAX {
        text.push_str(&format!(" and {} more", names.len() - SHOWN_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use lake::schema::{Column, ColumnType};

    use super::*;

    fn headers(held: &[&str], hints: &[&str]) -> Headers {
        let data = held.iter().map(|name| Field::new(*name, DataType::Utf8, true));
        let schema = Schema::new(columns::bronze_leading().into_iter().chain(data).collect::<Vec<_>>());
        let hint = |name: &&str| Column { name: (*name).to_owned(), kind: ColumnType::String, nullable: true };
        let rules = SchemaRules { hints: hints.iter().map(hint).collect(), ..SchemaRules::default() };
        Headers::new(&TableName::bronze("s"), &schema, &rules, &["dt".to_owned()])
    }

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn strangers(hints: &[&str], files: &[&str]) -> Vec<usize> {
        let files: Vec<Option<Vec<String>>> = files.iter().map(|file| Some(names(file))).collect();
        let mut found: Vec<usize> = headers(&[], hints).strangers(&files).into_iter().map(|(index, _)| index).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_file_belongs_to_a_table_by_one_column() {
        let table = headers(&["id", "Vé", "dt"], &["extra"]);
        for belongs in ["ID,x", "x,vÉ", "extra,y"] {
            assert!(table.check(&names(belongs)).is_ok(), "{belongs}");
        }
        for stranger in ["2,b", "<html>", "dt,b", " id ,b"] {
            assert!(table.check(&names(stranger)).is_err(), "{stranger}");
        }
        let error = table.check(&names("2,b")).expect_err("no header");
        assert_eq!(
            error.to_string(),
            "its first record is no header of this source: it names `2`, `b`, and bronze.s has none of these columns but \
             `id`, `Vé`"
        );
        assert!(error.hint_text().is_some_and(|hint| hint.contains("schema_hints")), "{error:?}");
        let error = table.check(&["id;v".to_owned()]).expect_err("another delimiter");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("delimiter: \";\"")), "{error:?}");
        assert!(headers(&["dt"], &["id"]).check(&names("2,b")).is_ok(), "no file has brought columns");
        let begun_wrong = headers(&["1", "anna"], &[]);
        assert!(begun_wrong.check(&names("id,name")).is_ok() && begun_wrong.check(&names("2,bob")).is_err());
        assert!(headers(&["_c0", "id"], &[]).check(&names("_c0,9")).is_err(), "a name that was given is none");
    }

    #[test]
    fn in_a_first_batch_most_files_are_the_source_in_any_order() {
        assert_eq!(strangers(&[], &["id,v", "2,b", "V,w"]), [1]);
        assert_eq!(strangers(&[], &["2,b", "id,v", "w,v"]), [0]);
        assert_eq!(strangers(&[], &["a,b", "c,d", "x", "b,c"]), [2], "connected by a third file");
        assert_eq!(strangers(&[], &["id,2023,2024", "code,2023", "id"]), [1], "values connect nothing");
        assert_eq!(strangers(&[], &["0,1", "0,1", "2,3"]), [2], "the same header does");
        assert_eq!(strangers(&[], &["1,open", "2,open", "id,status"]), [0, 1], "values are no header, however many");
        assert_eq!(strangers(&["x"], &["id,v", "id", "x,y"]), [0; 0], "the spec names it");
    }

    #[test]
    fn of_groups_of_one_size_values_are_the_strangers_or_none_is() {
        assert_eq!(strangers(&[], &["2,b", "id,v", "3,c"]), [0, 2]);
        assert_eq!(strangers(&[], &["id,v", "<html>"]), [1]);
        assert_eq!(strangers(&[], &["id,v", "2024-05-01,b"]), [1]);
        assert_eq!(strangers(&[], &["id,v", "name,w"]), [0; 0]);
        assert_eq!(strangers(&[], &["1,a"]), [0; 0]);
        assert!(headers(&["id"], &[]).strangers(&[Some(names("a")), Some(names("b"))]).is_empty());
    }

    #[test]
    fn a_column_that_holds_several_names_has_another_delimiter() {
        assert_eq!(delimiter_in("id;name;unit price"), Some(';'));
        assert_eq!(delimiter_in("id\tname"), Some('\t'));
        assert_eq!(delimiter_in("id|name"), Some('|'));
        assert_eq!(delimiter_in("order_id"), None);
        assert_eq!(delimiter_in("net|"), None);
        assert_eq!(delimiter_in("price (EUR; net)"), None);
    }
}
