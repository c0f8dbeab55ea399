//! What differs between two versions of a table: rows that came, that went, and that changed, column by column.
//!
//! Rows are the same when their keys are. Without keys a row is all of its values, so none changes: it goes and another
//! comes; equal rows are counted.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use cli::rows::{Json, Text};
use datafusion::common::JoinType;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, ident, lit, when};
use lake::upsert::{differs, same_key};
use lake::{Error, ErrorKind, Lake, Result, Table, columns};
use serde_json::{Map, Value};

/// The values of the newer version, beside those of the older.
const NEWER: &str = "__newer_";
const COUNT: &str = "__count";

/// What is compared.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The columns that make a row; none when nobody knows.
    pub(crate) keys: Vec<String>,
    /// Also columns that the program keeps for itself.
    pub(crate) technical: bool,
    /// Rows of each sort that are shown.
    pub(crate) examples: usize,
}

/// What differs.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    pub(crate) keys: Vec<String>,
    /// The columns that were compared, keys first.
    pub(crate) names: Vec<String>,
    /// Rows of both versions.
    pub(crate) rows: (u64, u64),
    pub(crate) added: u64,
    pub(crate) removed: u64,
    pub(crate) changed: u64,
    /// Of each column in how many rows it changed, those that did.
    pub(crate) columns: Vec<(String, u64)>,
    /// Columns of the newer version alone, and of the older alone.
    pub(crate) schema: (Vec<String>, Vec<String>),
    pub(crate) examples: Examples,
}

/// Some rows of each sort, by key.
#[derive(Debug, Default)]
pub(crate) struct Examples {
    pub(crate) added: Vec<Map<String, Value>>,
    pub(crate) removed: Vec<Map<String, Value>>,
    pub(crate) changed: Vec<Changed>,
}

/// A row that changed.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) key: Map<String, Value>,
    /// Its columns that changed: name, older value, newer value.
    pub(crate) values: Vec<(String, Value, Value)>,
}

/// Both versions, ready to be compared.
struct Sides {
    older: DataFrame,
    newer: DataFrame,
    schema: SchemaRef,
    keys: Vec<String>,
    /// The columns that both have with the same type, keys first.
    names: Vec<String>,
    examples: usize,
}

/// Compares two versions of a table.
///
/// # Errors
/// [`ErrorKind::Spec`] for keys that the table does not have, [`ErrorKind::Data`] when a key comes twice.
pub(crate) async fn diff(lake: &Lake, older: &Table, newer: &Table, asked: &Asked) -> Result<Diff> {
    let session = lake.session()?;
    let (then, now) = (older.schema(), newer.schema());
    let is_in = |field: &arrow::datatypes::Field, schema: &Schema| {
        schema.field_with_name(field.name()).is_ok_and(|other| other.data_type() == field.data_type())
    };
    let named =
        |field: &arrow::datatypes::FieldRef| format!("{} {}", field.name(), lake::schema::type_name(field.data_type()));
    let alone = |these: &Schema, those: &Schema| -> Vec<String> {
        these.fields().iter().filter(|field| !is_in(field, those)).map(named).collect()
    };
    let both: Vec<String> =
        now.fields().iter().filter(|field| is_in(field, &then)).map(|field| field.name().clone()).collect();
    if let Some(key) = asked.keys.iter().find(|key| !both.contains(key)) {
        let error = Error::spec(format!("`{key}` is no column of both versions of {}", newer.name()));
        return Err(match lake::spec::did_you_mean(key, both.iter().map(String::as_str)) {
            Some(hint) => error.hint(hint),
            None => error,
        });
    }
    let is_shown = |name: &&String| asked.technical || asked.keys.contains(name) || !is_technical(newer, name);
    let others = both.iter().filter(|name| !asked.keys.contains(name)).filter(is_shown);
    let names: Vec<String> = asked.keys.iter().chain(others).cloned().collect();
    let chosen = || names.iter().map(ident).collect::<Vec<Expr>>();
    let sides = Sides {
        older: session.context().read_table(session.provider(older).await?)?.select(chosen())?,
        newer: session.context().read_table(session.provider(newer).await?)?.select(chosen())?,
        schema: now.clone(),
        keys: asked.keys.clone(),
        names,
        examples: asked.examples,
    };
    let mut diff = match sides.keys.is_empty() {
        true => sides.without_keys().await?,
        false => sides.by_key(newer).await?,
    };
    diff.rows = (sides.older.clone().count().await? as u64, sides.newer.clone().count().await? as u64);
    diff.schema = (alone(&now, &then), alone(&then, &now));
    (diff.keys, diff.names) = (sides.keys, sides.names);
    Ok(diff)
}

fn is_technical(table: &Table, name: &str) -> bool {
    match table.name().layer {
        lake::Layer::Silver => columns::is_silver_technical(name) || name == columns::SET_AT,
        _ => false,
    }
}

impl Sides {
    async fn by_key(&self, table: &Table) -> Result<Diff> {
        for (frame, which) in [(&self.older, "older"), (&self.newer, "newer")] {
            self.check_unique(frame, which, table).await?;
        }
        let renamed = self.names.iter().map(|name| ident(name).alias(newer(name)));
        let after = self.newer.clone().select(renamed.collect::<Vec<_>>())?;
        let same = self.keys.iter().map(|key| same_key(&self.schema, key, ident(key), ident(newer(key))));
        let same: Vec<Expr> = same.collect();
        let added = after.clone().join_on(self.older.clone(), JoinType::LeftAnti, same.clone())?;
        let back = self.names.iter().map(|name| ident(newer(name)).alias(name));
        let added = added.select(back.collect::<Vec<_>>())?;
        let removed = self.older.clone().join_on(after.clone(), JoinType::LeftAnti, same.clone())?;
        let both = self.older.clone().join_on(after, JoinType::Inner, same)?;
        let values = || self.names.iter().filter(|name| !self.keys.contains(name));
        let is_other = |name: &String| differs(ident(name), ident(newer(name)));
        let changed = both.filter(values().map(is_other).reduce(Expr::or).unwrap_or_else(|| lit(false)))?;
        let mut diff = Diff {
            added: added.clone().count().await? as u64,
            removed: removed.clone().count().await? as u64,
            ..Diff::default()
        };
        let counts = values()
            .enumerate()
            .map(|(place, name)| Ok(count(when(is_other(name), lit(1)).end()?).alias(format!("{COUNT}{place}"))));
        let counts = [Ok(count(lit(1)).alias(COUNT))].into_iter().chain(counts).collect::<Result<Vec<Expr>>>()?;
        let counted = changed.clone().aggregate(Vec::new(), counts)?.collect().await?;
        let figure = |place: usize| {
            let held = counted.iter().find(|batch| batch.num_rows() > 0);
            held.map_or(0, |batch| u64::try_from(batch.column(place).as_primitive::<Int64Type>().value(0)).unwrap_or(0))
        };
        diff.changed = figure(0);
        diff.columns = (1..).zip(values()).map(|(place, name)| (name.clone(), figure(place))).collect();
        diff.columns.retain(|(_, rows)| *rows > 0);
        diff.examples = Examples {
            added: self.first(added).await?,
            removed: self.first(removed).await?,
            changed: self.first(changed).await?.into_iter().map(|row| self.changed(row)).collect(),
        };
        Ok(diff)
    }

    async fn check_unique(&self, frame: &DataFrame, which: &str, table: &Table) -> Result<()> {
        let twice = frame.clone().aggregate(self.keyed(), vec![count(lit(1)).alias(COUNT)])?;
        let twice = twice.filter(ident(COUNT).gt(lit(1)))?.limit(0, Some(1))?.collect().await?;
        let Some(row) = objects(&twice)?.into_iter().next() else { return Ok(()) };
        let key = self.keys.iter().map(|key| format!("{key} {}", plain(&row[key])));
        let key = key.collect::<Vec<_>>().join(", ");
        let message = format!("{key} comes {} times in the {which} version of {}", plain(&row[COUNT]), table.name());
        Err(Error::new(ErrorKind::Data, message).hint("name columns that tell rows apart with `--keys`"))
    }

    /// Rows as often as one version has them more than the other.
    async fn without_keys(&self) -> Result<Diff> {
        let signed = |frame: &DataFrame, sign: i64| frame.clone().with_column(COUNT, lit(sign));
        let all = signed(&self.newer, 1)?.union(signed(&self.older, -1)?)?;
        let names: Vec<Expr> = self.names.iter().map(ident).collect();
        let all = all.aggregate(names.clone(), vec![sum(ident(COUNT)).alias(COUNT)])?;
        let of = |frame: DataFrame| async move {
            let rows = frame.aggregate(Vec::new(), vec![sum(ident(COUNT)).alias(COUNT)])?.collect().await?;
            Ok::<i64, Error>(objects(&rows)?.first().and_then(|row| row[COUNT].as_i64()).unwrap_or(0))
        };
        let added = all.clone().filter(ident(COUNT).gt(lit(0)))?;
        let removed = all.filter(ident(COUNT).lt(lit(0)))?;
        Ok(Diff {
            added: of(added.clone()).await?.unsigned_abs(),
            removed: of(removed.clone()).await?.unsigned_abs(),
            examples: Examples {
                added: self.first(added.select(names.clone())?).await?,
                removed: self.first(removed.select(names)?).await?,
                changed: Vec::new(),
            },
            ..Diff::default()
        })
    }

    fn keyed(&self) -> Vec<Expr> {
        self.keys.iter().map(ident).collect()
    }

    /// The first rows, by key.
    async fn first(&self, frame: DataFrame) -> Result<Vec<Map<String, Value>>> {
        let by = if self.keys.is_empty() { &self.names } else { &self.keys };
        let sortable = by
            .iter()
            .filter(|name| self.schema.field_with_name(name).is_ok_and(|field| !field.data_type().is_nested()));
        let order = sortable.map(|name| ident(name).sort(true, true)).collect();
        objects(&frame.sort(order)?.limit(0, Some(self.examples))?.collect().await?)
    }

    fn changed(&self, mut row: Map<String, Value>) -> Changed {
        let key = self.keys.iter().map(|key| (key.clone(), row[key].clone())).collect();
        let values = self.names.iter().filter(|name| !self.keys.contains(name)).filter_map(|name| {
            let (old, new) = (row.remove(name)?, row.remove(&newer(name))?);
            (old != new).then(|| (name.clone(), old, new))
        });
        Changed { values: values.collect(), key }
    }
}

fn newer(name: &str) -> String {
    format!("{NEWER}{name}")
}

/// Rows as objects.
pub(crate) fn objects(batches: &[RecordBatch]) -> Result<Vec<Map<String, Value>>> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let mut json = Json::default();
    let mut text = json.begin(&Arc::clone(first.schema_ref()));
    for batch in batches {
        text.push_str(&json.rows(batch)?);
    }
    text.push_str(&json.end());
    serde_json::from_str(&text).map_err(|error| Error::internal("rows are no JSON").with_source(error))
}

/// A value as people read it.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
