//! What becomes of a record, and why it is refused.

/// Where a row of the batch goes.
pub(super) enum Fate {
    Upsert,
    Delete,
    Truncate,
    Ignored,
    Dropped,
    Rejected(Reason),
}

/// Why a record is refused that is to change a row and brings none.
pub(super) const NO_ROW: &str = "no_row";

/// Why a record is refused.
pub(super) struct Reason {
    /// The rule, as quarantine names it: `cast`, `null_key`.
    pub(super) kind: &'static str,
    /// What is wrong, for a person.
    pub(super) text: String,
    /// The column or the path in the record.
    pub(super) column: Option<String>,
    /// The value as it came.
    pub(super) value: Option<String>,
}

/// Refuses a record that was to do something: the first reason stands.
pub(super) fn reject(
    fate: &mut Fate,
    kind: &'static str,
    text: String,
    column: Option<&String>,
    value: Option<String>,
) {
    if matches!(fate, Fate::Upsert | Fate::Delete | Fate::Truncate) {
        *fate = Fate::Rejected(Reason { kind, text, column: column.cloned(), value });
    }
}

/// A value that does not fit; the column and the value of the first stand, the reason names each.
pub(super) fn reject_value(fate: &mut Fate, text: String, column: &str, value: Option<String>) {
    match fate {
        Fate::Rejected(reason) if reason.kind == "cast" => {
            let known = reason.column.as_deref() == Some(column);
            if !known {
                reason.text.push_str(&format!("; `{column}`: {text}"));
            }
        }
        _ => reject(fate, "cast", text, Some(&column.to_owned()), value),
    }
}

/// True for a record that is refused.
pub(super) fn is_rejected(fate: &Fate) -> bool {
    matches!(fate, Fate::Rejected(_))
}
