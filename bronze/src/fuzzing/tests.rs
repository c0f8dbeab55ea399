//! Random bytes of each kind; `FUZZ_RUNS` says how many.

use super::*;

/// A small generator of random numbers; the same seed gives the same test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Runs a target on random bytes that are mostly words of its language.
fn run(target: fn(&[u8]), words: &[&str]) {
    let runs = std::env::var("FUZZ_RUNS").map_or(4_000, |runs| runs.parse().expect("a number"));
    for seed in 0..runs {
        let dice = &mut Dice(seed);
        let mut data = vec![dice.roll(256) as u8, dice.roll(24) as u8];
        for _ in 0..dice.roll(40) {
            match dice.roll(24) {
                0 => data.push(dice.roll(256) as u8),
                _ => data.extend_from_slice(words[dice.roll(words.len())].as_bytes()),
            }
        }
        let broken = std::panic::catch_unwind(|| target(&data)).err();
        if let Some(broken) = broken {
            eprintln!("seed {seed}: {:?}", String::from_utf8_lossy(&data));
            std::panic::resume_unwind(broken);
        }
    }
}

#[test]
fn delimited_text() {
    run(csv, &["a", "b", ",", ";", "\"", "\"\"", "\n", "\r\n", "\r", "\\", "#", "NULL", "é", " ", "\u{feff}", "1"]);
}

#[test]
fn json_values() {
    let words = ["{", "}", "[", "]", "\"a\"", ":", ",", "1", "1e400", "null", "true", "\n", "\\u00e9", "\"", " ", "é"];
    run(json, &[&words[..], &["{\"a\":1}", "\"b\":{\"c\":[1]}", "\n{\"a\":null}\n", "\\ud800"]].concat());
}

#[test]
fn ledgers() {
    run(ledger, &["\0\0\0\0", "\u{1}\u{1}\u{1}\0", "\u{2}\u{1}\0\u{1}", "\u{3}\u{2}\u{1}\u{1}"]);
}
