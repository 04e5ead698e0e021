//! The four offsets of a partition, which may never cross (design.md §1).

use std::fmt;

use crate::ids::Offset;

/// `log start ≤ high watermark ≤ stable ≤ end`, each moved only by a method that checks the order.
///
/// One per replica, owned by the core of its partition. All moves but `truncate_to` and `restart_at` go forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offsets {
    log_start: Offset,
    high_watermark: Offset,
    stable: Offset,
    end: Offset,
}

impl Offsets {
    /// What a recovered log starts with: all of it up to `end` is on the device.
    ///
    /// # Panics
    /// When the three are out of order.
    pub fn recovered(log_start: Offset, high_watermark: Offset, end: Offset) -> Offsets {
        let offsets = Offsets { log_start, high_watermark, stable: end, end };
        offsets.invariants();
        offsets
    }

    /// First offset that is kept.
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// First offset not known to be committed; consumers read below it.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Everything below is on this replica's device by the flush mode.
    pub fn stable(&self) -> Offset {
        self.stable
    }

    /// Next offset to assign; everything below is in memory or in the file.
    pub fn end(&self) -> Offset {
        self.end
    }

    /// A batch was accepted, so that the log now ends at `to`.
    ///
    /// # Panics
    /// When the end would go back.
    pub fn advance_end(&mut self, to: Offset) {
        assert!(self.end <= to, "end {} would go back to {to} in {self}", self.end);
        self.end = to;
        self.invariants();
    }

    /// The contiguous prefix of completed writes now ends at `to`. Returns whether it moved.
    ///
    /// # Panics
    /// When it would go back or pass the end.
    pub fn advance_stable(&mut self, to: Offset) -> bool {
        assert!(self.stable <= to && to <= self.end, "stable would become {to} in {self}");
        let moved = self.stable < to;
        self.stable = to;
        moved
    }

    /// The replicas that count all have everything below `to`. A lower value than the present one changes nothing:
    /// within a leader epoch the high watermark never goes back. Returns whether it moved.
    ///
    /// # Panics
    /// When it would pass the stable offset.
    pub fn advance_high_watermark(&mut self, to: Offset) -> bool {
        assert!(to <= self.stable, "high watermark would become {to} in {self}");
        let moved = self.high_watermark < to;
        self.high_watermark = self.high_watermark.max(to);
        moved
    }

    /// Records below `to` are given up. A lower value than the present one changes nothing. Returns whether it moved.
    ///
    /// # Panics
    /// When it would pass the high watermark: what is not committed is not deleted.
    pub fn raise_log_start(&mut self, to: Offset) -> bool {
        assert!(to <= self.high_watermark, "log start would become {to} in {self}");
        let moved = self.log_start < to;
        self.log_start = self.log_start.max(to);
        moved
    }

    /// The log was cut so that it ends at `end`; stable and high watermark follow it down. Nothing changes when the log
    /// ends there or below already.
    ///
    /// # Panics
    /// When the log would end below its start.
    pub fn truncate_to(&mut self, end: Offset) {
        assert!(self.log_start <= end, "log would be cut to {end}, below its start, in {self}");
        self.end = self.end.min(end);
        self.stable = self.stable.min(end);
        self.high_watermark = self.high_watermark.min(end);
        self.invariants();
    }

    /// The log was emptied to start anew at `at` (a follower that is behind the leader's log start, kafka-spec §4.5).
    ///
    /// # Panics
    /// When `at` is negative.
    pub fn restart_at(&mut self, at: Offset) {
        assert!(Offset::ZERO <= at, "log would restart at {at} in {self}");
        *self = Offsets { log_start: at, high_watermark: at, stable: at, end: at };
    }

    /// # Panics
    /// When the order is broken.
    pub fn invariants(&self) {
        let ordered = Offset::ZERO <= self.log_start
            && self.log_start <= self.high_watermark
            && self.high_watermark <= self.stable
            && self.stable <= self.end;
        assert!(ordered, "offsets out of order: {self}");
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offsets { log_start, high_watermark, stable, end } = self;
        write!(f, "log_start={log_start} high_watermark={high_watermark} stable={stable} end={end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets() -> Offsets {
        Offsets::recovered(Offset(10), Offset(20), Offset(30))
    }

    #[test]
    fn each_offset_follows_the_one_above_it() {
        let mut offsets = offsets();
        offsets.advance_end(Offset(50));
        assert!(offsets.advance_stable(Offset(45)));
        assert!(!offsets.advance_stable(Offset(45)), "standing still is not a move");
        assert!(offsets.advance_high_watermark(Offset(45)));
        assert!(offsets.raise_log_start(Offset(45)));
        let shown = offsets.to_string();
        assert_eq!(shown, "log_start=45 high_watermark=45 stable=45 end=50");
    }

    #[test]
    fn a_lower_high_watermark_or_log_start_changes_nothing() {
        let mut offsets = offsets();
        assert!(!offsets.advance_high_watermark(Offset(19)));
        assert!(!offsets.raise_log_start(Offset(9)));
        assert_eq!(offsets, self::offsets());
    }

    #[test]
    fn truncation_takes_stable_and_high_watermark_down_with_the_end() {
        let mut offsets = offsets();
        offsets.advance_end(Offset(40));
        offsets.truncate_to(Offset(15));
        assert_eq!(offsets.to_string(), "log_start=10 high_watermark=15 stable=15 end=15");
        offsets.truncate_to(Offset(99));
        assert_eq!(offsets.end(), Offset(15), "a cut above the end is none");
    }

    #[test]
    fn a_restart_moves_all_four() {
        let mut offsets = offsets();
        offsets.restart_at(Offset(100));
        assert_eq!(offsets.to_string(), "log_start=100 high_watermark=100 stable=100 end=100");
    }

    #[test]
    fn a_move_out_of_order_panics_with_the_values() {
        type Step = fn(&mut Offsets);
        let cases: [(&str, Step); 6] = [
            ("end 30 would go back to 29", |o| o.advance_end(Offset(29))),
            ("stable would become 31", |o| _ = o.advance_stable(Offset(31))),
            ("stable would become 29", |o| _ = o.advance_stable(Offset(29))),
            ("high watermark would become 31", |o| _ = o.advance_high_watermark(Offset(31))),
            ("log start would become 21", |o| _ = o.raise_log_start(Offset(21))),
            ("log would be cut to 9", |o| o.truncate_to(Offset(9))),
        ];
        for (expected, step) in cases {
            let panic = std::panic::catch_unwind(|| step(&mut offsets())).expect_err("the step must panic");
            let message = panic.downcast_ref::<String>().expect("a formatted message");
            assert!(message.starts_with(expected), "{message:?} does not start with {expected:?}");
            assert!(message.ends_with("in log_start=10 high_watermark=20 stable=30 end=30"), "{message:?}");
        }
    }
}
