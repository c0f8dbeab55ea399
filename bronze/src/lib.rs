//! Landing zone to bronze tables: every record of every file once, exactly as written.

pub mod decode;
