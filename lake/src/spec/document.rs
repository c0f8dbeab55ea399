//! A loaded spec: the file, its values, and its sections as the structs of the layers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::check;
use super::environment::{FILE_PREFIX, Lookup};
use super::path::SpecPath;
use super::problems::{Problem, Problems};
use super::text::SpecText;
use super::yaml;
use crate::error::{Error, Result};
use crate::names::is_plain_name;
use crate::secrets;

/// More decoding problems of one entry than this are not told apart.
const DECODE_ROUNDS_MAX: usize = 50;

/// A spec file in memory. Values of the environment are already in place.
#[derive(Debug, Clone)]
pub struct Document {
    file: PathBuf,
    text: Arc<SpecText>,
    root: Value,
    /// False when the text is not YAML at all: then there is nothing else to say about it.
    readable: bool,
    problems: Vec<Problem>,
}

/// One named entry of a section: `silver.orders`.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// Its key in the section.
    pub name: String,
    /// Its place in the spec.
    pub path: SpecPath,
    /// What the spec says; parts with problems hold their defaults.
    pub raw: T,
}

impl Document {
    /// Reads a spec file and resolves `${VAR}` from the environment of the process, `${file:PATH}` from files. What they
    /// hold is shown by no message of this process from now on.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Spec`] when the file cannot be read. Wrong YAML is no error here but a problem of the document.
    pub fn load(path: &Path) -> Result<Self> {
        let hint = "name the spec with `--spec FILE` or the environment variable PIPELINES_SPEC";
        let yaml = std::fs::read_to_string(path)
            .map_err(|error| Error::spec(format!("cannot read the spec `{}`: {error}", path.display())).hint(hint))?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let document = Self::parse_with(path, &yaml, &|name| match name.strip_prefix(FILE_PREFIX) {
            Some(file) => secret_of(&folder.join(file)),
            None => std::env::var(name).ok(),
        });
        document.text.hidden().iter().for_each(|(value, reference)| secrets::hide(value, reference));
        Ok(document)
    }

    /// Takes the text of a spec file, and the environment of the process.
    pub fn parse(file: &str, yaml: &str) -> Self {
        Self::parse_with(Path::new(file), yaml, &|name| std::env::var(name).ok())
    }

    pub(super) fn parse_with(file: &Path, yaml: &str, lookup: Lookup<'_>) -> Self {
        let yaml = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
        let mut text = SpecText::new(&file.display().to_string(), yaml);
        let (root, problems) = yaml::read(&mut text, yaml, lookup);
        let (readable, root) = (root.is_some(), root.unwrap_or(Value::Null));
        Self { file: file.to_owned(), text: Arc::new(text), root, readable, problems }
    }

    /// The file as the user named it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The folder of the file; relative paths of the spec start there.
    pub fn folder(&self) -> &Path {
        match self.file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// The problems of the text itself: syntax, duplicate keys, missing environment variables. Start with these and
    /// add those of the sections.
    pub fn problems(&self) -> Problems {
        let mut problems = Problems::of(Arc::clone(&self.text));
        for problem in &self.problems {
            problems.add(problem.clone());
        }
        problems
    }

    /// The 1-based line of a path, or of the nearest place above it.
    pub fn line(&self, path: &SpecPath) -> Option<usize> {
        self.text.nearest_line(path)
    }

    /// The names of a section in the order of the file, also of entries with problems.
    pub fn names(&self, section: &str) -> Vec<String> {
        let entries = self.root.get(section).and_then(Value::as_mapping);
        entries.into_iter().flat_map(|entries| entries.keys()).filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The entries of a section as `T`, in the order of the file.
    ///
    /// An entry with problems is left out only when nothing of it can be read.
    pub fn section<T: DeserializeOwned + JsonSchema>(&self, section: &str, problems: &mut Problems) -> Vec<Entry<T>> {
        let path = SpecPath::root().key(section);
        let entries = match self.root.get(section) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Mapping(entries)) => entries,
            Some(other) => {
                let found = check::found(other);
                let problem = Problem::at(&path, format!("expected a mapping of names, found {found}"));
                problems.add(problem.hint(format!("write `{section}:` and below it one entry for each name")));
                return Vec::new();
            }
        };
        let schema = check::schema_of::<T>();
        let named = entries.iter().filter_map(|(name, value)| Some((name.as_str()?, value)));
        let read = named.filter_map(|(name, value)| {
            let path = path.key(name);
            let raw = decode_checked(value, &schema, &path, problems)?;
            Some(Entry { name: name.to_owned(), path, raw })
        });
        read.collect()
    }

    /// Refuses names of a section that cannot be folders and SQL names, and names that differ only in case.
    pub fn check_names(&self, section: &str, problems: &mut Problems) {
        let names = self.names(section);
        for (position, name) in names.iter().enumerate() {
            let path = SpecPath::of([section, name]);
            if !is_plain_name(name) {
                let hint = "a name starts with a letter, then letters, digits, `_` and `-`";
                problems.add(Problem::of_key(&path, format!("`{name}` cannot be a name")).hint(hint));
            }
            if let Some(twin) = names[..position].iter().find(|other| other.eq_ignore_ascii_case(name)) {
                let hint = "folders and SQL may not tell them apart; rename one";
                problems.add(Problem::of_key(&path, format!("`{name}` and `{twin}` differ only in case")).hint(hint));
            }
        }
    }

    /// False when the text is not YAML at all.
    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// The whole document as `T`; `T` must accept the sections it does not read.
    pub(super) fn whole<T: DeserializeOwned + JsonSchema + Default>(&self, problems: &mut Problems) -> T {
        let root = match &self.root {
            Value::Null => Value::Mapping(Default::default()),
            other => other.clone(),
        };
        decode_checked(&root, &check::schema_of::<T>(), &SpecPath::root(), problems).unwrap_or_default()
    }
}

/// What a file holds, without the line break that editors put at its end.
fn secret_of(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Some(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// Checks against the schema, then decodes what is left.
fn decode_checked<T: DeserializeOwned>(
    value: &Value,
    schema: &serde_json::Value,
    path: &SpecPath,
    problems: &mut Problems,
) -> Option<T> {
    let before = problems.len();
    let checked = check::check(value, schema, path, problems);
    let decoded = match checked {
        None => None,
        Some(checked) => decode(checked, path, problems),
    };
    if problems.len() > before || (!path.is_root() && problems.any_below(path)) {
        problems.spoil(path);
    }
    decoded
}

/// Decodes with serde; each value that it refuses becomes a problem at its place and is left out.
fn decode<T: DeserializeOwned>(mut value: Value, path: &SpecPath, problems: &mut Problems) -> Option<T> {
    for _ in 0..DECODE_ROUNDS_MAX {
        let error = match T::deserialize(&value) {
            Ok(decoded) => return Some(decoded),
            Err(error) => error.to_string(),
        };
        let guilty = blame::<T>(&value, &error);
        let place = guilty.iter().fold(path.clone(), |path, step| match step {
            Value::Number(index) => {
                path.index(index.as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0))
            }
            key => path.key(key.as_str().unwrap_or_default()),
        });
        problems.add(Problem::at(&place, error));
        if !remove(&mut value, &guilty) {
            return None;
        }
    }
    None
}

/// The steps to the smallest value that alone makes serde fail with `error`.
fn blame<T: DeserializeOwned>(value: &Value, error: &str) -> Vec<Value> {
    let mut steps: Vec<Value> = Vec::new();
    let mut here = value.clone();
    loop {
        let children: Vec<Value> = match &here {
            Value::Mapping(entries) => entries.keys().cloned().collect(),
            Value::Sequence(items) => (0..items.len()).map(Value::from).collect(),
            _ => return steps,
        };
        let guilty = children.into_iter().find(|child| {
            let mut alone = value.clone();
            for depth in 0..=steps.len() {
                keep_only(&mut alone, &steps[..depth], steps.get(depth).unwrap_or(child));
            }
            matches!(T::deserialize(&alone), Err(other) if other.to_string() == error)
        });
        match guilty {
            None => return steps,
            Some(child) => {
                let Some(next) = step_into(&here, &child).cloned() else { return steps };
                here = next;
                steps.push(child);
            }
        }
    }
}

/// Drops the siblings of `child` at the place that `steps` lead to; a list keeps the items before it.
fn keep_only(value: &mut Value, steps: &[Value], child: &Value) {
    match walk(value, steps) {
        Some(Value::Mapping(entries)) => entries.retain(|key, _| key == child),
        Some(Value::Sequence(items)) => {
            let last = child.as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
            items.truncate(last + 1);
        }
        _ => {}
    }
}

fn remove(value: &mut Value, steps: &[Value]) -> bool {
    let Some((last, above)) = steps.split_last() else { return false };
    match walk(value, above) {
        Some(Value::Mapping(entries)) => entries.shift_remove(last).is_some(),
        // Without an item the places of those behind it would shift: the whole list goes.
        Some(Value::Sequence(_)) => remove(value, above),
        _ => false,
    }
}

fn walk<'a>(value: &'a mut Value, steps: &[Value]) -> Option<&'a mut Value> {
    steps.iter().try_fold(value, |here, step| match here {
        Value::Mapping(entries) => entries.get_mut(step),
        Value::Sequence(items) => items.get_mut(usize::try_from(step.as_u64()?).ok()?),
        _ => None,
    })
}

fn step_into<'a>(value: &'a Value, step: &Value) -> Option<&'a Value> {
    match value {
        Value::Mapping(entries) => entries.get(step),
        Value::Sequence(items) => items.get(usize::try_from(step.as_u64()?).ok()?),
        _ => None,
    }
}
