//! What a commit says of itself: its run, its figures, its transactions, and when.

use deltalake::kernel::transaction::CommitProperties;
use deltalake::kernel::{Action, Remove, Transaction};

use super::{Commit, Txn};
use crate::events;

/// The same action, which says when a file was removed by the clock of the lake: it is kept for a while from then on.
pub(super) fn dated(action: &Action, at: Option<i64>) -> Action {
    match action {
        Action::Remove(file) => Action::Remove(Remove { deletion_timestamp: at, ..file.clone() }),
        other => other.clone(),
    }
}

/// Strict, with checkpoints as the table asks for them and without the clean-up that lists the whole log.
pub(super) fn properties(commit: &Commit, at: Option<i64>) -> CommitProperties {
    let mut metadata = vec![("runId".to_owned(), serde_json::Value::from(commit.run.as_str()))];
    if !commit.metrics.is_empty() {
        let metrics = commit.metrics.iter().map(|(key, value)| ((*key).to_owned(), serde_json::Value::from(*value)));
        metadata.push(("operationMetrics".to_owned(), serde_json::Value::Object(metrics.collect())));
    }
    // What has a time may be forgotten, where the table says so: that must never be how far a table has come.
    let txn = |txn: &Txn| {
        let at = at.filter(|_| txn.app.starts_with(events::APP));
        Transaction::new_with_last_update(&txn.app, txn.version, at)
    };
    CommitProperties::default()
        .with_max_retries(0)
        .with_create_checkpoint(true)
        .with_cleanup_expired_logs(Some(false))
        .with_metadata(metadata)
        .with_application_transactions(commit.txns.iter().map(txn).collect())
}
