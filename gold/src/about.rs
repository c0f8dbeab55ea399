//! What a table says beside its rows: descriptions of it and its columns, and the properties that the spec sets.

use arrow::datatypes::Schema;
use lake::run::RunContext;
use lake::spec::did_you_mean;
use lake::{Error, Result, Table, TableName};

use crate::plan::{About, ModelPlan, SnapshotPlan};
use crate::snapshot::strategy_name;

impl ModelPlan {
    /// The description of the table.
    pub(crate) fn described(&self) -> String {
        self.about.description.clone().unwrap_or_else(|| self.query.clone())
    }
}

impl SnapshotPlan {
    /// The description of the table.
    pub(crate) fn described(&self) -> String {
        let default = || format!("{} day by day ({})", self.source, strategy_name(self.strategy));
        self.about.description.clone().unwrap_or_else(default)
    }
}

impl About {
    /// Holds the columns that are described to those that a table has.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`](lake::ErrorKind::Spec) for the first that it does not have.
    pub(crate) fn check(&self, table: &TableName, schema: &Schema) -> Result<()> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let Some((name, _)) = self.column_descriptions.iter().find(|(name, _)| !names().any(|held| held == name))
        else {
            return Ok(());
        };
        let error = Error::spec(format!("{table} has no column `{name}` (`column_descriptions`)"));
        Err(match did_you_mean(name, names()) {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}

/// Gives a table whose rows are right what the spec says about it now, in a commit of its own. Nothing happens when it
/// says so already.
///
/// # Errors
/// As [`Table::commit`].
pub(crate) async fn tell(held: Option<&Table>, about: &About, description: &str, ctx: &RunContext) -> Result<()> {
    let Some(table) = held else { return Ok(()) };
    let app = format!("{}:properties", table.name());
    let (properties, columns) = (&about.properties, &about.column_descriptions);
    table.clone().alter(properties, Some(description), columns, &app, &ctx.run).await
}
