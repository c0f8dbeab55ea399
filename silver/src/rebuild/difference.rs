//! What a rebuild changes.

use lake::report::thousands;
use lake::schema::type_name;
use lake::{Lake, Result, TableName};
use serde_json::{Value, json};

use super::made::Made;
use crate::plan::TablePlan;
use crate::verify::Sides;

/// What a rebuild changes.
#[derive(Debug)]
pub struct Difference {
    /// The table.
    pub table: TableName,
    /// The last batch of bronze in the new one.
    pub upto: i64,
    /// Rows of the table and of the new one.
    pub rows: (u64, u64),
    /// Columns that come, and columns that go; a column whose type changes does both.
    pub columns: (Vec<String>, Vec<String>),
    /// Rows that come, that go, and that differ in a column that both have; `None` when the keys are others, so that no
    /// row of one is a row of the other.
    pub counts: Option<[u64; 3]>,
}

impl Difference {
    pub(super) async fn of(lake: &Lake, plan: &TablePlan, made: &Made) -> Result<Self> {
        let table = lake.existing(&plan.table).await?;
        let session = lake.session()?;
        let held = session.context().read_table(session.provider(&table).await?)?;
        let anew = session.context().read_table(session.provider(&made.table).await?)?;
        let (old, new) = (table.schema(), made.table.schema());
        let is_in = |field: &arrow::datatypes::FieldRef, schema: &arrow::datatypes::Schema| {
            schema.field_with_name(field.name()).is_ok_and(|other| other.data_type() == field.data_type())
        };
        let named = |field: &arrow::datatypes::FieldRef| format!("{} {}", field.name(), type_name(field.data_type()));
        let come = new.fields().iter().filter(|field| !is_in(field, &old)).map(named).collect();
        let gone = old.fields().iter().filter(|field| !is_in(field, &new)).map(named).collect();
        let both: Vec<&str> =
            new.fields().iter().filter(|field| is_in(field, &old)).map(|field| field.name().as_str()).collect();
        let keys = plan.kept.row_keys(plan);
        let counts = match keys.iter().all(|key| both.contains(&key.as_str())) {
            true => {
                let sides = Sides { schema: &new, keys: &keys, names: &both, joined: &[] };
                let [added, removed, changed, _] = sides.compare(held.clone(), anew).await?;
                Some([added, removed, changed].map(|check| check.offenders))
            }
            false => None,
        };
        let rows = (held.count().await? as u64, made.rows);
        Ok(Self { table: plan.table.clone(), upto: made.upto, rows, columns: (come, gone), counts })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let (old, new) = (thousands(self.rows.0), thousands(self.rows.1));
        let mut text = format!("{}: {old} rows, {new} when made anew up to batch {}\n", self.table, self.upto);
        let (come, gone) = &self.columns;
        for (what, columns) in [("new", come), ("gone", gone)].iter().filter(|(_, columns)| !columns.is_empty()) {
            text.push_str(&format!("  columns {what}: {}\n", columns.join(", ")));
        }
        text.push_str(&match self.counts {
            Some([added, removed, changed]) => {
                let [added, removed, changed] = [added, removed, changed].map(thousands);
                format!("  rows added {added}, removed {removed}, changed {changed}\n")
            }
            None => "  the keys are others: every row is replaced\n".to_owned(),
        });
        text
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "table": self.table.to_string(),
            "upto_batch": self.upto,
            "rows": self.rows.0,
            "rows_anew": self.rows.1,
            "columns_new": self.columns.0,
            "columns_gone": self.columns.1,
            "added": self.counts.map(|counts| counts[0]),
            "removed": self.counts.map(|counts| counts[1]),
            "changed": self.counts.map(|counts| counts[2]),
        })
    }
}
