//! From a request's header to its handler, and the frame of its answer.

use crate::arena::Lease;
use crate::ids::{ConnId, MonoMicros, Now, Ticket};
use crate::kafka::api::{self, ApiKey};
use crate::kafka::frame::{self, RequestHeader};
use crate::kafka::schema::{DecodeError, Message, Reader};
use crate::shard::Shard;
use crate::shard::action::{Actions, Linger};

/// One request as its handler gets it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The connection.
    pub conn: ConnId,
    /// The ticket its connection knows it by.
    pub ticket: Ticket,
    /// When the last byte of its frame came.
    pub received: MonoMicros,
    /// Its header.
    pub header: RequestHeader<'a>,
    /// The frame without its length field.
    pub frame: &'a Lease,
    /// The bytes behind the header.
    pub body: &'a [u8],
}

impl Shard {
    /// Starts a request. The frame's bytes go back when its handler has read them.
    pub(super) fn dispatch(
        &mut self,
        now: Now,
        (conn, ticket, received): (ConnId, Ticket, MonoMicros),
        frame: Lease,
        out: &mut Actions,
    ) {
        let memory = self.memory.clone();
        let bytes = memory.bytes(&frame);
        let header = frame::request_header(bytes).expect("it was read when the frame was taken in");
        let request = Request { conn, ticket, received, header, frame: &frame, body: header.body(bytes) };
        self.serve(now, &request, out);
        self.release_window(frame);
    }

    fn serve(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let version = request.header.api_version;
        let row = api::row(request.header.api_key);
        if request.header.api_key == ApiKey::API_VERSIONS && !row.is_some_and(|row| row.serves(version)) {
            return self.on_unknown_api_versions(request, out);
        }
        match row {
            Some(row) if row.serves(version) => {}
            _ => return self.close_unsupported(now, request, out),
        }
        match request.header.api_key {
            ApiKey::PRODUCE => self.on_produce(now, request, out),
            ApiKey::FETCH => self.on_fetch(now, request, out),
            ApiKey::API_VERSIONS => self.on_api_versions(now, request, out),
            ApiKey::FIND_COORDINATOR => self.on_find_coordinator(now, request, out),
            ApiKey::METADATA => self.on_metadata(now, request, out),
            ApiKey::LIST_OFFSETS => self.on_list_offsets(now, request, out),
            ApiKey::OFFSET_FOR_LEADER_EPOCH => self.on_offset_for_leader_epoch(now, request, out),
            ApiKey::INIT_PRODUCER_ID => self.on_init_producer_id(now, request, out),
            ApiKey::CREATE_TOPICS => self.on_create_topics(now, request, out),
            ApiKey::DELETE_TOPICS => self.on_delete_topics(now, request, out),
            ApiKey::CREATE_PARTITIONS => self.on_create_partitions(now, request, out),
            ApiKey::DELETE_RECORDS => self.on_delete_records(now, request, out),
            ApiKey::DESCRIBE_CONFIGS => self.on_describe_configs(now, request, out),
            ApiKey::INCREMENTAL_ALTER_CONFIGS => self.on_incremental_alter_configs(now, request, out),
            ApiKey::DESCRIBE_CLUSTER => self.on_describe_cluster(now, request, out),
            ApiKey::DESCRIBE_TOPIC_PARTITIONS => self.on_describe_topic_partitions(now, request, out),
            ApiKey::DESCRIBE_LOG_DIRS => self.on_describe_log_dirs(now, request, out),
            ApiKey::DESCRIBE_PRODUCERS => self.on_describe_producers(now, request, out),
            other => panic!("{other:?} is in the API table and has no handler"),
        }
    }

    /// Reads a request's body; on a fault the connection closes and there is nothing more to do.
    pub(super) fn read<'a, M: Message<'a>>(&mut self, now: Now, request: &Request<'a>, out: &mut Actions) -> Option<M> {
        match M::decode(request.header.api_version, &mut Reader::new(request.body)) {
            Ok(message) => Some(message),
            Err(fault) => {
                self.close_unreadable(now, request, &fault, out);
                None
            }
        }
    }

    /// Answers a request with a whole message at once.
    pub(super) fn reply<'a>(&mut self, request: &Request<'_>, message: &impl Message<'a>, out: &mut Actions) {
        self.reply_to(Reply::of(request), message, out);
    }

    /// Answers a request that was kept for later.
    pub(super) fn reply_to<'a>(&mut self, reply: Reply, message: &impl Message<'a>, out: &mut Actions) {
        let mut head = self.begin_answer(&reply);
        let error = message.encode_telling_error(reply.version, &mut head);
        let rest = self.buffers.parts();
        self.metrics.request(reply.api, error);
        self.answer(reply.conn, reply.ticket, head, rest, out);
    }

    /// The beginning of an answer: room for the length, and the header.
    pub(super) fn begin_answer(&mut self, reply: &Reply) -> Vec<u8> {
        let mut head = self.buffers.bytes();
        head.extend_from_slice(&[0; 4]);
        frame::write_response_header(reply.api, reply.version, reply.correlation, &mut head);
        head
    }

    /// The body is no such message.
    pub(super) fn close_unreadable(&mut self, now: Now, request: &Request<'_>, fault: &DecodeError, out: &mut Actions) {
        self.log_fault(now, request, &format_args!("unreadable request: {fault}"));
        self.close(request.conn, Linger::Graceful, out);
    }

    fn close_unsupported(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        self.log_fault(now, request, &"this API or version is not served");
        self.close(request.conn, Linger::Graceful, out);
    }

    fn log_fault(&mut self, now: Now, request: &Request<'_>, reason: &dyn std::fmt::Display) {
        self.metrics.count.connections_closed_for_fault += 1;
        let Some(connection) = self.connections.at(request.conn) else { return };
        if self.pressure.may_log(now.mono) {
            let RequestHeader { api_key, api_version, client_id, .. } = request.header;
            let client = client_id.unwrap_or("");
            tracing::warn!(peer = %connection.peer, client, api = %api_key, api_version, %reason, "connection closed");
        } else {
            self.metrics.count.log_lines_suppressed += 1;
        }
    }
}

/// What the answer to a request needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The connection.
    pub conn: ConnId,
    /// The ticket its connection knows it by.
    pub ticket: Ticket,
    /// The API.
    pub api: ApiKey,
    /// The version it was asked in.
    pub version: i16,
    /// Correlation id.
    pub correlation: i32,
}

impl Reply {
    /// The answer to this request.
    pub fn of(request: &Request<'_>) -> Reply {
        let RequestHeader { api_key, api_version, correlation_id, .. } = request.header;
        Reply {
            conn: request.conn,
            ticket: request.ticket,
            api: api_key,
            version: api_version,
            correlation: correlation_id,
        }
    }
}
