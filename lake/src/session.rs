//! The only place that builds DataFusion sessions: their memory, threads and SQL dialect.
//!
//! Where DataFusion's dialect would lose something, ours does not: a number with a point is a decimal, a sum that
//! does not fit is an error, and timestamps are in microseconds. Whole-number `+`, `-` and `*` are
//! DataFusion's and wrap.

mod avg;
mod distinct;
mod marked;
pub(crate) mod parquet;
mod scan;
mod sum;
mod time;
mod wrong;

use std::sync::Arc;

use datafusion::catalog::{MemorySchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use deltalake::delta_datafusion::DeltaSessionConfig;
use deltalake::delta_datafusion::planner::DeltaPlanner;

use crate::error::{Error, Result};
use crate::names::{Layer, TableName};
use crate::table::Table;
pub use wrong::query_error;

/// What the answers of queries depend on beside their text and tables: with another one they may be other values.
pub const DIALECT: &str = "datafusion 55, 3";

/// What work on a lake may use of the machine.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    /// Bytes that sorts, joins and aggregates may hold before they spill; `None` is no limit.
    pub memory_bytes: Option<usize>,
    /// Threads of one query; `None` is one per core.
    pub threads: Option<usize>,
}

impl Engine {
    /// Threads that work may take.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        self.threads.unwrap_or_else(cores).max(1)
    }

    /// A pool of its memory; `None` without a limit.
    pub(crate) fn pool(&self) -> Option<Arc<dyn MemoryPool>> {
        self.memory_bytes.map(|bytes| Arc::new(FairSpillPool::new(bytes)) as Arc<dyn MemoryPool>)
    }
}

/// How scans give texts and binary values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    /// In arrays of the tables' own types, which the layers build and compare.
    Plain,
    /// As views: cheaper to decode, to filter and to group by.
    Views,
}

/// A DataFusion session over tables of the lake. Identifiers keep their case.
#[derive(Clone)]
pub struct Session {
    ctx: SessionContext,
}

impl Session {
    /// A session that takes its memory from `pool`, by default from one of its own.
    pub(crate) fn new(engine: &Engine, pool: Option<Arc<dyn MemoryPool>>, texts: Texts) -> Result<Self> {
        let mut config: SessionConfig = DeltaSessionConfig::default().into();
        config = config.set_bool("datafusion.execution.parquet.schema_force_view_types", texts == Texts::Views);
        // Money times `1.23` stays exact.
        config = config.set_bool("datafusion.sql_parser.parse_float_as_decimal", true);
        // What is wrong with a query is told with its line.
        config = config.set_bool("datafusion.sql_parser.collect_spans", true);
        if let Some(threads) = engine.threads {
            config = config.with_target_partitions(threads);
        }
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(pool) = pool.or_else(|| engine.pool()) {
            runtime = runtime.with_memory_pool(pool);
        }
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(runtime.build_arc()?)
            .with_query_planner(DeltaPlanner::new())
            .with_type_planner(Arc::new(time::Microseconds))
            .with_optimizer_rules(distinct::rules())
            .build();
        let session = Self { ctx: SessionContext::new_with_state(state) };
        for function in [sum::function(), avg::function()] {
            session.ctx.register_udaf(function.as_ref().clone());
        }
        session.add_schemas()?;
        Ok(session)
    }

    /// A session without tables, to check expressions before there is a lake.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when the settings are refused.
    pub fn detached() -> Result<Self> {
        Self::new(&Engine::default(), None, Texts::Plain)
    }

    fn add_schemas(&self) -> Result<()> {
        let names = self.ctx.catalog_names();
        let catalog = names
            .first()
            .and_then(|name| self.ctx.catalog(name))
            .ok_or_else(|| Error::internal("a session has no catalog"))?;
        for layer in Layer::ALL.into_iter().chain([Layer::Delta]) {
            catalog.register_schema(layer.as_str(), Arc::new(MemorySchemaProvider::new()))?;
        }
        Ok(())
    }

    /// Makes a table of the lake known as `layer.name`, at the version that is open.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the scan cannot be planned.
    pub async fn register(&self, table: &Table) -> Result<()> {
        self.register_named(table.name(), table).await
    }

    /// Makes a table known under another name of its layer.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub async fn register_named(&self, name: &TableName, table: &Table) -> Result<()> {
        let provider = self.provider(table).await?;
        self.ctx.register_table(reference(name), provider)?;
        Ok(())
    }

    /// Makes the rows of a query known under a name of a layer.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the name is taken.
    pub fn register_view(&self, name: &TableName, rows: DataFrame) -> Result<()> {
        self.ctx.register_table(reference(name), rows.into_view())?;
        Ok(())
    }

    /// Makes a table known under a name of the caller's.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the name is taken.
    pub fn register_as(&self, name: &str, provider: Arc<dyn TableProvider>) -> Result<()> {
        self.ctx.register_table(TableReference::bare(name), provider)?;
        Ok(())
    }

    /// Makes a table of the lake known that is not read.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the name is taken.
    pub fn register_layout(&self, name: &TableName, provider: Arc<dyn TableProvider>) -> Result<()> {
        self.ctx.register_table(reference(name), provider)?;
        Ok(())
    }

    /// A plan with the types that its expressions take when it is computed.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when types do not fit each other.
    pub fn typed(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let state = self.ctx.state();
        state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(query_error)
    }

    /// Plans a query. Only queries are accepted: nothing can be made, changed or set.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) when the text is not a query or names what is not there.
    pub async fn sql(&self, query: &str) -> Result<DataFrame> {
        let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let plan = self.ctx.state().create_logical_plan(query).await;
        let plan = plan.and_then(time::in_microseconds).map_err(query_error)?;
        read_only.verify_plan(&plan).map_err(query_error)?;
        self.ctx.execute_logical_plan(plan).await.map_err(query_error)
    }

    /// The DataFusion context, for plans that are built by hand.
    pub fn context(&self) -> &SessionContext {
        &self.ctx
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.ctx.session_id()).finish()
    }
}

/// The SQL name of a table of the lake.
pub fn reference(name: &TableName) -> TableReference {
    TableReference::partial(name.layer.as_str(), name.name.clone())
}
