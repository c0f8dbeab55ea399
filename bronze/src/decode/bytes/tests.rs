//! Compressed streams of every kind: whole, several in one file, cut, broken, and far too large inside.

use std::io::Write;

use super::*;
use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use lake::ErrorKind;

const KINDS: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Bzip2];

/// A whole stream of a kind.
pub(in crate::decode) fn packed(text: &[u8], kind: Compression) -> Vec<u8> {
    match kind {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).expect("memory");
            encoder.finish().expect("memory")
        }
        Compression::Zstd => zstd::encode_all(text, 3).expect("memory"),
        Compression::Bzip2 => {
            let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::default());
            encoder.write_all(text).expect("memory");
            encoder.finish().expect("memory")
        }
        Compression::Auto | Compression::None => text.to_vec(),
    }
}

fn read(bytes: Vec<u8>, compression: Compression) -> Result<String> {
    let mut text = String::new();
    decompress(Cursor::new(bytes), compression)?.read_to_string(&mut text).map_err(explain)?;
    Ok(text)
}

#[test]
fn every_part_of_a_file_is_read() {
    for kind in KINDS {
        let both = [packed(b"one\n", kind), packed(b"two\n", kind)].concat();
        assert_eq!(read(both.clone(), Compression::Auto).expect("text"), "one\ntwo\n", "{kind:?}");
        assert_eq!(read(both, kind).expect("text"), "one\ntwo\n", "{kind:?}");
        assert_eq!(read(packed(b"", kind), Compression::Auto).expect("text"), "", "{kind:?}");
    }
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2][..], &packed(b"text", Compression::Zstd)].concat();
    assert_eq!(read(skippable, Compression::Auto).expect("text"), "text");
}

#[test]
fn the_content_says_what_it_is() {
    assert_eq!(read(b"plain".to_vec(), Compression::Auto).expect("text"), "plain");
    assert_eq!(read(b"BZh9,id\n1,2\n".to_vec(), Compression::Auto).expect("text"), "BZh9,id\n1,2\n");
    for kind in KINDS {
        assert_eq!(read(Vec::new(), kind).expect("text"), "");
        let error = read(b"plain".to_vec(), kind).expect_err("not compressed");
        assert_eq!(error.kind(), ErrorKind::File);
        assert_eq!(
            error.to_string(),
            format!("the file is not {name}, as `compression: {name}` says", name = kind.name())
        );
        assert!(decompress(Cursor::new(packed(b"text", kind)), Compression::None).is_ok());
    }
    assert!(read(packed(b"text", Compression::Zstd), Compression::Gzip).is_err());
}

#[test]
fn a_cut_stream_is_an_error_wherever_it_is_cut() {
    for kind in KINDS {
        let whole = packed("some text that compresses\n".repeat(50).as_bytes(), kind);
        for end in 4..whole.len() {
            let error = read(whole[..end].to_vec(), Compression::Auto).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::File, "{kind:?} cut at {end}: {error}");
        }
        let error = read(whole[..whole.len() - 2].to_vec(), Compression::Auto).expect_err("cut").to_string();
        assert!(error.contains("ends early"), "{kind:?}: {error}");
    }
}

#[test]
fn what_follows_a_stream_is_never_dropped() {
    for kind in KINDS {
        for rest in [&b"garbage"[..], &[0; 12]] {
            let bytes = [&packed(b"a,b\n1,2\n", kind)[..], rest].concat();
            let error = read(bytes, Compression::Auto).expect_err("something follows");
            assert_eq!(error.kind(), ErrorKind::File, "{kind:?} {rest:?}: {error}");
        }
    }
}

#[test]
fn a_changed_byte_never_passes_as_other_text() {
    let text = (0..2000).map(|number| format!("{number},{}\n", number * 7919 % 1000)).collect::<String>();
    for kind in [Compression::Gzip, Compression::Bzip2] {
        let whole = packed(text.as_bytes(), kind);
        for place in (20..whole.len() - 8).step_by(97) {
            let mut broken = whole.clone();
            broken[place] ^= 0x10;
            if let Ok(read) = read(broken, Compression::Auto) {
                assert_eq!(read, text, "{kind:?} changed at {place}");
            }
        }
    }
}

#[test]
fn a_bomb_is_stopped_and_a_repetitive_file_is_not() {
    let drain = |bytes: Vec<u8>| {
        io::copy(&mut decompress(Cursor::new(bytes), Compression::Auto)?, &mut io::sink()).map_err(explain)
    };
    let row = b"2024-05-01,shipped,Lisbon,10.00\n";
    let many = row.repeat(1_000_000);
    for kind in [Compression::Gzip, Compression::Zstd] {
        assert_eq!(drain(packed(&many, kind)).expect("a repetitive file"), many.len() as u64, "{kind:?}");
    }
    // The same frame again and again: what a bomb is inside.
    let bomb = packed(&many, Compression::Zstd).repeat(12);
    let error = drain(bomb).expect_err("a bomb");
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(error.to_string().contains("more than 500 times as much"), "{error}");
}

#[test]
fn a_failing_store_is_not_the_files_fault() {
    struct Broken(fn() -> io::Error);
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(self.0())
        }
    }
    for kind in KINDS {
        let outcome = |error: fn() -> io::Error| {
            let start = Cursor::new(packed(b"text", kind)[..12].to_vec());
            let mut bytes = decompress(start.chain(Broken(error)), Compression::Auto).expect("a start");
            explain(bytes.read_to_end(&mut Vec::new()).expect_err("broken"))
        };
        let store = outcome(|| io::Error::other(SourceFailure(Error::new(ErrorKind::Store, "connection lost"))));
        assert_eq!((store.kind(), store.to_string()), (ErrorKind::Store, "connection lost".to_owned()));
        let disk = outcome(|| io::Error::new(io::ErrorKind::UnexpectedEof, "bad sector"));
        assert_eq!(disk.kind(), ErrorKind::File);
        assert!(disk.to_string().contains("bad sector"), "{disk}");
    }
}
