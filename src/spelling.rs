//! The nearest of a set of names to a mistyped one, for error messages.

/// The candidate that the fewest changed, added, dropped or swapped characters separate from `typed`; `None` when even
/// that one is further than a third of its length. The first of equals wins. O(candidates × length²).
pub fn nearest<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = normalized(typed);
    let scored = candidates.into_iter().map(|name| (distance(&typed, &normalized(name)), name));
    let (distance, name) = scored.min_by_key(|&(distance, _)| distance)?;
    (distance <= name.len().div_ceil(3)).then_some(name)
}

/// Case and the choice of separator are no mistakes worth counting.
fn normalized(name: &str) -> Vec<char> {
    name.chars().map(|c| if matches!(c, '_' | '-') { '.' } else { c.to_ascii_lowercase() }).collect()
}

/// Edit distance in which a swap of neighbours counts once (optimal string alignment), on rows of the usual table.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(previous[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        (before, previous) = (previous, row);
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_finds_the_one_that_was_meant() {
        let names = ["log.segment.bytes", "log.retention.bytes", "node.id", "busy_poll_us"];
        assert_eq!(nearest("log.segement.bytes", names), Some("log.segment.bytes"));
        assert_eq!(nearest("log_segment_bytes", names), Some("log.segment.bytes"));
        assert_eq!(nearest("nodeid", names), Some("node.id"));
        assert_eq!(nearest("busy.poll.us", names), Some("busy_poll_us"));
    }

    #[test]
    fn a_name_like_no_other_finds_nothing() {
        assert_eq!(nearest("zookeeper.connect", ["node.id", "log.dirs"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_swap_counts_once() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("abcd"), &chars("abdc")), 1);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }
}
