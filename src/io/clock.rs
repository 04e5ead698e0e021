//! The two clocks, read once per turn and handed on as data.

use rustix::time::{ClockId, clock_gettime};

use crate::ids::{MonoMicros, Now, WallMillis};

/// Reads CLOCK_MONOTONIC and CLOCK_REALTIME; some 40 ns, no syscall where the clock source is the TSC.
pub fn now() -> Now {
    let wall = clock_gettime(ClockId::Realtime);
    Now { mono: mono(), wall: WallMillis(wall.tv_sec * 1_000 + wall.tv_nsec / 1_000_000) }
}

/// Reads CLOCK_MONOTONIC.
pub fn mono() -> MonoMicros {
    let mono = clock_gettime(ClockId::Monotonic);
    MonoMicros(mono.tv_sec as u64 * 1_000_000 + mono.tv_nsec as u64 / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_never_goes_back_and_wall_time_is_of_this_century() {
        let first = now();
        let second = now();
        assert!(first.mono <= second.mono);
        assert!(first.wall > WallMillis(946_684_800_000), "{first:?}");
    }
}
