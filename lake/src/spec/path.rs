//! A place in the spec: `silver.orders.sequence_by[0]`.

use std::fmt;

/// The way from the top of the spec to one of its values. Cheap to extend; compared step by step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpecPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Step {
    Key(String),
    Index(usize),
}

impl SpecPath {
    /// The top of the spec.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of a key given from the top: `SpecPath::of(["silver", "orders"])`.
    pub fn of<K: Into<String>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self(keys.into_iter().map(|key| Step::Key(key.into())).collect())
    }

    /// The value of `key` below this place.
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        self.then(Step::Key(key.into()))
    }

    /// The 0-based `index`-th item of the list at this place.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// The place that holds this one; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    /// True when `other` is this place or lies below it.
    pub fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The key at the end of the path.
    pub(super) fn last_key(&self) -> Option<&str> {
        match self.0.last()? {
            Step::Key(key) => Some(key),
            Step::Index(_) => None,
        }
    }

    /// True for the top of the spec.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for SpecPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    match key.chars().all(|c| c.is_alphanumeric() || "_-*$".contains(c)) && !key.is_empty() {
                        true => f.write_str(key)?,
                        false => write!(f, "\"{key}\"")?,
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_like_the_spec() {
        let path = SpecPath::of(["silver", "orders"]).key("sequence_by").index(0);
        assert_eq!(path.to_string(), "silver.orders.sequence_by[0]");
        assert_eq!(SpecPath::of(["tasks", "silver.orders", "timeout"]).to_string(), "tasks.\"silver.orders\".timeout");
        assert!(SpecPath::of(["silver"]).holds(&path));
        assert!(!path.holds(&SpecPath::of(["silver"])));
    }
}
