//! Pseudo-random numbers from a seed, so that decisions that need chance are functions of their inputs.

use crate::ids::TopicId;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// A sequence that `seed` alone decides.
    pub fn new(seed: u64) -> Prng {
        Prng { state: seed }
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random uuid of version 4. Its text never begins with '-', which tools would take for an option.
    pub fn uuid(&mut self) -> TopicId {
        loop {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
            bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let id = TopicId(bytes);
            if !id.to_string().starts_with('-') {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference_implementation() {
        let mut prng = Prng::new(1234567);
        let drawn: Vec<u64> = (0..3).map(|_| prng.next_u64()).collect();
        assert_eq!(drawn, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn uuids_are_of_version_4_and_never_look_like_an_option() {
        let mut prng = Prng::new(1);
        for _ in 0..1000 {
            let id = prng.uuid();
            assert_eq!((id.0[6] >> 4, id.0[8] >> 6), (4, 2));
            assert!(!id.to_string().starts_with('-'));
        }
    }
}
