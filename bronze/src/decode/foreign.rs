//! Content that is no text: archives, workbooks, tables of other formats, and what was compressed twice.

use lake::Error;

use super::bytes::{Compression, seen};
use super::refused;

/// First bytes, what a file that has them is, and what to do with it.
const MARKS: &[(&[u8], &str, &str)] = &[
    (b"PK\x03\x04", "a zip archive or an Excel workbook", UNPACK),
    (b"PK\x05\x06", "an empty zip archive", UNPACK),
    (b"Obj\x01", "Avro", "`format: avro` reads such files: give them a source of their own"),
    (&[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1], "a workbook of old Excel", "save it as CSV"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed with xz", PACK_OTHERWISE),
    (&[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c], "a 7z archive", UNPACK),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4", PACK_OTHERWISE),
    (b"\xff\x06\x00\x00sNaPpY", "compressed with snappy", PACK_OTHERWISE),
];
const UNPACK: &str = "land the files that are in it, one by one (a workbook: saved as CSV)";
const PACK_OTHERWISE: &str = "compress it with gzip, zstd or bzip2";

/// The first bytes of Parquet.
const PARQUET: &[u8] = b"PAR1";

/// Where tar has its mark, and the mark.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// The refusal of a file of text that begins with `head`, when that is something else. `compression` is what has been
/// undone already.
pub(super) fn refusal(head: &[u8], compression: Option<&'static str>) -> Option<Error> {
    let inside = compression.map(|name| format!(" inside of {name}")).unwrap_or_default();
    let (what, hint) = match MARKS.iter().find(|(mark, ..)| head.starts_with(mark)) {
        Some((_, what, hint)) => (format!("{what}{inside}"), (*hint).to_owned()),
        // A text may begin so; a file of that kind goes on with no letter.
        None if head.starts_with(PARQUET) && head.get(PARQUET.len()).is_some_and(u8::is_ascii_control) => (
            format!("Parquet{inside}"),
            "`format: parquet` reads such files: give them a source of their own".to_owned(),
        ),
        // The name of the first file stands in front, filled up with zeros.
        None if head.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) && head[..TAR.0].contains(&0) => {
            (format!("a tar archive{inside}"), UNPACK.to_owned())
        }
        None => match (seen(head), compression) {
            (Compression::None | Compression::Auto, _) => return None,
            (again, Some(_)) => (format!("{}{inside}", again.name()), "it was compressed twice: undo one".to_owned()),
            (again, None) => (again.name().to_owned(), "`compression: auto` undoes it".to_owned()),
        },
    };
    Some(refused(format!("the file is no text: it is {what}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(head: &[u8], compression: Option<&'static str>) -> Option<String> {
        refusal(head, compression).map(|error| error.to_string())
    }

    #[test]
    fn what_is_no_text_is_told_by_its_first_bytes() {
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"a.csv");
        tar[257..262].copy_from_slice(b"ustar");
        for (head, what) in [
            (b"PK\x03\x04\x14".as_slice(), "a zip archive or an Excel workbook"),
            (b"PAR1\x15", "Parquet"),
            (b"Obj\x01\x04", "Avro"),
            (&tar, "a tar archive"),
            (b"\x1f\x8b\x08\x00", "gzip"),
        ] {
            assert_eq!(told(head, None), Some(format!("the file is no text: it is {what}")));
        }
        assert_eq!(
            told(&tar, Some("gzip")).as_deref(),
            Some("the file is no text: it is a tar archive inside of gzip")
        );
        assert_eq!(
            told(b"\x28\xb5\x2f\xfd", Some("gzip")).as_deref(),
            Some("the file is no text: it is zstd inside of gzip")
        );
    }

    #[test]
    fn text_is_text_whatever_it_begins_with() {
        let long = format!("{}ustar,b\n", "x".repeat(257));
        for text in ["PKG,b\n", "PAR,1\n", "Object\n", "BZh,v\n", "", "\u{feff}id\n", "7z,a\n", &long] {
            assert_eq!(told(text.as_bytes(), None), None, "{text}");
        }
    }
}
