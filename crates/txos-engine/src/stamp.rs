//! Points in time, as the kernel stamps objects with them.

use serde::{Deserialize, Serialize};

/// A point in time as the file system stores it: nanoseconds since the epoch, may be negative.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl Stamp {
    /// In a recorded change: the time at which it is committed, whenever that is. No clock shows it.
    pub const PRESENT: Stamp = Stamp { sec: i64::MIN, nsec: 0 };

    /// Nanoseconds since the epoch, saturating.
    #[must_use]
    pub fn as_ns(self) -> i64 {
        self.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nsec))
    }

    /// Reads a kernel clock.
    #[must_use]
    fn clock(id: rustix::time::ClockId) -> Self {
        let t = rustix::time::clock_gettime(id);
        Stamp { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
    }

    /// The present, finely.
    #[must_use]
    pub fn now() -> Self {
        Self::clock(rustix::time::ClockId::Realtime)
    }

    /// The present as a tick-driven file system would stamp it.
    #[must_use]
    pub fn now_coarse() -> Self {
        Self::clock(rustix::time::ClockId::RealtimeCoarse)
    }
}
