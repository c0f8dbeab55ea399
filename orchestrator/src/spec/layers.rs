//! The layers behind one face: their sections of the spec compiled to plans, and what a plan reads.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::SchemaRef;
use bronze::SourcePlan;
use lake::TableName;
use lake::spec::{Document, Header, Problem, Problems, SpecPath, TableMaintenance};
use silver::{Arriving, TablePlan};

/// What a task does, by its layer.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    /// Files of a landing folder into a bronze table.
    Bronze(Box<SourcePlan>),
    /// Changes of a bronze table into a silver table.
    Silver(Box<TablePlan>),
    /// A query or a daily snapshot into a gold table.
    Gold(Box<gold::Plan>),
}

impl Job {
    /// The tables that the spec says the task reads.
    pub(crate) fn reads(&self) -> BTreeSet<TableName> {
        match self {
            Self::Bronze(_) => BTreeSet::new(),
            Self::Silver(plan) => BTreeSet::from([TableName::bronze(&plan.source)]),
            Self::Gold(plan) => plan.sources(),
        }
    }

    /// The plan of a bronze source.
    pub(crate) fn source(&self) -> Option<&SourcePlan> {
        match self {
            Self::Bronze(plan) => Some(plan),
            _ => None,
        }
    }

    /// The keys of a silver table.
    fn keys(&self, name: &TableName) -> Option<(TableName, gold::Keys)> {
        match self {
            Self::Silver(plan) => {
                let is_row = !matches!(plan.kept, silver::plan::Kept::History(_));
                Some((name.clone(), gold::Keys { entity: plan.keys.clone(), is_row }))
            }
            _ => None,
        }
    }

    /// The columns that the spec has the table clustered by.
    pub(crate) fn zorder_by(&self) -> &[String] {
        match self {
            Self::Silver(plan) => &plan.zorder_by,
            Self::Gold(plan) => plan.model().map_or(&[], |model| &model.zorder_by),
            Self::Bronze(_) => &[],
        }
    }

    /// The key of the spec that names what the task reads.
    pub(super) fn reading_key(&self) -> &'static str {
        match self {
            Self::Bronze(_) => "path",
            Self::Silver(_) => "source",
            Self::Gold(plan) => plan.source_key(),
        }
    }
}

/// The plans of all sections, in the order of the spec; entries with problems are left out. `existing` are the columns of
/// tables that there are, for those of which the spec does not tell them; what it says of the upkeep of single tables goes to
/// `upkeep`.
pub(super) fn compile(
    document: &Document,
    header: &Header,
    existing: &BTreeMap<TableName, SchemaRef>,
    upkeep: &mut BTreeMap<TableName, TableMaintenance>,
    problems: &mut Problems,
) -> Vec<(TableName, Job)> {
    let mut jobs: Vec<(TableName, Job)> = Vec::new();
    let mut otherwise = |name: TableName, wanted: Option<TableMaintenance>, problems: &mut Problems| {
        let Some(wanted) = wanted else { return };
        wanted.vacuum.check(&SpecPath::of([name.layer.as_str(), &name.name]).key("maintenance"), problems);
        upkeep.insert(name, wanted);
    };
    for entry in document.section::<bronze::Source>("bronze", problems) {
        otherwise(TableName::bronze(&entry.name), entry.raw.maintenance, problems);
        let plan = bronze::compile(&entry, problems).map(|plan| plan.in_zone(header.timezone));
        jobs.extend(plan.map(|plan| (TableName::bronze(&entry.name), Job::Bronze(Box::new(plan)))));
    }
    let plans: Vec<&SourcePlan> = jobs.iter().filter_map(|(_, job)| job.source()).collect();
    bronze::check_together(&plans, problems);
    let sources: Vec<Arriving> = document.names("bronze").into_iter().map(|name| arriving(name, &plans)).collect();
    for entry in document.section::<silver::spec::Table>("silver", problems) {
        otherwise(TableName::silver(&entry.name), entry.raw.maintenance, problems);
        let plan = silver::compile(&entry, &sources, header.timezone, problems);
        jobs.extend(plan.map(|plan| (TableName::silver(&entry.name), Job::Silver(Box::new(plan)))));
    }
    for (name, job) in &jobs {
        absent_is_null(name, job, &jobs, problems);
    }
    let keys: BTreeMap<TableName, gold::Keys> = jobs.iter().filter_map(|(name, job)| job.keys(name)).collect();
    for entry in document.section::<gold::spec::Table>("gold", problems) {
        otherwise(TableName::gold(&entry.name), entry.raw.maintenance, problems);
        let plan = gold::compile(&entry, &|table| keys.get(table).cloned(), problems);
        jobs.extend(plan.map(|plan| (TableName::gold(&entry.name), Job::Gold(Box::new(plan)))));
    }
    check_models(&jobs, existing, problems);
    jobs
}

/// The queries of models against the columns of the tables that they read.
fn check_models(jobs: &[(TableName, Job)], existing: &BTreeMap<TableName, SchemaRef>, problems: &mut Problems) {
    let mut known = existing.clone();
    let mut models = Vec::new();
    for (name, job) in jobs {
        match job {
            Job::Silver(plan) => known.extend(plan.known_columns().map(|columns| (name.clone(), columns))),
            Job::Gold(plan) => models.extend(plan.model()),
            Job::Bronze(_) => {}
        }
    }
    // The columns of models are those of their queries, whatever their tables hold.
    known.retain(|name, _| !models.iter().any(|model| model.table == *name));
    let place = |model: &gold::ModelPlan| SpecPath::of(["gold", &model.table.name]);
    if let Err(error) = gold::check_models(&models, known, place, problems) {
        tracing::warn!(%error, "the queries of models were not checked");
    }
}

/// What a source says of the records that will land.
fn arriving(name: String, plans: &[&SourcePlan]) -> Arriving {
    match plans.iter().find(|plan| plan.source() == name) {
        Some(plan) => Arriving { name, is_text: plan.is_text(), columns: plan.columns() },
        None => Arriving::named(name),
    }
}

/// Partial updates need a source that tells what is absent from what is null.
fn absent_is_null(name: &TableName, job: &Job, jobs: &[(TableName, Job)], problems: &mut Problems) {
    let Job::Silver(plan) = job else { return };
    let source = TableName::bronze(&plan.source);
    let source = jobs.iter().filter(|(name, _)| *name == source).find_map(|(_, job)| job.source());
    let Some(source) = source.filter(|source| plan.needs_explicit_nulls() && !source.tells_absent_from_null()) else {
        return;
    };
    let message = format!("`{}` does not tell a column that is absent from one that is null", source.table);
    let hint = match source.is_json() {
        true => format!("set `json: {{explicit_nulls: true}}` of `{}`", source.table),
        false => "where a null means that the value did not change, set `ignore_null_updates` instead".to_owned(),
    };
    let path = SpecPath::of(["silver", &name.name]).key("partial_updates");
    problems.add(Problem::at(&path, message).hint(hint));
}
