//! A day that is over: its end in the pipeline's zone, and the source as it was then.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use chrono_tz::Tz;
use lake::history::{Timeline, check_readable};
use lake::{Clock, Error, ErrorKind, Lake, Result, Table, TableName};

use super::cut;
use crate::plan::SnapshotPlan;

/// A day that is over.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    /// The day.
    day: NaiveDate,
    /// Its last moment.
    end: DateTime<Utc>,
    /// The versions of the source since some day before it.
    timeline: Option<Timeline>,
}

impl Past {
    /// A day before today of `zone`.
    ///
    /// # Errors
    /// [`ErrorKind::Spec`] for a day that is not over yet, or that `retention` would not keep.
    pub(crate) fn new(plan: &SnapshotPlan, day: NaiveDate, today: NaiveDate, zone: Tz) -> Result<Self> {
        if day >= today {
            let error = Error::spec(format!("{day} is not over yet in {zone}, where today is {today}"));
            return Err(error.hint("a day that is not over is recorded as the table is now, by a run"));
        }
        if let Some(cut) = cut(plan, today).filter(|cut| day < *cut) {
            return Err(Error::spec(format!("{} keeps no day before {cut}, as `retention` says", plan.table)));
        }
        let next = day.succ_opt().and_then(|next| Clock::start_of(next, zone));
        let next = next.ok_or_else(|| Error::spec(format!("{day} is no day that can be recorded")))?;
        Ok(Self { day, end: next - TimeDelta::microseconds(1), timeline: None })
    }

    /// The day.
    pub(crate) fn day(&self) -> NaiveDate {
        self.day
    }

    /// The last moment of the day.
    pub(crate) fn end(&self) -> DateTime<Utc> {
        self.end
    }

    /// The same, with the versions of the source at hand.
    pub(crate) fn with_timeline(self, timeline: Timeline) -> Self {
        Self { timeline: Some(timeline), ..self }
    }

    /// The source as it was at the end of the day.
    ///
    /// # Errors
    /// [`ErrorKind::Table`] when the source was made later, its log does not reach back to then, or files of that
    /// version are gone.
    pub(super) async fn source(&self, lake: &Lake, name: &TableName) -> Result<Table> {
        let now = lake.existing(name).await?;
        let version = match &self.timeline {
            Some(timeline) => timeline.version_at(self.end),
            None => Timeline::since(&now, self.end).await?.version_at(self.end),
        };
        let refused = |error: Error| error.context(format!("{} cannot be recorded", self.day));
        let then = lake.table_at(name, version.map_err(refused)?).await?;
        if then.version() == now.version() {
            return Ok(then);
        }
        if then.id()? != now.id()? {
            let message = format!("{name} was another table at the end of {}", self.day);
            return Err(Error::new(ErrorKind::Table, message));
        }
        check_readable(&then, &now).await.map_err(refused)?;
        Ok(then)
    }
}
