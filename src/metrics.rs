//! Counters and histograms of one core: plain fields that only its thread touches. [`CoreMetrics::report`] copies them;
//! the exporter sums the copies of all cores. Recording is O(1) and allocates nothing.

use std::sync::Arc;

use crate::ids::{CoreId, MonoMicros, Offset, PartitionIndex};
use crate::kafka::api::ApiKey;
use crate::kafka::error_code::ErrorCode;

/// API keys with a row of their own; higher ones share the last.
const APIS: usize = 97;
/// Error codes with a column of their own: −1 to 137; others share the last.
const ERRORS: usize = 140;

/// Everything that one core counts.
#[derive(Clone, Debug)]
pub struct CoreMetrics {
    /// What needs no more than a name.
    pub count: Counters,
    /// When the event that is being handled was taken up.
    now: MonoMicros,
    requests: Box<[u64]>,
    produce: [Histogram; ProduceStage::ALL.len()],
    fetch: [Histogram; FetchStage::ALL.len()],
}

/// Generates the counters once: fields, names for Prometheus, addition.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident,)+) => {
        /// Plain counters, each only ever raised.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl Counters {
            /// Name, help and value of each, in the order of their declaration.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($field), concat!($($doc),+), self.$field)),+].into_iter()
            }

            /// Adds those of another core.
            pub fn add(&mut self, other: &Counters) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counters! {
    /// Bytes received from clients
    bytes_received,
    /// Bytes handed to sockets
    bytes_sent,
    /// Bytes of record batches appended
    bytes_appended,
    /// Records appended
    records_appended,
    /// Batches recognised as repetitions and not appended again
    batches_duplicate,
    /// Bytes of record batches put into fetch answers
    bytes_fetched,
    /// Bytes written to segment files, alignment included
    bytes_written,
    /// Writes to segment files
    writes,
    /// Device flushes
    flushes,
    /// Reads of segment files because the bytes were not in memory
    cold_reads,
    /// Sealed batches found corrupt when read
    corrupt_batches,
    /// Connections accepted
    connections_accepted,
    /// Connections refused because a limit was reached
    connections_refused,
    /// Connections closed because the peer broke the protocol
    connections_closed_for_fault,
    /// Connections closed because nothing was heard for connections.max.idle.ms
    connections_closed_for_idleness,
    /// Connections given to a less loaded core
    connections_handed_over,
    /// Receives that had to wait for arena memory
    windows_starved,
    /// Appends that had to wait for arena memory or file space
    appends_waited,
    /// Fetches that were parked until data came or time was over
    fetches_parked,
    /// Log lines about peers left out because there were too many
    log_lines_suppressed,
}

/// Where a produce request has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceStage {
    /// Its last byte is here (since its first).
    Received,
    /// Its structure is checked, after those before it on its connection.
    Validated,
    /// A batch of it has offsets and waits for the device.
    Queued,
    /// A batch of it is stable, and what its acks setting asks for has happened.
    Written,
    /// That is true of all its batches (since it was of the first).
    Acked,
    /// The answer is with the socket.
    Sent,
}

impl ProduceStage {
    /// All stages in order.
    pub const ALL: [ProduceStage; 6] = [
        ProduceStage::Received,
        ProduceStage::Validated,
        ProduceStage::Queued,
        ProduceStage::Written,
        ProduceStage::Acked,
        ProduceStage::Sent,
    ];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            ProduceStage::Received => "received",
            ProduceStage::Validated => "validated",
            ProduceStage::Queued => "queued",
            ProduceStage::Written => "written",
            ProduceStage::Acked => "acked",
            ProduceStage::Sent => "sent",
        }
    }
}

/// Where a fetch request has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStage {
    /// Its last byte is here (since its first).
    Received,
    /// It has been looked at; it is answered or parked.
    Planned,
    /// It was parked and is ready to be answered.
    Parked,
    /// What it gets is in memory.
    Read,
    /// The answer is with the socket.
    Sent,
}

impl FetchStage {
    /// All stages in order.
    pub const ALL: [FetchStage; 5] =
        [FetchStage::Received, FetchStage::Planned, FetchStage::Parked, FetchStage::Read, FetchStage::Sent];

    /// Its label.
    pub fn name(self) -> &'static str {
        match self {
            FetchStage::Received => "received",
            FetchStage::Planned => "planned",
            FetchStage::Parked => "parked",
            FetchStage::Read => "read",
            FetchStage::Sent => "sent",
        }
    }
}

impl Default for CoreMetrics {
    fn default() -> CoreMetrics {
        CoreMetrics {
            count: Counters::default(),
            now: MonoMicros::default(),
            requests: vec![0; APIS * ERRORS].into_boxed_slice(),
            produce: Default::default(),
            fetch: Default::default(),
        }
    }
}

impl CoreMetrics {
    /// Time goes on; stages are measured up to here.
    pub fn set_now(&mut self, now: MonoMicros) {
        self.now = now;
    }

    /// Since when, for a stage that begins.
    pub fn now(&self) -> MonoMicros {
        self.now
    }

    /// µs from `since` to the event that is being handled.
    pub fn micros_since(&self, since: MonoMicros) -> u64 {
        self.now.micros_since(since)
    }

    /// Counts one answer.
    pub fn request(&mut self, api: ApiKey, error: ErrorCode) {
        let api = usize::try_from(api.0).map_or(APIS - 1, |api| api.min(APIS - 1));
        let error = usize::try_from(i32::from(error.0) + 1).map_or(ERRORS - 1, |error| error.min(ERRORS - 1));
        self.requests[api * ERRORS + error] += 1;
    }

    /// A produce request has reached `stage`, `micros` after the stage before.
    pub fn produce_stage(&mut self, stage: ProduceStage, micros: u64) {
        self.produce[stage as usize].record(micros);
    }

    /// A fetch request has reached `stage`, `micros` after the stage before.
    pub fn fetch_stage(&mut self, stage: FetchStage, micros: u64) {
        self.fetch[stage as usize].record(micros);
    }

    /// A copy of what was counted; gauges are left to the caller. O(APIs × error codes).
    pub fn report(&self, core: CoreId) -> CoreReport {
        let counted = self.requests.iter().enumerate().filter(|&(_, &count)| count > 0);
        let requests = counted.map(|(slot, &count)| RequestCount {
            api: (slot / ERRORS) as i16,
            error: (slot % ERRORS) as i16 - 1,
            count,
        });
        CoreReport {
            core,
            count: self.count,
            requests: requests.collect(),
            produce: self.produce.clone(),
            fetch: self.fetch.clone(),
            ..CoreReport::default()
        }
    }
}

/// What one core reports to `/metrics`: plain data.
#[derive(Clone, Debug, Default)]
pub struct CoreReport {
    /// Which core.
    pub core: CoreId,
    /// Plain counters.
    pub count: Counters,
    /// Answers by API and error code; only those that occurred.
    pub requests: Vec<RequestCount>,
    /// Time between the stages of a produce, by `ProduceStage as usize`.
    pub produce: [Histogram; ProduceStage::ALL.len()],
    /// Time between the stages of a fetch, by `FetchStage as usize`.
    pub fetch: [Histogram; FetchStage::ALL.len()],
    /// Open connections.
    pub connections: u64,
    /// Requests taken in and not yet answered.
    pub requests_in_flight: u64,
    /// The arena's pools.
    pub arena: Vec<PoolReport>,
    /// The partitions this core serves.
    pub partitions: Vec<PartitionReport>,
    /// What the ring knows; filled in by the loop that owns it.
    pub ring: RingReport,
}

/// What the whole node reports: its cores, and what the control core knows.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    /// Why it does not serve; `None` when it does.
    pub not_ready: Option<String>,
    /// The cores that answered.
    pub cores: Vec<CoreReport>,
    /// How many cores did not answer in time.
    pub cores_missing: u32,
    /// Values of the control core: name, help, value.
    pub gauges: Vec<(&'static str, &'static str, i64)>,
}

/// Answers of one API with one error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount {
    /// API key; the last row stands for all above it.
    pub api: i16,
    /// Error code, 0 for none.
    pub error: i16,
    /// How many.
    pub count: u64,
}

/// Fill of one pool of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// `ingest`, `replica` or `read`.
    pub pool: &'static str,
    /// Bytes of blocks in use.
    pub used_bytes: u64,
    /// Bytes it may use at most.
    pub limit_bytes: u64,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its index.
    pub index: PartitionIndex,
    /// First offset kept.
    pub start: Offset,
    /// High watermark.
    pub high_watermark: Offset,
    /// Everything below is on the device.
    pub stable: Offset,
    /// Next offset to assign.
    pub end: Offset,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// Replicas in sync.
    pub isr_size: u32,
}

/// What a ring counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingReport {
    /// Turns of the loop.
    pub turns: u64,
    /// `io_uring_enter` calls.
    pub enters: u64,
    /// Operations in flight.
    pub in_flight: u64,
    /// Operations that went through io-wq, by name.
    pub punts: Vec<(&'static str, u64)>,
}

/// Sub-buckets per power of two.
const STEPS: usize = 4;
/// Powers of two: the last bucket starts at 7 × 2^26 µs ≈ 7.8 minutes.
const OCTAVES: usize = 27;
/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = STEPS * (OCTAVES + 1);

/// Counts of durations in log-linear buckets: exact below 4 µs, then four buckets per power of two (at most 25 % wide).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    /// Sum of all durations in µs.
    pub sum_micros: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], sum_micros: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, micros: u64) {
        self.counts[bucket(micros)] += 1;
        self.sum_micros = self.sum_micros.saturating_add(micros);
    }

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.sum_micros = self.sum_micros.saturating_add(other.sum_micros);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each bucket's largest duration in µs and its count; the last holds everything above the one before.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().map(|(i, &count)| (bucket_last(i), count))
    }

    /// A duration in µs that `per_mille` of 1,000 do not exceed (the end of their bucket); 0 without any. O(buckets).
    pub fn quantile_micros(&self, per_mille: u64) -> u64 {
        let wanted = (self.count() * per_mille).div_ceil(1000);
        let mut seen = 0;
        let reached = self.buckets().find(|&(_, count)| {
            seen += count;
            seen >= wanted && seen > 0
        });
        reached.map_or(0, |(last, _)| last)
    }
}

/// Index of the bucket that holds `micros`.
fn bucket(micros: u64) -> usize {
    let steps = STEPS as u64;
    if micros < steps {
        return micros as usize;
    }
    let octave = micros.ilog2() as usize - STEPS.ilog2() as usize;
    let step = (micros >> octave) as usize - STEPS;
    (STEPS * (octave + 1) + step).min(BUCKETS - 1)
}

/// Largest duration of bucket `index` in µs.
fn bucket_last(index: usize) -> u64 {
    match index {
        _ if index + 1 == BUCKETS => u64::MAX,
        _ if index < STEPS => index as u64,
        _ => (((STEPS + index % STEPS + 1) as u64) << (index / STEPS - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_its_bucket_and_above_the_one_before() {
        for micros in (0..5000).chain([65_535, 65_536, 1_000_000, 60_000_000, u64::MAX]) {
            let i = bucket(micros);
            assert!(micros <= bucket_last(i), "{micros} in bucket {i} up to {}", bucket_last(i));
            assert!(i == 0 || bucket_last(i - 1) < micros, "{micros} belongs into a bucket below {i}");
        }
    }

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(micros));
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.sum_micros, 500_500);
        assert!((500..=640).contains(&histogram.quantile_micros(500)), "{}", histogram.quantile_micros(500));
        assert!((990..=1279).contains(&histogram.quantile_micros(990)));
        assert_eq!(Histogram::default().quantile_micros(500), 0);
    }

    #[test]
    fn requests_are_counted_by_api_and_error_and_strange_ones_are_not_lost() {
        let mut metrics = CoreMetrics::default();
        for (api, error) in [(0, 0), (0, 0), (1, -1), (1, 137), (-5, 4000)] {
            metrics.request(ApiKey(api), ErrorCode(error));
        }
        let seen: Vec<(i16, i16, u64)> =
            metrics.report(CoreId(0)).requests.iter().map(|r| (r.api, r.error, r.count)).collect();
        assert_eq!(seen, [(0, 0, 2), (1, -1, 1), (1, 137, 1), (96, 138, 1)]);
    }

    #[test]
    fn reports_of_two_cores_add_up() {
        let mut metrics = CoreMetrics::default();
        metrics.count.writes += 3;
        metrics.produce_stage(ProduceStage::Written, 90);
        let report = metrics.report(CoreId(1));
        let (mut count, mut written) = (report.count, report.produce[ProduceStage::Written as usize].clone());
        count.add(&report.count);
        written.add(&report.produce[ProduceStage::Written as usize]);
        assert_eq!(count.rows().find(|(name, ..)| *name == "writes").map(|(.., value)| value), Some(6));
        assert_eq!((written.count(), written.sum_micros), (2, 180));
    }

    #[test]
    fn stages_are_numbered_in_their_order() {
        assert!(ProduceStage::ALL.iter().enumerate().all(|(i, stage)| *stage as usize == i));
        assert!(FetchStage::ALL.iter().enumerate().all(|(i, stage)| *stage as usize == i));
    }
}
