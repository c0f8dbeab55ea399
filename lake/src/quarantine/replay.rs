//! The steps of a replay in the quarantine; the table that takes the records does the one between them.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::compute::and;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use deltalake::protocol::{DeltaOperation, SaveMode};
use futures::TryStreamExt;

use super::filter::column;
use super::places::each;
use super::read::of_replay;
use super::standing::{Change, More, Rewritten, Standing};
use super::{FIRST_SEEN, Filter, Places, Quarantine, QuarantineWriter, REPLAY, Status};
use crate::columns::{BATCH_ID, FILE_PATH, ROW_NUMBER};
use crate::commit::{Commit, Redo, Txn};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::names::{RunId, TableName};
use crate::table::Table;
use crate::write::discard;

/// How long a replay that was taken over by another run waits for that run before it takes the records back.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Records that are on their way, under the number of the decision that sent them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The table that refused them, and is to take them.
    pub table: TableName,
    /// The number.
    pub number: i64,
    source: String,
}

impl Claim {
    /// The transaction of the commit by which the table takes the records, in that table.
    pub fn txn(&self) -> Txn {
        Txn::new(self.app(), self.number * 2)
    }

    /// The transaction which makes sure, in that table, that it does not take the records under this number any more.
    pub fn fence_txn(&self) -> Txn {
        Txn::new(self.app(), self.number * 2 + 1)
    }

    /// True when `table` has taken the records.
    ///
    /// # Errors
    /// As [`Table::txn_version`].
    pub async fn is_taken(&self, table: &Table) -> Result<bool> {
        Ok(table.txn_version(&self.app()).await? == Some(self.txn().version))
    }

    /// Makes sure that `table`, as it is now, has taken the records or never does so under this number; true when it
    /// has taken them.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn fence(&self, table: &mut Table, run: &RunId) -> Result<bool> {
        table.reload().await?;
        if !self.is_taken(table).await? {
            let commit = Commit {
                point: "replay_fenced",
                txns: vec![self.fence_txn()],
                operation: DeltaOperation::Write { mode: SaveMode::Append, partition_by: None, predicate: None },
                actions: Vec::new(),
                blind_append: false,
                metrics: BTreeMap::new(),
                run: run.clone(),
            };
            let (clock, mut redo) = (table.clock().clone(), Redo::default());
            loop {
                let attempt = async {
                    table.reload().await?;
                    if self.is_taken(table).await? { Ok(()) } else { table.commit(commit.clone()).await.map(drop) }
                }
                .await;
                match attempt {
                    Err(error) if redo.again(&clock, &error).await => {}
                    answer => break answer?,
                }
            }
        }
        self.is_taken(table).await
    }

    fn app(&self) -> String {
        format!("{}:{}", self.table, TableName::quarantine(&self.source))
    }

    /// The records of the claim, and of any other claim of the table.
    pub fn filter(&self) -> Filter {
        Filter { refused_by: Some(self.table.clone()), status: vec![Status::Replaying], ..Filter::default() }
    }
}

impl Quarantine {
    /// Claims open records for a replay. `reach` names the tables that can take theirs, and the last batch of each.
    /// Records of tables that have a replay at work already are left alone.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn claim(
        &mut self,
        filter: &Filter,
        reach: &BTreeMap<TableName, i64>,
        run: &RunId,
    ) -> Result<Vec<(Claim, u64)>> {
        let (clock, mut redo) = (self.lake.clock().clone(), Redo::default());
        loop {
            let attempt = async {
                self.table.reload().await?;
                let number = self.decisions().await? + 1;
                let busy = self.tables(Status::Replaying)?;
                let mut claims = Vec::new();
                let mut all = Rewritten::default();
                for (table, upto) in reach.iter().filter(|(table, _)| !busy.contains(*table)) {
                    let name = table.to_string();
                    let asks: Vec<&str> = Filter::COLUMNS.into_iter().chain([BATCH_ID, ROW_NUMBER]).collect();
                    let change = Change {
                        takes: &|held, status| held == name && status == Status::Open && filter.takes(held, status),
                        asks: &asks,
                        mask: &|rows| Ok(and(&filter.mask(rows)?, &each(rows, |batch, _, _| batch <= *upto)?)?),
                        becomes: Some(Standing { status: Status::Replaying, by: run, replay: Some(number) }),
                    };
                    let part = self.rewrite(&change).await?;
                    if part.rows() > 0 {
                        claims.push((Claim { table: table.clone(), number, source: self.source.clone() }, part.rows()));
                    }
                    all.removed.extend(part.removed);
                    all.written = all.written.and(part.written);
                }
                self.decide(number, all, More::default(), "replay_claimed", run).await?;
                Ok(claims)
            }
            .await;
            match attempt {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => break answer,
            }
        }
    }

    /// The claim of records that `table` refused, and where each record is; with every place goes the time when it was
    /// first seen. The newest version is read.
    ///
    /// # Errors
    /// [`ErrorKind::Query`] and [`ErrorKind::Store`] when the table cannot be read.
    pub async fn claimed(&mut self, table: &TableName) -> Result<Option<(Claim, Places)>> {
        self.table.reload().await?;
        let filter = Filter { refused_by: Some(table.clone()), status: vec![Status::Replaying], ..Filter::default() };
        let mut numbers: BTreeMap<i64, Places> = BTreeMap::new();
        self.places(&filter, |number, batch, file, row, seen| {
            numbers.entry(number.unwrap_or_default()).or_default().add(batch, file, row, seen);
        })
        .await?;
        let Some((number, places)) = numbers.pop_first() else { return Ok(None) };
        Ok(Some((Claim { table: table.clone(), number, source: self.source.clone() }, places)))
    }

    /// The places of the records that a filter means.
    ///
    /// # Errors
    /// As [`claimed`](Self::claimed).
    pub async fn places_of(&self, filter: &Filter) -> Result<Places> {
        let mut places = Places::default();
        self.places(filter, |_, batch, file, row, seen| places.add(batch, file, row, seen)).await?;
        Ok(places)
    }

    async fn places(&self, filter: &Filter, mut each: impl FnMut(Option<i64>, i64, &str, i64, i64)) -> Result<()> {
        let columns = [BATCH_ID, FILE_PATH, ROW_NUMBER, FIRST_SEEN, REPLAY];
        let mut rows = std::pin::pin!(self.rows(filter, &columns).await?);
        while let Some(batch) = rows.try_next().await? {
            let wrong = || Error::new(ErrorKind::Table, "a quarantine table has columns of other types");
            let number = |name: &str| column(&batch, name)?.as_primitive_opt::<Int64Type>().ok_or_else(wrong);
            let (batches, places, replays) = (number(BATCH_ID)?, number(ROW_NUMBER)?, number(REPLAY)?);
            let seen = column(&batch, FIRST_SEEN)?.as_primitive_opt::<TimestampMicrosecondType>();
            let (seen, files) = (seen.ok_or_else(wrong)?, super::filter::text(&batch, FILE_PATH)?);
            for row in 0..batch.num_rows() {
                let replay = arrow::array::Array::is_valid(replays, row).then(|| replays.value(row));
                each(replay, batches.value(row), files.value(row), places.value(row), seen.value(row));
            }
        }
        Ok(())
    }

    /// Opens records of a claim again that were refused again; `refused` has them with their new reasons.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the records are not claimed under this number any more, and as [`Table::commit`].
    pub async fn reopen(
        &mut self,
        claim: &Claim,
        places: &Places,
        refused: QuarantineWriter,
        run: &RunId,
    ) -> Result<()> {
        let Some((_, written)) = refused.close().await? else { return Ok(()) };
        let (clock, mut redo) = (self.lake.clock().clone(), Redo::default());
        let answer = loop {
            let attempt = async {
                self.table.reload().await?;
                let number = self.decisions().await? + 1;
                let name = claim.table.to_string();
                let change = Change {
                    takes: &|held, status| held == name && status == Status::Replaying,
                    asks: &[BATCH_ID, FILE_PATH, ROW_NUMBER, REPLAY],
                    mask: &|rows| Ok(and(&of_replay(rows, claim.number)?, &places.mask(rows)?)?),
                    becomes: None,
                };
                let rewritten = self.rewrite(&change).await?;
                if rewritten.rows() != written.rows {
                    discard(&self.table, &rewritten.written.files).await;
                    return Ok(false);
                }
                self.decide(
                    number,
                    rewritten,
                    More { files: &written.files, ..More::default() },
                    "replay_reopened",
                    run,
                )
                .await?;
                Ok(true)
            }
            .await;
            match attempt {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => break answer,
            }
        };
        match answer {
            Ok(true) => Ok(()),
            Ok(false) => {
                discard(&self.table, &written.files).await;
                let message = format!("replay {} of {} was taken over by another run", claim.number, claim.table);
                Err(Error::new(ErrorKind::Conflict, message))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the table has taken the records that are still claimed.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn finish(&mut self, claim: &Claim, run: &RunId) -> Result<u64> {
        let standing = Standing { status: Status::Replayed, by: run, replay: None };
        self.settle(claim, |_| standing, "replay_finished", run).await.map(|(rows, _)| rows)
    }

    /// Gives up a claim that the table has not taken, and never will: its records are open as they were.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn release(&mut self, claim: &Claim, run: &RunId) -> Result<u64> {
        let standing = Standing { status: Status::Open, by: run, replay: None };
        self.settle(claim, |_| standing, "replay_released", run).await.map(|(rows, _)| rows)
    }

    /// Makes records ours that another run has claimed, unless `table` has taken them. `None` when nothing is ours by
    /// that: look again. With `waits`, the other run is given the time to end what it does: it is at work.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub async fn take_over(
        &mut self,
        claim: &Claim,
        table: &mut Table,
        waits: bool,
        run: &RunId,
    ) -> Result<Option<Claim>> {
        let clock = self.lake.clock().clone();
        let mut waited = if waits { Duration::ZERO } else { PATIENCE };
        while waited < PATIENCE {
            clock.sleep(PAUSE).await;
            waited += PAUSE;
            if self.claimed(&claim.table).await?.is_none_or(|(now, _)| now.number != claim.number) {
                return Ok(None);
            }
        }
        if claim.fence(table, run).await? {
            return Ok(None);
        }
        self.reclaim(claim, run).await
    }

    /// Ends a replay that failed: when another try cannot mend it, the records are open again, unless the table has
    /// taken them after all. Returns the error.
    pub async fn give_up(&mut self, claim: &Claim, table: &mut Table, error: Error, run: &RunId) -> Error {
        if error.retry() != Retry::Never {
            return error;
        }
        let settled = match claim.fence(table, run).await {
            Ok(true) => self.finish(claim, run).await,
            Ok(false) => self.release(claim, run).await,
            Err(error) => Err(error),
        };
        match settled {
            Ok(_) => error,
            Err(later) => error.hint(format!("its records stay claimed, the next run goes on with them: {later}")),
        }
    }

    /// Claims the records of a claim under a new number. `None` when none are left.
    async fn reclaim(&mut self, claim: &Claim, run: &RunId) -> Result<Option<Claim>> {
        let standing = |number| Standing { status: Status::Replaying, by: run, replay: Some(number) };
        let (rows, number) = self.settle(claim, standing, "replay_claimed", run).await?;
        Ok((rows > 0).then(|| Claim { number, ..claim.clone() }))
    }

    async fn settle<'r>(
        &mut self,
        claim: &Claim,
        standing: impl Fn(i64) -> Standing<'r>,
        point: &'static str,
        run: &RunId,
    ) -> Result<(u64, i64)> {
        let (clock, filter, mut redo) = (self.lake.clock().clone(), claim.filter(), Redo::default());
        loop {
            let attempt = async {
                self.table.reload().await?;
                let number = self.decisions().await? + 1;
                let change = Change {
                    takes: &|held, status| filter.takes(held, status),
                    asks: &[REPLAY],
                    mask: &|rows| of_replay(rows, claim.number),
                    becomes: Some(standing(number)),
                };
                let rewritten = self.rewrite(&change).await?;
                let rows = rewritten.rows();
                self.decide(number, rewritten, More::default(), point, run).await?;
                Ok((rows, number))
            }
            .await;
            match attempt {
                Err(error) if redo.again(&clock, &error).await => {}
                answer => break answer,
            }
        }
    }
}
