//! The text of `/metrics`: the reports of all cores, summed where that means something, in Prometheus' format.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use crate::kafka::api::{self, ApiKey};
use crate::kafka::error_code::ErrorCode;
use crate::metrics::{Counters, FetchStage, Histogram, NodeReport, PartitionReport, ProduceStage};

/// The text for one scrape.
pub fn prometheus_text(report: NodeReport) -> String {
    let mut registry = Registry::with_prefix("pinion");
    registry.register_collector(Box::new(Export(report)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing into a string does not fail");
    text
}

#[derive(Debug)]
struct Export(NodeReport);

impl Collector for Export {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        self.node(&mut encoder)?;
        self.counters(&mut encoder)?;
        self.requests(&mut encoder)?;
        self.stages(&mut encoder)?;
        self.rings(&mut encoder)?;
        self.arena(&mut encoder)?;
        self.partitions(&mut encoder)
    }
}

impl Export {
    fn node(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let report = &self.0;
        let ready = i64::from(report.not_ready.is_none());
        gauge(encoder, "ready", "Whether the broker serves its partitions", ready)?;
        let missing = i64::from(report.cores_missing);
        gauge(encoder, "cores_missing", "Data cores that did not report in time", missing)?;
        for &(name, help, value) in &report.gauges {
            gauge(encoder, name, help, value)?;
        }
        let connections: u64 = report.cores.iter().map(|core| core.connections).sum();
        gauge(encoder, "connections", "Open client connections", connections as i64)?;
        let in_flight: u64 = report.cores.iter().map(|core| core.requests_in_flight).sum();
        gauge(encoder, "requests_in_flight", "Requests taken in and not yet answered", in_flight as i64)
    }

    fn counters(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut sum = Counters::default();
        self.0.cores.iter().for_each(|core| sum.add(&core.count));
        for (name, help, value) in sum.rows() {
            let mut metric = encoder.encode_descriptor(name, help.trim(), None, MetricType::Counter)?;
            count(&mut metric, value)?;
        }
        Ok(())
    }

    fn requests(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut sums: BTreeMap<(i16, i16), u64> = BTreeMap::new();
        for request in self.0.cores.iter().flat_map(|core| &core.requests) {
            *sums.entry((request.api, request.error)).or_default() += request.count;
        }
        let help = "Answers by API and error code";
        let mut family = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for ((api, error), value) in sums {
            let labels = [("api", api_name(api)), ("error", error_name(error))];
            count(&mut family.encode_family(&labels)?, value)?;
        }
        Ok(())
    }

    fn stages(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let (cores, help) = (&self.0.cores, "Time from the stage before to this one");
        let name = "produce_stage_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for stage in ProduceStage::ALL {
            let of_stage = cores.iter().map(|core| &core.produce[stage as usize]);
            histogram(&mut family, stage.name(), of_stage)?;
        }
        let name = "fetch_stage_seconds";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for stage in FetchStage::ALL {
            let of_stage = cores.iter().map(|core| &core.fetch[stage as usize]);
            histogram(&mut family, stage.name(), of_stage)?;
        }
        Ok(())
    }

    fn rings(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut punts: BTreeMap<&str, u64> = BTreeMap::new();
        for &(op, value) in self.0.cores.iter().flat_map(|core| &core.ring.punts) {
            *punts.entry(op).or_default() += value;
        }
        let help = "Operations that the kernel gave to a worker thread";
        let mut family = encoder.encode_descriptor("iowq_punts", help, None, MetricType::Counter)?;
        for (op, value) in punts {
            count(&mut family.encode_family(&[("op", op)])?, value)?;
        }
        let mut family = encoder.encode_descriptor("turns", "Turns of a core's loop", None, MetricType::Counter)?;
        for core in &self.0.cores {
            count(&mut family.encode_family(&[("core", core.core.to_string())])?, core.ring.turns)?;
        }
        let in_flight: u64 = self.0.cores.iter().map(|core| core.ring.in_flight).sum();
        gauge(encoder, "ring_operations_in_flight", "Operations that the kernel works on", in_flight as i64)
    }

    fn arena(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut pools: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for pool in self.0.cores.iter().flat_map(|core| &core.arena) {
            let (used, limit) = pools.entry(pool.pool).or_default();
            *used += pool.used_bytes;
            *limit += pool.limit_bytes;
        }
        let mut family = encoder.encode_descriptor("arena_bytes", "Tail memory in use", None, MetricType::Gauge)?;
        for (&pool, &(used, _)) in &pools {
            family.encode_family(&[("pool", pool)])?.encode_gauge(&(used as i64))?;
        }
        let help = "Tail memory that a pool may use";
        let mut family = encoder.encode_descriptor("arena_limit_bytes", help, None, MetricType::Gauge)?;
        for (&pool, &(_, limit)) in &pools {
            family.encode_family(&[("pool", pool)])?.encode_gauge(&(limit as i64))?;
        }
        Ok(())
    }

    fn partitions(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let mut partitions: Vec<&PartitionReport> = self.0.cores.iter().flat_map(|core| &core.partitions).collect();
        partitions.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        type Read = fn(&PartitionReport) -> i64;
        let columns: [(&str, &str, Read); 6] = [
            ("partition_start_offset", "First offset that is kept", |p| p.start.0),
            ("partition_high_watermark_offset", "Consumers read below it", |p| p.high_watermark.0),
            ("partition_stable_offset", "Everything below is on the device", |p| p.stable.0),
            ("partition_end_offset", "Next offset to assign", |p| p.end.0),
            ("partition_size_bytes", "Bytes of its segments", |p| p.size_bytes as i64),
            ("isr_size", "Replicas in sync", |p| i64::from(p.isr_size)),
        ];
        for (name, help, read) in columns {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for partition in &partitions {
                let labels = [("topic", partition.topic.to_string()), ("partition", partition.index.to_string())];
                family.encode_family(&labels)?.encode_gauge(&read(partition))?;
            }
        }
        Ok(())
    }
}

type NoLabels = [(&'static str, &'static str); 0];

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: i64) -> Result<(), Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

fn count(metric: &mut MetricEncoder, value: u64) -> Result<(), Error> {
    metric.encode_counter::<NoLabels, u64, u64>(&value, None)
}

/// One stage of a family, summed over the cores, with every second bucket: two per power of two.
fn histogram<'a>(
    family: &mut MetricEncoder,
    stage: &str,
    cores: impl Iterator<Item = &'a Histogram>,
) -> Result<(), Error> {
    let mut sum = Histogram::default();
    cores.for_each(|core| sum.add(core));
    let fine: Vec<(u64, u64)> = sum.buckets().collect();
    let coarse: Vec<(f64, u64)> = fine.chunks(2).map(|pair| (bound(pair[1].0), pair[0].1 + pair[1].1)).collect();
    let exemplars: Option<&HashMap<usize, Exemplar<NoLabels, f64>>> = None;
    let seconds = sum.sum_micros as f64 / 1e6;
    family.encode_family(&[("stage", stage)])?.encode_histogram(seconds, sum.count(), &coarse, exemplars)
}

/// A bucket's upper bound in seconds; `f64::MAX` is what the encoder writes as +Inf.
fn bound(micros: u64) -> f64 {
    if micros == u64::MAX { f64::MAX } else { micros as f64 / 1e6 }
}

fn api_name(key: i16) -> String {
    api::row(ApiKey(key)).map_or_else(|| key.to_string(), |row| row.name.to_string())
}

fn error_name(code: i16) -> String {
    ErrorCode(code).name().map_or_else(|| code.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CoreId, Offset, PartitionIndex};
    use crate::metrics::{CoreMetrics, CoreReport, PoolReport, RingReport};

    fn core(id: u16) -> CoreReport {
        let mut metrics = CoreMetrics::default();
        metrics.request(ApiKey::METADATA, ErrorCode::NONE);
        metrics.count.bytes_received += 100;
        metrics.produce_stage(ProduceStage::Written, 300);
        CoreReport {
            connections: 2,
            arena: vec![PoolReport { pool: "ingest", used_bytes: 4096, limit_bytes: 8192 }],
            ring: RingReport { punts: vec![("write", 1)], ..RingReport::default() },
            partitions: vec![PartitionReport {
                topic: "orders".into(),
                index: PartitionIndex(i32::from(id)),
                start: Offset(1),
                high_watermark: Offset(5),
                stable: Offset(5),
                end: Offset(7),
                size_bytes: 900,
                isr_size: 1,
            }],
            ..metrics.report(CoreId(id))
        }
    }

    #[test]
    fn cores_are_summed_and_partitions_listed() {
        let report = NodeReport {
            cores: vec![core(0), core(1)],
            gauges: vec![("topics", "Topics", 1)],
            ..NodeReport::default()
        };
        let text = prometheus_text(report);
        for line in [
            "pinion_ready 1",
            "pinion_topics 1",
            "pinion_connections 4",
            "pinion_bytes_received_total 200",
            "pinion_iowq_punts_total{op=\"write\"} 2",
            "pinion_arena_bytes{pool=\"ingest\"} 8192",
            "pinion_arena_limit_bytes{pool=\"ingest\"} 16384",
            "pinion_partition_end_offset{topic=\"orders\",partition=\"1\"} 7",
            "pinion_partition_size_bytes{topic=\"orders\",partition=\"0\"} 900",
            "pinion_produce_stage_seconds_count{stage=\"written\"} 2",
            "pinion_produce_stage_seconds_sum{stage=\"written\"} 0.0006",
            "pinion_produce_stage_seconds_bucket{le=\"+Inf\",stage=\"written\"} 2",
            "# TYPE pinion_requests counter",
            "pinion_requests_total{api=\"Metadata\",error=\"NONE\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn bounds_of_a_histogram_rise_and_end_with_infinity() {
        let text = prometheus_text(NodeReport { cores: vec![core(0)], ..NodeReport::default() });
        let bounds = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("pinion_produce_stage_seconds_bucket{le=\"")?;
            let (bound, rest) = rest.split_once('"')?;
            rest.starts_with(",stage=\"written\"").then(|| bound.parse::<f64>().expect("a number"))
        });
        let bounds: Vec<f64> = bounds.collect();
        assert!(bounds.len() > 20 && bounds.is_sorted(), "{bounds:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY));
    }
}
