//! Pinion: a Kafka-wire-compatible broker for dedicated Linux hosts with NVMe.
//!
//! One thread per core owns its connections, partitions, memory and io_uring ring. All decisions are made in functions
//! of (state, event, now); what they want done leaves as data, and only a thin shell around them makes system calls.
//!
//! # Code map
//!
//! Read in this order. A produce goes down the first list and comes back up as events; nothing calls sideways.
//!
//! - `shard/`: a data core. `mod.rs` is the conductor: `handle(now, event, actions)`, one match, one line per arm. Beside
//!   it: connections, produce, fetch, partition (log and replica together) and the mailbox messages between threads.
//! - `kafka/`: the wire, bytes ↔ views. `schema/` declares every message once; frame, batch and the API table build on it;
//!   `error_code.rs` is the only map from outcomes to wire codes.
//! - `log/`: the log of a partition as arithmetic and plans: offsets, appender, segments, indexes, epochs, checkpoint,
//!   recovery, retention, producer state, topic settings.
//! - `replica/`: what a partition may promise: acks, high watermark, progress of followers.
//! - `control/`: the control core: commands become records of the metadata log, records become the image that every core
//!   answers from.
//! - `arena`: the tail memory of a core: chunks, size-classed blocks, counted leases.
//! - `io/`: the only system calls: rings, the slab of operations in flight, files, sockets, sendfile, clock, pinning.
//! - `runtime/`: the production loops (data, control, background, HTTP). The only place that knows both `io/` and the
//!   decisions.
//! - `cli/`: one file per subcommand. `main.rs` is the table of contents of a start.
//! - `config`: settings as typed → settings checked once and passed as values. `limits`: what nobody may change.
//!   `ids`: a type for every id, offset, epoch and position. `fatal`: endings for the operator, one exit status per reason.
//!   `metrics`: counters and stage histograms of a core. `quiet`: how often a peer may write into the log.
//!   `spelling`: the name that a mistyped one was meant to be.
//!
//! # Invariants
//!
//! Most of them say what is absent, which no code can show. `tests/tidy.rs` enforces those that a scan can see.
//!
//! - `shard/`, `log/`, `replica/`, `kafka/` and `control/` import neither `io/` nor `runtime/` and read no clock, random
//!   number, environment or hash order. Equal (state, event, now) give equal actions.
//! - Only `io/` and `arena.rs` contain `unsafe`. A buffer that the kernel may touch is owned by the slab until its last
//!   completion.
//! - Bytes from a peer or a file are parsed into types; what is wrong with them is a value. Assertions check ourselves
//!   and stay on in release.
//! - Only `kafka/error_code.rs` names wire codes in replies.
//! - *stable* is the end of the contiguous prefix of completed writes; a completion of an older generation moves nothing.
//! - An ack leaves only through `replica/acks.rs`, and a promise of durability only after the covering `Written` event.
//! - Bytes below *end* never change in memory; a started response keeps its leases or its connection is reset.
//! - ISR and leadership change only through committed controller records.
//! - Data cores never block on the control core. Everything has a limit set at start; full means that sockets are not read.
//! - No `.await` outside `runtime/control.rs`, the HTTP thread and `cli/`.
//! - `src/` never mentions the simulator: it replaces `runtime/` and `io/` and nothing else.

pub mod arena;
pub mod cli;
pub mod config;
pub mod control;
pub mod fatal;
pub mod ids;
pub mod io;
pub mod kafka;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod quiet;
pub mod replica;
pub mod runtime;
pub mod shard;
pub mod spelling;
