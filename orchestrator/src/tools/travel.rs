//! Time travel in SQL: `silver.orders VERSION AS OF 3`, `silver.orders TIMESTAMP AS OF '2024-05-01'`,
//! `silver.orders@v3`, and `as_of('gold.products_daily_snapshot', DATE '2024-05-01')` for the state of a day from a
//! snapshot.
//!
//! The engine's SQL knows tables by name alone, so a table of an earlier version gets a name of its own, in which what
//! was asked for stands behind an `@`. Texts, comments and quoted names are left as they are: the query is read in
//! tokens, as the engine reads it.

use chrono::{DateTime, NaiveDate, Utc};
use chrono_tz::Tz;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use lake::session::Session;
use lake::{Error, ErrorKind, Lake, Result, Table, TableName};

/// Which version of a table a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// By its number.
    Version(u64),
    /// The newest at a moment.
    Moment(DateTime<Utc>),
    /// Of a snapshot, the state of a day.
    Day(NaiveDate),
}

/// What stands behind the `@` of a name before a day.
const DAY: &str = "day ";

/// The query with names of their own for tables of earlier versions. What is no SQL stays as it is, and so does a query
/// that asks for none.
///
/// # Errors
/// [`ErrorKind::Query`] when a version does not follow the name of a table.
pub(crate) fn rewritten(sql: &str) -> Result<String> {
    // Names keep their escapes: those that become others are written as they are read.
    let spans = Tokenizer::new(&GenericDialect {}, sql).with_unescape(false).tokenize_with_location();
    let Ok(spans) = spans else { return Ok(sql.to_owned()) };
    let texts = texts(sql, &spans);
    let tokens: Vec<Token> = spans.into_iter().map(|span| span.token).collect();
    let (mut out, mut at): (Vec<(Token, String)>, usize) = (Vec::with_capacity(tokens.len()), 0);
    while let Some(token) = tokens.get(at) {
        match (call(&tokens[at..])?, as_of(&tokens[at..])) {
            (Some((name, taken)), _) => {
                out.extend(name.map(|token| (token.clone(), token.to_string())));
                at += taken;
            }
            (None, Some((text, taken))) => {
                rename(&mut out, &text)?;
                at += taken;
            }
            (None, None) => {
                if is_misplaced(token, out.last().map(|(token, _)| token)) {
                    return Err(misplaced());
                }
                out.push((token.clone(), texts[at].to_owned()));
                at += 1;
            }
        }
    }
    Ok(out.into_iter().map(|(_, text)| text).collect())
}

/// The text of each token, up to the next one.
fn texts<'a>(sql: &'a str, tokens: &[TokenWithSpan]) -> Vec<&'a str> {
    let mut starts = Vec::with_capacity(tokens.len() + 1);
    let (mut line, mut column) = (1, 1);
    for (at, character) in sql.char_indices() {
        let next = tokens.get(starts.len()).map(|token| (token.span.start.line, token.span.start.column));
        if next == Some((line, column)) {
            starts.push(at);
        }
        (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    starts.resize(tokens.len(), sql.len());
    let ends = starts.iter().skip(1).copied().chain([sql.len()]);
    starts.iter().zip(ends).map(|(start, end)| &sql[*start..end]).collect()
}

/// What is asked for at the beginning of these tokens, as `v3` or a time, and how many tokens say so.
fn as_of(tokens: &[Token]) -> Option<(String, usize)> {
    // `@v3` directly behind a name in quotes; behind one without it is part of the name.
    if let [Token::Word(word), ..] = tokens
        && word.quote_style.is_none()
        && let Some(number) = word.value.strip_prefix('@').and_then(number)
    {
        return Some((format!("v{number}"), 1));
    }
    let said: Vec<(usize, &Token)> =
        tokens.iter().enumerate().filter(|(_, token)| !matches!(token, Token::Whitespace(_))).take(4).collect();
    let [(first, Token::Word(what)), (_, Token::Word(is)), (_, Token::Word(of)), (last, value)] = said[..] else {
        return None;
    };
    if first == 0 || !is.value.eq_ignore_ascii_case("as") || !of.value.eq_ignore_ascii_case("of") {
        return None;
    }
    let text = match (what.value.to_ascii_lowercase().as_str(), value) {
        ("version", Token::Number(number, _)) => format!("v{}", number.parse::<u64>().ok()?),
        ("timestamp", Token::SingleQuotedString(at)) => at.clone(),
        _ => return None,
    };
    Some((text, last + 1))
}

/// The call `as_of('gold.x', DATE '2024-05-01')` at the beginning of these tokens: the name that stands for it, and how
/// many tokens it has.
///
/// # Errors
/// [`ErrorKind::Query`] when its arguments are others.
fn call(tokens: &[Token]) -> Result<Option<([Token; 3], usize)>> {
    let said: Vec<(usize, &Token)> =
        tokens.iter().enumerate().filter(|(_, token)| !matches!(token, Token::Whitespace(_))).take(7).collect();
    let [(0, Token::Word(word)), (_, Token::LParen), arguments @ ..] = said.as_slice() else { return Ok(None) };
    if word.quote_style.is_some() || !word.value.eq_ignore_ascii_case("as_of") {
        return Ok(None);
    }
    let wrong = || {
        let error = Error::new(ErrorKind::Query, "`as_of` takes a snapshot and a day");
        error.hint("write `as_of('gold.products_daily_snapshot', DATE '2024-05-01')`")
    };
    let (table, day, last) = match arguments {
        [
            (_, Token::SingleQuotedString(table)),
            (_, Token::Comma),
            (_, Token::Word(date)),
            (_, Token::SingleQuotedString(day)),
            (last, Token::RParen),
        ] if date.value.eq_ignore_ascii_case("date") => (table, day, last),
        [
            (_, Token::SingleQuotedString(table)),
            (_, Token::Comma),
            (_, Token::SingleQuotedString(day)),
            (last, Token::RParen),
            ..,
        ] => (table, day, last),
        _ => return Err(wrong()),
    };
    let day: NaiveDate = day.parse().map_err(|_| wrong())?;
    let (layer, name) = table.split_once('.').ok_or_else(wrong)?;
    let quoted = |value: String| {
        Token::Word(Word { value: value.replace('"', "\"\""), quote_style: Some('"'), keyword: Keyword::NoKeyword })
    };
    let name = [quoted(layer.to_owned()), Token::Period, quoted(format!("{name}@{DAY}{day}"))];
    Ok(Some((name, last + 1)))
}

fn number(word: &str) -> Option<u64> {
    word.strip_prefix(['v', 'V'])?.parse().ok()
}

/// Makes the name that ends the query so far one of a version.
fn rename(out: &mut [(Token, String)], text: &str) -> Result<()> {
    // Tables of the lake are named by layer, so a dot comes before the name; an alias has none.
    match out {
        [.., (Token::Period, _), (token @ Token::Word(_), written)] => {
            if let Token::Word(word) = token {
                // A name is what it was; in quotes it may have any character.
                word.value = format!("{}@{text}", word.value);
                word.quote_style = Some('"');
            }
            *written = token.to_string();
            Ok(())
        }
        _ => Err(misplaced()),
    }
}

/// True for `o@v3`, which is one word, where it is no name of a table.
fn is_misplaced(token: &Token, before: Option<&Token>) -> bool {
    let Token::Word(word) = token else { return false };
    let has_version = word.value.split_once('@').is_some_and(|(_, version)| number(version).is_some());
    has_version && word.quote_style.is_none() && before != Some(&Token::Period)
}

fn misplaced() -> Error {
    let error = Error::new(ErrorKind::Query, "a version must follow the name of a table directly");
    error.hint("write `silver.orders VERSION AS OF 3 o`, the alias behind the version")
}

/// The table and the version that a name of [`rewritten`] means; of any other name, the name itself.
///
/// # Errors
/// [`ErrorKind::Query`] when a time cannot be read. A time without an offset is one of `zone`.
pub(crate) fn meant(name: &TableName, zone: Tz) -> Result<(TableName, Option<AsOf>)> {
    let Some((table, text)) = name.name.split_once('@') else { return Ok((name.clone(), None)) };
    let day = text.strip_prefix(DAY).and_then(|day| day.parse().ok());
    let as_of = match (day, number(text)) {
        (Some(day), _) => AsOf::Day(day),
        (None, Some(version)) => AsOf::Version(version),
        (None, None) => AsOf::Moment(lake::history::moment(text, zone)?),
    };
    Ok((TableName::new(name.layer, table), Some(as_of)))
}

/// Makes a table as it was known under the name of [`rewritten`].
///
/// # Errors
/// [`ErrorKind::Table`] when that version or day is not there any more, or is not there yet.
pub(crate) async fn register(
    lake: &Lake,
    session: &Session,
    named: &TableName,
    table: &Table,
    as_of: AsOf,
) -> Result<()> {
    let version = match as_of {
        AsOf::Day(day) => {
            // In a session of its own: the query may name the snapshot itself as well.
            let state = gold::as_of(&lake.session()?, table, day).await?;
            return session.register_view(named, state.rows);
        }
        AsOf::Version(version) => version,
        AsOf::Moment(at) => lake::history::version_at(table, at).await?,
    };
    if version > table.version() {
        let message = format!("table {} has no version {version}", table.name());
        return Err(Error::new(ErrorKind::Table, message).hint(format!("its newest is {}", table.version())));
    }
    session.register_named(named, &lake.table_at(table.name(), version).await?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_names() {
        for (sql, expected) in [
            ("SELECT 1 FROM silver.orders VERSION AS OF 3", "SELECT 1 FROM silver.\"orders@v3\""),
            ("SELECT * FROM silver.orders@v12 o", "SELECT * FROM silver.orders@v12 o"),
            (
                "SELECT * FROM silver.a timestamp as of '2024-05-01 10:00' JOIN silver.\"b-c\"@v0 USING (id)",
                "SELECT * FROM silver.\"a@2024-05-01 10:00\" JOIN silver.\"b-c@v0\" USING (id)",
            ),
            ("SELECT 'x VERSION AS OF 3' -- y VERSION AS OF 3", "SELECT 'x VERSION AS OF 3' -- y VERSION AS OF 3"),
            (
                "SELECT 'O''Brien', \"a\"\"b\" FROM silver.a VERSION AS OF 1 WHERE x = 'a'' OR ''b'",
                "SELECT 'O''Brien', \"a\"\"b\" FROM silver.\"a@v1\" WHERE x = 'a'' OR ''b'",
            ),
            ("SELECT version AS of FROM t", "SELECT version AS of FROM t"),
            (
                "SELECT E'it\\'s \\\\d+', U&'\\0041'\n, 'ü' -- é\n FROM silver.a\nVERSION AS OF 3 WHERE x ~ E'\\\\d'",
                "SELECT E'it\\'s \\\\d+', U&'\\0041'\n, 'ü' -- é\n FROM silver.\"a@v3\" WHERE x ~ E'\\\\d'",
            ),
            ("SELECT as_of, 'as_of(' FROM t as_of", "SELECT as_of, 'as_of(' FROM t as_of"),
            (
                "SELECT * FROM as_of('gold.p', DATE '2024-05-01') a JOIN AS_OF ( 'gold.p' , '2024-05-02' ) b USING (id)",
                "SELECT * FROM \"gold\".\"p@day 2024-05-01\" a JOIN \"gold\".\"p@day 2024-05-02\" b USING (id)",
            ),
            ("SELECT timestamp '2024-05-01', 'it''s'", "SELECT timestamp '2024-05-01', 'it''s'"),
        ] {
            assert_eq!(rewritten(sql).expect("a query"), expected);
        }
        for sql in [
            "SELECT 1 FROM silver.orders o@v3",
            "SELECT 1 FROM silver.orders o VERSION AS OF 3",
            "SELECT 1 FROM (SELECT 1) t TIMESTAMP AS OF '2024-05-01'",
        ] {
            let error = rewritten(sql).expect_err("no table before the version");
            assert!(error.to_string().contains("must follow the name of a table"), "{error}");
        }
        for sql in [
            "SELECT * FROM as_of('gold.p')",
            "SELECT * FROM as_of(gold.p, '2024-05-01')",
            "SELECT * FROM as_of('gold.p', 'May')",
        ] {
            let error = rewritten(sql).expect_err("no snapshot and day");
            assert_eq!(error.to_string(), "`as_of` takes a snapshot and a day");
        }
    }

    #[test]
    fn a_name_means_a_version_or_a_moment() {
        let zone = Tz::Europe__Lisbon;
        let of = |text: &str| meant(&TableName::silver(text), zone);
        let orders = || TableName::silver("orders");
        assert_eq!(of("orders").expect("a name"), (orders(), None));
        assert_eq!(of("orders@v3").expect("a name"), (orders(), Some(AsOf::Version(3))));
        let day = "2024-05-01".parse().expect("a day");
        assert_eq!(of("orders@day 2024-05-01").expect("a name"), (orders(), Some(AsOf::Day(day))));
        let at = |text: &str| AsOf::Moment(text.parse().expect("a time"));
        for (text, expected) in [
            ("2024-07-01", "2024-06-30T23:00:00Z"),
            ("2024-07-01 10:00:00.5", "2024-07-01T09:00:00.5Z"),
            ("2024-07-01T10:00:00+05:00", "2024-07-01T05:00:00Z"),
            ("2024-07-01 10:00:00Z", "2024-07-01T10:00:00Z"),
        ] {
            assert_eq!(of(&format!("orders@{text}")).expect("a time"), (orders(), Some(at(expected))), "{text}");
        }
        let error = of("orders@soon").expect_err("no time");
        assert_eq!(error.to_string(), "`soon` is not a time of Europe/Lisbon");
    }
}
