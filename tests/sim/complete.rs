//! Completions: the moment at which the device or the peer reads what an action named, as late as it may.

use std::fmt;

use pinion::ids::*;
use pinion::log::appender::TailWrites;
use pinion::shard::action::{Action, FileJob, Parts, RecvInto};
use pinion::shard::event::{Event, Received};
use pinion::shard::message::Message;

use crate::cluster::{Due, World};
use crate::disk::Open;
use crate::trace::hash;

/// A file that is named is closed.
const EBADF: Errno = Errno(9);

impl World<'_> {
    /// What a due completion means for its core; `None` when it must wait, or is about nothing any more.
    pub fn complete(&mut self, core: usize, due: Due) -> Option<Event> {
        Some(match due {
            Due::Accepted { conn } => {
                let peer = "127.0.0.1:5000".parse().expect("an address");
                Event::Accepted { conn, peer, crowd: None, from_address: None }
            }
            Due::Receive { conn } => return self.receive(core, conn),
            Due::Sent { conn, parts, files, before } => self.sent(core, conn, parts, files, before),
            Due::Closed { conn } => return self.closed(core, conn),
            Due::Written { write, file, at, block, before, sync, error } => {
                let bytes = self.late_bytes(&block, &before);
                self.write_done(file, at);
                match error {
                    None => self.disk.write(file, at, bytes, sync),
                    Some(_) => self.disk.write_half(file, at, &bytes, &mut self.rng),
                }
                Event::Written { write, block, result: error.map_or(Ok(()), Err) }
            }
            Due::Flushed { flush, upto, error } => {
                if error.is_none() {
                    self.disk.flush(upto);
                }
                Event::Flushed { flush, result: error.map_or(Ok(()), Err) }
            }
            Due::Read { read, range, open, mut into, error } => {
                let Some(open) = open else { return Some(Event::Read { read, into, result: Err(EBADF) }) };
                let bytes = self.disk.read(open, range);
                self.memory().fill(&mut into, 0, &bytes);
                Event::Read { read, into, result: error.map_or(Ok(bytes.len() as u32), Err) }
            }
            Due::Probe { probe, range } => Event::Resident { probe, missing: self.disk.missing(range) },
            Due::Job { job, what, error } => {
                let result = match error {
                    Some(errno) => {
                        self.disk.run_in_vain(CoreId(core as u16), &what, &mut self.rng);
                        Err(errno)
                    }
                    None => self.disk.run(CoreId(core as u16), &what),
                };
                Event::File { job, result }
            }
            Due::Mail { from, message } => Event::Mail { from, message },
            Due::Timer => return self.timer(core),
        })
    }

    fn timer(&mut self, core: usize) -> Option<Event> {
        let now = self.now;
        let state = &mut self.node.as_mut().expect("it runs").cores[core];
        if state.timer_at.is_some_and(|at| at <= now) {
            state.timer_at = None;
        }
        state.shard.deadline().filter(|due| due.0 <= now).map(|_| Event::Deadline)
    }

    fn memory(&self) -> std::sync::Arc<pinion::arena::Regions> {
        self.node.as_ref().expect("it runs").memory.clone()
    }

    /// The bytes of a write as the device reads them: those that were data at its submission may not have changed, and
    /// where tail blocks are copied none.
    pub fn late_bytes(&mut self, block: &pinion::arena::Lease, before: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; block.len() as usize];
        self.memory().copy_out(block, 0, &mut bytes);
        let data = match self.plan.tail_writes {
            TailWrites::Shared => before.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
            TailWrites::Copied => before.len(),
        };
        assert!(bytes[..data] == before[..data], "bytes of {block:?} changed while the device had them");
        bytes
    }

    fn receive(&mut self, core: usize, conn: ConnId) -> Option<Event> {
        let state = self.network.find(core, conn)?;
        state.recv_due = false;
        let into = state.recv.take()?;
        if state.closing || (state.incoming.is_empty() && state.client_gone) {
            let window = if let RecvInto::Window { lease, .. } = into { Some(lease) } else { None };
            return Some(Event::Hangup { conn, window, error: self.rng.chance(300).then_some(Errno(104)) });
        }
        if state.incoming.is_empty() {
            state.recv = Some(into);
            return None;
        }
        let most = state.incoming.len() as u64;
        let some = if self.rng.chance(250) { self.rng.range(1, most + 1) } else { most };
        match into {
            RecvInto::Small => {
                let small = &mut self.node.as_mut().expect("it runs").cores[core].small;
                let Some(mut lease) = small.pop_front() else {
                    state.recv = Some(RecvInto::Small);
                    return None;
                };
                let len = some.min(u64::from(lease.len())) as usize;
                let bytes: Vec<u8> = state.incoming.drain(..len).collect();
                self.memory().fill(&mut lease, 0, &bytes);
                Some(Event::Received { conn, bytes: Received::Small { lease, len: len as u32 } })
            }
            RecvInto::Window { mut lease, from } => {
                let len = some.min(u64::from(lease.len() - from)) as usize;
                let bytes: Vec<u8> = state.incoming.drain(..len).collect();
                self.memory().fill(&mut lease, from, &bytes);
                Some(Event::Received { conn, bytes: Received::Window { lease, len: len as u32 } })
            }
        }
    }

    fn sent(&mut self, core: usize, conn: ConnId, parts: Parts, files: Option<Vec<Open>>, before: u64) -> Event {
        let Some(files) = files else {
            self.network.at(core, conn).sending = false;
            return Event::Sent { conn, parts, result: Err(EBADF) };
        };
        let bytes = self.bytes_of(&parts, &files);
        assert_eq!(hash(0, &bytes), before, "an answer on {conn:?} changed while it was being sent");
        let state = self.network.at(core, conn);
        state.sending = false;
        let (gone, client) = (state.client_gone, state.client);
        if gone {
            return Event::Sent { conn, parts, result: Err(Errno(32)) };
        }
        self.deliver(core, conn, client, &bytes);
        Event::Sent { conn, parts, result: Ok(()) }
    }

    fn closed(&mut self, core: usize, conn: ConnId) -> Option<Event> {
        let state = self.network.at(core, conn);
        if state.sending || state.recv.is_some() {
            self.schedule(100, crate::cluster::Happening::Core(core, Due::Closed { conn }));
            return None;
        }
        let state = self.network.remove(core, conn);
        self.lost(state.client, core, conn);
        Some(Event::Closed { conn })
    }
}

/// One line about an event.
pub struct Brief<'a>(pub &'a Event);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Received { conn, bytes } => match bytes {
                Received::Small { len, .. } => write!(f, "received {conn:?} {len} small"),
                Received::Window { len, .. } => write!(f, "received {conn:?} {len} in its window"),
            },
            Event::Sent { conn, result, .. } => write!(f, "sent {conn:?} {result:?}"),
            Event::Written { write, result, .. } => write!(f, "written {write} {result:?}"),
            Event::Read { read, result, .. } => write!(f, "read {read} {result:?}"),
            Event::File { job, result: Ok(_) } => write!(f, "job {job} done"),
            Event::Mail { from, message } => write!(f, "mail from {from:?}: {}", BriefMessage(message)),
            other => write!(f, "{other:?}"),
        }
    }
}

/// One line about an action.
pub struct BriefAction<'a>(pub &'a Action);

impl fmt::Display for BriefAction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Action::Send { conn, parts } => {
                let bytes: u64 = parts.iter().map(pinion::shard::action::Part::len).sum();
                write!(f, "send {conn:?} {bytes} bytes in {} parts", parts.len())
            }
            Action::Write { write, file, at, block, sync } => {
                write!(f, "write {write} {} bytes of {file:?} at {at} from {} sync={sync}", block.len(), block.at())
            }
            Action::Read { read, range, .. } => write!(f, "read {read} {range:?}"),
            Action::File { job, what } => write!(f, "job {job}: {}", BriefJob(what)),
            Action::Mail { to, message } => write!(f, "mail to {to:?}: {}", BriefMessage(message)),
            other => write!(f, "{other:?}"),
        }
    }
}

struct BriefJob<'a>(&'a FileJob);

impl fmt::Display for BriefJob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FileJob::Replace { path, contents } => write!(f, "replace {path:?} by {} bytes", contents.len()),
            FileJob::AppendIndex { path, at, contents } => write!(f, "append {} to {path:?} at {at}", contents.len()),
            FileJob::Checkpoint { at, contents, .. } => write!(f, "checkpoint of {} bytes at {at}", contents.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

struct BriefMessage<'a>(&'a Message);

impl fmt::Display for BriefMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Message::View(_) => f.write_str("view"),
            Message::Host(partitions) => write!(f, "host {} partitions", partitions.len()),
            Message::Fetched { origin, outcome } => {
                write!(f, "fetched {origin:?} {:?} {} bytes", outcome.error, outcome.bytes)
            }
            other => write!(f, "{other:?}"),
        }
    }
}
