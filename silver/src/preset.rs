//! What each producer of changes writes: a filled-in set of the options of a table, which the spec may override.

use crate::spec::{DeleteFlag, FlagWhen, Op, Preset};

/// The options of a preset.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Columns that hold the record where they hold an object: what is not in it is looked for beside it.
    pub unwrap: &'static [&'static str],
    /// The column that must be there for that, since a row may have such a column of its own.
    pub unwrap_beside: Option<&'static str>,
    /// The path of the new values.
    pub row: Option<&'static str>,
    /// The path of the old values.
    pub before: Option<&'static str>,
    /// The path of the values of a delete.
    pub delete_row: Option<&'static str>,
    /// The column of the operation.
    pub op: Option<Op>,
    /// The column that marks deletes.
    pub delete_flag: Option<DeleteFlag>,
    /// The parts of the sequence that the source may have.
    pub sequence_by: &'static [&'static str],
    /// Columns that begin so are the producer's own, and join no table by themselves.
    pub own: &'static [&'static str],
    /// Of two changes with one sequence a delete is the older.
    pub deletes_first: bool,
    /// The column of an inline schema that says how values are written.
    pub inline_schema: Option<&'static str>,
    /// Texts that stand for a value that was not sent because it did not change.
    pub placeholders: &'static [&'static str],
    /// Files whose names begin so are of the first load, and come before the others.
    pub load_files: Option<&'static str>,
}

/// The options of `preset`.
pub fn options(preset: Preset) -> Options {
    match preset {
        Preset::Plain => Options::default(),
        // https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html
        Preset::Dms => Options { op: op("Op", &["I"], &["U"], &["D"], &[]), load_files: Some("LOAD"), ..plain() },
        Preset::Debezium => debezium(),
        Preset::DebeziumFlattened => debezium_flattened(),
        // https://docs.airbyte.com/integrations/destinations/s3
        Preset::Airbyte => Options {
            unwrap: &["_airbyte_data"],
            delete_flag: Some(DeleteFlag {
                column: "_ab_cdc_deleted_at".into(),
                values: Vec::new(),
                when: Some(FlagWhen::NotNull),
            }),
            sequence_by: &["_ab_cdc_lsn bigint"],
            own: &["_airbyte_", "_ab_"],
            ..plain()
        },
        // https://maxwells-daemon.io/dataformat/
        Preset::Maxwell => Options {
            row: Some("data"),
            before: Some("old"),
            delete_row: Some("data"),
            op: op("type", &["insert", "bootstrap-insert"], &["update"], &["delete"], MAXWELL_NO_CHANGE),
            sequence_by: &["ts bigint", "xid bigint"],
            ..plain()
        },
        // https://docs.delta.io/latest/delta-change-data-feed.html
        Preset::DeltaCdf => Options {
            op: op("_change_type", &["insert"], &["update_postimage"], &["delete"], &["update_preimage"]),
            sequence_by: &["_commit_version bigint"],
            own: &["_change_type", "_commit_version", "_commit_timestamp"],
            deletes_first: true,
            ..plain()
        },
        // https://help.qlik.com: the header columns of change data files. The sequence has 35 digits.
        Preset::Qlik => Options {
            op: op("header__change_oper", &["I"], &["U"], &["D"], &["B"]),
            sequence_by: &["header__change_seq decimal(38,0)"],
            own: &["header__"],
            ..plain()
        },
        // https://learn.microsoft.com/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
        Preset::Sqlserver => Options {
            op: op("__$operation", &["2"], &["4"], &["1"], &["3"]),
            sequence_by: &["__$start_lsn string", "__$seqval string"],
            own: &["__$"],
            deletes_first: true,
            ..plain()
        },
        // https://fivetran.com/docs/core-concepts/system-columns-and-tables
        Preset::Fivetran => Options {
            delete_flag: flag("_fivetran_deleted", &["true", "TRUE", "True", "1"]),
            sequence_by: &["_fivetran_synced timestamp"],
            own: &["_fivetran_"],
            ..plain()
        },
    }
}

/// <https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events>
fn debezium() -> Options {
    Options {
        unwrap: &["payload"],
        row: Some("after"),
        before: Some("before"),
        delete_row: Some("before"),
        op: op("op", &["c", "r"], &["u"], &["d"], &["m"]),
        // Postgres has a position in its log, MySQL one in its files; others have the time of the change.
        sequence_by: &[
            "source.lsn bigint",
            "source.file binlog_file",
            "source.pos bigint",
            "source.row bigint",
            "source.ts_ms bigint",
        ],
        inline_schema: Some("schema"),
        placeholders: DEBEZIUM_UNCHANGED,
        ..plain()
    }
}

/// <https://debezium.io/documentation/reference/stable/transformations/event-flattening.html>
fn debezium_flattened() -> Options {
    Options {
        unwrap: &["payload"],
        unwrap_beside: Some("schema"),
        op: op("__op", &["c", "r"], &["u"], &["d"], &["m"]),
        delete_flag: flag("__deleted", &["true"]),
        sequence_by: &["__lsn bigint", "__source_ts_ms bigint", "__ts_ms bigint"],
        own: &["__", "schema", "payload"],
        inline_schema: Some("schema"),
        placeholders: DEBEZIUM_UNCHANGED,
        ..plain()
    }
}

/// The placeholder of a large value of Postgres that did not change: as text, as bytes, as JSON, in an array, in a map.
const DEBEZIUM_UNCHANGED: &[&str] = &[
    "__debezium_unavailable_value",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    "\"__debezium_unavailable_value\"",
    "[\"__debezium_unavailable_value\"]",
    "{\"__debezium_unavailable_value\":\"__debezium_unavailable_value\"}",
];

const MAXWELL_NO_CHANGE: &[&str] = &[
    "bootstrap-start",
    "bootstrap-complete",
    "table-create",
    "table-alter",
    "table-drop",
    "database-create",
    "database-alter",
    "database-drop",
    "heartbeat",
];

fn plain() -> Options {
    Options::default()
}

fn op(column: &str, insert: &[&str], update: &[&str], delete: &[&str], ignore: &[&str]) -> Option<Op> {
    let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    Some(Op {
        column: column.to_owned(),
        insert: list(insert),
        update: list(update),
        delete: list(delete),
        ignore: list(ignore),
    })
}

fn flag(column: &str, values: &[&str]) -> Option<DeleteFlag> {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Some(DeleteFlag { column: column.to_owned(), values, when: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::written::base64;

    #[test]
    fn the_placeholder_of_bytes_is_that_of_text() {
        assert_eq!(base64(DEBEZIUM_UNCHANGED[1]).as_deref(), Some(DEBEZIUM_UNCHANGED[0].as_bytes()));
    }
}
