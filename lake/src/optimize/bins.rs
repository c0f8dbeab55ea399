//! Which files gain from being put together.

use std::collections::BTreeMap;

use deltalake::kernel::LogicalFileView;

use super::Optimize;

/// The tag of a file that says with which others it was clustered.
pub(super) const CUBE: &str = "ZCUBE_ID";
/// The tag of a file that says by which columns it was clustered, as a JSON list.
pub(super) const CLUSTERED_BY: &str = "ZCUBE_ZORDER_BY";
/// A file of less than this part of the wanted size is small.
const SMALL: f64 = 0.75;
/// A file of whose rows more than this part is marked as deleted is written anew whatever its size.
const PURGED: f64 = 0.05;

/// What becomes of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its files are written one after the other.
    Join,
    /// Their rows are sorted.
    Cluster,
}

/// What decides about a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Bytes.
    pub(super) size: u64,
    /// All rows; `None` when nobody counted.
    pub(super) rows: Option<u64>,
    /// Rows that are marked as deleted.
    pub(super) deleted: u64,
    /// When it was written, in milliseconds since the epoch.
    pub(super) written: i64,
    /// The values of the partition columns.
    pub(super) partition: BTreeMap<String, Option<String>>,
    /// By which columns it was clustered, and with which others.
    pub(super) clustered: Option<(String, String)>,
}

impl Facts {
    pub(super) fn of(file: &LogicalFileView) -> Self {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let tags = tags_of(file);
        let tag = |name: &str| tags.get(name).cloned().flatten();
        Self {
            size: number(file.size()),
            rows: file.num_records().map(|rows| rows as u64),
            deleted: file.deletion_vector_descriptor().map_or(0, |vector| number(vector.cardinality)),
            written: file.modification_time(),
            partition: file.partition_values_map().into_iter().collect(),
            clustered: tag(CLUSTERED_BY).zip(tag(CUBE)),
        }
    }

    fn is_small(&self, asked: &Optimize) -> bool {
        (self.size as f64) < asked.file_size as f64 * SMALL
    }

    fn has_many_deleted(&self) -> bool {
        self.deleted > 0 && self.rows.is_none_or(|rows| self.deleted as f64 > rows as f64 * PURGED)
    }
}

/// The tags of a file.
#[expect(deprecated, reason = "the library has no other way to the tags of a file")]
pub(crate) fn tags_of(file: &LogicalFileView) -> std::collections::HashMap<String, Option<String>> {
    file.add_action().tags.unwrap_or_default()
}

/// The bins, as places in `files`. A bin has files of one partition.
pub(super) fn choose(files: &[Facts], asked: &Optimize) -> Vec<(Kind, Vec<usize>)> {
    let mut partitions: BTreeMap<&BTreeMap<String, Option<String>>, Vec<usize>> = BTreeMap::new();
    for (place, file) in files.iter().enumerate() {
        partitions.entry(&file.partition).or_default().push(place);
    }
    let mut bins = Vec::new();
    for mut places in partitions.into_values() {
        places.sort_by_key(|place| (files[*place].written, *place));
        if asked.zorder_by.is_empty() {
            bins.extend(joined(files, &places, asked).into_iter().map(|bin| (Kind::Join, bin)));
        } else {
            bins.extend(clustered(files, &places, asked).map(|bin| (Kind::Cluster, bin)));
        }
    }
    bins
}

/// Files of one partition, oldest first, in bins of about the wanted size. Files that were clustered stay with each
/// other, or their order would be lost.
fn joined(files: &[Facts], places: &[usize], asked: &Optimize) -> Vec<Vec<usize>> {
    let gains = |place: &&usize| {
        let file = &files[**place];
        (file.is_small(asked) && file.clustered.is_none()) || file.has_many_deleted()
    };
    let (mut bins, mut bin, mut bytes): (Vec<Vec<usize>>, Vec<usize>, u64) = (Vec::new(), Vec::new(), 0);
    for place in places.iter().filter(gains) {
        let left = files[*place]
            .rows
            .filter(|rows| *rows > 0)
            .map_or(1.0, |rows| 1.0 - (files[*place].deleted as f64 / rows as f64).min(1.0));
        let size = (files[*place].size as f64 * left) as u64;
        let is_other = bin.last().is_some_and(|last| files[*last].clustered != files[*place].clustered);
        if !bin.is_empty() && (bytes + size > asked.file_size || is_other) {
            bins.push(std::mem::take(&mut bin));
            bytes = 0;
        }
        bin.push(*place);
        bytes += size;
    }
    bins.push(bin);
    if asked.tiered {
        bins.iter_mut().for_each(|bin| leave_large(files, bin));
    }
    bins.retain(|bin| bin.len() > 1 || bin.iter().any(|place| files[*place].has_many_deleted()));
    bins
}

/// Takes out of a bin the files that are larger than all others in it, but for those that lose rows.
fn leave_large(files: &[Facts], bin: &mut Vec<usize>) {
    let mut by_size: Vec<usize> = bin.iter().copied().filter(|place| !files[*place].has_many_deleted()).collect();
    by_size.sort_by_key(|place| files[*place].size);
    let mut total: u64 = bin.iter().map(|place| files[*place].size).sum();
    while let Some(largest) = by_size.pop().filter(|place| files[*place].size > total - files[*place].size) {
        total -= files[largest].size;
        bin.retain(|place| *place != largest);
    }
}

/// What is clustered together: the files that are not yet, and groups that were clustered earlier while they are no
/// larger than what goes along. So a row is sorted again only as often as the table doubles.
fn clustered(files: &[Facts], places: &[usize], asked: &Optimize) -> Option<Vec<usize>> {
    let columns = serde_json::Value::from(asked.zorder_by.clone()).to_string();
    let mut new = Vec::new();
    let mut cubes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in places {
        match &files[*place].clustered {
            Some((by, cube)) if *by == columns && !asked.full && !files[*place].has_many_deleted() => {
                cubes.entry(cube).or_default().push(*place);
            }
            _ => new.push(*place),
        }
    }
    let bytes_of = |places: &[usize]| places.iter().map(|place| files[*place].size).sum::<u64>();
    let mut bytes = bytes_of(&new);
    let mut cubes: Vec<Vec<usize>> = cubes.into_values().collect();
    cubes.sort_by_key(|cube| bytes_of(cube));
    for cube in cubes {
        let more = bytes_of(&cube);
        if new.is_empty() || more > bytes {
            break;
        }
        new.extend(cube);
        bytes += more;
    }
    (!new.is_empty()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn file(mib: u64, written: i64) -> Facts {
        Facts { size: mib * MIB, rows: Some(1000), written, ..Facts::default() }
    }

    fn cube(mib: u64, by: &str, cube: &str) -> Facts {
        Facts { clustered: Some((by.to_owned(), cube.to_owned())), ..file(mib, 0) }
    }

    fn joins(files: &[Facts]) -> Vec<Vec<usize>> {
        choose(files, &Optimize::default()).into_iter().map(|(_, places)| places).collect()
    }

    #[test]
    fn small_files_are_joined_oldest_first_and_large_ones_stay() {
        let files = [file(60, 3), file(127, 1), file(10, 1), file(50, 2), file(20, 4)];
        assert_eq!(joins(&files), [vec![2, 3, 0]]);
        assert_eq!(joins(&[file(10, 1)]), [[0_usize; 0]; 0], "one file alone gains nothing");
        let day = |text: &str| BTreeMap::from([("day".to_owned(), Some(text.to_owned()))]);
        let partitioned = |text: &str| Facts { partition: day(text), ..file(10, 1) };
        let files = [partitioned("1"), partitioned("2"), partitioned("1")];
        assert_eq!(joins(&files), [[0, 2]]);
    }

    #[test]
    fn files_that_are_joined_again_and_again_grow_like_powers_of_two() {
        let asked = Optimize { tiered: true, ..Optimize::default() };
        let (mut files, mut written) = (Vec::new(), 0);
        for round in 0..400 {
            files.push(Facts { size: 1_000, ..file(1, round) });
            let bins = choose(&files, &asked);
            for (_, bin) in bins.into_iter().filter(|(_, bin)| bin.len() >= 20) {
                let size = bin.iter().map(|place| files[*place].size).sum();
                written += size;
                let mut place = 0;
                files.retain(|_| {
                    place += 1;
                    !bin.contains(&(place - 1))
                });
                files.push(Facts { size, ..file(1, round) });
            }
        }
        assert!(files.len() < 30, "{} files", files.len());
        assert!(written < 400_000 * 4, "{written} bytes were written for 400,000");
    }

    #[test]
    fn a_file_with_many_deleted_rows_is_written_anew() {
        let marked = |deleted: u64| Facts { deleted, ..file(128, 1) };
        assert_eq!(joins(&[marked(50)]), [[0_usize; 0]; 0], "few");
        assert_eq!(joins(&[marked(51)]), [[0]]);
        assert_eq!(joins(&[Facts { rows: None, ..marked(1) }]), [[0]], "nobody knows how few");
    }

    #[test]
    fn files_that_were_clustered_are_not_mixed_with_others() {
        let mut marked = cube(20, "[\"a\"]", "x");
        marked.deleted = 900;
        assert_eq!(joins(&[file(10, 0), cube(10, "[\"a\"]", "x"), marked, file(10, 0)]), [[2]]);
    }

    #[test]
    fn only_what_is_not_clustered_yet_is_and_groups_grow_like_powers_of_two() {
        let asked = Optimize { zorder_by: vec!["a".to_owned()], ..Optimize::default() };
        let chosen = |files: &[Facts], asked: &Optimize| {
            choose(files, asked).into_iter().flat_map(|(_, places)| places).collect::<Vec<_>>()
        };
        let a = "[\"a\"]";
        let files = [cube(100, a, "x"), cube(100, a, "x"), cube(20, a, "y"), cube(9, "[\"b\"]", "z"), file(30, 1)];
        assert_eq!(chosen(&files, &asked), [3, 4, 2], "the large group stays");
        assert_eq!(chosen(&files[..3], &asked), [0_usize; 0], "all are clustered");
        assert_eq!(chosen(&files, &Optimize { full: true, ..asked }).len(), 5);
    }
}
