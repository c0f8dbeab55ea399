//! Bytes as text, and back.

use std::fmt::Write;

/// The bytes as text: `\x` and two hexadecimal digits for each, as PostgreSQL writes its `bytea`. No number and no date
/// looks like it.
pub fn bytes_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        // Writing to memory does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The text that bytes are, where they are one; other bytes, and a text that would be taken for other bytes, as
/// [`bytes_text`].
pub fn binary_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("\\x") => text.to_owned(),
        _ => bytes_text(bytes),
    }
}

/// The bytes of a text: those that the digits of `\x00ff` stand for, else those of its letters.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    text.strip_prefix("\\x").and_then(digits).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn digits(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| <[u8; 2]>::try_from(pair).ok().and_then(|[high, low]| Some((value(high)? << 4) | value(low)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        for original in [&b""[..], b"abc", &[0, 255], "é".as_bytes(), b"\\x00ff", b"\\x", b"35"] {
            assert_eq!(bytes(&binary_text(original)), original);
            assert_eq!(bytes(&bytes_text(original)), original);
        }
        assert_eq!((binary_text(b"5").as_str(), binary_text(&[0x35, 0xff]).as_str()), ("5", "\\x35ff"));
        assert_eq!(bytes("\\xDEADbeef"), [0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn what_only_begins_like_bytes_is_a_text() {
        for text in ["\\x0", "\\x0g", "\\xé0", "x00", "\\\\x00"] {
            assert_eq!(bytes(text), text.as_bytes(), "{text}");
        }
    }
}
