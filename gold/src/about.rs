//! What a table says beside its rows: descriptions of it and its columns, and the properties that the spec sets.

use lake::run::RunContext;
use lake::{Result, Table};

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

/// Gives a table whose rows are right what the spec says about it now, in a commit of its own. Nothing happens when it
/// says so already.
///
/// # Errors
/// As [`Table::commit`].
pub(crate) async fn tell(held: Option<&Table>, about: &About, description: &str, ctx: &RunContext) -> Result<()> {
    let Some(table) = held else { return Ok(()) };
    let app = format!("{}:properties", table.name());
    let (properties, columns) = (&about.properties, &about.column_descriptions);
    table.clone().set_properties(properties, Some(description), columns, &app, &ctx.run).await
}
