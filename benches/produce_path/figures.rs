//! Figures and how they are printed: the value, the limit of the machine beside it, the target, and whether it is met.

use std::time::Duration;

/// Where a value should lie.
#[derive(Clone, Copy)]
pub enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Wherever; it explains another one.
    Nowhere,
}

/// Prints one figure: `what` it is, its value with unit, and the target of that value.
pub fn figure(what: &str, value: f64, unit: &str, target: Target) {
    let (wanted, met) = match target {
        Target::AtMost(limit) => (format!("target <= {limit}"), value <= limit),
        Target::AtLeast(limit) => (format!("target >= {limit}"), value >= limit),
        Target::Nowhere => (String::new(), true),
    };
    let verdict = if met { "" } else { "  MISSED" };
    println!("  {what:<64} {value:>10.3} {unit:<9} {wanted}{verdict}");
}

/// Prints a figure that only explains others.
pub fn fact(what: &str, value: f64, unit: &str) {
    figure(what, value, unit, Target::Nowhere);
}

/// Durations that were measured.
#[derive(Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// One more.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// Those of another collection as well.
    pub fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
    }

    /// The sums of samples taken side by side.
    pub fn plus(&self, other: &Samples) -> Samples {
        Samples(self.0.iter().zip(&other.0).map(|(a, b)| *a + *b).collect())
    }

    /// The duration in µs that `share` of them do not exceed.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1;
        sorted[index].as_secs_f64() * 1e6
    }
}

/// The middle one of some values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// 10^6 bytes.
pub const MB: f64 = 1e6;
/// 10^9 bytes.
pub const GB: f64 = 1e9;
