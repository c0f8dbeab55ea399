//! `${VAR}`, `${VAR:-default}` and `${file:PATH}` in the values of the spec.

/// What a name begins with that is the path of a file, from the folder of the spec.
pub(super) const FILE_PREFIX: &str = "file:";

/// How the spec asks for a variable, or for a file by [`FILE_PREFIX`] and its path: the process, or a table in tests.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A value with its references replaced.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expanded {
    /// The text with values in place of references.
    pub(super) text: String,
    /// Each value taken from the environment, with its reference.
    pub(super) taken: Vec<(String, String)>,
    /// What could not be resolved: message and hint.
    pub(super) problems: Vec<(String, String)>,
}

/// Replaces references; `$${` stands for a literal `${`.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Expanded {
    let mut out = Expanded::default();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            out.text.push_str(&rest[..start - 1]);
            out.text.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        out.text.push_str(&rest[..start]);
        let Some(length) = rest[start..].find('}') else {
            out.problems.push((
                format!("`{}` is not closed", &rest[start..]),
                "between `{` and `}` of YAML put the value in quotes; `$${` stands for a plain `${`".to_owned(),
            ));
            return out;
        };
        let reference = &rest[start..=start + length];
        resolve(reference, lookup, &mut out);
        rest = &rest[start + length + 1..];
    }
    out.text.push_str(rest);
    out
}

fn resolve(reference: &str, lookup: Lookup<'_>, out: &mut Expanded) {
    let inner = &reference[2..reference.len() - 1];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if let Some(path) = name.strip_prefix(FILE_PREFIX) {
        return file(path, name, default, reference, lookup, out);
    }
    let named = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !named {
        out.problems.push((
            format!("`{reference}` does not name an environment variable"),
            "write `${VAR}`, `${VAR:-default}` or `${file:PATH}`; `$${` stands for a plain `${`".to_owned(),
        ));
        return;
    }
    match (lookup(name).filter(|value| !value.is_empty()), default) {
        (Some(value), _) => {
            out.text.push_str(&value);
            out.taken.push((value, reference.to_owned()));
        }
        (None, Some(default)) => out.text.push_str(default),
        (None, None) => out.problems.push((
            format!("environment variable `{name}` is not set"),
            format!("set it, or give a default: `${{{name}:-default}}`"),
        )),
    }
}

fn file(path: &str, name: &str, default: Option<&str>, reference: &str, lookup: Lookup<'_>, out: &mut Expanded) {
    match (lookup(name), default) {
        (Some(value), _) => {
            out.text.push_str(&value);
            out.taken.push((value, reference.to_owned()));
        }
        (None, Some(default)) => out.text.push_str(default),
        (None, None) => out.problems.push((
            format!("the file `{path}` of `{reference}` cannot be read"),
            "its path is absolute, or begins at the folder of the spec; it must be UTF-8".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "BUCKET" => Some("s3://lake".to_owned()),
            "EMPTY" => Some(String::new()),
            "file:/run/secrets/token" => Some("hunter2".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_become_values() {
        assert_eq!(expand("${BUCKET}/raw", &lookup).text, "s3://lake/raw");
        assert_eq!(expand("${BUCKET}/raw", &lookup).taken, [("s3://lake".to_owned(), "${BUCKET}".to_owned())]);
        assert_eq!(expand("${OTHER:-./lakehouse}", &lookup).text, "./lakehouse");
        assert_eq!(expand("${EMPTY:-x}", &lookup).text, "x");
        assert_eq!(expand("x-${file:/run/secrets/token}", &lookup).text, "x-hunter2");
        assert_eq!(expand("${file:none:-y}", &lookup).text, "y");
        assert_eq!(expand("a $${BUCKET} b $1", &lookup).text, "a ${BUCKET} b $1");
    }

    #[test]
    fn what_cannot_be_resolved_is_said() {
        let problem = |text: &str| expand(text, &lookup).problems[0].0.clone();
        assert_eq!(problem("${OTHER}"), "environment variable `OTHER` is not set");
        assert_eq!(problem("${file:none}"), "the file `none` of `${file:none}` cannot be read");
        assert_eq!(problem("${BUCKET"), "`${BUCKET` is not closed");
        assert_eq!(problem("${1x}"), "`${1x}` does not name an environment variable");
    }
}
