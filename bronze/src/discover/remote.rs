//! Lists a folder of an object store.

use std::sync::Arc;

use futures::TryStreamExt;
use lake::{Context, Error, Result};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use super::{FoundFile, Listing, Request};

pub(super) async fn list(store: Arc<dyn ObjectStore>, request: &Request) -> Result<Listing> {
    let prefix = (!request.folder.is_empty()).then(|| Path::parse(&request.folder)).transpose();
    let prefix = prefix.map_err(|error| Error::spec(format!("the path of the source: {error}")))?;
    let name = || format!("listing `{}` of the landing zone", request.folder);
    let objects = match request.recursive {
        true => store.list(prefix.as_ref()).try_collect::<Vec<_>>().await.context(name)?,
        false => store.list_with_delimiter(prefix.as_ref()).await.context(name)?.objects,
    };
    let mut listing = Listing::default();
    for object in objects {
        let path = object.location.as_ref();
        match request.takes(path) {
            true => listing.files.push(found(object)),
            false => listing.missed.add(path, request.miss(path)),
        }
    }
    Ok(listing)
}

fn found(object: ObjectMeta) -> FoundFile {
    FoundFile {
        path: object.location.as_ref().to_owned(),
        size: object.size,
        modified_us: object.last_modified.timestamp_micros(),
        etag: object.e_tag,
        unreadable: None,
    }
}
