//! The spec (`pipelines.yaml`), read so that every problem is reported at once, with its place and what was meant.
//!
//! A layer describes its part as a plain struct and turns it into a plan:
//!
//! ```
//! use lake::spec::{Document, Problem, Problems, SpecPath};
//!
//! #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields, default)]
//! #[schemars(extend("required" = ["source"], "x-not-yet" = ["generated"], "x-aliases" = {"unique_key": "keys"}))]
//! struct Table {
//!     source: String,
//!     keys: Vec<String>,
//! }
//!
//! let text = "name: shop\nsilver:\n  orders:\n    source: orders_cdc\n    kyes: [id]\n    generated: {}\n";
//! let document = Document::parse("pipelines.yaml", text);
//! let mut problems = document.problems();
//! for entry in document.section::<Table>("silver", &mut problems) {
//!     if entry.raw.keys.is_empty() {
//!         problems.add(Problem::at(&entry.path.key("keys"), "a table needs keys"));
//!     }
//! }
//! assert_eq!(problems.len(), 2);
//! ```
//!
//! [`Document::section`] checks the YAML against the JSON Schema of the struct (unknown keys, wrong types, unknown
//! values of an enum, durations and sizes) before serde sees it, and reports each with the nearest known name. On a
//! struct or an enum of plain values:
//! - `"required" = [...]` names keys that must be there (give the field a default all the same);
//! - `"x-not-yet" = [...]` names keys or values that are documented and refused as not supported yet;
//! - `"x-aliases" = {...}` maps other accepted names of keys to the names of the fields.
//!
//! `key:` without a value means the default. Values may hold `${VAR}` and `${VAR:-default}`; what the environment
//! gave is never shown in a message.

mod check;
mod document;
mod environment;
mod header;
mod maintenance;
mod map;
mod nearest;
mod notifications;
mod path;
mod problems;
mod properties;
mod render;
mod scalars;
mod schedule;
mod text;
mod trigger;
mod window;
mod yaml;

#[cfg(test)]
mod tests;

pub use document::{Document, Entry};
pub use header::{Durability, Engine, Header, top_schema};
pub use maintenance::{LogWhen, Maintenance, OptimizeWhen, TableMaintenance, VacuumWhen};
pub use map::Map;
pub use nearest::{did_you_mean, nearest};
pub use notifications::{Notification, Notifications};
pub use path::SpecPath;
pub use problems::{Problem, Problems};
pub use properties::properties;
pub use scalars::{ByteSize, Duration};
pub use schedule::Schedule;
pub use trigger::{FileArrival, TableUpdate, Trigger, UpdateCondition, WatchedTable};
pub use window::Window;
