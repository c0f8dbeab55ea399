//! How a model follows its sources, told to a person: by which groups, from which tables, or why as a whole.

use std::collections::{BTreeMap, BTreeSet};

use lake::report::wrapped;
use lake::{Lake, Result, TableName};
use serde_json::{Value, json};

use crate::known::Known;
use crate::plan::ModelPlan;
use crate::recipe::Held;
use crate::refresh::known;
use crate::refresh::shape::{Coverage, Shape};
use crate::spec::Refresh;

/// How a model is refreshed.
#[derive(Debug)]
pub struct Explanation {
    table: TableName,
    refresh: Refresh,
    coverage: Coverage,
    sources: BTreeMap<TableName, Source>,
    /// What the next run will do beside following its sources.
    next: Option<String>,
}

#[derive(Debug)]
struct Source {
    version: u64,
    held: Option<i64>,
    has_feed: bool,
}

/// Explains a model by the tables that there are.
///
/// # Errors
/// [`ErrorKind::Table`](lake::ErrorKind::Table) when a source does not exist yet, [`ErrorKind::Query`](lake::ErrorKind::Query)
/// when the query does not fit its sources.
pub async fn explain(lake: &Lake, plan: &ModelPlan) -> Result<Explanation> {
    let table = lake.table(&plan.table).await?;
    let mut sources = Vec::new();
    for name in &plan.sources {
        sources.push(lake.existing(name).await?);
    }
    let known: Known = known(&lake.query_session()?, &sources).await?;
    let coverage = Coverage::of(plan, &known)?;
    let recipe = crate::model::recipe(plan, &sources)?;
    let held = Held::of(table.as_ref())?;
    let mut told = BTreeMap::new();
    for source in &sources {
        let held = held.version_of(source.name(), &recipe).await?;
        let has_feed = source.property("delta.enableChangeDataFeed")?.is_some_and(|value| value == "true");
        told.insert(source.name().clone(), Source { version: source.version(), held, has_feed });
    }
    let next = match &held.recipe {
        None => Some("the table is made".to_owned()),
        Some(before) => {
            before.changed_to(&recipe).map(|why| format!("the table is computed as a whole, because {why}"))
        }
    };
    Ok(Explanation { table: plan.table.clone(), refresh: plan.refresh, coverage, sources: told, next })
}

impl Explanation {
    /// For people, in lines of 80 characters.
    pub fn to_text(&self) -> String {
        let mut paragraphs = match (&self.coverage, self.refresh) {
            (Coverage::Groups(shape), Refresh::Full) => {
                vec![line(&format!(
                    "{} is computed as a whole, because the spec says `refresh: full`. It could be refreshed by {}.",
                    self.table,
                    listed(shape)
                ))]
            }
            (Coverage::Groups(shape), _) => self.by_groups(shape),
            (Coverage::Whole(reasons), _) => {
                let first = line(&format!(
                    "{} is computed as a whole in every run that finds its sources changed:",
                    self.table
                ));
                vec![first + &reasons.iter().map(|reason| wrapped("  - ", 4, reason) + "\n").collect::<String>()]
            }
        };
        paragraphs.push(self.reads());
        paragraphs.extend(self.next.as_ref().map(|next| line(&format!("In the next run {next}."))));
        paragraphs.join("\n")
    }

    fn by_groups(&self, shape: &Shape) -> Vec<String> {
        let first = line(&format!("{} is refreshed by {}.", self.table, listed(shape)));
        let made = shape.groups.iter().filter(|group| group.name != group.origin);
        let made: String =
            made.map(|group| wrapped("  ", 4, &format!("{} is {}", group.name, group.origin)) + "\n").collect();
        let how = line(
            "A run finds the groups that changed rows belong to, before and after the change, computes these again and \
             replaces them in one commit. When most of a source or more than half of the groups have changed, it computes \
             the whole, which costs less then.",
        );
        vec![first + &made, how]
    }

    /// The sources, and what tells of their changes.
    fn reads(&self) -> String {
        let mut text = "It reads\n".to_owned();
        let mut has_feeds = BTreeSet::new();
        for (name, source) in &self.sources {
            let held = match source.held {
                Some(held) if held == i64::try_from(source.version).unwrap_or(i64::MAX) => "which is in".to_owned(),
                Some(held) => format!("of which {held} is in"),
                None => "of which nothing is in yet".to_owned(),
            };
            let is_followed = matches!(self.coverage, Coverage::Groups(_));
            let without = if is_followed && !source.has_feed { ", without a change data feed" } else { "" };
            text.push_str(&(wrapped("  ", 4, &format!("{name} version {}, {held}{without}", source.version)) + "\n"));
            has_feeds.extend(is_followed.then_some(source.has_feed));
        }
        if has_feeds.contains(&true) {
            text.push_str(&line(
                "Change data feeds tell what changed, or files that came and went where a commit has none.",
            ));
        }
        if has_feeds.contains(&false) {
            text.push_str(&line("Without a feed, files that came and went tell what changed."));
        }
        text
    }

    /// In a few words, what a run does that finds the sources changed.
    pub fn in_short(&self) -> String {
        match (&self.next, &self.coverage) {
            (Some(next), _) => next.clone(),
            (None, Coverage::Groups(_)) if self.refresh == Refresh::Full => "as a whole: `refresh: full`".to_owned(),
            (None, Coverage::Groups(shape)) => format!("by {}", listed(shape)),
            (None, Coverage::Whole(reasons)) => format!("as a whole: {}", reasons.join("; ")),
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let (refresh, groups, reasons) = match &self.coverage {
            Coverage::Groups(shape) if self.refresh != Refresh::Full => ("incremental", Some(shape), Vec::new()),
            Coverage::Groups(shape) => ("full", Some(shape), vec!["`refresh: full`".to_owned()]),
            Coverage::Whole(reasons) => ("full", None, reasons.clone()),
        };
        let groups = groups.map(|shape| {
            shape.groups.iter().map(|group| json!({"column": group.name, "is": group.origin})).collect::<Vec<_>>()
        });
        let source = |(name, source): (&TableName, &Source)| {
            json!({
                "table": name.to_string(), "version": source.version, "held": source.held, "has_feed": source.has_feed,
            })
        };
        json!({
            "table": self.table.to_string(),
            "refresh": refresh,
            "groups": groups,
            "because": reasons,
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
            "next": self.next,
        })
    }
}

/// Words as lines.
fn line(text: &str) -> String {
    wrapped("", 0, text) + "\n"
}

fn listed(shape: &Shape) -> String {
    let names = shape.groups.iter().map(|group| format!("`{}`", group.name)).collect::<Vec<_>>();
    let word = if names.len() == 1 { "group" } else { "groups" };
    format!("{word} of {}", names.join(", "))
}
