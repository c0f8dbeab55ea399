//! The nearest known name, for every message that says `did you mean`.

/// So many names are listed.
const NAMED_MAX: usize = 16;

/// The candidate that `name` most likely meant; `None` when none is near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .filter_map(|candidate| {
            let known = candidate.to_lowercase();
            let distance = strsim::damerau_levenshtein(&wanted, &known);
            let part = wanted.len() >= 4 && known.len() >= 4 && (known.contains(&wanted) || wanted.contains(&known));
            (distance <= allowed || part).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A hint for a name that is not known: `did you mean …?`, or the names there are when they are few.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(near) = nearest(name, candidates.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let shown: Vec<String> = candidates.iter().take(NAMED_MAX).map(|candidate| format!("`{candidate}`")).collect();
    match candidates.len() {
        0 => None,
        1 => Some(format!("the only one is {}", shown[0])),
        2..=NAMED_MAX => Some(format!("one of {}", shown.join(", "))),
        more => Some(format!("one of {}, and {} more", shown.join(", "), more - shown.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        let known = ["sequence_by", "source", "keys", "apply_as_deletes"];
        assert_eq!(nearest("sequnce_by", known), Some("sequence_by"));
        assert_eq!(nearest("key", known), Some("keys"));
        assert_eq!(nearest("Source", known), Some("source"));
        assert_eq!(nearest("deletes", known), Some("apply_as_deletes"));
        assert_eq!(nearest("zorder", known), None);
        assert_eq!(nearest("keys", ["keys"]), None);
    }

    #[test]
    fn without_a_near_name_the_known_ones_are_listed() {
        assert_eq!(did_you_mean("xyz", ["csv", "json"]).as_deref(), Some("one of `csv`, `json`"));
        assert_eq!(did_you_mean("xyz", []), None);
    }
}
