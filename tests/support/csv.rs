//! A small CSV reader of the tests' own, so that no code of the product checks itself.

/// A field as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) text: String,
    pub(crate) is_quoted: bool,
}

impl Field {
    /// The value, where a bare empty field is null.
    pub(crate) fn value(&self) -> Option<String> {
        (self.is_quoted || !self.text.is_empty()).then(|| self.text.clone())
    }

    /// The value, where a bare `\N` is null and an empty field an empty text.
    pub(crate) fn expected(&self) -> Option<String> {
        (self.is_quoted || self.text != r"\N").then(|| self.text.clone())
    }
}

/// The records of a CSV text: commas, double quotes, line breaks in quotes, LF or CRLF.
pub(crate) fn records(text: &str) -> Vec<Vec<Field>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut chars = text.chars().peekable();
    while chars.peek().is_some() {
        let mut field = Field { text: String::new(), is_quoted: false };
        if chars.peek() == Some(&'"') {
            field.is_quoted = true;
            chars.next();
            while let Some(c) = chars.next() {
                if c != '"' {
                    field.text.push(c);
                } else if chars.peek() == Some(&'"') {
                    field.text.push('"');
                    chars.next();
                } else {
                    break;
                }
            }
        }
        let end = loop {
            match chars.next() {
                Some('\r') if chars.peek() == Some(&'\n') => {}
                Some(',') => break ',',
                Some('\n') | None => break '\n',
                Some(c) => field.text.push(c),
            }
        };
        record.push(field);
        if end == '\n' {
            records.push(std::mem::take(&mut record));
        } else if chars.peek().is_none() {
            record.push(Field { text: String::new(), is_quoted: false });
            records.push(std::mem::take(&mut record));
        }
    }
    records
}

/// A CSV text with every field quoted that needs it; null is a bare empty field.
pub(crate) fn line(fields: &[Option<String>]) -> String {
    let quoted = |text: &String| {
        let needs_quotes = text.is_empty() || text.contains([',', '"', '\n', '\r']);
        if needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.clone() }
    };
    let fields: Vec<String> = fields.iter().map(|field| field.as_ref().map_or_else(String::new, quoted)).collect();
    fields.join(",")
}

#[test]
fn quotes_line_breaks_and_nulls_are_read_as_written() {
    let read = records("a,\"\",\r\n\"x\r\n\"\"y\"\"\",\\N,\"\\N\"\nlast,,");
    let values: Vec<Vec<Option<String>>> =
        read.iter().map(|record| record.iter().map(Field::value).collect()).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(values[0], [text("a"), text(""), None]);
    assert_eq!(values[1], [text("x\r\n\"y\""), text("\\N"), text("\\N")]);
    assert_eq!(values[2], [text("last"), None, None]);
    assert_eq!(read[1].iter().map(Field::expected).collect::<Vec<_>>()[1..], [None, text("\\N")]);
    let fields = [text("a,b"), None, text(""), text("say \"x\"\n")];
    assert_eq!(records(&line(&fields))[0].iter().map(Field::value).collect::<Vec<_>>(), fields);
}
