//! Opens a planned file for reading, and makes sure that it is the one that was planned.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use lake::{Context, Error, ErrorKind, Result, Root};
use object_store::{Error as StoreError, GetOptions, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use crate::decode::{Decoder, ParquetDecoder, SourceFailure, refused, text_decoder};
use crate::discover::{FoundFile, modified_us};
use crate::plan::Format;

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
    /// [`ErrorKind::File`] when it is gone or not the one that was planned, [`ErrorKind::Store`] when the store fails.
    pub(super) fn open(landing: &Root, planned: &FoundFile, handle: &Handle) -> Result<Self> {
        let location = planned.location.as_ref().map_err(|reason| refused(reason.as_str()))?;
        let store = landing.store();
        let options = GetOptions { if_match: planned.etag.clone(), ..GetOptions::default() };
        let result = match handle.block_on(store.get_opts(location, options)) {
            Ok(result) => result,
            Err(StoreError::NotFound { .. }) => return Err(refused("the file is gone since it was found")),
            Err(StoreError::Precondition { .. }) => return Err(changed()),
            Err(error) => return Err(Error::from(error).context(format!("opening the file {}", planned.path))),
        };
        let GetResult { payload, meta, .. } = result;
        if meta.size != planned.size || meta.last_modified.timestamp_micros() != planned.modified_us {
            return Err(changed());
        }
        let local = match &payload {
            GetResultPayload::File(file, _) => Some(file.try_clone().context(|| format!("opening {}", planned.path))?),
            GetResultPayload::Stream(_) => None,
        };
        Ok(Self {
            planned: planned.clone(),
            store,
            handle: handle.clone(),
            local,
            payload: Some(payload),
            in_parts: false,
        })
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
            (Format::Parquet(duplicates), GetResultPayload::File(file, _)) => {
                Ok(Box::new(ParquetDecoder::local(file, *duplicates)?))
            }
            (Format::Parquet(duplicates), GetResultPayload::Stream(_)) => {
                self.in_parts = true;
                let location = self.planned.location.clone().map_err(refused)?;
                let (store, handle, size) = (Arc::clone(&self.store), self.handle.clone(), self.planned.size);
                Ok(Box::new(ParquetDecoder::remote(store, location, size, handle, *duplicates)?))
            }
        }
    }

    /// Makes sure, at the end, that the content was the planned one all the time.
    ///
    /// # Errors
    /// [`ErrorKind::File`] when the file changed while it was read.
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let (size, modified) = match &self.local {
            Some(file) => {
                let metadata = file.metadata().context(|| format!("reading {}", self.planned.path))?;
                (metadata.len(), modified_us(&metadata))
            }
            None if !self.in_parts => return Ok(()),
            None => {
                let location = self.planned.location.as_ref().map_err(|reason| refused(reason.as_str()))?;
                match self.handle.block_on(self.store.head(location)) {
                    Ok(meta) if meta.e_tag.is_some() && meta.e_tag == self.planned.etag => return Ok(()),
                    Ok(meta) => (meta.size, meta.last_modified.timestamp_micros()),
                    Err(StoreError::NotFound { .. }) => return Err(refused("the file is gone since it was found")),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        match size == self.planned.size && modified == self.planned.modified_us {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

fn changed() -> Error {
    refused("the file changed after it was found; its new content is a new arrival")
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
