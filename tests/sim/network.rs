//! Connections between clients and cores: bytes arrive late and in pieces, and either side may end it at any time.

use std::collections::{BTreeMap, VecDeque};

use pinion::ids::ConnId;
use pinion::shard::action::RecvInto;

/// One connection.
#[derive(Debug)]
pub struct Conn {
    pub client: usize,
    /// Bytes from the client that no receive has taken.
    pub incoming: VecDeque<u8>,
    /// The client has hung up.
    pub client_gone: bool,
    /// The core has asked for the end.
    pub closing: bool,
    /// The receive that is outstanding.
    pub recv: Option<RecvInto>,
    /// Its completion is on its way.
    pub recv_due: bool,
    /// A send is outstanding.
    pub sending: bool,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Network {
    conns: BTreeMap<(usize, ConnId), Conn>,
    turns: BTreeMap<(usize, u32), u32>,
}

impl Network {
    /// A client connects to a core.
    pub fn connect(&mut self, core: usize, client: usize) -> ConnId {
        let used = |slot: u32| self.conns.keys().any(|(of, id)| *of == core && id.slot == slot);
        let slot = (0..).find(|slot| !used(*slot)).expect("slots do not end");
        let turn = self.turns.entry((core, slot)).or_default();
        *turn += 1;
        let id = ConnId { slot, turn: *turn };
        let conn = Conn {
            client,
            incoming: VecDeque::new(),
            client_gone: false,
            closing: false,
            recv: None,
            recv_due: false,
            sending: false,
        };
        self.conns.insert((core, id), conn);
        id
    }

    /// A connection.
    pub fn at(&mut self, core: usize, id: ConnId) -> &mut Conn {
        self.conns.get_mut(&(core, id)).unwrap_or_else(|| panic!("core {core} names {id:?}, which is not there"))
    }

    /// The same, if it is still there.
    pub fn find(&mut self, core: usize, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(&(core, id))
    }

    /// Receives of a core that have bytes and wait for a small block.
    pub fn waiting_for_blocks(&self, core: usize) -> Vec<ConnId> {
        let waits = |conn: &Conn| !conn.recv_due && conn.recv.is_some() && !conn.incoming.is_empty();
        self.conns.iter().filter(|((of, _), conn)| *of == core && waits(conn)).map(|((_, id), _)| *id).collect()
    }

    /// The connection is over on both sides; returns whose it was.
    pub fn remove(&mut self, core: usize, id: ConnId) -> Conn {
        self.conns.remove(&(core, id)).expect("a connection ends once")
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// The node is gone.
    pub fn clear(&mut self) {
        self.conns.clear();
    }
}
