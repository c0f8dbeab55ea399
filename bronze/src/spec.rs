//! The options of a bronze source, as the spec writes them.

use lake::spec::{ByteSize, Duration, Map, TableMaintenance};
use schemars::JsonSchema;
use serde::Deserialize;

/// A bronze source: the files of one folder of the landing zone, every record kept as it came.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["path", "format"]))]
pub struct Source {
    /// The folder below the landing root; `./` is all of it.
    pub path: String,
    /// Globs of the files to take, on the path below `path`; a glob without `/` is one of file names at any depth.
    /// Default: all files.
    pub include: Vec<String>,
    /// Globs of files to leave out, in addition to the default ones.
    pub exclude: Vec<String>,
    /// Leave out files and folders whose names start with `_`, `.` or `~$`, files of 0 bytes, and, unless a glob of
    /// `include` ends so, unfinished and side files (`*.tmp`, `*.part`, `*.partial`, `*.filepart`, `*.crdownload`,
    /// `*.inprogress`, `*.copying`, `*._copying_`, `*.swp`, `*~`, `*.crc`, `*.md5`, `*.sha1`, `*.sha256`, `*.dfm`,
    /// `*.ctrl`, `thumbs.db`, `desktop.ini`, in any case). Default true.
    pub default_excludes: bool,
    /// Take files of folders below `path` as well. Default true.
    pub recursive: bool,
    /// `key=value` folders below `path` that become text columns. Default: folders are only part of the path.
    pub partition_columns: Vec<String>,
    /// What the files are.
    pub format: Format,
    /// How the files are compressed.
    pub compression: Compression,
    /// The encoding of text files: `utf-8` or any label of the WHATWG list, such as `windows-1252` or `shift_jis`. A
    /// byte order mark in a file wins. Default `utf-8`.
    pub encoding: Option<String>,
    /// How delimited text is written.
    pub csv: Option<Csv>,
    /// What is kept of JSON beside its values.
    pub json: Option<Json>,
    /// How long a file must stand unchanged before it is taken. Default `2s`.
    pub settle: Duration,
    /// Take the files that are there when the source is run for the first time. Default true.
    pub include_existing_files: bool,
    /// What becomes of a path that comes back with other content.
    pub on_overwrite: OnOverwrite,
    /// The order in which new files are taken.
    pub order: Order,
    /// Files in one batch at most. Default 1000.
    #[schemars(range(min = 1))]
    pub max_files_per_batch: u64,
    /// Bytes of the files in one batch at most; a larger file is a batch of its own. Default `10GiB`.
    pub max_bytes_per_batch: ByteSize,
    /// What becomes of columns that the table does not have.
    pub schema_evolution_mode: SchemaEvolutionMode,
    /// Columns that are made in a type of the spec, `column: type`; what does not fit goes to `_rescued_data`.
    pub schema_hints: Map<String>,
    /// What becomes of a record that cannot be read.
    pub bad_records: BadRecords,
    /// What becomes of a file that names two columns alike.
    pub duplicate_columns: DuplicateColumns,
    /// What becomes of a file whose records are in the table.
    pub clean_source: CleanSource,
    /// When the upkeep of the table is due, where that differs from `maintenance` at the top.
    pub maintenance: Option<TableMaintenance>,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            path: String::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            default_excludes: true,
            recursive: true,
            partition_columns: Vec::new(),
            format: Format::default(),
            compression: Compression::default(),
            encoding: None,
            csv: None,
            json: None,
            settle: Duration::from_secs(2),
            include_existing_files: true,
            on_overwrite: OnOverwrite::default(),
            order: Order::default(),
            max_files_per_batch: 1000,
            max_bytes_per_batch: ByteSize::from_gib(10),
            schema_evolution_mode: SchemaEvolutionMode::default(),
            schema_hints: Map::default(),
            bad_records: BadRecords::default(),
            duplicate_columns: DuplicateColumns::default(),
            clean_source: CleanSource::default(),
            maintenance: None,
        }
    }
}

/// What the files of a source are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Delimited text; every column is text.
    #[default]
    Csv,
    /// JSON: one object a line, an array of objects, or objects one after the other; every column is text.
    Json,
    /// Parquet; every column in the widest type of its kind.
    Parquet,
    /// Avro object container files; every column in the widest type of its kind.
    Avro,
}

/// How the files of a source are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// As the first bytes of each file say, whatever its name.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// gzip, with all its members.
    Gzip,
    /// zstd, with all its frames.
    Zstd,
    /// bzip2, with all its streams.
    Bzip2,
}

/// How delimited text is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Csv {
    /// The first record names the columns. `false` needs `columns`. Default true.
    pub header: bool,
    /// Names of the columns by position.
    pub columns: Vec<String>,
    /// Files may have one more column, the operation, in front; it is called `Op`. Needs `header: false`.
    pub leading_op: bool,
    /// Between two fields. Default `,`.
    pub delimiter: String,
    /// Around a field that holds delimiters, line breaks or quotes; `null` when quotes mean nothing. Default `"`.
    pub quote: Option<String>,
    /// In front of a quote inside quotes; `null` when only doubled quotes are used.
    pub escape: Option<String>,
    /// At the start of a line that is not data.
    pub comment: Option<String>,
    /// Fields without quotes that are null.
    pub null_values: Vec<String>,
    /// When an empty field is null.
    pub empty_is_null: EmptyIsNull,
}

impl Default for Csv {
    fn default() -> Self {
        Self {
            header: true,
            columns: Vec::new(),
            leading_op: false,
            delimiter: ",".to_owned(),
            quote: Some("\"".to_owned()),
            escape: None,
            comment: None,
            null_values: Vec::new(),
            empty_is_null: EmptyIsNull::default(),
        }
    }
}

/// What is kept of JSON beside its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Json {
    /// Note in `_rescued_data` which keys were there with null, `{"status":null}`: without it an absent key and a null
    /// are both null. Default false.
    pub explicit_nulls: bool,
}

/// When an empty field is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyIsNull {
    /// Without quotes; `""` is an empty text.
    #[default]
    Unquoted,
    /// With and without quotes.
    Always,
    /// Never.
    Never,
}

/// What becomes of a path that comes back with other content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnOverwrite {
    /// It is a new arrival: its records are taken, the earlier ones stay.
    #[default]
    Ingest,
    /// It is left alone.
    Ignore,
    /// It is refused and the run ends with 1.
    Fail,
}

/// The order in which new files are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// By path.
    #[default]
    Name,
    /// By modification time, then path.
    ModificationTime,
}

/// What becomes of columns that the table does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaEvolutionMode {
    /// They join the table.
    #[default]
    AddNewColumns,
    /// Their values go to `_rescued_data`.
    Rescue,
    /// Their file is refused.
    FailOnNewColumns,
    /// They are left out.
    None,
}

/// What becomes of a record that cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BadRecords {
    /// It goes to quarantine.
    #[default]
    Quarantine,
    /// Its file is refused: nothing of it is taken.
    Fail,
    /// It is counted and dropped.
    Drop,
}

/// What becomes of a file that names two columns alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateColumns {
    /// It is refused.
    #[default]
    Fail,
    /// The second is called `value_2`.
    Rename,
}

/// What becomes of a file whose records are in the table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CleanSource {
    /// Whether it stays where it is.
    pub mode: CleanMode,
    /// How long it stays after its records were committed. Default `30 days`.
    pub retention_duration: Duration,
    /// The folder below the landing root that files are moved to, with their folders below `path`. `mode: move`
    /// needs it.
    pub move_destination: Option<String>,
}

impl Default for CleanSource {
    fn default() -> Self {
        Self { mode: CleanMode::default(), retention_duration: Duration::from_days(30), move_destination: None }
    }
}

/// Whether a file whose records are in the table stays where it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CleanMode {
    /// It stays.
    #[default]
    Off,
    /// It is moved to `move_destination`.
    Move,
    /// It is deleted.
    Delete,
}
