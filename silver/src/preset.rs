//! What each producer of changes writes: a filled-in set of the options of a table, which the spec may override.

use lake::cast::bytes_text;

use crate::spec::{DeleteFlag, FlagWhen, Op, Preset};
use crate::written::base64_of;

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
    /// Of two changes with one sequence a delete is the older; without a sequence, of two of one file.
    pub deletes_first: bool,
    /// The column of an inline schema that says how values are written.
    pub inline_schema: Option<&'static str>,
    /// What is done with records before they are read.
    pub prepare: Option<Prepare>,
    /// A column that an update does not have keeps its value.
    pub partial_updates: bool,
    /// The end of the name of a member that is true when another member, `NAME` of `NAME_isMissing`, was not sent.
    pub says_missing: Option<&'static str>,
    /// The text that stands for a value that was not sent because it did not change.
    pub placeholder: Option<&'static str>,
    /// Files whose names begin so are of the first load, and come before the others.
    pub load_files: Option<&'static str>,
}

/// What is done with the records of a producer before they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepare {
    /// `data` and `old` are arrays of rows.
    RowArrays,
    /// Documents are texts of extended JSON, in an envelope that may be inside of a Kafka record.
    Documents,
    /// `sort_keys` is an array that is compared part by part.
    SortKeys,
}

/// The options of `preset`.
pub fn options(preset: Preset) -> Options {
    match preset {
        Preset::Plain => Options::default(),
        // https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html
        Preset::Dms => Options { op: op("Op", &["I"], &["U"], &["D"], &[]), load_files: Some("LOAD"), ..plain() },
        Preset::Debezium => debezium(),
        Preset::DebeziumFlattened => debezium_flattened(),
        Preset::DebeziumMongodb => debezium_mongodb(),
        // https://docs.airbyte.com/integrations/destinations/s3
        Preset::Airbyte => Options {
            unwrap: &["_airbyte_data"],
            delete_flag: Some(DeleteFlag {
                column: "_ab_cdc_deleted_at".into(),
                values: Vec::new(),
                when: Some(FlagWhen::NotNull),
            }),
            // Postgres and SQL Server have a position in their log, MySQL one in its files.
            sequence_by: &["_ab_cdc_lsn lsn", "_ab_cdc_log_file binlog_file", "_ab_cdc_log_pos bigint"],
            own: &["_airbyte_", "_ab_"],
            ..plain()
        },
        Preset::Goldengate => goldengate(),
        // https://maxwells-daemon.io/dataformat/
        Preset::Maxwell => Options {
            row: Some("data"),
            before: Some("old"),
            delete_row: Some("data"),
            op: op("type", &["insert", "bootstrap-insert"], &["update"], &["delete"], MAXWELL_NO_CHANGE),
            // The last record of a transaction has `commit` and no offset.
            sequence_by: &["ts bigint", "xid bigint", "commit string", "xoffset bigint"],
            ..plain()
        },
        Preset::Canal => canal(),
        Preset::Datastream => datastream(),
        // https://docs.snowflake.com/en/user-guide/streams-intro: an update is a delete and an insert.
        Preset::Snowflake => Options {
            op: op("METADATA$ACTION", &["INSERT"], &[], &["DELETE"], &[]),
            own: &["METADATA$"],
            deletes_first: true,
            ..plain()
        },
        // https://docs.delta.io/latest/delta-change-data-feed.html
        Preset::DeltaCdf => Options {
            op: with_preimage(
                op("_change_type", &["insert"], &["update_postimage"], &["delete"], &[]),
                "update_preimage",
            ),
            sequence_by: &["_commit_version bigint"],
            own: &["_change_type", "_commit_version", "_commit_timestamp"],
            deletes_first: true,
            ..plain()
        },
        // https://help.qlik.com/en-US/replicate/May2023/Content/Replicate/Main/Change%20Tables/read_change_tables.htm: the
        // sequence has 35 digits, and that of a before-image is that of its update.
        Preset::Qlik => Options {
            op: with_preimage(op("header__change_oper", &["I"], &["U"], &["D"], &[]), "B"),
            sequence_by: &["header__change_seq decimal(38,0)"],
            own: &["header__"],
            deletes_first: true,
            ..plain()
        },
        // https://learn.microsoft.com/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
        Preset::Sqlserver => Options {
            op: with_preimage(op("__$operation", &["2"], &["4"], &["1"], &[]), "3"),
            sequence_by: &["__$start_lsn lsn", "__$seqval lsn"],
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

/// <https://debezium.io/documentation/reference/stable/connectors/mongodb.html#mongodb-events>
fn debezium_mongodb() -> Options {
    Options {
        prepare: Some(Prepare::Documents),
        row: Some("after"),
        delete_row: Some("key"),
        op: op("op", &["c", "r"], &["u"], &["d"], &["m"]),
        sequence_by: &["source.ts_ms bigint", "source.ord bigint"],
        ..plain()
    }
}

/// <https://docs.oracle.com/en/middleware/goldengate/big-data/21.1/gadbd/>: the operation model of the JSON and
/// Avro formatters. Updates are compressed by default.
fn goldengate() -> Options {
    Options {
        row: Some("after"),
        before: Some("before"),
        delete_row: Some("before"),
        op: truncating(op("op_type", &["I"], &["U"], &["D"], &[]), "T"),
        sequence_by: &["pos string"],
        partial_updates: true,
        says_missing: Some("_isMissing"),
        ..plain()
    }
}

/// <https://github.com/alibaba/canal/blob/master/protocol/src/main/java/com/alibaba/otter/canal/protocol/FlatMessage.java>
fn canal() -> Options {
    Options {
        prepare: Some(Prepare::RowArrays),
        row: Some("data"),
        before: Some("old"),
        delete_row: Some("data"),
        op: truncating(op("type", &["INSERT"], &["UPDATE"], &["DELETE"], CANAL_NO_CHANGE), "TRUNCATE"),
        sequence_by: &["es bigint", "id bigint"],
        ..plain()
    }
}

/// <https://docs.cloud.google.com/datastream/docs/events-and-streams>
fn datastream() -> Options {
    Options {
        prepare: Some(Prepare::SortKeys),
        row: Some("payload"),
        delete_row: Some("payload"),
        op: op(
            "source_metadata.change_type",
            &["INSERT", "UPDATE-INSERT"],
            &["UPDATE"],
            &["DELETE", "UPDATE-DELETE"],
            &[],
        ),
        delete_flag: flag("source_metadata.is_deleted", &["true"]),
        sequence_by: &["sort_keys string"],
        deletes_first: true,
        ..plain()
    }
}

/// <https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events>
fn debezium() -> Options {
    Options {
        unwrap: &["payload"],
        row: Some("after"),
        before: Some("before"),
        delete_row: Some("before"),
        op: truncating(op("op", &["c", "r"], &["u"], &["d"], &["m"]), "t"),
        // Postgres has a position in its log, MySQL one in its files; others have the time of the change.
        sequence_by: &[
            "source.lsn bigint",
            "source.file binlog_file",
            "source.pos bigint",
            "source.row bigint",
            "source.ts_ms bigint",
        ],
        inline_schema: Some("schema"),
        placeholder: Some(DEBEZIUM_UNCHANGED),
        ..plain()
    }
}

/// <https://debezium.io/documentation/reference/stable/transformations/event-flattening.html>
fn debezium_flattened() -> Options {
    Options {
        unwrap: &["payload"],
        unwrap_beside: Some("schema"),
        op: truncating(op("__op", &["c", "r"], &["u"], &["d"], &["m"]), "t"),
        delete_flag: flag("__deleted", &["true"]),
        sequence_by: &[
            "__lsn bigint",
            "__source_file binlog_file",
            "__source_pos bigint",
            "__source_ts_ms bigint",
            "__ts_ms bigint",
        ],
        own: &["__", "schema", "payload"],
        inline_schema: Some("schema"),
        placeholder: Some(DEBEZIUM_UNCHANGED),
        ..plain()
    }
}

/// The placeholder of a large value of Postgres that did not change.
const DEBEZIUM_UNCHANGED: &str = "__debezium_unavailable_value";

/// What stands for an unchanged value in columns of any type: as text, as the base64 or hex of bytes, as JSON, in an
/// array, in a map.
pub(crate) fn placeholders(text: &str) -> Vec<String> {
    let quoted = format!("\"{text}\"");
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let coded = [base64_of(text.as_bytes()), bytes_text(text.as_bytes()), hex];
    let nested = [format!("[{quoted}]"), format!("{{{quoted}:{quoted}}}"), quoted];
    [text.to_owned()].into_iter().chain(coded).chain(nested).collect()
}

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

/// Statements of definition, and marks of transactions. A truncate is one that means something.
const CANAL_NO_CHANGE: &[&str] = &[
    "CREATE",
    "ALTER",
    "ERASE",
    "QUERY",
    "RENAME",
    "CINDEX",
    "DINDEX",
    "GTID",
    "XACOMMIT",
    "XAROLLBACK",
    "MHEARTBEAT",
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
        truncate: Vec::new(),
        preimage: Vec::new(),
        ignore: list(ignore),
    })
}

/// With the value of a truncate.
fn truncating(op: Option<Op>, value: &str) -> Option<Op> {
    op.map(|op| Op { truncate: vec![value.to_owned()], ..op })
}

/// With the value of the row before an update.
fn with_preimage(op: Option<Op>, value: &str) -> Option<Op> {
    op.map(|op| Op { preimage: vec![value.to_owned()], ..op })
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
        let all = placeholders(DEBEZIUM_UNCHANGED);
        assert_eq!(all[1], "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==");
        assert_eq!(base64(&all[1]).as_deref(), Some(DEBEZIUM_UNCHANGED.as_bytes()));
        assert_eq!(placeholders("x"), ["x", "eA==", "\\x78", "78", "[\"x\"]", "{\"x\":\"x\"}", "\"x\""]);
    }
}
