//! Which files below a source's folder are its data.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::below;

/// Endings of files that are unfinished, or that describe others.
const EXCLUDED_ENDINGS: &[&str] = &[
    ".tmp",
    ".part",
    ".partial",
    ".filepart",
    ".crdownload",
    ".inprogress",
    ".copying",
    "._copying_",
    ".swp",
    "~",
    ".crc",
    ".md5",
    ".sha1",
    ".sha256",
    ".dfm",
    ".ctrl",
];
/// Names of files that desktops leave behind.
const EXCLUDED_NAMES: &[&str] = &["thumbs.db", "desktop.ini"];
/// Endings of compressed files, which say nothing of their content.
const PACKED_ENDINGS: &[&str] = &[".gz", ".gzip", ".zst", ".zstd", ".bz2"];

/// Which files below a source's folder are its data. Paths are relative to that folder.
#[derive(Debug, Clone)]
pub struct Filter {
    include: Option<Globs>,
    exclude: Globs,
    default_excludes: bool,
    /// A path for each of the globs that include.
    examples: Vec<String>,
    /// The globs that include, in small letters.
    wanted: Vec<String>,
    /// The same as a set in which capitals mean nothing.
    in_any_case: Globs,
}

/// Why the globs that include do not take a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// They are about other names.
    Name,
    /// It has other capitals.
    Case,
    /// It has the ending of a compression more.
    Packed,
}

/// Globs of names (those without a slash) and of whole paths.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Filter {
    /// Files that one of `include` matches (all, when it is empty), without those that one of `exclude` matches and
    /// without the default ones. Globs that are none match nothing; see [`Filter::check`].
    pub fn new(include: &[String], exclude: &[String], default_excludes: bool) -> Self {
        let examples = include.iter().map(|glob| example(glob)).collect();
        let wanted: Vec<String> = include.iter().map(|glob| glob.to_lowercase()).collect();
        let in_any_case = Globs::new(&wanted);
        let include = (!include.is_empty()).then(|| Globs::new(include));
        Self { include, exclude: Globs::new(exclude), default_excludes, examples, wanted, in_any_case }
    }

    /// Tells why a text is not a glob.
    ///
    /// # Errors
    /// The reason.
    pub fn check(glob: &str) -> Result<(), String> {
        compile(glob).map(drop).map_err(|error| error.kind().to_string())
    }

    /// True for a file that is data of the source.
    pub fn takes(&self, path: &str) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.takes(path)) && !self.leaves_out(path)
    }

    /// Why the globs that include do not take a file that is not left out; `None` for every other file.
    pub fn miss(&self, path: &str) -> Option<Miss> {
        if self.include.as_ref().is_none_or(|globs| globs.takes(path)) || self.leaves_out(path) {
            return None;
        }
        let small = path.to_lowercase();
        let plain = PACKED_ENDINGS.iter().find_map(|ending| small.strip_suffix(ending));
        Some(match self.in_any_case.takes(&small) {
            true => Miss::Case,
            false if plain.is_some_and(|plain| self.in_any_case.takes(plain)) => Miss::Packed,
            false => Miss::Name,
        })
    }

    /// True for what is no data whatever is included: by the spec, or by default where no glob names its ending.
    fn leaves_out(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_wanted = |ending: &str| self.wanted.iter().any(|glob| ends_with(glob, ending));
        let is_side = EXCLUDED_ENDINGS.iter().any(|ending| ends_with(name, ending) && !is_wanted(ending))
            || EXCLUDED_NAMES.iter().any(|side| name.eq_ignore_ascii_case(side) && !is_wanted(side));
        let hidden = self.default_excludes && (is_side || path.split('/').any(is_hidden));
        hidden || self.exclude.takes(path)
    }

    /// True when files below this folder can be data of the source.
    pub fn enters(&self, folder: &str) -> bool {
        !(self.default_excludes && folder.split('/').any(is_hidden))
    }

    /// True when files below `inner` may be data of a source whose folder is `folder`, whatever their names are. Both
    /// are below the landing root.
    pub fn takes_below(&self, folder: &str, inner: &str) -> bool {
        // A glob that leaves out whole folders leaves these out at any depth.
        let excluded = |below: &str| {
            ["x", "x/y", "x/y/z.a"].iter().all(|rest| self.exclude.matches(&format!("{below}/{rest}"), "\0"))
        };
        inner == folder || below(folder, inner).is_some_and(|below| self.enters(below) && !excluded(below))
    }

    /// A path, below the landing root, of a file that both would take: this one as data of a source whose folder is
    /// `folder`, the other as data of one whose folder is `other_folder`. `None` when none was thought of.
    pub fn shared_with(&self, folder: &str, other: &Self, other_folder: &str) -> Option<String> {
        let inner = match (below(folder, other_folder), below(other_folder, folder)) {
            _ if folder == other_folder => folder,
            (Some(_), _) => other_folder,
            (_, Some(_)) => folder,
            (None, None) => return None,
        };
        let names = self.examples.iter().chain(&other.examples).map(String::as_str).chain(["file.csv"]);
        let takes = |filter: &Self, folder: &str, path: &str| match folder {
            "" => filter.takes(path),
            folder => below(folder, path).is_some_and(|path| filter.takes(path)),
        };
        let mut paths = names.map(|name| if inner.is_empty() { name.to_owned() } else { format!("{inner}/{name}") });
        paths.find(|path| takes(self, folder, path) && takes(other, other_folder, path))
    }

    /// True when a file of 0 bytes is left out.
    pub fn skips_empty(&self) -> bool {
        self.default_excludes
    }
}

impl Globs {
    /// The globs that are some; see [`Filter::check`].
    pub fn new(globs: &[String]) -> Self {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs {
            if let Ok(compiled) = compile(glob) {
                if glob.contains('/') {
                    paths.add(compiled)
                } else {
                    names.add(compiled)
                };
            }
        }
        Self { names: names.build().unwrap_or_default(), paths: paths.build().unwrap_or_default() }
    }

    /// True for a path that one of the globs matches, as a whole or by the name at its end.
    pub fn takes(&self, path: &str) -> bool {
        self.matches(path, path.rsplit('/').next().unwrap_or(path))
    }

    fn matches(&self, path: &str, name: &str) -> bool {
        self.names.is_match(name) || self.paths.is_match(path)
    }
}

fn compile(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob.strip_prefix("./").unwrap_or(glob)).literal_separator(true).build()
}

/// A path that a glob matches.
fn example(glob: &str) -> String {
    let (mut path, mut is_class) = (String::new(), false);
    for (at, char) in glob.replace("**/", "").char_indices() {
        match char {
            '[' => is_class = true,
            ']' => {
                is_class = false;
                path.push('x');
            }
            _ if is_class => {}
            '*' | '?' if path.ends_with('x') && at > 0 => {}
            '*' | '?' => path.push('x'),
            _ => path.push(char),
        }
    }
    path
}

fn is_hidden(name: &str) -> bool {
    name.starts_with(['_', '.']) || name.starts_with("~$")
}

fn ends_with(name: &str, ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude), true)
    }

    #[test]
    fn markers_and_unfinished_files_are_no_data() {
        let all = filter(&[], &[]);
        for path in ["part-0.csv", "a/b c.csv", "crc", "x.tmp.csv", "tmp/a.csv", "é.csv"] {
            assert!(all.takes(path), "{path}");
        }
        let skipped = [
            "_SUCCESS",
            ".part-0.csv.crc",
            "LOAD1.dfm",
            "orders.csv.tmp",
            "a.CSV.PART",
            "b.ctrl",
            "c.inprogress",
            "a.csv.filepart",
            "a.csv.crdownload",
            "a.csv.partial",
            "a.csv.COPYING",
            "a.csv._COPYING_",
            "a.csv~",
            ".a.csv.swp",
            "a.csv.SHA256",
            "2024/Thumbs.db",
            "Desktop.ini",
            "~$orders.xlsx",
            "_temporary/0/part-1.csv",
            "a/.git/x.csv",
        ];
        for path in skipped {
            assert!(!all.takes(path), "{path}");
        }
        assert!(!all.enters("_temporary") && !all.enters("a/_b") && all.enters("a/b"));
        let everything = Filter::new(&[], &[], false);
        assert!(everything.takes("_SUCCESS") && everything.enters("_temporary") && !everything.skips_empty());
    }

    #[test]
    fn an_ending_that_is_named_is_taken() {
        let named = filter(&["*.PART", "thumbs.db"], &[]);
        assert!(named.takes("orders.PART") && named.takes("2024/thumbs.db"));
        assert!(!filter(&["*"], &[]).takes("orders.part") && !named.takes("orders.tmp"));
        assert!(!filter(&["*.part"], &["old*"]).takes("old.part") && !filter(&["*.part"], &[]).takes("_x.part"));
    }

    #[test]
    fn a_file_that_is_included_but_for_its_capitals_or_its_compression_is_told() {
        let csv = filter(&["*.csv", "in/*.JSON"], &["old*"]);
        assert_eq!(csv.miss("2024/B.CSV"), Some(Miss::Case));
        assert_eq!(csv.miss("in/b.json"), Some(Miss::Case));
        assert_eq!(csv.miss("c.csv.gz"), Some(Miss::Packed));
        assert_eq!(csv.miss("c.txt"), Some(Miss::Name));
        for other in ["a.csv", "old.CSV", "_B.CSV", "B.CSV.tmp"] {
            assert_eq!(csv.miss(other), None, "{other}");
        }
        assert_eq!(filter(&[], &[]).miss("a"), None);
    }

    #[test]
    fn two_sources_share_files_when_both_take_some() {
        let all = filter(&[], &[]);
        let (csv, json) = (filter(&["*.csv"], &[]), filter(&["2024/**/*.json"], &[]));
        assert_eq!(csv.shared_with("a", &all, "a").as_deref(), Some("a/x.csv"));
        assert_eq!(all.shared_with("", &csv, "a/b").as_deref(), Some("a/b/x.csv"));
        assert_eq!(json.shared_with("a", &all, "a").as_deref(), Some("a/2024/x.json"));
        assert_eq!(csv.shared_with("a", &json, "a"), None);
        assert_eq!(all.shared_with("a", &all, "ab"), None);
        assert_eq!(all.shared_with("a", &filter(&["*.csv"], &["x*"]), "b"), None);
    }

    #[test]
    fn a_glob_without_a_slash_is_one_of_names() {
        let csv = filter(&["*.csv"], &["old_*", "archive/**"]);
        assert!(csv.takes("a.csv") && csv.takes("2024/05/a.csv"));
        assert!(!csv.takes("a.json") && !csv.takes("2024/old_a.csv") && !csv.takes("archive/2024/a.csv"));
        let deep = filter(&["2024/*/*.csv"], &[]);
        assert!(deep.takes("2024/05/a.csv"));
        assert!(!deep.takes("2024/a.csv") && !deep.takes("2024/05/01/a.csv"));
        assert!(filter(&["**/a.csv"], &[]).takes("x/y/a.csv"));
    }
}
