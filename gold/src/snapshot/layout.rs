//! The columns of a snapshot: which of the source are kept, which make a row differ, and what the table has besides.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Operator, ident, lit};
use lake::columns::{CHANGE, SNAPSHOT_DATE, is_silver_past, is_silver_technical, is_technical, keeps_past};
use lake::schema::type_name;
use lake::spec::did_you_mean;
use lake::table::with_new_columns;
use lake::{Error, ErrorKind, Layer, Result, Table};

use crate::plan::SnapshotPlan;
use crate::spec::Strategy;

/// The columns of a snapshot.
#[derive(Debug)]
pub(super) struct Layout {
    /// The columns of the table after this run: those that it has, then new ones. Columns that the source has lost, or
    /// that are not kept any more, stay and are null from now on.
    pub(super) schema: SchemaRef,
    /// The columns of the source that are kept, as it spells them.
    pub(super) kept: Vec<String>,
    /// The columns that the table had before this run.
    known: Vec<String>,
    /// True when a key column may be null.
    nullable_keys: bool,
}

impl Layout {
    /// The columns for a plan, a source and the table as it stands.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when the source lacks a column of the plan, [`ErrorKind::Table`] when a column has another
    /// type than in the table.
    pub(super) fn new(plan: &SnapshotPlan, source: &Table, table: Option<&Table>) -> Result<Self> {
        let from = source.schema();
        let table = table.map(Table::schema);
        Self::of(plan, &from, table.as_deref())
    }

    fn of(plan: &SnapshotPlan, source: &Schema, table: Option<&Schema>) -> Result<Self> {
        let kept = kept(plan, source)?;
        for (key, names) in [("keys", &plan.keys), ("compare_columns", &plan.compare_columns)] {
            if let Some(name) = names.iter().find(|name| !has(&kept, name)) {
                return Err(missing(plan, key, name, kept.iter().map(String::as_str)));
            }
        }
        let wanted = wanted(plan, source, &kept)?;
        if let Some(table) = table {
            check_types(plan, &wanted, table)?;
        }
        let schema = match table {
            None => Arc::new(wanted),
            Some(table) => with_new_columns(table, &wanted).unwrap_or_else(|| Arc::new(table.clone())),
        };
        let nullable_keys =
            plan.keys.iter().any(|key| field(source.fields(), key).is_some_and(|key| key.is_nullable()));
        let known = table.unwrap_or(&Schema::empty()).fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { schema, kept, known, nullable_keys })
    }

    /// The columns that make a row differ: those that the plan names, or all but the keys, whatever a source had of them
    /// at some time. One that the source has lost makes each row differ that had a value in it, once.
    pub(super) fn compared(&self, plan: &SnapshotPlan) -> Vec<String> {
        if !plan.compare_columns.is_empty() {
            return plan.compare_columns.iter().map(|name| spelled(name, [&*self.schema])).collect();
        }
        self.values().map(|field| field.name().clone()).filter(|name| !plan.keys.contains(name)).collect()
    }

    /// The columns of the table that come from the source.
    pub(super) fn values(&self) -> impl Iterator<Item = &FieldRef> {
        self.schema.fields().iter().filter(|field| ![SNAPSHOT_DATE, CHANGE].contains(&field.name().as_str()))
    }

    /// How keys are compared: null meets null where a key column may be null.
    pub(super) fn same_key(&self) -> Operator {
        if self.nullable_keys { Operator::IsNotDistinctFrom } else { Operator::Eq }
    }

    /// Rows of the table with the columns that it has after this run.
    pub(super) fn like(&self, rows: DataFrame) -> Result<DataFrame> {
        let columns = self.schema.fields().iter().map(|field| {
            Ok(match self.is_known(field.name()) {
                true => ident(field.name()),
                false => lit(ScalarValue::try_from(field.data_type())?).alias(field.name()),
            })
        });
        Ok(rows.select(columns.collect::<Result<Vec<_>>>()?)?)
    }

    /// True for a column that the table had before this run.
    fn is_known(&self, name: &str) -> bool {
        self.known.iter().any(|known| known == name)
    }
}

/// The columns of a source that are kept, as it spells them.
///
/// # Errors
/// [`ErrorKind::Spec`] when it lacks one that the plan lists, or has one of the table's own names.
pub(super) fn kept(plan: &SnapshotPlan, source: &Schema) -> Result<Vec<String>> {
    let names = || source.fields().iter().map(|field| field.name().as_str());
    if let Some(ours) = names().find(|name| [SNAPSHOT_DATE, CHANGE].iter().any(|ours| ours.eq_ignore_ascii_case(name)))
        && (plan.columns.is_empty() || has(&plan.columns, ours))
    {
        let message = format!("{} has a column `{ours}`, which {} itself adds", plan.source, plan.table);
        return Err(Error::spec(message).hint("list the other columns in `columns`"));
    }
    if plan.columns.is_empty() {
        let technical = |name: &str| match plan.source.layer {
            Layer::Silver => is_silver_technical(name) || (keeps_past(source) && is_silver_past(name)),
            Layer::Bronze => is_technical(name),
            _ => false,
        };
        return Ok(names().filter(|name| !technical(name)).map(str::to_owned).collect());
    }
    let kept = plan.columns.iter().map(|name| match field(source.fields(), name) {
        Some(held) => Ok(held.name().clone()),
        None => Err(missing(plan, "columns", name, names())),
    });
    kept.collect()
}

/// The plan with the names of columns as the table spells them, or else the source. Whoever reads the table finds a column
/// under the name that it always had, whatever its case has become in the source or in the spec.
pub(super) fn respelled(plan: &SnapshotPlan, table: Option<&Table>, source: &Table) -> SnapshotPlan {
    let (table, source) = (table.map(Table::schema), source.schema());
    let schemas = || table.as_deref().into_iter().chain([&*source]);
    let all = |names: &[String]| names.iter().map(|name| spelled(name, schemas())).collect();
    SnapshotPlan {
        columns: all(&plan.columns),
        compare_columns: all(&plan.compare_columns),
        keys: all(&plan.keys),
        source_keys: all(&plan.source_keys),
        ..plan.clone()
    }
}

/// A name as the first of these schemas spells it that has it; itself where none does.
pub(super) fn spelled<'a>(name: &str, schemas: impl IntoIterator<Item = &'a Schema>) -> String {
    let held = schemas.into_iter().find_map(|schema| field(schema.fields(), name));
    held.map_or_else(|| name.to_owned(), |held| held.name().clone())
}

/// The column of a name, without regard to its case, as tables tell columns apart.
pub(super) fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a FieldRef> {
    let exact = fields.iter().find(|field| field.name() == name);
    exact.or_else(|| fields.iter().find(|field| field.name().eq_ignore_ascii_case(name)))
}

/// True when a name is among others, without regard to its case.
pub(super) fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|held| held.eq_ignore_ascii_case(name))
}

fn missing<'a>(plan: &SnapshotPlan, key: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::spec(format!("{} has no column `{name}` (`{key}` of {})", plan.source, plan.table));
    match did_you_mean(name, known) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The day, the change and the kept columns, these nullable: a source may gain columns and lose `not null`.
fn wanted(plan: &SnapshotPlan, source: &Schema, kept: &[String]) -> Result<Schema> {
    let mut fields = vec![Field::new(SNAPSHOT_DATE, DataType::Date32, false)];
    if plan.strategy == Strategy::ChangedOnly {
        fields.push(Field::new(CHANGE, DataType::Utf8, false));
    }
    for name in kept {
        fields.push(source.field_with_name(name)?.clone().with_nullable(true));
    }
    Ok(Schema::new(fields))
}

fn check_types(plan: &SnapshotPlan, wanted: &Schema, table: &Schema) -> Result<()> {
    for field in wanted.fields() {
        let held = self::field(table.fields(), field.name());
        if let Some(held) = held.filter(|held| held.data_type() != field.data_type()) {
            let message = format!(
                "column `{}` is {} in {} and {} in {}",
                held.name(),
                type_name(held.data_type()),
                plan.table,
                type_name(field.data_type()),
                plan.source
            );
            let hint = "keep the days so far under this name and give the snapshot another one";
            return Err(Error::new(ErrorKind::Table, message).hint(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lake::TableName;

    use super::*;
    use crate::plan::About;
    use crate::spec::HardDeletes;

    fn plan(columns: &[&str]) -> SnapshotPlan {
        SnapshotPlan {
            table: TableName::gold("x"),
            source: TableName::silver("products"),
            strategy: Strategy::ChangedOnly,
            columns: columns.iter().map(ToString::to_string).collect(),
            compare_columns: Vec::new(),
            keys: vec!["id".into()],
            source_keys: vec!["id".into()],
            hard_deletes: HardDeletes::Record,
            retention_days: None,
            about: About::default(),
        }
    }

    fn source() -> Schema {
        Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("price", DataType::Decimal128(10, 2), true),
            Field::new("_batch_id", DataType::Int64, false),
            Field::new("_sequence_1", DataType::Int64, true),
        ])
    }

    fn names(schema: &Schema) -> Vec<&str> {
        schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    #[test]
    fn technical_columns_stay_out_unless_listed() {
        let all = Layout::of(&plan(&[]), &source(), None).expect("a layout");
        assert_eq!(names(&all.schema), ["snapshot_date", "_change", "id", "price"]);
        assert_eq!(all.compared(&plan(&[])), ["price"]);
        let listed = Layout::of(&plan(&["id", "_batch_id"]), &source(), None).expect("a layout");
        assert_eq!(listed.kept, ["id", "_batch_id"]);
    }

    #[test]
    fn a_table_keeps_its_columns_and_gains_new_ones() {
        let before = Layout::of(&plan(&["id"]), &source(), None).expect("a layout");
        let table = Schema::new(before.schema.fields().iter().cloned().collect::<Vec<_>>());
        let after = Layout::of(&plan(&[]), &source(), Some(&table)).expect("a layout");
        assert_eq!(names(&after.schema), ["snapshot_date", "_change", "id", "price"]);
        assert!(after.is_known("id") && !after.is_known("price"));
        let fewer = Layout::of(&plan(&["id"]), &source(), Some(&after.schema)).expect("a layout");
        assert_eq!(fewer.schema, after.schema);
    }

    #[test]
    fn a_column_keeps_its_name_when_its_case_changes() {
        let table = Layout::of(&plan(&[]), &source(), None).expect("a layout").schema;
        let renamed = Schema::new(vec![
            Field::new("ID", DataType::Int64, false),
            Field::new("Price", DataType::Decimal128(10, 2), true),
        ]);
        let layout = Layout::of(&plan(&["id", "PRICE"]), &renamed, Some(&table)).expect("a layout");
        assert_eq!(
            (&layout.schema, layout.kept.as_slice()),
            (&table, ["ID".to_owned(), "Price".to_owned()].as_slice())
        );
        let compared = SnapshotPlan { compare_columns: vec!["PRICE".into()], ..plan(&[]) };
        assert_eq!(layout.compared(&compared), ["price"]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = Layout::of(&plan(&["id", "prise"]), &source(), None).expect_err("no such column");
        assert!(error.to_string().contains("no column `prise`"), "{error}");
        assert_eq!(error.hint_text(), Some("did you mean `price`?"));
        let table = Schema::new(vec![Field::new("price", DataType::Utf8, true)]);
        let error = Layout::of(&plan(&[]), &source(), Some(&table)).expect_err("another type");
        assert_eq!(error.to_string(), "column `price` is string in gold.x and decimal(10,2) in silver.products");
    }
}
