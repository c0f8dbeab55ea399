//! Putting rules on the rows of a table: CHECK constraints and generated columns, and what writers must know for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::datatypes::{Field, Schema};
use datafusion::dataframe::DataFrame;
use deltalake::DeltaTableError;
use deltalake::kernel::{Action, MetadataExt, Protocol};
use deltalake::protocol::DeltaOperation;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::described::with_columns;
use super::{ByHand, Commit, Outcome, Txn};
use crate::error::{Error, ErrorKind, Result};
use crate::lakehouse::Lake;
use crate::names::RunId;
use crate::rules::{self, CHECK, GENERATED, Kind, Rule};
use crate::spec::did_you_mean;
use crate::table::Table;

/// The property that names the rules which the program has set: those that it may take away.
pub(super) const OWN: &str = "lakehouse.rules";
/// The first version of the protocol whose writers know CHECK constraints, and generated columns.
const CHECKS: i64 = 3;
const GENERATES: i64 = 4;
/// The version from which on the protocol lists its features.
const LISTED: i64 = 7;

/// The rules that a spec puts on the rows of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// CHECK constraints, name and condition.
    pub checks: Vec<(String, String)>,
    /// Generated columns, name and expression.
    pub generated: Vec<(String, String)>,
}

/// The names of rules that the program has set.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Own {
    checks: BTreeSet<String>,
    generated: BTreeSet<String>,
}

impl Own {
    fn of(table: &Table) -> Result<Self> {
        Ok(table.property(OWN)?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }
}

/// What a table has and what it is to have.
#[derive(Debug, Default)]
struct Difference {
    new: Vec<Rule>,
    gone: Vec<Rule>,
    own: Own,
}

impl Table {
    /// Puts the rules of a spec on the table, and takes away those of an earlier spec, in a commit of its own; `app`
    /// counts how often. Rules that others have set stay. The rows that are there must meet a new rule.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] with the keys of rows that do not meet a new rule, [`ErrorKind::Table`] when another program has set
    /// another rule under the name of one; as [`Table::commit`].
    pub async fn set_rules(
        &mut self,
        lake: &Lake,
        rules: &Rules,
        keys: &[String],
        app: &str,
        run: &RunId,
    ) -> Result<()> {
        let held = Own::of(self)?;
        let difference = difference(&Rule::of(self)?, rules, &held).map_err(|problem| {
            Error::new(ErrorKind::Table, format!("{}: {problem}", self.name()))
                .hint("drop it there, or give the one of the spec another name")
        })?;
        if difference.new.is_empty() && difference.gone.is_empty() && difference.own == held {
            return Ok(());
        }
        if self.file_count()? > 0 {
            let session = lake.session()?;
            let rows = session.context().read_table(session.provider(self).await?)?;
            let what = format!("rows of {}", self.name());
            let partitions = self.partition_columns()?;
            rules::hold(&difference.new, &rows, keys, &partitions, &what).await.map_err(|error| {
                error.hint(
                    "the rows that are there must meet a new rule (null does not: add `OR … IS NULL` where it may be); \
                     mend the rule, or make the table anew with `silver rebuild`: what does not meet it then goes to quarantine",
                )
            })?;
        }
        let version = self.txn_version(app).await?.unwrap_or(0) + 1;
        let (actions, properties) = self.with_rules(&difference)?;
        let commit = Commit {
            point: "columns_committed",
            txns: vec![Txn::new(app, version)],
            operation: DeltaOperation::SetTableProperties { properties },
            actions,
            blind_append: false,
            metrics: BTreeMap::new(),
            run: run.clone(),
        };
        self.commit(commit).await.map(|_: Outcome| ())
    }

    /// Adds a CHECK constraint by hand, whatever a spec says. The rows that are there must meet it.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] with the keys of rows that do not, [`ErrorKind::Spec`] when there is one of that name,
    /// [`ErrorKind::Query`] when it is no condition on the columns, [`ErrorKind::Conflict`] when another writer came first.
    pub async fn add_check(
        &mut self,
        lake: &Lake,
        name: &str,
        sql: &str,
        keys: &[String],
        run: &RunId,
    ) -> Result<Outcome> {
        let held = Rule::of(self)?;
        if let Some(held) = held.iter().find(|rule| rule.kind == Kind::Check && rule.name.eq_ignore_ascii_case(name)) {
            let error = Error::spec(format!("{} has {} already", self.name(), held.text()));
            return Err(error.hint("drop it first, or give the new one another name"));
        }
        let rule = Rule { kind: Kind::Check, name: name.to_owned(), sql: sql.to_owned() };
        let session = lake.session()?;
        let rows = session.context().read_table(session.provider(self).await?)?;
        let what = format!("rows of {}", self.name());
        let (new, partitions) = (vec![rule], self.partition_columns()?);
        rules::hold(&new, &rows, keys, &partitions, &what).await.map_err(|error| {
            error.hint("every row that is there must meet it (null does not: add `OR … IS NULL` where it may be)")
        })?;
        let difference = Difference { new, gone: Vec::new(), own: Own::of(self)? };
        self.set_by_hand(&difference, run).await
    }

    /// Drops a CHECK constraint by hand.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] when there is none of that name, or a spec has set it; [`ErrorKind::Conflict`] when another
    /// writer came first.
    pub async fn drop_check(&mut self, name: &str, run: &RunId) -> Result<Outcome> {
        let (held, own) = (Rule::of(self)?, Own::of(self)?);
        let checks = || held.iter().filter(|rule| rule.kind == Kind::Check);
        let Some(rule) = checks().find(|rule| rule.name == name) else {
            let error = Error::spec(format!("{} has no constraint `{name}`", self.name()));
            let hint = did_you_mean(name, checks().map(|rule| rule.name.as_str()));
            return Err(error.hint(hint.unwrap_or_else(|| "`orchestrator table describe` shows them".to_owned())));
        };
        if own.checks.contains(name) {
            let error =
                Error::spec(format!("{} has `{name}` from the spec: the next run would set it again", self.name()));
            return Err(error.hint("take it out of `constraints` there"));
        }
        self.set_by_hand(&Difference { new: Vec::new(), gone: vec![rule.clone()], own }, run).await
    }

    async fn set_by_hand(&mut self, difference: &Difference, run: &RunId) -> Result<Outcome> {
        let (actions, properties) = self.with_rules(difference)?;
        let operation = DeltaOperation::SetTableProperties { properties };
        let hand = ByHand { point: "settings_committed", operation, actions, metrics: BTreeMap::new() };
        self.commit_by_hand(hand, run).await
    }

    /// The CHECK constraints that other programs have set.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the table is not loaded.
    pub fn checks_of_others(&self) -> Result<Vec<Rule>> {
        let own = Own::of(self)?;
        let mut rules = Rule::of(self)?;
        rules.retain(|rule| rule.kind == Kind::Check && !own.checks.contains(&rule.name));
        Ok(rules)
    }

    /// Asks the rows of a table that is to take the place of this one for the constraints that other programs have set
    /// here, and returns these.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] when rows do not meet one, [`ErrorKind::Query`] when it cannot be asked of them,
    /// [`ErrorKind::Table`] when the new table has another one under its name.
    pub async fn bind(&self, anew: &Self, rows: &DataFrame, keys: &[String]) -> Result<Vec<Rule>> {
        let others = self.checks_of_others()?;
        let hint = "drop it there, or mend the spec";
        let new = Rule::of(anew)?;
        for rule in &others {
            let is_other = |new: &&Rule| {
                new.kind == Kind::Check && new.name.eq_ignore_ascii_case(&rule.name) && new.sql != rule.sql
            };
            if let Some(new) = new.iter().find(is_other) {
                let message = format!(
                    "{}: another program has set {}, and the spec says `{}`",
                    self.name(),
                    rule.text(),
                    new.sql
                );
                return Err(Error::new(ErrorKind::Table, message).hint(hint));
            }
        }
        let what = format!("new rows of {}", self.name());
        rules::hold(&others, rows, keys, &anew.partition_columns()?, &what).await.map_err(|error| error.hint(hint))?;
        Ok(others)
    }

    /// The actions that change the rules, and the properties that are set by them.
    fn with_rules(&self, difference: &Difference) -> Result<(Vec<Action>, HashMap<String, String>)> {
        let snapshot = self.delta().snapshot()?;
        let of_kind = |rules: &[Rule], kind| rules.iter().filter(|rule| rule.kind == kind).cloned().collect::<Vec<_>>();
        let (new, gone) = (of_kind(&difference.new, Kind::Generated), of_kind(&difference.gone, Kind::Generated));
        let schema = self.schema();
        let fields = schema.fields().iter().map(|field| with_expression(field, &new, &gone));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let mut metadata = with_columns(self, &schema, &[])?;
        for rule in of_kind(&difference.gone, Kind::Check) {
            metadata = metadata.remove_config_key(&format!("{CHECK}{}", rule.name)).map_err(DeltaTableError::from)?;
        }
        let checks = of_kind(&difference.new, Kind::Check).into_iter();
        let mut properties: HashMap<String, String> =
            checks.map(|rule| (format!("{CHECK}{}", rule.name), rule.sql)).collect();
        if difference.own != Own::of(self)? {
            properties.insert(OWN.to_owned(), json!(difference.own).to_string());
        }
        for (key, value) in &properties {
            metadata = metadata.add_config_key(key.clone(), value.clone()).map_err(DeltaTableError::from)?;
        }
        let has = |kind| difference.new.iter().any(|rule| rule.kind == kind);
        let protocol = upgraded(snapshot.protocol(), has(Kind::Check), has(Kind::Generated))?;
        let actions = [Action::Metadata(metadata)].into_iter().chain(protocol.map(Action::Protocol));
        Ok((actions.collect(), properties))
    }
}

fn with_expression(field: &Field, new: &[Rule], gone: &[Rule]) -> Field {
    let mut metadata = field.metadata().clone();
    if gone.iter().any(|rule| rule.name == *field.name()) {
        metadata.remove(GENERATED);
    }
    if let Some(rule) = new.iter().find(|rule| rule.name == *field.name()) {
        metadata.insert(GENERATED.to_owned(), rule.sql.clone());
    }
    field.clone().with_metadata(metadata)
}

/// What makes the rules of a table those of a spec; `own` are those that an earlier spec has set.
fn difference(held: &[Rule], wanted: &Rules, own: &Own) -> Result<Difference, String> {
    let mut difference = Difference::default();
    let rule = |kind, (name, sql): &(String, String)| Rule { kind, name: name.clone(), sql: sql.clone() };
    let checks = wanted.checks.iter().map(|pair| rule(Kind::Check, pair));
    let wanted: Vec<Rule> = checks.chain(wanted.generated.iter().map(|pair| rule(Kind::Generated, pair))).collect();
    let is_own = |rule: &Rule| match rule.kind {
        Kind::Check => own.checks.contains(&rule.name),
        Kind::Generated => own.generated.contains(&rule.name),
        Kind::Invariant => false,
    };
    let same = |left: &Rule, right: &Rule| left.kind == right.kind && left.name.eq_ignore_ascii_case(&right.name);
    for wanted in &wanted {
        match held.iter().find(|held| same(held, wanted)) {
            // Who set it first keeps it.
            Some(held) if held.sql == wanted.sql && !is_own(held) => continue,
            Some(held) if held.sql == wanted.sql => {}
            Some(held) if !is_own(held) => {
                return Err(format!("another program has set {}, and the spec says `{}`", held.text(), wanted.sql));
            }
            _ => difference.new.push(wanted.clone()),
        }
        let names = if wanted.kind == Kind::Check { &mut difference.own.checks } else { &mut difference.own.generated };
        names.insert(wanted.name.clone());
    }
    let is_gone = |held: &&Rule| is_own(held) && !wanted.iter().any(|wanted| same(held, wanted));
    difference.gone = held.iter().filter(is_gone).cloned().collect();
    Ok(difference)
}

/// The protocol of a table with such rules; `None` when it is one already.
fn upgraded(held: &Protocol, checks: bool, generates: bool) -> Result<Option<Protocol>> {
    let broken =
        |error: serde_json::Error| Error::internal("the protocol of a table does not convert").with_source(error);
    let mut protocol = serde_json::to_value(held).map_err(broken)?;
    let version = protocol.get("minWriterVersion").and_then(Value::as_i64).unwrap_or(1);
    let before = protocol.clone();
    if version < LISTED {
        let needed = [(checks, CHECKS), (generates, GENERATES)].into_iter().filter(|(is_on, _)| *is_on);
        let needed = needed.map(|(_, version)| version).max().unwrap_or(version);
        protocol["minWriterVersion"] = json!(version.max(needed));
    } else {
        let listed = protocol.get("writerFeatures").and_then(Value::as_array).into_iter().flatten();
        let mut features: BTreeSet<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
        features.extend(checks.then(|| "checkConstraints".to_owned()));
        features.extend(generates.then(|| "generatedColumns".to_owned()));
        if features.len() > protocol.get("writerFeatures").and_then(Value::as_array).map_or(0, Vec::len) {
            protocol["writerFeatures"] = json!(features);
        }
    }
    if protocol == before { Ok(None) } else { serde_json::from_value(protocol).map(Some).map_err(broken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, sql: &str) -> Rule {
        Rule { kind: Kind::Check, name: name.to_owned(), sql: sql.to_owned() }
    }

    fn wanted(pairs: &[(&str, &str)]) -> Rules {
        let pair = |(name, sql): &(&str, &str)| ((*name).to_owned(), (*sql).to_owned());
        Rules { checks: pairs.iter().map(pair).collect(), generated: Vec::new() }
    }

    fn own(names: &[&str]) -> Own {
        Own { checks: names.iter().map(|name| (*name).to_owned()).collect(), generated: BTreeSet::new() }
    }

    #[test]
    fn rules_of_an_earlier_spec_go_and_those_of_others_stay() {
        let held = [check("ours", "a > 0"), check("theirs", "b > 0"), check("same", "c > 0")];
        let found = difference(&held, &wanted(&[("new", "d > 0"), ("same", "c > 0")]), &own(&["ours"])).expect("fits");
        assert_eq!((found.new, found.gone), (vec![check("new", "d > 0")], vec![check("ours", "a > 0")]));
        assert_eq!(found.own, own(&["new"]), "who set a rule first keeps it");
        let changed = difference(&held, &wanted(&[("ours", "a > 1")]), &own(&["ours"])).expect("fits");
        assert_eq!((changed.new, changed.gone), (vec![check("ours", "a > 1")], Vec::new()));
        let problem = difference(&held, &wanted(&[("theirs", "b > 1")]), &own(&[])).expect_err("refused");
        assert!(problem.contains("another program has set constraint `theirs`: b > 0"), "{problem}");
    }

    #[test]
    fn writers_must_know_what_the_rules_are() {
        let protocol = |value: Value| serde_json::from_value::<Protocol>(value).expect("a protocol");
        let writer = |held: Value, checks, generates| {
            let new = upgraded(&protocol(held), checks, generates).expect("a protocol")?;
            Some(serde_json::to_value(&new).expect("JSON")["minWriterVersion"].clone())
        };
        let old = json!({"minReaderVersion": 1, "minWriterVersion": 2});
        assert_eq!(writer(old.clone(), true, false), Some(json!(3)));
        assert_eq!(writer(old, true, true), Some(json!(4)));
        assert_eq!(writer(json!({"minReaderVersion": 1, "minWriterVersion": 4}), true, true), None);
        let listed = json!({"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]});
        let new = upgraded(&protocol(listed), true, true).expect("a protocol").expect("another one");
        let features = serde_json::to_value(&new).expect("JSON")["writerFeatures"].clone();
        assert_eq!(features, json!(["checkConstraints", "deletionVectors", "generatedColumns"]));
        assert!(upgraded(&new, true, true).expect("a protocol").is_none());
    }
}
