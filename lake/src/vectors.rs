//! Deletion vectors: which rows of a data file are deleted, kept in a file beside it.
//!
//! A file of vectors begins with a version byte; each vector is its size, a magic number, a 64-bit Roaring bitmap in
//! its portable form, and a checksum. The log names a vector by the file's UUID in base 85, its offset and its size.
//! <https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vectors>

use bytes::Bytes;
use deltalake::kernel::{DeletionVectorDescriptor, StorageType};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringTreemap;
use uuid::Uuid;

use crate::error::{Context, Error, ErrorKind, Result};

/// The first byte of a file of vectors.
const VERSION: u8 = 1;
/// What a bitmap begins with.
const MAGIC: u32 = 1_681_511_377;
/// Characters of a UUID in base 85.
const UUID_LENGTH: usize = 20;
/// Bytes of a size, a magic number and a checksum.
const WORD: usize = 4;

/// The rows that a vector deletes.
///
/// # Errors
/// [`ErrorKind::Store`] when its file cannot be read, [`ErrorKind::Table`] when it is not what it should be.
pub(crate) async fn read(store: &dyn ObjectStore, vector: &DeletionVectorDescriptor) -> Result<RoaringTreemap> {
    let size = usize::try_from(vector.size_in_bytes).map_err(|_| broken("its size is negative"))?;
    let deleted = match vector.storage_type {
        StorageType::Inline => {
            let bytes = z85::decode(&vector.path_or_inline_dv).map_err(|_| broken("it is not base 85"))?;
            bitmap(&bytes)?
        }
        StorageType::UuidRelativePath => {
            let path = path_of(&vector.path_or_inline_dv)?;
            let offset = u64::try_from(vector.offset.unwrap_or(0)).map_err(|_| broken("its offset is negative"))?;
            let range = offset..offset + (size + 2 * WORD) as u64;
            let bytes = store.get_range(&path, range).await.context(|| format!("reading `{path}`"))?;
            framed(&bytes, size)?
        }
        StorageType::AbsolutePath => {
            let message =
                "a table with deletion vectors outside of its folder, as a shallow clone has, cannot be changed";
            return Err(Error::new(ErrorKind::Table, message));
        }
    };
    if i64::try_from(deleted.len()).ok() != Some(vector.cardinality) {
        return Err(broken("it deletes another number of rows than the log says"));
    }
    Ok(deleted)
}

/// Writes vectors into one file in the folder of a table, and says how the log names each of them.
///
/// # Errors
/// [`ErrorKind::Store`] when the store fails.
pub(crate) async fn write(
    store: &dyn ObjectStore,
    vectors: &[RoaringTreemap],
) -> Result<Vec<DeletionVectorDescriptor>> {
    let id = Uuid::new_v4();
    let name = z85::encode(id.as_bytes());
    let mut bytes = vec![VERSION];
    let mut named = Vec::with_capacity(vectors.len());
    for deleted in vectors {
        let offset = bytes.len();
        let size = WORD + deleted.serialized_size();
        let word = |number: usize| i32::try_from(number).map_err(|_| broken("more than two gigabytes of them"));
        bytes.extend_from_slice(&word(size)?.to_be_bytes());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        deleted.serialize_into(&mut bytes).map_err(|error| broken("it cannot be written").with_source(error))?;
        let checksum = crc32fast::hash(&bytes[offset + WORD..]);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        named.push(DeletionVectorDescriptor {
            storage_type: StorageType::UuidRelativePath,
            path_or_inline_dv: name.clone(),
            offset: Some(word(offset)?),
            size_in_bytes: word(size)?,
            cardinality: i64::try_from(deleted.len()).unwrap_or(i64::MAX),
        });
    }
    let path = path_of(&name)?;
    store.put(&path, Bytes::from(bytes).into()).await.context(|| format!("writing `{path}`"))?;
    Ok(named)
}

/// The file in the folder of the table that holds a vector; `None` where the log itself does.
pub(crate) fn file_of(vector: &DeletionVectorDescriptor) -> Result<Option<Path>> {
    match vector.storage_type {
        StorageType::UuidRelativePath => path_of(&vector.path_or_inline_dv).map(Some),
        StorageType::Inline | StorageType::AbsolutePath => Ok(None),
    }
}

/// The file of vectors that a name in the log stands for.
pub(crate) fn path_of(name: &str) -> Result<Path> {
    let split = name.len().checked_sub(UUID_LENGTH).filter(|split| name.is_char_boundary(*split));
    let (prefix, id) = name.split_at(split.ok_or_else(|| broken("its name is too short"))?);
    let id = z85::decode(id).ok().and_then(|bytes| Uuid::from_slice(&bytes).ok());
    let file = format!("deletion_vector_{}.bin", id.ok_or_else(|| broken("its name is no UUID"))?);
    Ok(Path::from(if prefix.is_empty() { file } else { format!("{prefix}/{file}") }))
}

/// A vector as it stands in a file: size, bitmap, checksum.
fn framed(bytes: &[u8], size: usize) -> Result<RoaringTreemap> {
    let word = |at: usize| bytes.get(at..at + WORD).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
    if word(0).map(|held| held as usize) != Some(size) {
        return Err(broken("its size is not what the log says"));
    }
    let content = bytes.get(WORD..WORD + size).ok_or_else(|| broken("its file is too short"))?;
    if word(WORD + size) != Some(crc32fast::hash(content)) {
        return Err(broken("its checksum is wrong"));
    }
    bitmap(content)
}

fn bitmap(content: &[u8]) -> Result<RoaringTreemap> {
    match content.split_first_chunk::<WORD>() {
        Some((magic, bitmap)) if u32::from_le_bytes(*magic) == MAGIC => RoaringTreemap::deserialize_from(bitmap)
            .map_err(|error| broken("its bitmap cannot be read").with_source(error)),
        _ => Err(broken("its bitmap is of a kind that is not known")),
    }
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::Table, format!("a deletion vector is broken: {what}"))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work)
    }

    fn vectors() -> Vec<RoaringTreemap> {
        vec![RoaringTreemap::from_iter([0, 5, 70_000]), RoaringTreemap::new(), (3..40_000).collect()]
    }

    #[test]
    fn vectors_come_back_as_they_were_written() {
        let store = InMemory::new();
        let named = block_on(write(&store, &vectors())).expect("written");
        for (vector, deleted) in named.iter().zip(vectors()) {
            assert_eq!(vector.cardinality, deleted.len() as i64);
            assert_eq!(block_on(read(&store, vector)).expect("read"), deleted);
        }
    }

    #[test]
    fn what_is_broken_is_refused() {
        let store = InMemory::new();
        let named = block_on(write(&store, &vectors())).expect("written");
        let more = DeletionVectorDescriptor { cardinality: 4, ..named[0].clone() };
        assert!(block_on(read(&store, &more)).expect_err("an error").to_string().contains("another number of rows"));

        let path = path_of(&named[0].path_or_inline_dv).expect("a path");
        let mut bytes =
            block_on(async { store.get(&path).await.expect("a file").bytes().await.expect("bytes") }).to_vec();
        bytes[20] ^= 1;
        block_on(store.put(&path, Bytes::from(bytes).into())).expect("written");
        assert!(block_on(read(&store, &named[0])).expect_err("an error").to_string().contains("checksum"));
    }

    #[test]
    fn names_are_those_of_the_protocol() {
        let path = |name| path_of(name).expect("a path").to_string();
        assert_eq!(path("vBn[lx{q8@P<9BNH/isA"), "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin");
        assert_eq!(path("ab^-aqEH.-t@S}K{vb[*k^"), "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin");
    }
}
