//! Requests that ask partitions small questions: ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and
//! DescribeLogDirs. Each partition is asked on its core; the answer leaves when all have answered.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{DirId, LeaderEpoch, Now, Offset, PartitionId, PartitionIndex, Ticket, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::schema::{
    delete_records, describe_log_dirs, describe_producers, list_offsets, offset_for_leader_epoch,
};
use crate::shard::Shard;
use crate::shard::action::{Action, Actions};
use crate::shard::dispatch::{Reply, Request};
use crate::shard::message::{ClusterView, Message, Origin, Peer, Query, QueryAnswer, Route};
use crate::shard::requests::{InService, Kind};

/// A request that waits for the answers of partitions.
#[derive(Debug)]
pub struct Queries {
    api: Api,
    topics: Vec<String>,
    parts: Vec<QueryPart>,
    waiting: u32,
    asking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    ListOffsets,
    EpochEnd,
    DeleteRecords,
    Producers,
    LogDirs,
}

#[derive(Debug)]
struct QueryPart {
    /// Index into `topics`.
    topic: usize,
    index: PartitionIndex,
    answer: Option<QueryAnswer>,
}

/// One question before it is sent.
struct Question {
    topic: usize,
    index: PartitionIndex,
    query: Result<Query, ErrorCode>,
}

impl Shard {
    pub(super) fn on_list_offsets(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<list_offsets::ListOffsetsRequest<'_>>(now, request, out) else { return };
        let topics: Vec<String> = message.topics.iter().map(|topic| topic.name.to_owned()).collect();
        let to_end = message.replica_id.0 == -2;
        let mut seen = BTreeSet::new();
        let mut questions = Vec::new();
        for (topic, asked) in message.topics.iter().enumerate() {
            for partition in &asked.partitions {
                let (timestamp, current_leader_epoch) = (partition.timestamp, partition.current_leader_epoch);
                let query = Query::ListOffsets { timestamp, current_leader_epoch, to_end };
                let again = !seen.insert((asked.name, partition.partition_index));
                let query = check_timestamp(timestamp, request.header.api_version, again).map(|()| query);
                questions.push(Question { topic, index: partition.partition_index, query });
            }
        }
        self.ask_all(now, request, Api::ListOffsets, (topics, questions), out);
    }

    pub(super) fn on_offset_for_leader_epoch(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        type Message<'a> = offset_for_leader_epoch::OffsetForLeaderEpochRequest<'a>;
        let Some(message) = self.read::<Message<'_>>(now, request, out) else { return };
        let topics = message.topics.iter().map(|topic| topic.topic.to_owned()).collect();
        let asked = message.topics.iter().enumerate().flat_map(|(topic, asked)| {
            asked.partitions.iter().map(move |partition| Question {
                topic,
                index: partition.partition,
                query: Ok(Query::EpochEnd {
                    current_leader_epoch: partition.current_leader_epoch,
                    epoch: partition.leader_epoch,
                }),
            })
        });
        self.ask_all(now, request, Api::EpochEnd, (topics, asked.collect()), out);
    }

    pub(super) fn on_delete_records(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(message) = self.read::<delete_records::DeleteRecordsRequest<'_>>(now, request, out) else { return };
        let topics = message.topics.iter().map(|topic| topic.name.to_owned()).collect();
        let asked = message.topics.iter().enumerate().flat_map(|(topic, asked)| {
            asked.partitions.iter().map(move |partition| Question {
                topic,
                index: partition.partition_index,
                query: Ok(Query::DeleteRecords { before: partition.offset }),
            })
        });
        self.ask_all(now, request, Api::DeleteRecords, (topics, asked.collect()), out);
    }

    pub(super) fn on_describe_producers(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        type Message<'a> = describe_producers::DescribeProducersRequest<'a>;
        let Some(message) = self.read::<Message<'_>>(now, request, out) else { return };
        let topics = message.topics.iter().map(|topic| topic.name.to_owned()).collect();
        let asked = message.topics.iter().enumerate().flat_map(|(topic, asked)| {
            let indexes = asked.partition_indexes.iter();
            indexes.map(move |index| Question { topic, index: *index, query: Ok(Query::Producers) })
        });
        self.ask_all(now, request, Api::Producers, (topics, asked.collect()), out);
    }

    pub(super) fn on_describe_log_dirs(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        type Message<'a> = describe_log_dirs::DescribeLogDirsRequest<'a>;
        let Some(message) = self.read::<Message<'_>>(now, request, out) else { return };
        let view = self.view.clone();
        let wanted: Vec<(String, Vec<PartitionIndex>)> = match &message.topics {
            Some(topics) => topics.iter().map(|t| (t.topic.to_owned(), t.partitions.clone())).collect(),
            None => hosted(&view),
        };
        let asked = wanted.iter().enumerate().flat_map(|(topic, (_, indexes))| {
            indexes.iter().map(move |index| Question { topic, index: *index, query: Ok(Query::Size) })
        });
        let asked = asked.collect();
        let topics = wanted.into_iter().map(|(name, _)| name).collect();
        self.ask_all(now, request, Api::LogDirs, (topics, asked), out);
    }

    fn ask_all(
        &mut self,
        now: Now,
        request: &Request<'_>,
        api: Api,
        (topics, questions): (Vec<String>, Vec<Question>),
        out: &mut Actions,
    ) {
        let part = |question: &Question| QueryPart { topic: question.topic, index: question.index, answer: None };
        let parts: Vec<QueryPart> = questions.iter().map(part).collect();
        let ids: Vec<Result<TopicId, ErrorCode>> =
            topics.iter().map(|name| self.view.topic_id(name, TopicId::NONE)).collect();
        let queries = Queries { api, waiting: parts.len() as u32, topics, parts, asking: true };
        let kind = Kind::Queries(Box::new(queries));
        let ticket = self.requests.start(InService { reply: Reply::of(request), kind });
        for (slot, question) in (0..).zip(questions) {
            let origin = Origin { core: self.config.core, ticket, slot };
            let asked = question.query.and_then(|query| {
                let partition = PartitionId { topic: ids[question.topic]?, index: question.index };
                Ok((self.view.route(partition)?, partition, query))
            });
            match asked {
                Ok((core, partition, query)) if core == self.config.core => {
                    self.on_query(now, origin, partition, query, out);
                }
                Ok((core, partition, query)) => {
                    let message = Message::Query { origin, partition, query };
                    out.push(Action::Mail { to: Peer::Core(core), message });
                }
                Err(code) => self.on_queried(origin, QueryAnswer::Refused(code), out),
            }
        }
        if let Some(InService { kind: Kind::Queries(queries), .. }) = self.requests.at(ticket) {
            queries.asking = false;
        }
        self.conclude_queries(ticket, out);
    }

    /// A partition has answered.
    pub(super) fn on_queried(&mut self, origin: Origin, answer: QueryAnswer, out: &mut Actions) {
        let Some(InService { kind: Kind::Queries(queries), .. }) = self.requests.at(origin.ticket) else { return };
        queries.parts[origin.slot as usize].answer = Some(answer);
        queries.waiting -= 1;
        if !queries.asking {
            self.conclude_queries(origin.ticket, out);
        }
    }

    fn conclude_queries(&mut self, ticket: Ticket, out: &mut Actions) {
        let Some(InService { kind: Kind::Queries(queries), .. }) = self.requests.at(ticket) else { return };
        if queries.waiting > 0 {
            return;
        }
        let Some(InService { reply, kind: Kind::Queries(queries) }) = self.requests.finish(ticket) else {
            panic!("looked at above");
        };
        match queries.api {
            Api::ListOffsets => self.reply_to(reply, &queries.list_offsets(), out),
            Api::EpochEnd => self.reply_to(reply, &queries.epoch_ends(), out),
            Api::DeleteRecords => self.reply_to(reply, &queries.deleted(), out),
            Api::Producers => self.reply_to(reply, &queries.producers(), out),
            Api::LogDirs => {
                let view = self.view.clone();
                self.reply_to(reply, &queries.log_dirs(&view), out);
            }
        }
    }
}

impl Queries {
    /// The parts of each topic in the order of the request, mapped.
    fn by_topic<T>(&self, mut part: impl FnMut(&QueryPart) -> T) -> Vec<Vec<T>> {
        let mut topics: Vec<Vec<T>> = self.topics.iter().map(|_| Vec::new()).collect();
        for one in &self.parts {
            topics[one.topic].push(part(one));
        }
        topics
    }

    fn list_offsets(&self) -> list_offsets::ListOffsetsResponse<'_> {
        let partitions = self.by_topic(|part| {
            let mut answer =
                list_offsets::ListOffsetsPartitionResponse { partition_index: part.index, ..Default::default() };
            match part.answer() {
                QueryAnswer::Offset { offset, timestamp, leader_epoch } => {
                    (answer.offset, answer.timestamp, answer.leader_epoch) = (*offset, *timestamp, *leader_epoch);
                }
                other => answer.error_code = other.code(),
            }
            answer
        });
        let topics = self.topics.iter().zip(partitions);
        let topics = topics.map(|(name, partitions)| list_offsets::ListOffsetsTopicResponse { name, partitions });
        list_offsets::ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
    }

    fn epoch_ends(&self) -> offset_for_leader_epoch::OffsetForLeaderEpochResponse<'_> {
        let partitions = self.by_topic(|part| {
            let (error_code, leader_epoch, end_offset) = match part.answer() {
                QueryAnswer::EpochEnd { epoch, end } => (ErrorCode::NONE, *epoch, *end),
                other => (other.code(), LeaderEpoch(-1), Offset(-1)),
            };
            offset_for_leader_epoch::EpochEndOffset { error_code, partition: part.index, leader_epoch, end_offset }
        });
        let topics = self.topics.iter().zip(partitions);
        let topics =
            topics.map(|(topic, partitions)| offset_for_leader_epoch::OffsetForLeaderTopicResult { topic, partitions });
        offset_for_leader_epoch::OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }
    }

    fn deleted(&self) -> delete_records::DeleteRecordsResponse<'_> {
        let partitions = self.by_topic(|part| {
            let (error_code, low_watermark) = match part.answer() {
                QueryAnswer::LogStart(offset) => (ErrorCode::NONE, *offset),
                other => (other.code(), Offset(-1)),
            };
            delete_records::DeleteRecordsPartitionResult { partition_index: part.index, low_watermark, error_code }
        });
        let topics = self.topics.iter().zip(partitions);
        let topics = topics.map(|(name, partitions)| delete_records::DeleteRecordsTopicResult { name, partitions });
        delete_records::DeleteRecordsResponse { topics: topics.collect(), ..Default::default() }
    }

    fn producers(&self) -> describe_producers::DescribeProducersResponse<'_> {
        let partitions = self.by_topic(|part| {
            let (error_code, active_producers) = match part.answer() {
                QueryAnswer::Producers(producers) => (ErrorCode::NONE, producers.iter().map(producer_state).collect()),
                other => (other.code(), Vec::new()),
            };
            let error_message = (error_code != ErrorCode::NONE).then(|| error_code.message());
            let partition_index = part.index;
            describe_producers::PartitionResponse { partition_index, error_code, error_message, active_producers }
        });
        let topics = self.topics.iter().zip(partitions);
        let topics = topics.map(|(name, partitions)| describe_producers::TopicResponse { name, partitions });
        describe_producers::DescribeProducersResponse { topics: topics.collect(), ..Default::default() }
    }

    /// One result per data directory, whether or not it holds any of the partitions.
    fn log_dirs<'a>(&'a self, view: &'a ClusterView) -> describe_log_dirs::DescribeLogDirsResponse<'a> {
        use describe_log_dirs as schema;
        let results = (0..).zip(view.dirs.iter()).map(|(dir, facts)| {
            let mut topics: BTreeMap<usize, Vec<schema::DescribeLogDirsPartition>> = BTreeMap::new();
            for part in &self.parts {
                if let QueryAnswer::Size { bytes, dir: of } = part.answer()
                    && *of == DirId(dir)
                {
                    topics.entry(part.topic).or_default().push(schema::DescribeLogDirsPartition {
                        partition_index: part.index,
                        partition_size: *bytes as i64,
                        offset_lag: 0,
                        is_future_key: false,
                    });
                }
            }
            let topics = topics
                .into_iter()
                .map(|(topic, partitions)| schema::DescribeLogDirsTopic { name: &self.topics[topic], partitions });
            schema::DescribeLogDirsResult {
                error_code: if facts.online { ErrorCode::NONE } else { ErrorCode::KAFKA_STORAGE_ERROR },
                log_dir: &facts.path,
                topics: topics.collect(),
                total_bytes: facts.total_bytes,
                usable_bytes: facts.usable_bytes,
                ..Default::default()
            }
        });
        schema::DescribeLogDirsResponse { results: results.collect(), ..Default::default() }
    }
}

impl QueryPart {
    fn answer(&self) -> &QueryAnswer {
        self.answer.as_ref().expect("a request is answered when all its partitions are")
    }
}

impl QueryAnswer {
    /// The code of a refusal.
    fn code(&self) -> ErrorCode {
        match self {
            QueryAnswer::Refused(code) => *code,
            other => panic!("{other:?} answers another question"),
        }
    }
}

fn producer_state(producer: &crate::log::producers::ProducerSummary) -> describe_producers::ProducerState {
    describe_producers::ProducerState {
        producer_id: producer.id,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.current_txn_start,
    }
}

/// Special timestamps exist from some version on; the same partition twice in one request is refused (kafka-spec §4.8).
fn check_timestamp(timestamp: i64, version: i16, again: bool) -> Result<(), ErrorCode> {
    let since = match timestamp {
        -2..=i64::MAX => 1,
        -3 => 7,
        -4 => 8,
        -5 => 9,
        -6 => 11,
        _ => i16::MAX,
    };
    match (again, since <= version) {
        (true, _) => Err(ErrorCode::INVALID_REQUEST),
        (false, false) => Err(ErrorCode::UNSUPPORTED_VERSION),
        (false, true) => Ok(()),
    }
}

/// Every partition that this broker serves.
fn hosted(view: &ClusterView) -> Vec<(String, Vec<PartitionIndex>)> {
    let served = |routes: &[Route]| {
        let indexes = (0..).zip(routes).filter(|(_, route)| matches!(route, Route::Core(_)));
        indexes.map(|(index, _)| PartitionIndex(index)).collect()
    };
    let names = view.routes.iter().filter_map(|(id, cores)| Some((view.image.names.get(id)?, cores)));
    names.map(|(name, cores)| (name.to_string(), served(cores))).collect()
}
