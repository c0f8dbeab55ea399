//! The changes of the keys that a run touches: those that its rows tell, those that are remembered, and the new ones.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::functions::core::expr_fn::{coalesce, get_field};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, SortExpr, cast, ident, lit};
use lake::session::Session;
use lake::stage::Staged;
use lake::upsert::{DELETE, same_key};
use lake::{Result, Table, columns};

use super::partial::RANK;
use super::remembered::{IS_DELETE, PLACE_IN_BATCH};
use crate::change::{CHANGE_NUMBER, FILE_RANK, FILE_TIME, OP_RANK, RANK_IN_FILE};
use crate::facts::NUMBER;
use crate::order;
use crate::plan::{Kept, TablePlan, position_names};

/// Where a change was taken from; one of the constants below.
pub(super) const ORIGIN: &str = "__origin";
pub(super) const ROW: i32 = 0;
pub(super) const REMEMBERED: i32 = 1;
pub(super) const NEW: i32 = 2;
/// A truncate, or the mark or end that one has put on a row.
pub(super) const TRUNCATE: i32 = 3;
/// Whether a change counts in the figures of the run.
pub(crate) const COUNTED: &str = "__counted";

/// Changes of rows come before new ones of the same batch.
pub(super) const OLD_FILE: i32 = -1;
/// Between changes of one sequence and batch: truncates that are remembered, the change of a row, the delete of that row,
/// changes that are remembered.
pub(super) const OF_TRUNCATE: i64 = -1;
const OF_ROW: i64 = 0;
const OF_MARK: i64 = 1;
const OF_REMEMBERED: i64 = 10;

const TOUCHED: &str = "__touched_";
const PLACE: &str = "__place";

/// The columns of changes, and what of them a table holds.
pub(super) struct Events<'a> {
    pub(super) plan: &'a TablePlan,
    /// The columns of the table as it keeps rows.
    target: SchemaRef,
    /// The columns of a change that are values: those of the table without those that its history adds, all nullable.
    base: SchemaRef,
}

impl<'a> Events<'a> {
    pub(super) fn new(plan: &'a TablePlan, table: &Table, changes: &Staged) -> Self {
        let target = table.schema();
        let base = changes.schema();
        let own = base.fields().iter().filter(|field| target.field_with_name(field.name()).is_ok());
        let own = own.map(|field| field.as_ref().clone().with_nullable(true));
        let base = std::sync::Arc::new(Schema::new(own.collect::<Vec<Field>>()));
        Self { plan, target, base }
    }

    pub(super) fn base(&self) -> SchemaRef {
        SchemaRef::clone(&self.base)
    }

    pub(super) fn target(&self) -> &SchemaRef {
        &self.target
    }

    /// The names of the columns of a change that are values.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.base.fields().iter().map(|field| field.name().as_str())
    }

    /// The columns of a change that is remembered, out of a frame that may have its number among those of its place.
    pub(super) fn remembered_columns(&self, frame: &DataFrame) -> Vec<Expr> {
        let rank = frame.schema().has_column_with_unqualified_name(RANK).then(|| ident(RANK).alias(PLACE_IN_BATCH));
        self.names().map(ident).chain([ident(DELETE).alias(IS_DELETE)]).chain(rank).collect()
    }

    /// The names of the columns of a change that hold what the source said, without the keys.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        let is_own = |name: &&str| !columns::is_silver_technical(name) && !self.plan.keys.iter().any(|key| key == name);
        self.names().filter(is_own)
    }

    /// The keys, for `PARTITION BY`.
    pub(super) fn keys(&self) -> Vec<Expr> {
        self.plan.keys.iter().map(ident).collect()
    }

    /// By sequence, the first first.
    pub(super) fn oldest_first(&self) -> Vec<SortExpr> {
        self.plan.sequence_columns().iter().map(|name| ident(name).sort(true, true)).collect()
    }

    /// The whole order of changes, the last first.
    pub(super) fn newest_first(&self) -> Vec<SortExpr> {
        let names = order::names(&self.plan.sequence_columns()).into_iter().chain([ORIGIN.to_owned()]);
        names.map(|name| ident(name).sort(false, false)).collect()
    }

    /// The rows of a table or of what is remembered that have a key among those that are touched.
    pub(super) async fn touched(&self, rows: DataFrame, keyed: &Staged, session: &Session) -> Result<DataFrame> {
        let touched = |number: usize| format!("{TOUCHED}{number}");
        let keys = self.plan.keys.iter().enumerate();
        let on: Vec<Expr> =
            keys.clone().map(|(number, key)| same_key(&self.target, key, ident(key), ident(touched(number)))).collect();
        let keys: Vec<Expr> = keys.map(|(number, key)| ident(key).alias(touched(number))).collect();
        let keys = keyed.frame(session).await?.select(keys)?.distinct()?;
        Ok(rows.join_on(keys, JoinType::LeftSemi, on)?)
    }

    /// The rows of the touched keys.
    pub(super) async fn held(&self, table: &Table, keyed: &Staged, session: &Session) -> Result<Staged> {
        let rows = session.context().read_table(session.provider(table).await?)?;
        let columns = self.target.fields().iter();
        // Partition columns come back encoded.
        let columns = columns.map(|field| match field.data_type() {
            DataType::Struct(_) => ident(field.name()),
            kind => cast(ident(field.name()), kind.clone()).alias(field.name()),
        });
        let columns: Vec<Expr> = columns.collect();
        Staged::write(self.touched(rows, keyed, session).await?.select(columns)?).await
    }

    /// The changes of the touched keys of which none is older than another at its place.
    pub(super) fn winners(&self, all: DataFrame) -> Result<DataFrame> {
        let columns: Vec<Expr> = all.schema().fields().iter().map(|field| ident(field.name())).collect();
        let place = row_number()
            .partition_by(self.plan.stands_per().iter().map(ident).collect())
            .order_by(self.newest_first())
            .build()?
            .alias(PLACE);
        Ok(all.window(vec![place])?.filter(ident(PLACE).eq(lit(1_u64)))?.select(columns)?)
    }

    /// All changes of the touched keys that are known.
    pub(super) async fn all(
        &self,
        changes: &Staged,
        held: &Staged,
        remembered: Option<DataFrame>,
        session: &Session,
    ) -> Result<DataFrame> {
        let mut all = self.new_events(changes.frame(session).await?, changes)?;
        all = all.union(self.row_events(held.frame(session).await?)?)?;
        if self.plan.kept == Kept::Marked {
            all = all.union(self.mark_events(held.frame(session).await?)?)?;
        }
        if let Kept::History(_) = self.plan.kept {
            all = all.union(self.end_events(held.frame(session).await?)?)?;
        }
        if let Some(remembered) = remembered {
            all = all.union(remembered)?;
        }
        Ok(all)
    }

    fn new_events(&self, changes: DataFrame, staged: &Staged) -> Result<DataFrame> {
        let file = [FILE_RANK, FILE_TIME, columns::FILE_PATH, RANK_IN_FILE];
        let order = [DELETE, OP_RANK].into_iter().chain(file).chain([columns::ROW_NUMBER, CHANGE_NUMBER]);
        let counted = match staged.schema().field_with_name(COUNTED) {
            Ok(_) => ident(COUNTED),
            Err(_) => lit(true).alias(COUNTED),
        };
        let columns = self.names().chain(order).map(ident);
        Ok(changes.select(columns.chain([lit(NEW).alias(ORIGIN), counted]).collect::<Vec<_>>())?)
    }

    /// Each row is the change that made it.
    fn row_events(&self, held: DataFrame) -> Result<DataFrame> {
        let columns = self.names().map(ident).chain(self.order(lit(false), (lit(OF_ROW), lit(0_i32)), ROW));
        Ok(held.select(columns.collect::<Vec<_>>())?)
    }

    /// The mark of a deleted row is its delete.
    fn mark_events(&self, held: DataFrame) -> Result<DataFrame> {
        let sequence = self.plan.sequence_columns();
        let values = self.base.fields().iter().map(|field| {
            let name = field.name();
            let value = match sequence.iter().position(|part| part == name) {
                Some(number) => ident(columns::deleted_sequence(number)),
                None if name == columns::BATCH_ID => ident(columns::DELETED_BATCH_ID),
                None if self.plan.keys.contains(name) => ident(name),
                None => lit(ScalarValue::try_from(field.data_type())?),
            };
            Ok(value.alias(name))
        });
        let values: Vec<Expr> = values.collect::<Result<Vec<_>>>()?;
        let columns = values.into_iter().chain(self.order(lit(true), (lit(OF_MARK), lit(0_i32)), ROW));
        Ok(held.filter(ident(columns::IS_DELETED))?.select(columns.collect::<Vec<_>>())?)
    }

    /// The end of a version is a delete, unless another change stands at its place: of those it is the oldest.
    fn end_events(&self, held: DataFrame) -> Result<DataFrame> {
        let sequence = self.plan.sequence_columns();
        let ends = self.end_parts();
        let values = self.base.fields().iter().map(|field| {
            let name = field.name();
            let value = match sequence.iter().position(|part| part == name) {
                Some(number) => cast(ends[number].clone(), field.data_type().clone()),
                None if name == columns::BATCH_ID => lit(i64::MIN),
                None if self.plan.keys.contains(name) => ident(name),
                None => lit(ScalarValue::try_from(field.data_type())?),
            };
            Ok(value.alias(name))
        });
        let values: Vec<Expr> = values.collect::<Result<Vec<_>>>()?;
        let columns = values.into_iter().chain(self.order(lit(true), (lit(OF_MARK), lit(0_i32)), ROW));
        Ok(held.filter(ident(columns::END_AT).is_not_null())?.select(columns.collect::<Vec<_>>())?)
    }

    /// The parts of the sequence at which a version ends.
    pub(super) fn end_parts(&self) -> Vec<Expr> {
        match self.plan.sequence.len() {
            1 => vec![ident(columns::END_AT)],
            _ => position_names(&self.plan.sequence)
                .iter()
                .map(|name| get_field(ident(columns::END_AT), name.as_str()))
                .collect(),
        }
    }

    /// What is remembered, as changes.
    pub(super) fn remembered_events(&self, rows: DataFrame) -> Result<DataFrame> {
        let has = |name: &str| rows.schema().field_with_unqualified_name(name).is_ok();
        let values = self.base.fields().iter().map(|field| {
            let kind = field.data_type();
            let value = match has(field.name()) {
                true => cast(ident(field.name()), kind.clone()),
                false => lit(ScalarValue::try_from(kind)?),
            };
            Ok(value.alias(field.name()))
        });
        let values: Vec<Expr> = values.collect::<Result<Vec<_>>>()?;
        let place = match has(PLACE_IN_BATCH) {
            true => coalesce(vec![ident(PLACE_IN_BATCH), lit(0_i32)]),
            false => lit(0_i32),
        };
        let order = self.order(ident(IS_DELETE), (ident(NUMBER) + lit(OF_REMEMBERED), place), REMEMBERED);
        Ok(rows.select(values.into_iter().chain(order).collect::<Vec<_>>())?)
    }

    /// What orders an old change, by two numbers, and where it comes from.
    fn order(&self, is_delete: Expr, (number, place): (Expr, Expr), origin: i32) -> impl Iterator<Item = Expr> + use<> {
        let ranked = self.plan.options.deletes_first && !self.plan.sequence.is_empty();
        let rank = match ranked {
            true => datafusion::logical_expr::when(is_delete.clone(), lit(0_i32)).otherwise(lit(1_i32)),
            false => Ok(lit(0_i32)),
        };
        [
            is_delete.alias(DELETE),
            rank.unwrap_or_else(|_| lit(0_i32)).alias(OP_RANK),
            lit(OLD_FILE).alias(FILE_RANK),
            lit(0_i64).alias(FILE_TIME),
            lit("").alias(columns::FILE_PATH),
            lit(0_i32).alias(RANK_IN_FILE),
            number.alias(columns::ROW_NUMBER),
            place.alias(CHANGE_NUMBER),
            lit(origin).alias(ORIGIN),
            lit(false).alias(COUNTED),
        ]
        .into_iter()
    }
}
