//! Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and answers name
//! only what changed.
//!
//! A session belongs to the core that serves its connection. Its partitions are served in an order of their own: one
//! that returned records goes to the end, so that none starves behind a busy one (KAFKA-12330).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{MonoMicros, PartitionIndex, TopicId};
use crate::kafka::error_code::ErrorCode;
use crate::shard::dispatch::Reply;
use crate::shard::fetch::{Fetch, Wanted};
use crate::shard::message::FetchOutcome;
use crate::shard::session_parts::{SessionPart, SessionParts};

/// A fetch request as the broker serves it: the session is applied.
#[derive(Debug)]
pub struct WireFetch {
    /// Where the answer goes.
    pub reply: Reply,
    /// Its session and what is to be read, in order.
    pub fetch: Box<Fetch>,
    /// Longest wait.
    pub max_wait_ms: i32,
    /// Bytes that end the wait.
    pub bytes_min: u32,
    /// Most bytes.
    pub bytes_max: u32,
}

/// A request's place in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRef {
    /// The session.
    pub id: i32,
    /// The epoch that the next request of the session will carry; another one came in between when it differs.
    pub next_epoch: i32,
    /// Whether the answer names only what changed.
    pub incremental: bool,
}

/// How a request names a partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Name of the topic; empty in requests by id.
    pub topic: Arc<str>,
    /// Id of the topic; none in requests by name.
    pub topic_id: TopicId,
    /// Which partition.
    pub index: PartitionIndex,
}

/// What a request says of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Session id, 0 without one.
    pub id: i32,
    /// Session epoch: 0 opens one, −1 wants none, above 0 goes on with it.
    pub epoch: i32,
    /// Whether the request names topics by id.
    pub by_id: bool,
}

/// How a request is served.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// Only what it names.
    Sessionless,
    /// In this session; what it names was taken over.
    Session(SessionRef),
    /// Not at all: the client starts again with a full fetch.
    Refused(ErrorCode),
}

#[derive(Debug)]
struct Session {
    next_epoch: i32,
    by_id: bool,
    parts: SessionParts,
    created: MonoMicros,
    used: MonoMicros,
}

/// The sessions of a core.
#[derive(Debug)]
pub struct FetchSessions {
    sessions: BTreeMap<i32, Session>,
    count_max: usize,
    seed: u64,
}

/// A session that was not used for this long may make room for another one.
const EVICTABLE_AFTER_US: u64 = 120_000_000;

impl FetchSessions {
    /// No sessions, and room for `count_max`. Ids come from `seed`.
    pub fn new(count_max: u32, seed: u64) -> FetchSessions {
        FetchSessions { sessions: BTreeMap::new(), count_max: count_max as usize, seed: seed | 1 }
    }

    /// Takes a request's partitions (`named`) and the ones it forgets into its session.
    pub fn open(&mut self, now: MonoMicros, opening: Opening, named: &[(Key, Wanted)], forgotten: &[Key]) -> Opened {
        match opening.epoch {
            -1 => {
                self.sessions.remove(&opening.id);
                Opened::Sessionless
            }
            0 => {
                self.sessions.remove(&opening.id);
                self.create(now, opening, named)
            }
            _ => self.go_on(now, opening, named, forgotten),
        }
    }

    /// The partitions of a session in the order in which they are served.
    pub fn parts(&self, session: SessionRef) -> impl Iterator<Item = (&Key, Wanted)> {
        let parts = self.sessions.get(&session.id).into_iter().flat_map(|session| session.parts.iter());
        parts.map(|part| (&part.key, part.wanted))
    }

    /// Checks that no other request of the session came in between, notes what its answer tells, and takes out of
    /// `fetch` what an incremental answer need not say.
    ///
    /// # Errors
    /// The code for the whole answer when the session has moved on.
    pub fn conclude(&mut self, fetch: &mut Fetch) -> Result<(), ErrorCode> {
        let Some(opened) = fetch.session else { return Ok(()) };
        let session = self.sessions.get_mut(&opened.id).filter(|session| session.next_epoch == opened.next_epoch);
        let Some(session) = session else { return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH) };
        fetch.parts.retain_mut(|part| {
            let key = Key { topic: part.topic.clone(), topic_id: part.topic_id, index: part.index };
            let outcome = part.outcome.as_ref().expect("a fetch is answered when all its partitions are");
            session.tell(&key, outcome) || !opened.incremental
        });
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn create(&mut self, now: MonoMicros, opening: Opening, named: &[(Key, Wanted)]) -> Opened {
        if named.is_empty() || !self.make_room(now, named.len()) {
            return Opened::Sessionless;
        }
        let id = self.new_id();
        let mut session =
            Session { next_epoch: 1, by_id: opening.by_id, parts: SessionParts::default(), created: now, used: now };
        named.iter().for_each(|(key, wanted)| session.take(key, *wanted));
        self.sessions.insert(id, session);
        Opened::Session(SessionRef { id, next_epoch: 1, incremental: false })
    }

    fn go_on(&mut self, now: MonoMicros, opening: Opening, named: &[(Key, Wanted)], forgotten: &[Key]) -> Opened {
        let Some(session) = self.sessions.get_mut(&opening.id) else {
            return Opened::Refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        if session.next_epoch != opening.epoch {
            return Opened::Refused(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_id != opening.by_id {
            return Opened::Refused(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.used = now;
        named.iter().for_each(|(key, wanted)| session.take(key, *wanted));
        forgotten.iter().for_each(|key| session.parts.remove(key));
        if session.parts.is_empty() {
            self.sessions.remove(&opening.id);
            return Opened::Sessionless;
        }
        session.next_epoch = if opening.epoch == i32::MAX { 1 } else { opening.epoch + 1 };
        Opened::Session(SessionRef { id: opening.id, next_epoch: session.next_epoch, incremental: true })
    }

    /// Makes room for one more: an unused one goes, or a smaller one that is not young.
    fn make_room(&mut self, now: MonoMicros, parts: usize) -> bool {
        if self.sessions.len() < self.count_max {
            return true;
        }
        let old = |since: MonoMicros| now.micros_since(since) > EVICTABLE_AFTER_US;
        let unused = self.sessions.iter().find(|(_, session)| old(session.used));
        let smaller = self.sessions.iter().find(|(_, s)| s.parts.len() < parts && old(s.created));
        let Some(id) = unused.or(smaller).map(|(id, _)| *id) else { return false };
        self.sessions.remove(&id);
        true
    }

    /// A positive id that is not in use, by xorshift.
    fn new_id(&mut self) -> i32 {
        loop {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            let id = (self.seed >> 33) as i32;
            if id > 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

impl Session {
    /// Adds a partition, or replaces what is wanted of it.
    fn take(&mut self, key: &Key, wanted: Wanted) {
        match self.parts.at(key) {
            Some(part) => part.wanted = wanted,
            None => self.parts.push(SessionPart { key: key.clone(), wanted, told: None }),
        }
    }

    /// Notes what the client is told of a partition; returns whether it is anything new.
    fn tell(&mut self, key: &Key, outcome: &FetchOutcome) -> bool {
        let Some(part) = self.parts.at(key) else { return true };
        let now = (outcome.error == ErrorCode::NONE).then_some((outcome.high_watermark, outcome.log_start));
        let new = now.is_none() || part.told != now || outcome.bytes > 0 || outcome.diverging.is_some();
        part.told = now;
        if outcome.bytes > 0 {
            self.parts.move_to_end(key);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LeaderEpoch, Offset, PartitionId};
    use crate::shard::fetch::FetchPart;

    fn key(index: i32) -> Key {
        Key { topic: "t".into(), topic_id: TopicId::NONE, index: PartitionIndex(index) }
    }

    fn wanted(offset: i64) -> Wanted {
        let none = LeaderEpoch(-1);
        Wanted { offset: Offset(offset), bytes_max: 100, current_leader_epoch: none, last_fetched_epoch: none }
    }

    fn named(indexes: &[i32]) -> Vec<(Key, Wanted)> {
        indexes.iter().map(|index| (key(*index), wanted(0))).collect()
    }

    fn opening(id: i32, epoch: i32) -> Opening {
        Opening { id, epoch, by_id: false }
    }

    fn session_of(opened: Opened) -> SessionRef {
        match opened {
            Opened::Session(session) => session,
            other => panic!("no session: {other:?}"),
        }
    }

    fn fetch(session: SessionRef, found: &[(i32, u32, i64)]) -> Fetch {
        let parts = found.iter().map(|(index, bytes, high_watermark)| {
            let key = key(*index);
            let partition = PartitionId { topic: TopicId::NONE, index: key.index };
            let mut part = FetchPart::new((key.topic, key.topic_id), key.index, Ok(partition), wanted(0));
            let high_watermark = Offset(*high_watermark);
            part.outcome = Some(FetchOutcome { bytes: *bytes, high_watermark, ..FetchOutcome::default() });
            part
        });
        {
            let mut fetch = Fetch::default();
            (fetch.session, fetch.parts) = (Some(session), parts.collect());
            fetch
        }
    }

    fn indexes(fetch: &Fetch) -> Vec<i32> {
        fetch.parts.iter().map(|part| part.index.0).collect()
    }

    #[test]
    fn an_incremental_answer_names_only_what_changed() {
        let mut sessions = FetchSessions::new(10, 7);
        let first = session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0, 1]), &[]));
        let mut full = fetch(first, &[(0, 0, 5), (1, 0, 5)]);
        sessions.conclude(&mut full).unwrap();
        assert_eq!(indexes(&full), [0, 1], "a full answer names all");
        let second = session_of(sessions.open(MonoMicros(1), opening(first.id, 1), &[], &[]));
        let mut part = fetch(second, &[(0, 0, 5), (1, 0, 6)]);
        sessions.conclude(&mut part).unwrap();
        assert_eq!(indexes(&part), [1], "only 1's high watermark moved");
    }

    #[test]
    fn a_partition_that_returned_records_goes_to_the_end() {
        let mut sessions = FetchSessions::new(10, 7);
        let first = session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0, 1, 2]), &[]));
        sessions.conclude(&mut fetch(first, &[(0, 9, 5), (1, 0, 6), (2, 0, 0)])).unwrap();
        let order: Vec<i32> = sessions.parts(first).map(|(key, _)| key.index.0).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn forgotten_partitions_leave_and_an_empty_session_ends() {
        let mut sessions = FetchSessions::new(10, 7);
        let first = session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0, 1]), &[]));
        let second = session_of(sessions.open(MonoMicros(0), opening(first.id, 1), &[], &[key(0)]));
        assert_eq!(sessions.parts(second).count(), 1);
        assert_eq!(sessions.open(MonoMicros(0), opening(first.id, 2), &[], &[key(1)]), Opened::Sessionless);
        assert!(sessions.is_empty());
    }

    #[test]
    fn unknown_ids_and_wrong_epochs_send_the_client_back_to_a_full_fetch() {
        let mut sessions = FetchSessions::new(10, 7);
        let first = session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0]), &[]));
        let refused = |opened| matches!(opened, Opened::Refused(_));
        assert!(refused(sessions.open(MonoMicros(0), opening(first.id + 1, 1), &[], &[])));
        assert!(refused(sessions.open(MonoMicros(0), opening(first.id, 2), &[], &[])));
        let by_id = Opening { id: first.id, epoch: 1, by_id: true };
        assert_eq!(
            sessions.open(MonoMicros(0), by_id, &[], &[]),
            Opened::Refused(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)
        );
    }

    #[test]
    fn a_request_that_slipped_in_between_fails_the_older_answer() {
        let mut sessions = FetchSessions::new(10, 7);
        let first = session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0]), &[]));
        sessions.open(MonoMicros(0), opening(first.id, 1), &[], &[]);
        let error = sessions.conclude(&mut fetch(first, &[(0, 0, 0)]));
        assert_eq!(error, Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    }

    #[test]
    fn a_full_cache_serves_without_a_session_until_an_old_one_may_go() {
        let mut sessions = FetchSessions::new(1, 7);
        session_of(sessions.open(MonoMicros(0), opening(0, 0), &named(&[0]), &[]));
        assert_eq!(sessions.open(MonoMicros(1), opening(0, 0), &named(&[1]), &[]), Opened::Sessionless);
        let later = MonoMicros(EVICTABLE_AFTER_US + 1);
        session_of(sessions.open(later, opening(0, 0), &named(&[1]), &[]));
        assert_eq!(sessions.len(), 1);
    }
}
