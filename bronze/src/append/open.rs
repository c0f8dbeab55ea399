//! Opens a planned file for reading, and makes sure that it is the one that was planned.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use lake::{Context, Error, ErrorKind, Result, Root};
use object_store::path::Path as StorePath;
use object_store::{Error as StoreError, GetOptions, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::decode::{Decoder, ParquetDecoder, SourceFailure, avro_decoder, refused, text_decoder};
use crate::discover::{FoundFile, modified_us};
use crate::plan::Format;

/// Why a file of a batch cannot be taken.
#[derive(Debug)]
pub(super) enum Fault {
    /// What was planned is not there any more: the file is gone, or has other content.
    Gone(&'static str),
    /// The file, or the store, failed.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

const GONE: Fault = Fault::Gone("the file is gone since it was found");
const CHANGED: Fault = Fault::Gone("the file changed after it was found; its new content is a new arrival");

/// A file that is open for reading. All of it must be used on a thread that may block.
pub(super) struct OpenFile {
    planned: FoundFile,
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    /// A file of this machine, kept to see whether it changes while it is read.
    local: Option<File>,
    payload: Option<GetResultPayload>,
    /// True when the content is fetched in several requests, which need not see one version of it.
    in_parts: bool,
}

impl OpenFile {
    /// Opens a file of the landing zone.
    ///
    /// # Errors
    /// [`Fault::Gone`] when it is not the one that was planned; [`ErrorKind::File`] when it may not be read,
    /// [`ErrorKind::Store`] when the store fails.
    pub(super) fn open(landing: &Root, planned: &FoundFile, handle: &Handle) -> Result<Self, Fault> {
        if let Some(reason) = &planned.unreadable {
            return Err(refused(reason.as_str()).into());
        }
        let store = landing.store();
        if let Some(root) = landing.local_path() {
            return Self::open_local(root, planned, store, handle);
        }
        let location = &location(planned)?;
        let options = GetOptions { if_match: planned.etag.clone(), ..GetOptions::default() };
        let result = match handle.block_on(store.get_opts(location, options)) {
            Ok(result) => result,
            Err(StoreError::NotFound { .. }) => return Err(GONE),
            Err(StoreError::Precondition { .. }) => return Err(CHANGED),
            Err(error) => return Err(Error::from(error).context(format!("opening the file {}", planned.path)).into()),
        };
        let GetResult { payload, meta, .. } = result;
        if meta.size != planned.size || meta.last_modified.timestamp_micros() != planned.modified_us {
            return Err(CHANGED);
        }
        Ok(Self {
            planned: planned.clone(),
            store,
            handle: handle.clone(),
            local: None,
            payload: Some(payload),
            in_parts: false,
        })
    }

    /// Opens a file of this machine by the name that it has there: the local store keeps some names for itself.
    fn open_local(
        root: &Path,
        planned: &FoundFile,
        store: Arc<dyn ObjectStore>,
        handle: &Handle,
    ) -> Result<Self, Fault> {
        let path = root.join(&planned.path);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(GONE),
            Err(error) => return Err(unreadable(&error).into()),
        };
        let metadata = file.metadata().map_err(|error| unreadable(&error))?;
        if metadata.len() != planned.size || modified_us(&metadata) != planned.modified_us {
            return Err(CHANGED);
        }
        let local = Some(file.try_clone().context(|| format!("opening {}", planned.path))?);
        let payload = Some(GetResultPayload::File(file, path));
        Ok(Self { planned: planned.clone(), store, handle: handle.clone(), local, payload, in_parts: false })
    }

    /// A decoder for the content.
    ///
    /// # Errors
    /// [`ErrorKind::File`] when the file is refused.
    pub(super) fn decoder(&mut self, format: &Format) -> Result<Box<dyn Decoder>> {
        let payload = self.payload.take().ok_or_else(|| Error::internal("a file is decoded once"))?;
        match (format, payload) {
            (Format::Text(format, compression), GetResultPayload::File(file, _)) => {
                text_decoder(format, *compression, file)
            }
            (Format::Text(format, compression), GetResultPayload::Stream(stream)) => {
                text_decoder(format, *compression, StreamReader::new(stream, self.handle.clone()))
            }
            (Format::Avro(duplicates, compression), GetResultPayload::File(file, _)) => {
                avro_decoder(*compression, *duplicates, file)
            }
            (Format::Avro(duplicates, compression), GetResultPayload::Stream(stream)) => {
                avro_decoder(*compression, *duplicates, StreamReader::new(stream, self.handle.clone()))
            }
            (Format::Parquet(duplicates), GetResultPayload::File(file, _)) => {
                Ok(Box::new(ParquetDecoder::local(file, *duplicates)?))
            }
            (Format::Parquet(duplicates), GetResultPayload::Stream(_)) => {
                self.in_parts = true;
                let location = location(&self.planned)?;
                let (store, handle, size) = (Arc::clone(&self.store), self.handle.clone(), self.planned.size);
                Ok(Box::new(ParquetDecoder::remote(store, location, size, handle, *duplicates)?))
            }
        }
    }

    /// Makes sure, at the end, that the content was the planned one all the time.
    ///
    /// # Errors
    /// [`Fault::Gone`] when the file changed while it was read.
    pub(super) fn check_unchanged(&self) -> Result<(), Fault> {
        let (size, modified) = match &self.local {
            Some(file) => {
                let metadata = file.metadata().context(|| format!("reading {}", self.planned.path))?;
                (metadata.len(), modified_us(&metadata))
            }
            None if !self.in_parts => return Ok(()),
            None => {
                let location = location(&self.planned)?;
                match self.handle.block_on(self.store.head(&location)) {
                    Ok(meta) if meta.e_tag.is_some() && meta.e_tag == self.planned.etag => return Ok(()),
                    Ok(meta) => (meta.size, meta.last_modified.timestamp_micros()),
                    Err(StoreError::NotFound { .. }) => return Err(GONE),
                    Err(error) => return Err(Error::from(error).into()),
                }
            }
        };
        match size == self.planned.size && modified == self.planned.modified_us {
            true => Ok(()),
            false => Err(CHANGED),
        }
    }
}

/// Where a store far away has the file.
fn location(planned: &FoundFile) -> Result<StorePath> {
    StorePath::parse(&planned.path).map_err(|error| refused(format!("the store cannot open its name: {error}")))
}

/// A file of this machine that cannot be opened; a store far away may fail for reasons of its own.
fn unreadable(error: &io::Error) -> Error {
    refused(format!("the file cannot be opened: {error}"))
        .hint("when the cause is gone, `bronze reingest --files` tries the file again")
}

/// A stream of a store as a reader, for a thread that may block.
struct StreamReader {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    handle: Handle,
    held: Bytes,
}

impl StreamReader {
    fn new(stream: BoxStream<'static, object_store::Result<Bytes>>, handle: Handle) -> Self {
        Self { stream, handle, held: Bytes::new() }
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.held.is_empty() {
            match self.handle.block_on(self.stream.next()) {
                None => return Ok(0),
                Some(Ok(bytes)) => self.held = bytes,
                Some(Err(error)) => return Err(io::Error::other(SourceFailure(failed(error)))),
            }
        }
        let length = buffer.len().min(self.held.len());
        self.held.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

fn failed(error: StoreError) -> Error {
    Error::new(ErrorKind::Store, format!("reading the file: {error}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, FileTimes, OpenOptions};
    use std::path::Path as FsPath;
    use std::time::{Duration, UNIX_EPOCH};

    use object_store::memory::InMemory;

    use crate::decode::{Compression, Dialect, TextFormat};

    const TEXT: &str = "a,b\n1,2\n";

    fn set_time(path: &FsPath, seconds: u64) {
        let file = OpenOptions::new().write(true).open(path).expect("a file");
        file.set_times(FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(seconds))).expect("a time");
    }

    fn planned(size: usize, seconds: i64) -> FoundFile {
        let modified_us = seconds * 1_000_000;
        FoundFile { path: "f.csv".into(), size: size as u64, modified_us, etag: None, unreadable: None }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    }

    #[test]
    fn only_the_file_that_was_planned_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f.csv");
        let (root, runtime) = (Root::open(".", folder.path()).expect("a root"), runtime());
        let open = |file: &FoundFile| OpenFile::open(&root, file, runtime.handle());
        let refusal = |file: &FoundFile| match open(file).err().expect("refused") {
            Fault::Gone(reason) => format!("gone: {reason}"),
            Fault::Failed(error) => format!("{:?}: {error}", error.kind()),
        };
        assert_eq!(refusal(&planned(8, 100)), "gone: the file is gone since it was found");
        fs::write(&path, TEXT).expect("a file");
        set_time(&path, 100);
        assert!(refusal(&planned(9, 100)).starts_with("gone: the file changed"));
        assert!(refusal(&planned(8, 101)).starts_with("gone: the file changed"));
        let unnamed = FoundFile { unreadable: Some("no name".into()), ..planned(8, 100) };
        assert_eq!(refusal(&unnamed), "File: no name");
        open(&planned(8, 100)).expect("the planned file").check_unchanged().expect("unchanged");
    }

    #[test]
    fn a_change_while_reading_is_seen_and_a_replacement_does_no_harm() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f.csv");
        let (root, runtime) = (Root::open(".", folder.path()).expect("a root"), runtime());
        fs::write(&path, TEXT).expect("a file");
        set_time(&path, 100);
        let replaced = OpenFile::open(&root, &planned(8, 100), runtime.handle()).expect("a file");
        fs::write(folder.path().join("new"), "other").expect("a file");
        fs::rename(folder.path().join("new"), &path).expect("renamed");
        replaced.check_unchanged().expect("the open file is still the old one");
        fs::write(&path, TEXT).expect("a file");
        set_time(&path, 100);
        let grown = OpenFile::open(&root, &planned(8, 100), runtime.handle()).expect("a file");
        fs::write(&path, "a,b\n1,2\n3,4\n").expect("a file");
        assert!(matches!(grown.check_unchanged(), Err(Fault::Gone(_))));
    }

    #[test]
    fn a_stream_of_a_store_is_read_to_its_end() {
        let (runtime, store) = (runtime(), InMemory::new());
        let text = "a,b\n".to_owned() + &"1,\"x\"\n".repeat(50_000);
        runtime.block_on(store.put(&StorePath::from("f.csv"), text.into())).expect("stored");
        let result = runtime.block_on(store.get(&StorePath::from("f.csv"))).expect("stored");
        let reader = StreamReader::new(result.into_stream(), runtime.handle().clone());
        let format = TextFormat::Csv(Dialect::default());
        let mut decoder = text_decoder(&format, Compression::Auto, reader).expect("a decoder");
        let mut rows = 0;
        while let Some(chunk) = decoder.next_chunk().expect("rows") {
            rows += chunk.columns.num_rows();
        }
        assert_eq!((rows, decoder.counts().records), (50_000, 50_000));
    }
}
