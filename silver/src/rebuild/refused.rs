//! What a table refused when it was made anew, in the place of what it had refused before.

use lake::commit::redoing;
use lake::quarantine::{Before, Quarantine, QuarantineWriter};
use lake::{Error, ErrorKind, Layer, Result, Table, TableName};

use crate::facts::{beside, rebuilt};
use crate::refine::Refinement;

impl Refinement<'_> {
    /// Ends a rebuild whose table is in its place and whose refused records are not.
    pub(crate) async fn end_rebuild(&self, table: &Table) -> Result<()> {
        if rebuilt(table)?.is_none() {
            return Ok(());
        }
        let (lake, name) = (self.lake, beside(table, Layer::Refused)?);
        // Another run that ends it first is no reason to make the table anew.
        redoing(lake.clock(), async || {
            // Another run may be taking it away.
            let going = |error: Error| Error::new(ErrorKind::Conflict, "a rebuild is being ended").with_source(error);
            let Some(refused) = lake.table(&name).await.map_err(going)? else { return Ok(()) };
            match self.refuse(table, refused).await {
                Ok(()) => lake.remove_table(&name).await,
                Err(_) if lake.table(&name).await.map_err(going)?.is_none() => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn refuse(&self, table: &Table, refused: Table) -> Result<()> {
        let Refinement { lake, plan, ctx, .. } = self;
        let (side, upto) = (self.side_app(table)?, table.txn_version(&self.app()).await?.unwrap_or(i64::MIN));
        let before = Before::of(lake, &plan.source, &plan.table, &side, (i64::MIN, upto), true).await?;
        if before.is_known() {
            return Ok(());
        }
        // A run that began on the table as it was before may yet come with what it refused of any batch that is there.
        let bronze = lake.existing(&TableName::bronze(&plan.source)).await?;
        let newest = bronze.txn_version(&plan.source).await?.unwrap_or(upto).max(upto);
        let before = before.ending(self.earlier_side_apps(table)?, newest);
        let mut writer = QuarantineWriter::after(lake, &before, &ctx.run);
        writer.push_all(&Quarantine::elsewhere(lake, &plan.source, refused), &plan.table).await?;
        writer.commit(&before, upto, "rebuild_refused_committed").await
    }
}
