//! A broker as a process of its own, and the few requests that tests make of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use pinion::cli::Failure;
use pinion::cli::client::Client;
use pinion::ids::{Offset, PartitionIndex, TopicId};
use pinion::kafka::batch::batches;
use pinion::kafka::batch_builder::BatchBuilder;
use pinion::kafka::error_code::ErrorCode;
use pinion::kafka::schema::{Records, create_topics, delete_topics, fetch, produce};

/// A running broker; killed when dropped.
pub struct Broker {
    child: Child,
    /// Where clients connect.
    pub address: String,
}

fn command(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinion"));
    command.arg("serve").arg("--data-dir").arg(dir).args(more);
    command.args(["--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--set", "arena.bytes=64MiB"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

impl Broker {
    /// Starts one on a free port and waits until it says that it is ready.
    pub fn start(dir: &Path, more: &[&str]) -> Broker {
        let mut child = command(dir, more).spawn().expect("the binary");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its stdout");
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("kafka="));
        let address = address.unwrap_or_else(|| panic!("no ready line but {line:?}")).to_owned();
        Broker { child, address }
    }

    /// kill -9, and waits for the end.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started here");
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.child.wait().expect("it was started here")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a broker that is expected to end by itself; its status and what it said on stderr.
pub fn run_to_end(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut child = command(dir, more).stderr(Stdio::piped()).spawn().expect("the binary");
    let status = child.wait().expect("it was started here");
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("its stderr");
    (status.code(), stderr)
}

/// A topic with one partition.
#[derive(Clone, Debug)]
pub struct Topic {
    name: String,
    id: TopicId,
}

/// Connects.
pub fn connect(address: &str) -> Client {
    Client::connect(address).unwrap_or_else(|failure| panic!("{}", failure.message))
}

/// Creates a topic with one partition.
pub fn create_topic(address: &str, name: &str) -> Topic {
    let topic = create_topics::CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
    let request = create_topics::CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let answer = connect(address).call(&request).unwrap_or_else(|failure| panic!("{}", failure.message));
    let response: create_topics::CreateTopicsResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{:?}", response.topics[0].error_message);
    Topic { name: name.to_owned(), id: response.topics[0].topic_id }
}

/// Deletes a topic.
pub fn delete_topic(address: &str, name: &str) {
    let state = delete_topics::DeleteTopicState { name: Some(name), ..Default::default() };
    let request = delete_topics::DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    let answer = connect(address).call(&request).unwrap_or_else(|failure| panic!("{}", failure.message));
    let response: delete_topics::DeleteTopicsResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
}

/// Produces one record; an error is a connection that ended.
pub fn produce(client: &mut Client, topic: &Topic, acks: i16, value: &[u8]) -> Result<(ErrorCode, i64), Failure> {
    let batch = BatchBuilder::new().value(1_700_000_000_000, value).build();
    let partition = produce::PartitionProduceData { index: PartitionIndex(0), records: Some(&batch) };
    let data = produce::TopicProduceData { name: &topic.name, topic_id: topic.id, partition_data: vec![partition] };
    let request = produce::ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![data], ..Default::default() };
    let answer = client.call(&request)?;
    let response: produce::ProduceResponse<'_> = answer.decode()?;
    let partition = &response.responses[0].partition_responses[0];
    Ok((partition.error_code, partition.base_offset.0))
}

/// Fetches from an offset: the high watermark and the bytes of whole batches.
pub fn fetch(client: &mut Client, topic: &Topic, offset: i64) -> (i64, Vec<u8>) {
    let partition = fetch::FetchPartition {
        partition: PartitionIndex(0),
        fetch_offset: Offset(offset),
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { topic: &topic.name, topic_id: topic.id, partitions: vec![partition] };
    let request = fetch::FetchRequest { min_bytes: 0, topics: vec![topic], ..Default::default() };
    let answer = client.call(&request).unwrap_or_else(|failure| panic!("{}", failure.message));
    let response: fetch::FetchResponse<'_> = answer.decode().unwrap_or_else(|f| panic!("{}", f.message));
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE, "fetch from {offset}");
    let Records::Bytes(bytes) = partition.records else { panic!("no records field") };
    (partition.high_watermark.0, bytes.to_vec())
}

/// Every record of a topic: offset → value.
pub fn read_all(address: &str, topic: &Topic) -> BTreeMap<i64, Vec<u8>> {
    let mut client = connect(address);
    let mut found = BTreeMap::new();
    let mut next = 0;
    loop {
        let (high_watermark, bytes) = fetch(&mut client, topic, next);
        for batch in batches(&bytes) {
            let (_, Ok(batch)) = batch else { break };
            batch.check_crc().expect("a batch as it was produced");
            for record in batch.records().expect("uncompressed") {
                let record = record.expect("a record as it was produced");
                let offset = batch.base_offset().0 + i64::from(record.offset_delta);
                if next <= offset {
                    assert_eq!(offset, next, "offsets have no gaps");
                    found.insert(offset, record.value.expect("a value").to_vec());
                    next = offset + 1;
                }
            }
        }
        if next >= high_watermark {
            return found;
        }
    }
}
