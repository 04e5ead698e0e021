//! What happens beside the cores: clients take steps, the node crashes and comes back, answers are held against the disk.

use pinion::ids::*;
use pinion::shard::action::{FileKind, PartitionFile};

use crate::cluster::{Due, Happening, Seat, World};
use crate::disk::Crash;
use crate::node;
use crate::restart;
use crate::workload::{Client, Step};

impl World<'_> {
    /// A client joins.
    pub fn join(&mut self, client: Client) {
        self.seats.push(Seat { client, conn: None });
        let delay = self.rng.below(2_000);
        self.schedule(delay, Happening::Client(self.seats.len() - 1));
    }

    /// A client connects, hangs up, or asks for something.
    pub fn client_step(&mut self, index: usize) {
        let pause = self.rng.delay(400);
        self.schedule(pause, Happening::Client(index));
        if self.node.is_none() {
            return;
        }
        let goes_on = self.busy || self.seats[index].client.must_go_on();
        match self.seats[index].conn {
            None if goes_on => self.connect(index),
            None => {}
            Some(_) if self.busy && self.rng.chance(self.seats[index].client.drops) => self.hang_up(index),
            Some(conn) => {
                let bytes = self.with_client(index, |client, step, busy| client.next(step, busy));
                self.send(conn, &bytes);
            }
        }
    }

    fn with_client<T>(&mut self, index: usize, run: impl FnOnce(&mut Client, &mut Step<'_>, bool) -> T) -> T {
        let mut step = Step { rng: &mut self.rng, history: &mut self.history, plan: &self.plan, acks: &mut self.acks };
        run(&mut self.seats[index].client, &mut step, self.busy)
    }

    fn connect(&mut self, index: usize) {
        let core = self.rng.below(u64::from(self.plan.cores)) as usize;
        let conn = self.network.connect(core, index);
        self.trace.note(self.now, format_args!("client {index} connects: core {core} {conn:?}"));
        self.seats[index].conn = Some((core, conn));
        self.schedule(1, Happening::Core(core, Due::Accepted { conn }));
        let bytes = self.with_client(index, |client, step, _| client.connected(step));
        self.send((core, conn), &bytes);
    }

    fn send(&mut self, (core, conn): (usize, ConnId), bytes: &[u8]) {
        let Some(state) = self.network.find(core, conn) else { return };
        state.incoming.extend(bytes);
        self.schedule_receive(core, conn);
    }

    /// The client goes, perhaps in the middle of what it was sending.
    fn hang_up(&mut self, index: usize) {
        let Some((core, conn)) = self.seats[index].conn.take() else { return };
        self.trace.note(self.now, format_args!("client {index} hangs up"));
        self.seats[index].client.disconnected();
        let cut = self.rng.chance(500);
        let state = self.network.at(core, conn);
        state.client_gone = true;
        if cut {
            let left = self.rng.below(state.incoming.len() as u64 + 1) as usize;
            state.incoming.truncate(left);
        }
        self.schedule_receive(core, conn);
    }

    /// All clients go.
    pub fn hang_up_all(&mut self) {
        (0..self.seats.len()).for_each(|index| self.hang_up(index));
    }

    /// Bytes reach a client.
    pub fn deliver(&mut self, core: usize, conn: ConnId, client: usize, bytes: &[u8]) {
        if self.seats[client].conn != Some((core, conn)) {
            return;
        }
        if !self.with_client(client, |client, step, _| client.receive(step, bytes)) {
            self.hang_up(client);
        }
    }

    /// The broker has closed a client's connection.
    pub fn lost(&mut self, client: usize, core: usize, conn: ConnId) {
        if self.seats[client].conn == Some((core, conn)) {
            self.trace.note(self.now, format_args!("client {client} is disconnected"));
            self.seats[client].conn = None;
            self.seats[client].client.disconnected();
        }
    }

    /// The node ends, and starts again on what is left.
    pub fn crash(&mut self, crash: Crash) {
        let epoch = self.node.as_ref().expect("it runs").epoch;
        self.trace.note(self.now, format_args!("crash: {crash:?}"));
        self.tear(crash);
        self.start(epoch + 1);
    }

    /// Everything in flight is torn; the disk keeps what it must, and perhaps more.
    fn tear(&mut self, crash: Crash) {
        for what in self.take_core_events() {
            let Happening::Core(core, due) = what else { continue };
            match due {
                Due::Written { file, at, block, before, .. } => {
                    let bytes = self.late_bytes(&block, &before);
                    self.disk.write_half(file, at, &bytes, &mut self.rng);
                }
                Due::Job { what, .. } => self.disk.run_half(CoreId(core as u16), &what, &mut self.rng),
                _ => {}
            }
        }
        self.node = None;
        self.network.clear();
        self.disk.crash(crash, &mut self.rng);
        for seat in &mut self.seats {
            seat.conn = None;
            seat.client.disconnected();
        }
    }

    /// An acknowledged or read batch is on the device whatever happens next, unless its segment was let go.
    pub fn check_disk_has_acks(&mut self) {
        for (partition, offset) in std::mem::take(&mut self.acks) {
            if !self.check_acks || offset < self.history.start_max(partition) {
                continue;
            }
            let dir = node::dir_of(&self.plan, partition);
            let logs = self.disk.files(&dir).into_iter().filter_map(|(kind, _)| match kind {
                FileKind::Log(base) if base.0 <= offset => Some(base),
                _ => None,
            });
            let base = logs.max().unwrap_or_else(|| panic!("no file holds offset {offset} of partition {partition}"));
            let path = PartitionFile { dir, kind: FileKind::Log(base) };
            let durable = self.disk.durable(&path).expect("listed");
            let held = restart::holds(base, durable, offset);
            assert!(held, "offset {offset} of partition {partition} was promised and is not on the device");
        }
    }
}
