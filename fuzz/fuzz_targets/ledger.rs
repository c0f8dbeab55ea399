#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bronze::fuzzing::ledger(data));
