//! librdkafka as Rust programs use it: arguments BOOTSTRAP BASE_MS PREFIX, one line a case on stdout, then `done`.

mod client;
mod dataset;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use client::Client;
use dataset::{PARTITIONS, PER_PARTITION, RECORDS, Record};

/// How long anything may take before it counts as a failure.
const PATIENCE: Duration = Duration::from_secs(20);
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// What went wrong, in words.
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, base_ms, prefix] = arguments.as_slice() else {
        return Err("arguments: BOOTSTRAP BASE_MS PREFIX".into());
    };
    let cases =
        Cases { client: Client::new(bootstrap)?, base_ms: base_ms.parse()?, prefix: format!("{prefix}-rdkafka-") };
    cases.run();
    println!("done");
    Ok(())
}

struct Cases {
    client: Client,
    base_ms: i64,
    prefix: String,
}

impl Cases {
    fn run(&self) {
        for codec in CODECS {
            for acks in ["0", "1", "all"] {
                report(
                    &format!("{codec}/{acks}"),
                    self.round_trip(&format!("{codec}-{acks}"), codec, &[("acks", acks)]),
                );
            }
        }
        report("idempotent", self.round_trip("idempotent", "lz4", &[("enable.idempotence", "true")]));
        report("null-header", self.null_header());
        report("large", self.large());
        for codec in CODECS {
            report(&format!("by-time/{codec}"), self.by_time(codec));
        }
        report("bounds", self.bounds());
        report("middle", self.middle());
        report("admin", self.admin());
    }

    fn round_trip(&self, name: &str, codec: &str, settings: &[(&str, &str)]) -> Result<(), Failure> {
        let topic = self.create(name)?;
        let records: Vec<Record> = (0..RECORDS).map(|i| dataset::record(i, self.base_ms)).collect();
        let acknowledged = self.client.write(&topic, &records, codec, settings)?;
        if !settings.contains(&("acks", "0")) {
            let expected: Vec<i64> = records.iter().map(|record| record.offset).collect();
            equal("acknowledged offsets", &expected, &acknowledged)?;
        }
        self.check(&topic, &[(0, 0), (1, 0), (2, 0)])
    }

    /// From the first offsets on, the partitions hold what was written, in order, and nothing else.
    fn check(&self, topic: &str, first: &[(i32, i64)]) -> Result<(), Failure> {
        let count = first.iter().map(|(_, offset)| (PER_PARTITION - offset) as usize).sum();
        let found = self.client.read(topic, first, count)?;
        for &(partition, offset) in first {
            let of_partition: Vec<&Record> = found.iter().filter(|record| record.partition == partition).collect();
            let expected: Vec<Record> = (offset..PER_PARTITION)
                .map(|offset| dataset::record(offset * i64::from(PARTITIONS) + i64::from(partition), self.base_ms))
                .collect();
            for (expected, found) in expected.iter().zip(&of_partition) {
                equal("record", expected, found)?;
            }
            equal(&format!("records of partition {partition}"), &expected.len(), &of_partition.len())?;
        }
        Ok(())
    }

    fn null_header(&self) -> Result<(), Failure> {
        let topic = self.create("null-header")?;
        let headers = vec![("null".to_owned(), None), (String::new(), Some(vec![0]))];
        let record = Record { headers, ..dataset::record(0, self.base_ms) };
        self.client.write(&topic, std::slice::from_ref(&record), "none", &[])?;
        equal("records", &vec![record], &self.client.read(&topic, &[(0, 0)], 1)?)
    }

    fn large(&self) -> Result<(), Failure> {
        let topic = self.create("large")?;
        let value: Vec<u8> = (0..900_000).map(|at| (at % 251) as u8).collect();
        let record = Record { value: Some(value), ..dataset::record(0, self.base_ms) };
        self.client.write(&topic, std::slice::from_ref(&record), "none", &[])?;
        let same = self.client.read(&topic, &[(0, 0)], 1)? == [record];
        equal("same bytes", &true, &same)
    }

    fn by_time(&self, codec: &str) -> Result<(), Failure> {
        let topic = format!("{}{codec}-all", self.prefix);
        let at = PER_PARTITION / 2;
        for partition in 0..PARTITIONS {
            let exact = dataset::record(at * i64::from(PARTITIONS) + i64::from(partition), self.base_ms).timestamp;
            for (ms, expected) in
                [(0, Some(0)), (exact, Some(at)), (exact + 1, Some(at + 1)), (self.base_ms + 3_000_000, None)]
            {
                equal(&format!("offset at {ms}"), &expected, &self.client.offset_at(&topic, partition, ms)?)?;
            }
        }
        Ok(())
    }

    fn bounds(&self) -> Result<(), Failure> {
        equal("offsets", &(0, PER_PARTITION), &self.client.bounds(&format!("{}none-all", self.prefix), 1)?)
    }

    fn middle(&self) -> Result<(), Failure> {
        for codec in CODECS {
            for first in [1, 10, PER_PARTITION - 1] {
                self.check(&format!("{}{codec}-all", self.prefix), &[(1, first)])?;
            }
        }
        Ok(())
    }

    fn admin(&self) -> Result<(), Failure> {
        let topic = self.create("admin")?;
        self.client.set_partitions(&topic, 5)?;
        eventually("partitions", 5, || self.client.partitions(&topic))?;
        eventually("retention.ms", "604800000".to_owned(), || self.client.config(&topic, "retention.ms"))?;
        self.client.delete(&topic)?;
        eventually("partitions after its deletion", 0, || self.client.partitions(&topic))
    }

    /// A topic is known before its leaders serve it; a write with acks 0 in between would be lost, as it may be.
    fn create(&self, name: &str) -> Result<String, Failure> {
        let topic = format!("{}{name}", self.prefix);
        self.client.create(&topic)?;
        for partition in 0..PARTITIONS {
            eventually("bounds of a new partition", (0, 0), || self.client.bounds(&topic, partition))?;
        }
        Ok(topic)
    }
}

fn report(name: &str, outcome: Result<(), Failure>) {
    match outcome {
        Ok(()) => println!("ok {name}"),
        Err(failure) => println!("FAIL {name}: {}", failure.to_string().replace('\n', " ")),
    }
}

fn equal<T: PartialEq<U> + Debug, U: Debug>(what: &str, expected: &T, found: &U) -> Result<(), Failure> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}").into()) }
}

/// Metadata follows a change that was acknowledged with a delay that nothing bounds; until then there may be no answer.
fn eventually<T: PartialEq + Debug>(
    what: &str,
    expected: T,
    ask: impl Fn() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(found) if found == expected => return Ok(()),
            found if Instant::now() > deadline => {
                return Err(format!("{what}: expected {expected:?}, found {found:?}").into());
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
