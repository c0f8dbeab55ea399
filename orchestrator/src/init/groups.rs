//! Sample files sorted into sources: by folder, format, and how their names begin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bronze::discover::Filter;
use bronze::look::{Look, look, records};
use bronze::spec::{Format, Source};
use lake::{Context, Error, Result};

/// Endings of files that are no data.
const NO_DATA: [&str; 6] = [".yaml", ".yml", ".md", ".schema.json", ".rs", ".toml"];
/// The part of the columns that files of one source have in common.
const SAME_COLUMNS_SHARE: f64 = 0.6;

/// One sample file.
#[derive(Debug, Clone)]
pub(super) struct SampleFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its path below the landing root.
    pub(super) below: String,
    /// What it seems to be.
    pub(super) look: Look,
}

/// Files of one source.
#[derive(Debug)]
pub(super) struct Group {
    /// The name of the source and of its table.
    pub(super) name: String,
    /// Their folder below the landing root, empty for the root itself.
    pub(super) folder: String,
    /// Globs that take these files and no others of the folder.
    pub(super) include: Vec<String>,
    /// Globs that leave out files which the others take by accident.
    pub(super) exclude: Vec<String>,
    /// `key=value` folders.
    pub(super) partition_columns: Vec<String>,
    /// The files by path.
    pub(super) files: Vec<SampleFile>,
}

/// The landing root of some paths, and the files below them that may be data.
///
/// # Errors
/// [`lake::ErrorKind::Spec`] when a path is not there or has no files.
pub(super) fn files(paths: &[PathBuf], folder: &Path) -> Result<(PathBuf, Vec<(PathBuf, String)>)> {
    let mut found = Vec::new();
    let mut roots = Vec::new();
    for path in paths {
        let missing = |error| Error::spec(format!("`{}` cannot be read: {error}", path.display()));
        let path = path.canonicalize().map_err(missing)?;
        if path.is_dir() {
            walk(&path, &mut found)?;
            roots.push(path);
        } else {
            roots.extend(path.parent().map(Path::to_owned));
            found.push(path);
        }
    }
    let root = roots.into_iter().reduce(|one, other| shared(&one, &other)).unwrap_or_else(|| folder.to_owned());
    let landing = folder.join("landing").canonicalize().ok().filter(|landing| root.starts_with(landing));
    let landing = landing.unwrap_or(root);
    found.sort();
    found.dedup();
    let filter = Filter::new(&[], &[], true);
    let below = |path: PathBuf| {
        let below = path.strip_prefix(&landing).ok()?.to_str()?.replace('\\', "/");
        let name = below.rsplit('/').next().unwrap_or(&below).to_lowercase();
        (filter.takes(&below) && !NO_DATA.iter().any(|end| name.ends_with(end))).then_some((path, below))
    };
    let files: Vec<_> = found.into_iter().filter_map(below).collect();
    if files.is_empty() {
        let shown: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
        let hint = "name files or folders with CSV, JSON, Parquet or Avro in them";
        return Err(Error::spec(format!("there are no data files in {}", shown.join(", "))).hint(hint));
    }
    Ok((landing, files))
}

/// The sources of the files; what cannot be looked at is told in `notes`.
pub(super) fn groups(files: Vec<(PathBuf, String)>, notes: &mut Vec<String>) -> Vec<Group> {
    let mut by_folder: BTreeMap<(String, &'static str), Vec<SampleFile>> = BTreeMap::new();
    let mut seen = BTreeMap::<String, usize>::new();
    for (path, below) in files {
        if std::fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
            continue;
        }
        match look(&path) {
            Ok(look) => {
                let folder = data_folder(&below);
                *seen.entry(folder.clone()).or_default() += 1;
                by_folder.entry((folder, format_name(look.format))).or_default().push(SampleFile { path, below, look });
            }
            Err(error) => notes.push(format!("{below} was left out: {}", lake::report::error_text(&error).trim())),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for ((folder, _), files) in by_folder {
        let all = seen.get(&folder).copied().unwrap_or(0);
        for (stem, files) in by_stem(files) {
            let is_alone = files.len() == all;
            let globs = globs(&stem, &files);
            let mut name = if is_alone && !folder.is_empty() { folder_name(&folder) } else { table_name(&stem) };
            while groups.iter().any(|group| group.name.eq_ignore_ascii_case(&name)) {
                name.push_str("_2");
            }
            let include = if is_alone { Vec::new() } else { globs };
            let partition_columns = partitions(&folder, &files);
            groups.push(Group { name, folder: folder.clone(), include, exclude: Vec::new(), partition_columns, files });
        }
    }
    keep_apart(&mut groups);
    notes.extend(groups.iter().filter_map(other_delimiter));
    groups
}

/// What to do when the files of a source are not divided alike.
fn other_delimiter(group: &Group) -> Option<String> {
    let delimiter = |file: &SampleFile| file.look.csv.as_ref().map(|csv| csv.delimiter.clone());
    let first = group.files.first()?;
    let other = group.files.iter().find(|file| delimiter(file) != delimiter(first))?;
    let (one, two) = (delimiter(first)?, delimiter(other)?);
    Some(format!(
        "{} is divided by `{}` and {} by `{}`: a source has one delimiter, so put such files in folders of their own",
        first.below,
        one.escape_debug(),
        other.below,
        two.escape_debug()
    ))
}

/// What the spec calls a format.
pub(super) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Csv => "csv",
        Format::Json => "json",
        Format::Parquet => "parquet",
        Format::Avro => "avro",
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    // Tables are no landing zone.
    if folder.join("_delta_log").is_dir() || folder.join("_state").is_dir() {
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).context(|| format!("listing {}", folder.display()))?;
    for entry in entries {
        let path = entry.context(|| format!("listing {}", folder.display()))?.path();
        let is_hidden = path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.starts_with(['.', '_']));
        match path.is_dir() {
            true if !is_hidden => walk(&path, found)?,
            false if !is_hidden => found.push(path),
            _ => {}
        }
    }
    Ok(())
}

fn shared(one: &Path, other: &Path) -> PathBuf {
    one.components().zip(other.components()).take_while(|(one, other)| one == other).map(|(part, _)| part).collect()
}

/// The folder of a file without the `key=value` and date folders at its end.
fn data_folder(below: &str) -> String {
    let folders: Vec<&str> = below.split('/').collect();
    let folders = &folders[..folders.len() - 1];
    let is_part =
        |name: &&str| name.contains('=') || name.bytes().all(|byte| byte.is_ascii_digit() || b"-_T".contains(&byte));
    let end = folders.iter().position(|name| name.contains('=')).unwrap_or(folders.len());
    let kept = folders[..end].iter().rposition(|name| !is_part(name)).map_or(0, |last| last + 1);
    folders[..kept].join("/")
}

/// The keys of the `key=value` folders that all files have, without those of Kafka Connect.
fn partitions(folder: &str, files: &[SampleFile]) -> Vec<String> {
    let keys = |file: &SampleFile| -> Vec<String> {
        let rest = file.below.strip_prefix(folder).unwrap_or(&file.below);
        rest.split('/')
            .filter_map(|part| Some(part.split_once('=')?.0.to_owned()))
            .filter(|key| key != "partition")
            .collect()
    };
    let first = files.first().map(keys).unwrap_or_default();
    match files.iter().all(|file| keys(file) == first) {
        true => first,
        false => Vec::new(),
    }
}

/// How the names of files begin: the part before the first digit.
fn stem(below: &str) -> String {
    let name = below.rsplit('/').next().unwrap_or(below);
    let name =
        name.split('.').next().filter(|first| !first.is_empty() && name.matches('.').count() < 3).unwrap_or(name);
    let end = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    name[..end].trim_end_matches(['_', '-', '.', ' ', '+']).to_owned()
}

/// Files of one folder and format by the tables that they seem to be of.
fn by_stem(files: Vec<SampleFile>) -> Vec<(String, Vec<SampleFile>)> {
    let mut stems: BTreeMap<String, Vec<SampleFile>> = BTreeMap::new();
    for file in files {
        stems.entry(stem(&file.below)).or_default().push(file);
    }
    let mut kinds: Vec<(Vec<String>, String, Vec<SampleFile>)> = Vec::new();
    for (stem, files) in stems {
        let columns = files.first().map(columns_of).unwrap_or_default();
        match kinds.iter_mut().find(|(known, ..)| are_alike(known, &columns)) {
            Some((_, first, together)) => {
                together.extend(files);
                if first.is_empty() {
                    *first = stem;
                }
            }
            None => kinds.push((columns, stem, files)),
        }
    }
    kinds.into_iter().map(|(_, stem, files)| (stem, files)).collect()
}

fn columns_of(file: &SampleFile) -> Vec<String> {
    let source = source_of(&file.look);
    let batches = records(&file.path, &source, 20).map(|sample| sample.batches).unwrap_or_default();
    batches
        .last()
        .map(|batch| batch.schema().fields().iter().map(|field| field.name().clone()).collect())
        .unwrap_or_default()
}

/// A source that reads a file as it looks.
pub(super) fn source_of(look: &Look) -> Source {
    Source {
        path: "./".to_owned(),
        format: look.format,
        encoding: look.encoding.map(str::to_owned),
        csv: look.csv.clone(),
        duplicate_columns: bronze::spec::DuplicateColumns::Rename,
        ..Source::default()
    }
}

fn are_alike(one: &[String], other: &[String]) -> bool {
    let same = one.iter().filter(|name| other.contains(name)).count();
    same > 0 && same as f64 >= one.len().max(other.len()) as f64 * SAME_COLUMNS_SHARE
}

/// A glob for each way in which the names of the files end.
fn globs(stem: &str, files: &[SampleFile]) -> Vec<String> {
    let ending = |file: &SampleFile| {
        let name = file.below.rsplit('/').next().unwrap_or(&file.below);
        let rest = name.get(stem.len()..).unwrap_or(name);
        rest.find('.').map_or("", |dot| &rest[dot..]).to_owned()
    };
    let mut endings: Vec<String> = files.iter().map(ending).collect();
    endings.sort();
    endings.dedup();
    match endings.len() {
        0..=3 => endings.into_iter().map(|ending| format!("{stem}*{ending}")).collect(),
        _ => vec![format!("{stem}*")],
    }
}

/// Leaves out of a source what belongs to another of the same folder: `orders*` takes `orders_lines.csv` too.
fn keep_apart(groups: &mut [Group]) {
    let kept: Vec<(String, Vec<String>, Vec<String>)> = groups
        .iter()
        .map(|group| {
            (group.folder.clone(), group.include.clone(), group.files.iter().map(|file| file.below.clone()).collect())
        })
        .collect();
    for (number, group) in groups.iter_mut().enumerate() {
        let filter = Filter::new(&group.include, &[], true);
        for (folder, include, files) in
            kept.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, kept)| kept)
        {
            let below =
                |file: &String| file.strip_prefix(&group.folder).unwrap_or(file).trim_start_matches('/').to_owned();
            let takes = files.iter().any(|file| file.starts_with(&group.folder) && filter.takes(&below(file)));
            if takes && *folder == group.folder {
                group.exclude.extend(include.iter().filter(|glob| !group.include.contains(glob)).cloned());
            } else if takes {
                let inner = folder.strip_prefix(&group.folder).unwrap_or(folder).trim_start_matches('/');
                group.exclude.push(format!("{inner}/**"));
            }
        }
        group.exclude.sort();
        group.exclude.dedup();
    }
}

/// A table's name after a folder: of `topics/shop.public.orders` the last word.
fn folder_name(folder: &str) -> String {
    let last = folder.rsplit('/').next().unwrap_or(folder);
    table_name(last.rsplit('.').next().unwrap_or(last))
}

fn table_name(text: &str) -> String {
    let mut name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    name = name.trim_matches('_').to_owned();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name = if name.is_empty() { "records".to_owned() } else { format!("t_{name}") };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_and_folders_tell_tables() {
        for (below, folder, begin) in [
            ("orders/orders_2024-05-01_am.csv", "orders", "orders"),
            (
                "topics/shop.public.orders/partition=0/shop.public.orders+0+0000000000.json",
                "topics/shop.public.orders",
                "shop.public.orders",
            ),
            ("sales/2024/05/01/x.csv", "sales", "x"),
            ("sales/country=PT/dt=2024-05-01/part-0001.parquet", "sales", "part"),
            ("shop/orders/LOAD00000001.csv", "shop/orders", "LOAD"),
            ("shop/orders/20240501-100000123.csv", "shop/orders", ""),
            ("customers.csv.gz", "", "customers"),
        ] {
            assert_eq!((data_folder(below).as_str(), stem(below).as_str()), (folder, begin), "{below}");
        }
        assert_eq!(folder_name("topics/shop.public.orders"), "orders");
        assert_eq!(table_name("Order Lines"), "order_lines");
        assert_eq!(table_name("2024"), "t_2024");
    }
}
