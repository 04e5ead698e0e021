//! Seeded random values for the tests of the schema.

/// A SplitMix64 generator with the draws that messages need.
#[derive(Clone, Debug)]
pub struct Dice(u64);

/// What random strings are cut from: all widths of UTF-8.
const TEXT: &str = "aZ09._-é€😀 топик";

impl Dice {
    /// The same seed gives the same draws.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any 64 bits; every fourth draw is a number that is special somewhere in the protocol.
    pub fn number(&mut self) -> u64 {
        match self.next() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => i64::MAX as u64,
            3 => i64::MIN as u64 | 1 << 31,
            _ => self.next(),
        }
    }

    /// True once in `n` draws on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// How many elements an array has.
    pub fn count(&mut self) -> usize {
        (self.next() % 4) as usize
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A string, often empty.
    pub fn text(&mut self) -> &'static str {
        let mut bounds = [self.below(TEXT.len() + 1), self.below(TEXT.len() + 1)];
        bounds.sort_unstable();
        TEXT.get(bounds[0]..bounds[1]).unwrap_or_default()
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
