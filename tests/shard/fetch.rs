//! Which bytes a fetch is answered with, and when, as transcripts in tests/golden/fetch.

use std::error::Error;
use std::fmt::Write as _;

use pinion::kafka::batch::batches;

use super::*;

/// A core with three partitions and one consumer.
struct Script {
    world: World,
}

#[derive(goldenscript::Command)]
enum Command {
    /// So many batches of one record, each of this many bytes in all.
    Produce {
        #[arg(key)]
        p: i32,
        #[arg(key)]
        bytes: usize,
        #[arg(key)]
        batches: Option<usize>,
        #[arg(key)]
        records: Option<usize>,
    },
    /// `partition@offset …` of one request.
    Fetch {
        from: String,
        /// max_wait_ms
        #[arg(key)]
        wait: Option<i32>,
        /// min_bytes
        #[arg(key)]
        min: Option<i32>,
        /// max_bytes of the request
        #[arg(key)]
        max: Option<i32>,
        /// max_bytes of each partition
        #[arg(key)]
        part: Option<i32>,
        #[arg(key)]
        epoch: Option<i32>,
        /// Epoch of the last record that the consumer has.
        #[arg(key)]
        last: Option<i32>,
    },
    /// Time passes.
    Wait { ms: u64 },
    /// DeleteRecords of partition 0.
    DeleteRecords { before: i64 },
}

impl Script {
    fn new() -> Script {
        let config = TopicConfig { segment_bytes: 1 << 20, retention_ms: None, ..TopicConfig::default() };
        Script { world: World::of(3, config) }
    }

    fn produce(&mut self, index: i32, bytes: usize, records: usize) -> i64 {
        let of = |len: usize| BatchBuilder::new().values(records, 5, &vec![7; len]).build();
        let least = bytes.saturating_sub(of(0).len() + 8 * records) / records;
        let found = (least..).map(of).find(|batch| bytes <= batch.len()).expect("a batch can be as long");
        assert_eq!(found.len(), bytes, "{records} records can make no batch of {bytes} bytes");
        let partition = produce::PartitionProduceData { index: PartitionIndex(index), records: Some(&found) };
        let topic = produce::TopicProduceData { name: "t", partition_data: vec![partition], ..Default::default() };
        let request =
            produce::ProduceRequest { acks: 1, timeout_ms: 1000, topic_data: vec![topic], ..Default::default() };
        self.world.at = 1;
        let body = self.world.ask(ApiKey::PRODUCE, 9, &request);
        self.world.at = 0;
        let response = produce::ProduceResponse::decode(9, &mut Reader::new(&body)).expect("a response");
        response.responses[0].partition_responses[0].base_offset.0
    }

    /// The answer, if there is one: what each partition got.
    fn answer(&mut self, out: &mut String) -> Result<(), Box<dyn Error>> {
        if !self.world.is_answered() {
            return Ok(writeln!(out, "no answer yet")?);
        }
        let reads = std::mem::take(&mut self.world.reads);
        let body = self.world.answer(ApiKey::FETCH, 12);
        let response = fetch::FetchResponse::decode(12, &mut Reader::new(&body))?;
        for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
            let Records::Bytes(records) = partition.records else { panic!("no records field") };
            write!(out, "{}: ", partition.partition_index)?;
            match partition.error_code {
                ErrorCode::NONE => writeln!(out, "{}", shown(records))?,
                code => writeln!(out, "{code}")?,
            }
            if partition.diverging_epoch.end_offset.0 >= 0 {
                let diverging = &partition.diverging_epoch;
                writeln!(out, "   diverges: epoch {} ended at {}", diverging.epoch, diverging.end_offset)?;
            }
        }
        if reads > 0 {
            writeln!(out, "from the files")?;
        }
        Ok(())
    }
}

/// Offsets of the whole batches, and how many bytes of a cut one follow.
fn shown(records: &[u8]) -> String {
    let (mut whole, mut text) = (0, Vec::new());
    for (_, batch) in batches(records) {
        let Ok(batch) = batch else { break };
        whole += batch.size_bytes();
        let (first, last) = (batch.base_offset(), batch.last_offset());
        text.push(if first == last { first.to_string() } else { format!("{first}..={last}") });
    }
    match (text.is_empty(), records.len() - whole) {
        (true, 0) => "nothing".to_owned(),
        (_, 0) => format!("[{}] {whole} bytes", text.join(" ")),
        (_, cut) => format!("[{}] {whole} bytes and {cut} of the next batch", text.join(" ")),
    }
}

fn request(from: &str, command: &Command) -> fetch::FetchRequest<'static> {
    let Command::Fetch { wait, min, max, part, epoch, last, .. } = command else { panic!("a fetch") };
    let partitions = from.split(' ').map(|pair| {
        let (partition, offset) = pair.split_once('@').expect("partition@offset");
        fetch::FetchPartition {
            partition: PartitionIndex(partition.parse().expect("a number")),
            fetch_offset: Offset(offset.parse().expect("a number")),
            current_leader_epoch: LeaderEpoch(epoch.unwrap_or(-1)),
            last_fetched_epoch: LeaderEpoch(last.unwrap_or(-1)),
            partition_max_bytes: part.unwrap_or(1 << 20),
            ..Default::default()
        }
    });
    let topic = fetch::FetchTopic { topic: "t", partitions: partitions.collect(), ..Default::default() };
    fetch::FetchRequest {
        max_wait_ms: wait.unwrap_or(0),
        min_bytes: min.unwrap_or(1),
        max_bytes: max.unwrap_or(50 << 20),
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match command {
            Command::Produce { p, bytes, batches, records } => {
                for _ in 0..batches.unwrap_or(1) {
                    self.produce(*p, *bytes, records.unwrap_or(1));
                    // A fetch may have waited for it.
                    if self.world.is_answered() {
                        self.answer(&mut out)?;
                    }
                }
            }
            Command::Fetch { from, .. } => {
                self.world.reads = 0;
                self.world.post(ApiKey::FETCH, 12, &request(from, command));
                self.answer(&mut out)?;
            }
            Command::Wait { ms } => {
                self.world.wait(*ms);
                self.answer(&mut out)?;
            }
            Command::DeleteRecords { before } => self.world.delete_records(*before),
        }
        Ok(out)
    }
}

fn run(script: &str) {
    let path = format!("{}/tests/golden/fetch/{script}", env!("CARGO_MANIFEST_DIR"));
    goldenscript::run(&mut Script::new(), path).expect("the script runs");
}

#[test]
fn whole_batches_are_answered_up_to_the_limits() {
    run("limits");
}

#[test]
fn a_fetch_waits_until_there_is_enough_or_its_time_is_over() {
    run("parking");
}

#[test]
fn offsets_and_epochs_that_are_not_the_logs_are_refused() {
    run("refused");
}

#[test]
fn what_has_left_memory_comes_from_the_files() {
    run("cold");
}
