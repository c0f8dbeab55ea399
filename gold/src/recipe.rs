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

use std::collections::BTreeMap;

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
    /// How the session of a model computes: what is kept of an older one may be other values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The conditions by which rows of a model are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) drops: Vec<String>,
    /// The partition columns of a model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) partition_by: Vec<String>,
    /// The strategy of a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strategy: Option<Strategy>,
    /// The columns that identify a row, where the user names them: rows of a model are replaced by them.
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
#[derive(Debug)]
pub(crate) struct Held<'a> {
    /// The table; `None` before it is made.
    pub(crate) table: Option<&'a Table>,
    /// The recipe of its rows; `None` before the first commit of rows.
    pub(crate) recipe: Option<Recipe>,
}

impl Recipe {
    /// The recipe of a table; `None` before its first commit of rows, and for a table that is not ours.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when it cannot be read.
    pub(crate) fn of(table: &Table) -> Result<Option<Self>> {
        let Some(text) = table.property(PROPERTY)? else { return Ok(None) };
        let recipe = serde_json::from_str(&text).map_err(|error| {
            Error::new(ErrorKind::Table, format!("the property `{PROPERTY}` of {} is not readable", table.name()))
                .with_source(error)
                .hint("remove the table's folder to have it made anew")
        });
        recipe.map(Some)
    }

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

    /// True when both read the same table under the name of `source`.
    fn same_source(&self, other: &Self, source: &TableName) -> bool {
        let id = |recipe: &Self| recipe.sources.get(&source.to_string()).cloned();
        id(self).is_some_and(|ours| id(other) == Some(ours))
    }

    /// What makes another recipe of this one, in words; `None` when they are the same.
    pub(crate) fn changed_to(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        if self.query != other.query {
            return Some("its query has changed".to_owned());
        }
        if self.session != other.session {
            return Some("queries are computed otherwise by now".to_owned());
        }
        if self.keys != other.keys {
            return Some("its `keys` have changed".to_owned());
        }
        let moved = other.sources.iter().find(|(name, id)| self.sources.get(*name) != Some(*id));
        Some(match moved {
            Some((name, _)) => format!("{name} is another table than before"),
            None => "its options have changed".to_owned(),
        })
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

impl<'a> Held<'a> {
    /// What `table` holds.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the recipe cannot be read, or when there are rows without one: they are not ours.
    pub(crate) fn of(table: Option<&'a Table>) -> Result<Self> {
        let Some(table) = table else { return Ok(Self { table: None, recipe: None }) };
        let recipe = Recipe::of(table)?;
        if recipe.is_none() && !table.file_paths()?.is_empty() {
            let message = format!("{} holds rows that this program did not write", table.name());
            let hint = "they would be replaced: give the table of the spec another name, or move the other one away";
            return Err(Error::new(ErrorKind::Table, message).hint(hint));
        }
        Ok(Self { table: Some(table), recipe })
    }

    /// The version of `source` that the rows come from; `None` when that was another table under the same name than
    /// `wanted` knows.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub(crate) async fn version_of(&self, source: &TableName, wanted: &Recipe) -> Result<Option<i64>> {
        match (self.table, &self.recipe) {
            (Some(table), Some(held)) if held.same_source(wanted, source) => {
                table.txn_version(&source_app(table.name(), source)).await
            }
            _ => Ok(None),
        }
    }

    /// The transaction of a commit to `table` that makes the recipe new.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the log cannot be read.
    pub(crate) async fn next_change(&self, table: &TableName) -> Result<Txn> {
        let app = format!("{table}:recipe");
        let changes = match self.table {
            Some(table) => table.txn_version(&app).await?,
            None => None,
        };
        Ok(Txn::new(app, changes.unwrap_or(0) + 1))
    }
}

/// The application of the versions of a source: `gold.daily_sales:silver.orders`.
pub(crate) fn source_app(table: &TableName, source: &TableName) -> String {
    format!("{table}:{source}")
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
    fn a_table_that_was_made_again_is_another_source() {
        let orders = TableName::silver("orders");
        assert!(recipe_with("a").same_source(&recipe_with("a"), &orders));
        assert!(!recipe_with("a").same_source(&recipe_with("b"), &orders));
        assert!(!Recipe::default().same_source(&Recipe::default(), &orders));
    }
}
