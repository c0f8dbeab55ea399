//! The changes that the rows of a table do not tell, in a table beside it. Of several of one place the newest counts.

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use lake::commit::Txn;
use lake::session::Session;
use lake::stage::Staged;
use lake::{Lake, Layer, Result, RunId, Table, columns};

use super::events::Events;
use crate::facts::{Facts, Opened};
use crate::plan::TablePlan;

/// Whether a remembered change is a delete.
pub(super) const IS_DELETE: &str = "is_delete";

/// What is remembered of one silver table, as it stood when it was opened.
pub(super) struct Remembered<'a> {
    lake: &'a Lake,
    facts: Opened<'a>,
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
        let facts = Facts {
            lake,
            layer: Layer::Versions,
            about: "changes that rows do not show, of",
            app,
            columns: leading.chain([is_delete]).chain(others.map(|field| field.as_ref().clone())).collect(),
            point: "versions_committed",
        };
        Ok(Self { lake, facts: facts.open(table).await? })
    }

    /// What is remembered of the keys that changes touch.
    pub(super) async fn events(
        &self,
        events: &Events<'_>,
        changes: &Staged,
        session: &Session,
    ) -> Result<Option<DataFrame>> {
        let Some(rows) = self.facts.rows(session).await? else { return Ok(None) };
        Ok(Some(events.remembered_events(events.touched(rows, changes, session).await?)?))
    }

    /// Remembers more.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](lake::ErrorKind::Conflict) when another run has remembered something meanwhile.
    pub(super) async fn add(self, hidden: &Staged, run: &RunId) -> Result<Txn> {
        let session = self.lake.session()?;
        self.facts.add(hidden.frame(&session).await?, None, run).await
    }
}
