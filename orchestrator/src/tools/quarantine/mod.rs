//! Records that could not go on: what there is, which of them are meant, and what becomes of them.

pub(crate) mod groups;
pub(crate) mod replay;
pub(crate) mod show;

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, TimeZone, Utc};
use chrono_tz::Tz;
use lake::quarantine::{FileGlob, Filter, Quarantine, Status};
use lake::spec::{Duration, did_you_mean};
use lake::{Error, Lake, Layer, Result, TableName};

use crate::spec::{Job, Project};

/// The records that a command is about.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The sources that have a quarantine, or those of them that were named.
    pub(crate) sources: Vec<String>,
    /// Which of their records.
    pub(crate) filter: Filter,
}

/// What a user says of the records that are meant.
#[derive(Debug, Default)]
pub(crate) struct Wish<'a> {
    /// A bronze source.
    pub(crate) source: Option<&'a str>,
    /// The table that refused them.
    pub(crate) table: Option<&'a str>,
    /// The kind of reason.
    pub(crate) reason: Option<&'a str>,
    /// A glob of their files.
    pub(crate) file: Option<&'a str>,
    /// A day, a moment, or how long ago.
    pub(crate) since: Option<&'a str>,
}

impl Wish<'_> {
    /// True when nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        [self.source, self.table, self.reason, self.file, self.since].iter().all(Option::is_none)
    }
}

impl Choice {
    /// Finds out which records are meant.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Spec`] for a name that is nowhere, a glob that is none, and a time that cannot be read.
    pub(crate) async fn of(project: &Project, lake: &Lake, wish: &Wish<'_>, status: Vec<Status>) -> Result<Self> {
        let there = existing(lake).await?;
        let planned = project.tasks.iter().filter(|task| task.name.layer == Layer::Bronze);
        let known: BTreeSet<String> = planned.map(|task| task.name.name.clone()).chain(there.iter().cloned()).collect();
        if let Some(source) = wish.source.filter(|source| !known.contains(*source)) {
            let error = Error::spec(format!("there is no bronze source `{source}`"));
            return Err(hinted(error, source, &known));
        }
        let refused_by = match wish.table {
            Some(table) => Some(refusing_table(project, lake, &there, table).await?),
            None => None,
        };
        let since_us = match wish.since {
            Some(text) => Some(moment(text, project.header.timezone, lake.clock().now())?.timestamp_micros()),
            None => None,
        };
        let filter = Filter {
            refused_by,
            reason_kind: wish.reason.map(str::to_owned),
            file: wish.file.map(FileGlob::parse).transpose()?,
            since_us,
            status,
        };
        let sources = there.into_iter().filter(|source| wish.source.is_none_or(|wanted| wanted == source)).collect();
        Ok(Self { sources, filter })
    }

    /// Every record of every source.
    ///
    /// # Errors
    /// [`lake::ErrorKind::Store`] when the sources cannot be listed.
    pub(crate) async fn everything(lake: &Lake) -> Result<Self> {
        Ok(Self { sources: existing(lake).await?.into_iter().collect(), filter: Filter::default() })
    }

    /// Those of them in one state.
    #[must_use]
    pub(crate) fn only(mut self, status: Status) -> Self {
        self.filter.status = vec![status];
        self
    }
}

/// The sources that have a quarantine.
async fn existing(lake: &Lake) -> Result<BTreeSet<String>> {
    let listed = lake.root().store().list_with_delimiter(Some(&Layer::Quarantine.folder().into())).await?;
    Ok(listed.common_prefixes.iter().filter_map(|folder| folder.filename()).map(str::to_owned).collect())
}

/// A table that refuses records: one of the spec, or one that has left some in a quarantine.
async fn refusing_table(project: &Project, lake: &Lake, there: &BTreeSet<String>, name: &str) -> Result<TableName> {
    let planned = project.tasks.iter().filter(|task| matches!(task.job, Job::Bronze(_) | Job::Silver(_)));
    let mut known: BTreeSet<TableName> = planned.map(|task| task.name.clone()).collect();
    for source in there {
        if let Some(quarantine) = Quarantine::open(lake, source).await? {
            for status in Status::ALL {
                known.extend(quarantine.tables(status)?);
            }
        }
    }
    let names: BTreeSet<String> = known.iter().map(ToString::to_string).collect();
    match TableName::parse(name).filter(|table| known.contains(table)) {
        Some(table) => Ok(table),
        None => Err(hinted(Error::spec(format!("no table `{name}` refuses records")), name, &names)),
    }
}

fn hinted(error: Error, name: &str, known: &BTreeSet<String>) -> Error {
    match did_you_mean(name, known.iter().map(String::as_str)) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A day or a moment in `zone`, or a length of time before `now`.
fn moment(text: &str, zone: Tz, now: DateTime<Utc>) -> Result<DateTime<Utc>> {
    if let Ok(ago) = text.parse::<Duration>() {
        return Ok(now - ago.as_std());
    }
    let iso = text.trim().replacen(' ', "T", 1);
    if let Ok(at) = DateTime::parse_from_rfc3339(&iso) {
        return Ok(at.to_utc());
    }
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
    let local = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(&iso, format).ok());
    let local = local.or_else(|| iso.parse::<NaiveDate>().ok().and_then(|day| day.and_hms_opt(0, 0, 0)));
    let at = local.and_then(|local| zone.from_local_datetime(&local).earliest());
    at.map(|at| at.to_utc()).ok_or_else(|| {
        let error = Error::spec(format!("`{text}` is not a time"));
        error.hint("write a day (2024-05-01), a moment (2024-05-01T10:00:00Z), or how long ago (2 days)")
    })
}

/// Microseconds since 1970 as programs read them.
fn exact(micros: i64) -> Option<String> {
    DateTime::from_timestamp_micros(micros).map(|at| at.to_rfc3339_opts(SecondsFormat::Micros, true))
}

/// The same as people read them, in UTC.
fn rough(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map(|at| at.format("%Y-%m-%d %H:%M").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_day_a_moment_or_how_long_ago() {
        let now: DateTime<Utc> = "2024-05-10T12:00:00Z".parse().expect("a time");
        let of = |text: &str| moment(text, chrono_tz::Europe::Lisbon, now).map(|at| at.to_rfc3339());
        assert_eq!(of("2 days").expect("a time"), "2024-05-08T12:00:00+00:00");
        assert_eq!(of("2024-05-01").expect("a time"), "2024-04-30T23:00:00+00:00", "a day of the pipeline's zone");
        assert_eq!(of("2024-05-01 10:30").expect("a time"), "2024-05-01T09:30:00+00:00");
        assert_eq!(of("2024-05-01T10:30:00+02:00").expect("a time"), "2024-05-01T08:30:00+00:00");
        assert_eq!(of("yesterday").expect_err("no time").to_string(), "`yesterday` is not a time");
    }
}
