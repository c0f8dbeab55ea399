//! How a gold table is made, kept with the table, so that a run sees what has changed since the last one.
//!
//! Two things decide whether a table is up to date: the versions of its sources, which its transactions
//! `gold.x:silver.y` hold, and the recipe: the query or the options, and the identity of each source (a source that
//! was deleted and made again counts its versions from 0, so numbers alone would lie). The recipe is the table
//! property [`PROPERTY`]; the transaction `gold.x:recipe` counts how often it has changed.
//!
//! The count is what makes a commit happen once when only the recipe is new: its source versions are held already, so
//! the commit also carries the next count. Two runs that see the same change carry the same count, and one of them
//! finds its transactions held. Only that commit writes the property, together with the rows it stands for: a crash
//! before it leaves the old recipe, and the next run does the work.

use std::collections::{BTreeMap, BTreeSet};

use lake::commit::Txn;
use lake::{Error, ErrorKind, Result, Table, TableName};
use serde::{Deserialize, Serialize};

use crate::spec::{HardDeletes, Strategy};

/// The table property that holds the recipe, as JSON.
pub(crate) const PROPERTY: &str = "lakehouse.recipe";

/// How a gold table is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Recipe {
    /// The query of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) query: Option<String>,
    /// The partition columns of a model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) partition_by: Vec<String>,
    /// The strategy of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strategy: Option<Strategy>,
    /// The columns that identify a row of a snapshot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<String>,
    /// The columns that a snapshot keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) columns: Vec<String>,
    /// The columns that make a row of a snapshot differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) compare_columns: Vec<String>,
    /// What a snapshot does with rows that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hard_deletes: Option<HardDeletes>,
    /// The id of each source table.
    pub(crate) sources: BTreeMap<String, String>,
}

/// What a gold table holds, by its own account.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The recipe of its rows; `None` before the first commit of rows.
    pub(crate) recipe: Option<Recipe>,
    /// How often the recipe has changed.
    changes: i64,
    /// The versions of the sources that its rows come from.
    versions: BTreeMap<TableName, i64>,
}

impl Recipe {
    /// Notes which tables the sources are.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when a source is not loaded.
    pub(crate) fn with_sources<'a>(mut self, sources: impl IntoIterator<Item = &'a Table>) -> Result<Self> {
        for source in sources {
            self.sources.insert(source.name().to_string(), source.id()?);
        }
        Ok(self)
    }

    /// The property that keeps the recipe.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when it cannot be written as JSON.
    pub(crate) fn property(&self) -> Result<(String, String)> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::internal("a recipe cannot be written as JSON").with_source(error))?;
        Ok((PROPERTY.to_owned(), text))
    }
}

impl Held {
    /// What `table` holds of `sources`; nothing when there is no table.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read, [`ErrorKind::Table`] when its recipe cannot.
    pub(crate) async fn of(table: Option<&Table>, sources: &BTreeSet<TableName>) -> Result<Self> {
        let Some(table) = table else { return Ok(Self::default()) };
        let mut held = Self { recipe: recipe(table)?, ..Self::default() };
        held.changes = table.txn_version(&changes_app(table.name())).await?.unwrap_or(0);
        for source in sources {
            if let Some(version) = table.txn_version(&source_app(table.name(), source)).await? {
                held.versions.insert(source.clone(), version);
            }
        }
        Ok(held)
    }

    /// The version of `source` that the rows come from; `None` when that was another table under the same name.
    pub(crate) fn version_of(&self, source: &TableName, recipe: &Recipe) -> Option<i64> {
        let name = source.to_string();
        let known = self.recipe.as_ref()?.sources.get(&name)?;
        (recipe.sources.get(&name) == Some(known)).then(|| self.versions.get(source).copied())?
    }

    /// The transaction of a commit that makes the recipe new.
    pub(crate) fn next_change(&self, table: &TableName) -> Txn {
        Txn::new(changes_app(table), self.changes + 1)
    }
}

/// The application of the versions of a source: `gold.daily_sales:silver.orders`.
pub(crate) fn source_app(table: &TableName, source: &TableName) -> String {
    format!("{table}:{source}")
}

fn changes_app(table: &TableName) -> String {
    format!("{table}:recipe")
}

fn recipe(table: &Table) -> Result<Option<Recipe>> {
    let Some(text) = table.property(PROPERTY)? else { return Ok(None) };
    let recipe = serde_json::from_str(&text).map_err(|error| {
        Error::new(ErrorKind::Table, format!("the property `{PROPERTY}` of {} is not readable", table.name()))
            .with_source(error)
            .hint("remove the table's folder to have it made anew")
    });
    recipe.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe_with(id: &str) -> Recipe {
        Recipe {
            query: Some("SELECT 1".into()),
            sources: BTreeMap::from([("silver.orders".into(), id.into())]),
            ..Recipe::default()
        }
    }

    #[test]
    fn a_recipe_survives_its_property() {
        let recipe = Recipe { strategy: Some(Strategy::ChangedOnly), ..recipe_with("a") };
        let (_, text) = recipe.property().expect("text");
        assert_eq!(serde_json::from_str::<Recipe>(&text).expect("a recipe"), recipe);
    }

    #[test]
    fn versions_of_a_table_that_was_made_again_do_not_count() {
        let orders = TableName::silver("orders");
        let held = Held { recipe: Some(recipe_with("a")), changes: 1, versions: BTreeMap::from([(orders.clone(), 7)]) };
        assert_eq!(held.version_of(&orders, &recipe_with("a")), Some(7));
        assert_eq!(held.version_of(&orders, &recipe_with("b")), None);
        assert_eq!(held.next_change(&TableName::gold("x")), Txn::new("gold.x:recipe", 2));
    }
}
