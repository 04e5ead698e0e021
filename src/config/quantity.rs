//! Sizes and durations as people write them: `64MiB`, `7d`, `-1`.

/// What a number without a unit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    One,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
}

const BYTES: &[(&str, i64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];
const MILLIS: &[(&str, i64)] = &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("ms", 1), ("s", 1_000)];
const MICROS: &[(&str, i64)] = &[("min", 60_000_000), ("ms", 1_000), ("us", 1), ("s", 1_000_000)];

impl Unit {
    fn suffixes(self) -> &'static [(&'static str, i64)] {
        match self {
            Unit::One => &[],
            Unit::Bytes => BYTES,
            Unit::Millis => MILLIS,
            Unit::Micros => MICROS,
        }
    }

    /// Its name, for tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Unit::One => "",
            Unit::Bytes => "bytes",
            Unit::Millis => "ms",
            Unit::Micros => "µs",
        }
    }

    /// Reads a number with or without a unit. The error says what is accepted.
    pub fn parse(self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        let suffix = self.suffixes().iter().find(|(suffix, _)| text.ends_with(suffix));
        let (digits, factor) = match suffix {
            Some((suffix, factor)) => (text[..text.len() - suffix.len()].trim_end(), *factor),
            None => (text, 1),
        };
        let number: i64 = digits.replace('_', "").parse().map_err(|_| self.accepted())?;
        number.checked_mul(factor).ok_or_else(|| format!("{text} is beyond 64 bits"))
    }

    /// Writes a number with the largest unit that divides it.
    pub fn show(self, number: i64) -> String {
        let mut suffixes: Vec<_> =
            self.suffixes().iter().filter(|(suffix, _)| !suffix.ends_with('B') || is_binary(suffix)).collect();
        suffixes.sort_by_key(|(_, factor)| std::cmp::Reverse(*factor));
        match suffixes.iter().find(|(_, factor)| number > 0 && number < i64::MAX && number % factor == 0) {
            Some((suffix, factor)) => format!("{} {suffix}", number / factor),
            None => number.to_string(),
        }
    }

    fn accepted(self) -> String {
        let units: Vec<&str> = self.suffixes().iter().map(|(suffix, _)| *suffix).collect();
        match units.is_empty() {
            true => "a whole number is needed".to_string(),
            false => format!("a whole number is needed, with or without one of {}", units.join(" ")),
        }
    }
}

fn is_binary(suffix: &str) -> bool {
    suffix.contains('i') || suffix == "B"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_and_without_unit() {
        let cases = [
            (Unit::Bytes, "4096", 4096),
            (Unit::Bytes, "64MiB", 64 << 20),
            (Unit::Bytes, "1 GB", 1_000_000_000),
            (Unit::Bytes, "12B", 12),
            (Unit::Millis, "7d", 604_800_000),
            (Unit::Millis, "1500ms", 1500),
            (Unit::Millis, "30s", 30_000),
            (Unit::Millis, "5min", 300_000),
            (Unit::Micros, "1ms", 1000),
            (Unit::Millis, "-1", -1),
            (Unit::One, "10_000", 10_000),
        ];
        for (unit, text, expected) in cases {
            assert_eq!(unit.parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_told_what_is_accepted() {
        assert!(Unit::Millis.parse("soon").expect_err("refused").contains("d h min ms s"));
        assert!(Unit::Bytes.parse("1.5GiB").is_err());
        assert!(Unit::One.parse("3s").is_err());
        assert!(Unit::Bytes.parse("9000000TiB").expect_err("refused").contains("64 bits"));
    }

    #[test]
    fn what_is_shown_reads_back() {
        for (unit, number, text) in [
            (Unit::Bytes, 64 << 20, "64 MiB"),
            (Unit::Bytes, 1_048_588, "1048588 B"),
            (Unit::Millis, 604_800_000, "7 d"),
            (Unit::Millis, -1, "-1"),
            (Unit::Millis, i64::MAX, "9223372036854775807"),
            (Unit::One, 5, "5"),
        ] {
            assert_eq!(unit.show(number), text);
            assert_eq!(unit.parse(text), Ok(number));
        }
    }
}
