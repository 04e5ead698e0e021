//! Counters and histograms of one core: plain fields, summed by the exporter.

/// What one core reports to `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct CoreReport {}
