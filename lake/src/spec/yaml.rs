//! YAML text → one value, the line of every path, and the problems of the text itself: syntax, duplicate keys,
//! several documents, missing environment variables.
//!
//! One pass over parser events, so that values and lines cannot disagree. Scalars follow the YAML 1.2 core schema:
//! `yes` and `no` are text.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_yaml::{Mapping, Number, Value};

use super::environment::{Lookup, expand};
use super::path::SpecPath;
use super::problems::Problem;
use super::text::{Place, SpecText};

/// Deeper nesting is refused.
const DEPTH_MAX: usize = 64;
/// More values (aliases counted each time) are refused.
const VALUES_MAX: usize = 200_000;

/// Reads the text of a spec; there is no value when the text is not YAML at all.
pub(super) fn read(text: &mut SpecText, yaml: &str, lookup: Lookup<'_>) -> (Option<Value>, Vec<Problem>) {
    let mut reader = Reader::new(text, lookup);
    for event in Parser::new_from_str(yaml) {
        match event {
            Ok((event, span)) => {
                if !reader.take(event, span) {
                    break;
                }
            }
            Err(error) => {
                let line = error.marker().line();
                let reference = reader.text.content(line).is_some_and(|content| content.contains("${"));
                let hint = match (reference, error.info().contains("tab")) {
                    (true, _) => Some("between `{` and `}` put a value with `${…}` in quotes"),
                    (_, true) => Some("indent with spaces"),
                    _ => None,
                };
                let open = unclosed(reader.text, line);
                let open = open.map(|open| format!("a bracket, brace or quote of line {open} is not closed"));
                let hint = hint.map(str::to_owned).or(open);
                let hint = hint.as_deref();
                let column = error.marker().col() + 1;
                reader.problem_on(line, format!("the YAML cannot be read: {}", error.info()), hint);
                reader.problems.last_mut().into_iter().for_each(|problem| problem.column = Some(column));
                return (None, reader.problems);
            }
        }
    }
    (Some(reader.value.unwrap_or(Value::Null)), reader.problems)
}

struct Reader<'a> {
    text: &'a mut SpecText,
    lookup: Lookup<'a>,
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    value: Option<Value>,
    values: usize,
    problems: Vec<Problem>,
}

/// A mapping or list that is not complete yet.
struct Open {
    path: SpecPath,
    anchor: usize,
    kind: Kind,
    start: Span,
}

enum Kind {
    List(Vec<Value>),
    Map {
        entries: Mapping,
        lines: HashMap<String, usize>,
        key: Option<Key>,
    },
    /// A mapping or list in the place of a key: read and dropped.
    Refused,
}

/// A key that waits for its value; a repeated key keeps the first value.
struct Key {
    name: String,
    repeated: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a mut SpecText, lookup: Lookup<'a>) -> Self {
        let (open, problems) = (Vec::new(), Vec::new());
        Self { text, lookup, open, anchors: HashMap::new(), value: None, values: 0, problems }
    }

    /// Takes one event; false ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) if self.value.is_some() => {
                let message = "a spec is one YAML document, and a second one begins here";
                self.problem_on(line, message.to_owned(), Some("remove the line `---`"));
                self.problems.last_mut().into_iter().for_each(|problem| problem.column = Some(1));
                return false;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| tag.to_string());
                self.scalar(&text, style, anchor, tag.as_deref(), span);
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned().unwrap_or(Value::Null);
                self.values += count(&value);
                self.place(value, span);
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, span, Kind::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                let kind = Kind::Map { entries: Mapping::new(), lines: HashMap::new(), key: None };
                self.begin(anchor, span, kind);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
        }
        self.values += 1;
        if self.values > VALUES_MAX || self.open.len() > DEPTH_MAX {
            self.problem_on(line, "the spec is nested too deeply or too large".to_owned(), None);
            return false;
        }
        true
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, tag: Option<&str>, span: Span) {
        if self.awaits_key() {
            return self.key(text, span);
        }
        let (path, line) = (self.next_path(), span.start.line());
        self.text.mark_value(path.clone(), place_of(span));
        if let Some(tag) = tag {
            let problem = Problem::at(&path, format!("the tag `{tag}` has no meaning here"));
            self.problems.push(Problem { line: Some(line), ..problem.hint("remove it") });
        }
        let expanded = expand(text, self.lookup);
        for (message, hint) in expanded.problems {
            let column = Some(span.start.col() + 1);
            self.problems.push(Problem { line: Some(line), column, ..Problem::at(&path, message).hint(hint) });
        }
        for (value, reference) in expanded.taken {
            self.text.hide(value, reference);
        }
        let value = match style {
            // What a reference stands for has no quotes of its own: its type is that of the place it stands in.
            _ if expanded.text != text => {
                self.text.mark_expanded(path);
                Value::String(expanded.text)
            }
            ScalarStyle::Plain => plain(text),
            _ => Value::String(expanded.text),
        };
        self.remember(anchor, &value);
        self.place(value, span);
    }

    fn key(&mut self, name: &str, span: Span) {
        let line = span.start.line();
        let path = self.next_container().key(name);
        let mut first = None;
        if let Some(Open { kind: Kind::Map { lines, key, .. }, .. }) = self.open.last_mut() {
            first = lines.get(name).copied();
            lines.entry(name.to_owned()).or_insert(line);
            *key = Some(Key { name: name.to_owned(), repeated: first.is_some() });
        }
        match first {
            None => self.text.mark(path, place_of(span)),
            Some(first) => {
                let problem = Problem::at(&path, format!("duplicate key `{name}`"));
                let problem = problem.hint(format!("it is already given on line {first}; remove one of them"));
                let column = Some(span.start.col() + 1);
                self.problems.push(Problem { line: Some(line), column, other_line: Some(first), ..problem });
            }
        }
    }

    fn begin(&mut self, anchor: usize, start: Span, kind: Kind) {
        let line = start.start.line();
        if self.awaits_key() {
            let path = self.next_container();
            let problem = Problem::at(&path, "a key must be a name, and this is a list or mapping");
            let (problem, column) = (problem.hint("put braces and brackets in quotes"), Some(start.start.col() + 1));
            self.problems.push(Problem { line: Some(line), column, ..problem });
            self.open.push(Open { path, anchor: 0, kind: Kind::Refused, start });
            return;
        }
        let path = self.next_path();
        self.text.mark(path.clone(), place_of(start));
        self.open.push(Open { path, anchor, kind, start });
    }

    fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        let whole = place_of(Span::new(open.start.start, span.end));
        // A value in braces or brackets stands behind its key, any other below it.
        let first = self.text.content(whole.line).and_then(|line| line.chars().nth(whole.column - 1));
        if matches!(first, Some('[' | '{')) {
            self.text.mark_value(open.path.clone(), whole);
        }
        let value = match open.kind {
            Kind::List(items) => Value::Sequence(items),
            Kind::Map { entries, .. } => Value::Mapping(entries),
            Kind::Refused => {
                if self.awaits_key() {
                    self.key("", span);
                }
                return;
            }
        };
        self.remember(open.anchor, &value);
        self.place(value, Span::new(open.start.start, span.end));
    }

    /// Puts a complete value where it belongs.
    fn place(&mut self, value: Value, span: Span) {
        let path = self.next_path();
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.value = Some(value),
            Some(Kind::List(items)) => {
                items.push(value);
                self.text.mark(path, place_of(span));
            }
            Some(Kind::Map { entries, key, .. }) => {
                if let Some(Key { name, repeated: false }) = key.take() {
                    entries.insert(Value::String(name), value);
                }
            }
            Some(Kind::Refused) => {}
        }
    }

    fn remember(&mut self, anchor: usize, value: &Value) {
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { kind: Kind::Map { key: None, .. }, .. }))
    }

    fn next_container(&self) -> SpecPath {
        self.open.last().map_or_else(SpecPath::root, |open| open.path.clone())
    }

    /// The path of the value that comes next.
    fn next_path(&self) -> SpecPath {
        match self.open.last() {
            None => SpecPath::root(),
            Some(Open { path, kind: Kind::List(items), .. }) => path.index(items.len()),
            Some(Open { path, kind: Kind::Map { key: Some(key), .. }, .. }) => path.key(&key.name),
            Some(Open { path, .. }) => path.clone(),
        }
    }

    /// A problem with the text itself.
    fn problem_on(&mut self, line: usize, message: String, hint: Option<&str>) {
        let problem = Problem::at(&SpecPath::root(), message);
        self.problems.push(Problem { line: Some(line), hint: hint.map(str::to_owned), ..problem });
    }
}

/// The nearest line before this one, or it, that opens more brackets or quotes than it closes.
fn unclosed(text: &SpecText, line: usize) -> Option<usize> {
    let is_open = |line: &usize| {
        let (mut depth, mut quote) = (0, None);
        for c in text.content(*line).unwrap_or_default().chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (None, '#') => break,
                (None, '[' | '{') => depth += 1,
                (None, ']' | '}') => depth -= 1,
                _ => {}
            }
        }
        depth > 0 || quote == Some('"')
    };
    (1..=line).rev().find(is_open)
}

/// Where a span of the parser is; what goes on below its first line has no width there.
fn place_of(span: Span) -> Place {
    let (line, column, last_line) = (span.start.line(), span.start.col() + 1, span.end.line());
    let width = if line == last_line { span.end.col().saturating_sub(span.start.col()) } else { 0 };
    Place { line, column, width, last_line }
}

/// The value of an unquoted scalar.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::String(text.to_owned());
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        if let Ok(number) = text.parse::<u64>() {
            return Value::Number(number.into());
        }
        if let Ok(number) = text.parse::<i64>() {
            return Value::Number(number.into());
        }
        return Value::String(text.to_owned());
    }
    let float = digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    match text.parse::<f64>() {
        Ok(number) if float => Value::Number(Number::from(number)),
        _ => Value::String(text.to_owned()),
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Sequence(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Mapping(entries) => 1 + entries.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Messages = Vec<(Option<usize>, String)>;

    fn parse(yaml: &str) -> (Option<Value>, SpecText, Messages) {
        let mut text = SpecText::new("f.yaml", yaml);
        let (value, problems) = read(&mut text, yaml, &|_| None);
        (value, text, problems.into_iter().map(|problem| (problem.line, problem.message)).collect())
    }

    #[test]
    fn values_are_those_of_the_usual_reader() {
        for yaml in [
            "a: 1\nb: [x, 'y', \"z\"]\nc: {d: null, e: true, f: 1.5}\n",
            "query: |\n  SELECT 1\n  FROM x\nfolded: >-\n  a\n  b\n",
            "a: -3\nb: yes\nc: 2024-05-01\nd: ~\ne:\nf: '1'\ng: 1e3\nh: 10:30\ni: .5\n",
            "a: &x {k: v}\nb: *x\nc: &y [1, 2]\nd: *y\n",
            "- 1\n- {a: b}\n- - 2\n",
            "a: []\nb: {}\n",
            "",
        ] {
            let (value, _, problems) = parse(yaml);
            assert_eq!(problems, [], "{yaml}");
            assert_eq!(value, serde_yaml::from_str(yaml).ok(), "{yaml}");
        }
    }

    #[test]
    fn every_path_has_its_line() {
        let (_, text, _) =
            parse("name: shop\n\nsilver:\n  orders:\n    keys:\n      - a\n      - b\n    x: [1,\n      2]\n");
        let line = |path: SpecPath| text.line(&path);
        let orders = SpecPath::of(["silver", "orders"]);
        assert_eq!(line(SpecPath::of(["name"])), Some(1));
        assert_eq!(line(orders.clone()), Some(4));
        assert_eq!(line(orders.key("keys")), Some(5));
        assert_eq!(line(orders.key("keys").index(1)), Some(7));
        assert_eq!(line(orders.key("x").index(1)), Some(9));
        assert_eq!(text.nearest_line(&orders.key("source")), Some(4));
    }

    #[test]
    fn the_text_itself_can_be_wrong() {
        assert_eq!(parse("a: 1\nb: 2\na: 3\n").2, [(Some(3), "duplicate key `a`".to_owned())]);
        assert_eq!(parse("a: 1\nb: 2\na: {c: 3}\n").0, parse("a: 1\nb: 2\n").0);
        assert_eq!(
            parse("a: 1\n---\nb: 2\n").2,
            [(Some(2), "a spec is one YAML document, and a second one begins here".to_owned())]
        );
        assert_eq!(parse("a: !x 1\n").2, [(Some(1), "the tag `!x` has no meaning here".to_owned())]);
        let (_, _, syntax) = parse("a: [1\nb: 2\n");
        assert_eq!(syntax[0].0, Some(2));
        assert!(syntax[0].1.starts_with("the YAML cannot be read: "), "{syntax:?}");
        assert_eq!(
            parse("{a: 1}: 2\nb: 3\n").2,
            [(Some(1), "a key must be a name, and this is a list or mapping".to_owned())]
        );
        let deep = "[".repeat(200);
        assert_eq!(parse(&deep).2[0].1, "the spec is nested too deeply or too large");
    }
}
