//! What a table refused when it was made anew, in the place of what it had refused before.

use lake::quarantine::{Before, Quarantine, QuarantineWriter};
use lake::{Layer, Result, Table};

use crate::facts::{beside, rebuilt};
use crate::refine::Refinement;

impl Refinement<'_> {
    /// Ends a rebuild whose table is in its place and whose refused records are not.
    pub(crate) async fn end_rebuild(&self, table: &Table) -> Result<()> {
        let Refinement { lake, plan, ctx, .. } = self;
        if rebuilt(table)?.is_none() {
            return Ok(());
        }
        let name = beside(table, Layer::Refused)?;
        let Some(refused) = lake.table(&name).await? else { return Ok(()) };
        let (side, upto) = (self.side_app(table)?, table.txn_version(&self.app()).await?.unwrap_or(i64::MIN));
        let before = Before::of(lake, &plan.source, &plan.table, &side, (i64::MIN, upto), true).await?;
        if !before.is_known() {
            let mut writer = QuarantineWriter::after(lake, &before, &ctx.run);
            writer.push_all(&Quarantine::elsewhere(lake, &plan.source, refused), &plan.table).await?;
            writer.commit(&before, upto, "rebuild_refused_committed").await?;
        }
        lake.remove_table(&name).await
    }
}
