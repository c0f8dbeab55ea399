//! The changes that the rows of a table do not tell, in a table beside it. Of several of one place the newest counts.
//!
//! They are forgotten after a while (`tombstone_retention`), those of one key together: rows stay as they are by
//! themselves, but not with some of the changes that made them and without others. What was forgotten once stays so,
//! whether it was removed or not.

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::lit;
use lake::commit::Txn;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Lake, Layer, Result, RunId, Table, columns};

use super::events::Events;
use crate::facts::{Facts, Keep, Keys, Opened};
use crate::plan::TablePlan;

/// Whether a remembered change is a delete.
pub(super) const IS_DELETE: &str = "is_delete";
/// The number of a change among those of its key, sequence and batch that were remembered together.
pub(super) const PLACE_IN_BATCH: &str = "place_in_batch";
/// When a change was remembered.
const REMEMBERED_AT: &str = "remembered_at";

/// What is remembered of one silver table, as it stood when it was opened.
pub(super) struct Remembered<'a> {
    lake: &'a Lake,
    facts: Opened<'a>,
    /// Which of them are not forgotten.
    kept: Keys,
}

impl<'a> Remembered<'a> {
    /// Opens what is remembered of the table of a plan. `app` is the application of that table, `base` are the
    /// columns of its changes.
    pub(super) async fn of(
        lake: &'a Lake,
        plan: &'a TablePlan,
        table: &Table,
        app: &'a str,
        base: SchemaRef,
    ) -> Result<Self> {
        let first = plan.keys.iter().cloned().chain(plan.sequence_columns()).chain([columns::BATCH_ID.to_owned()]);
        let first: Vec<String> = first.collect();
        let leading = first.iter().filter_map(|name| base.field_with_name(name).ok()).cloned();
        let others = base.fields().iter().filter(|field| !first.contains(field.name()));
        let is_delete = Field::new(IS_DELETE, DataType::Boolean, false);
        let at = Field::new(REMEMBERED_AT, columns::timestamp_type(), true);
        let place = plan.partial.is_on().then(|| Field::new(PLACE_IN_BATCH, DataType::Int32, true));
        let retention = i64::try_from(plan.tombstone_retention_millis).unwrap_or(i64::MAX).saturating_mul(1_000);
        let oldest = lake.clock().now_micros().saturating_sub(retention);
        let kept = Keys { names: plan.keys.clone(), schema: table.schema(), at: REMEMBERED_AT, oldest, retention };
        let facts = Facts {
            lake,
            layer: Layer::Versions,
            about: "changes that rows do not show, of",
            app,
            columns: leading
                .chain([is_delete, at])
                .chain(place)
                .chain(others.map(|field| field.as_ref().clone()))
                .collect(),
            point: "versions_committed",
        };
        Ok(Self { lake, facts: facts.open(table).await?, kept })
    }

    /// What is remembered of the keys that are touched.
    pub(super) async fn events(
        &self,
        events: &Events<'_>,
        keyed: &Staged,
        session: &Session,
    ) -> Result<Option<DataFrame>> {
        let Some(rows) = self.facts.rows(session).await? else { return Ok(None) };
        let touched = events.touched(rows, keyed, session).await?;
        Ok(Some(events.remembered_events(self.kept.of(touched.clone(), touched)?)?))
    }

    /// Remembers more.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](lake::ErrorKind::Conflict) when another run has remembered something meanwhile.
    pub(super) async fn add(self, hidden: &Staged, run: &RunId) -> Result<Txn> {
        let session = self.lake.session()?;
        let now = lit(timestamp(self.lake.clock().now_micros()));
        let hidden = hidden.frame(&session).await?.with_column(REMEMBERED_AT, now)?;
        self.facts.add(hidden, Keep::Keys(self.kept), run).await
    }
}

fn timestamp(micros: i64) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into()))
}
