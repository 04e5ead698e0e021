//! Recovery on a directory in memory: transcripts, and properties over random logs and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::str::FromStr;

use goldenscript::{ArgumentConsumer, Command, Context};
use proptest::prelude::*;

use super::*;
use crate::ids::{PartitionId, ProducerEpoch, ProducerId};
use crate::kafka::batch::BatchView;
use crate::kafka::batch_builder::BatchBuilder;
use crate::limits::BLOCK;
use crate::log::epochs::LeaderEpochs;
use crate::log::index::{BatchSpan, SegmentIndex};
use crate::log::producer_snapshot;

const EIO: Errno = Errno(5);
const EOPNOTSUPP: Errno = Errno(95);

fn name(kind: FileKind) -> String {
    match kind {
        FileKind::Log(base) => format!("{base:020}.log"),
        FileKind::Index(base) => format!("{base:020}.index"),
        FileKind::TimeIndex(base) => format!("{base:020}.timeindex"),
        FileKind::Snapshot(offset) => format!("{offset:020}.snapshot"),
        FileKind::LeaderEpochs => "leader-epoch-checkpoint".to_owned(),
        FileKind::Metadata => "partition.metadata".to_owned(),
    }
}

/// A partition's directory in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Directory {
    files: BTreeMap<String, Vec<u8>>,
    /// Blocks of logs that cannot be read.
    bad: BTreeSet<(String, u64)>,
    /// Whether the file system has no unwritten extents.
    no_unwritten: bool,
}

impl Directory {
    fn file(&mut self, kind: FileKind) -> &mut Vec<u8> {
        self.files.entry(name(kind)).or_default()
    }

    fn listing(&self) -> Vec<FoundFile> {
        let found = |(name, bytes): (&String, &Vec<u8>)| FoundFile {
            name: name.clone(),
            len: bytes.len() as u64,
            modified_ms: 1000,
        };
        self.files.iter().map(found).collect()
    }

    /// Overwrites from `at` on, lengthening the file where needed.
    fn write(&mut self, kind: FileKind, at: u64, bytes: &[u8]) {
        let file = self.file(kind);
        let end = at as usize + bytes.len();
        file.resize(file.len().max(end), 0);
        file[at as usize..end].copy_from_slice(bytes);
    }

    fn read(&self, kind: FileKind, at: u64, len: u64) -> Result<&[u8], Errno> {
        let file = self.files.get(&name(kind)).ok_or(Errno(2))?;
        let end = (at + len).min(file.len() as u64);
        let hit = self.bad.range((name(kind), at)..(name(kind), end)).next();
        hit.map_or(Ok(&file[at.min(end) as usize..end as usize]), |_| Err(EIO))
    }

    fn apply(&mut self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::ZeroTail { base, at, head, to } => {
                assert!(at.0 % BLOCK == 0 && to.0 % BLOCK == 0 && at < to, "{step:?}");
                let mut bytes = head.clone();
                bytes.resize((to.0 - at.0) as usize, 0);
                self.write(FileKind::Log(*base), at.0, &bytes);
            }
            Step::ZeroRange { .. } if self.no_unwritten => return Err(EOPNOTSUPP),
            Step::ZeroRange { base, from, to } => {
                let file = self.file(FileKind::Log(*base));
                assert!(from.0 % BLOCK == 0 && from < to && to.0 == file.len() as u64, "{step:?}");
                file[from.0 as usize..].fill(0);
            }
            Step::Truncate { base, len } => {
                let file = self.file(FileKind::Log(*base));
                assert!(len.0 < file.len() as u64, "{step:?}");
                file.truncate(len.0 as usize);
            }
            Step::Rename { from, to } => {
                let file = self.files.remove(from).ok_or(Errno(2))?;
                self.files.insert(name(*to), file);
            }
            Step::Remove { files, names } => {
                files.iter().for_each(|&kind| _ = self.files.remove(&name(kind)));
                names.iter().for_each(|name| _ = self.files.remove(name));
            }
            Step::WriteFile { file, contents } => _ = self.files.insert(name(*file), contents.clone()),
            Step::Sync => {}
            Step::Read { .. } | Step::Done(_) | Step::Failed(_) => unreachable!("not a change"),
        }
        Ok(())
    }

    /// Runs a recovery to its end; `changes` bounds how many changes it may make before the power goes.
    fn recover(
        &mut self,
        input: RecoveryInput,
        changes: usize,
        trace: &mut String,
    ) -> Option<Result<RecoveredLog, Errno>> {
        let mut recovery = Recovery::new(input);
        let mut changes_left = changes;
        loop {
            match recovery.next() {
                Step::Read { file, at, len } => {
                    let is_log = matches!(file, FileKind::Log(_));
                    assert!(!is_log || at.0 % BLOCK == 0 && len % BLOCK == 0 && 0 < len, "read {len} at {at}");
                    let read = self.read(file, at.0, len);
                    let outcome = read.map_or_else(|errno| errno.to_string(), |bytes| bytes.len().to_string());
                    writeln!(trace, "read {} {at}+{len} = {outcome}", name(file)).expect("a string takes all");
                    recovery.on_read(read);
                }
                Step::Done(log) => return Some(Ok(*log)),
                Step::Failed(errno) => return Some(Err(errno)),
                step => {
                    changes_left = changes_left.checked_sub(1)?;
                    let result = self.apply(&step);
                    writeln!(trace, "{}", describe(&step, result)).expect("a string takes all");
                    recovery.on_done(result);
                }
            }
        }
    }
}

impl Directory {
    /// A recovery that nothing interrupts.
    fn recovered(&mut self, input: RecoveryInput, trace: &mut String) -> Result<RecoveredLog, String> {
        self.recover(input, usize::MAX, trace).expect("the power stays").map_err(|errno| errno.to_string())
    }
}

fn describe(step: &Step, result: Result<(), Errno>) -> String {
    let text = match step {
        Step::ZeroTail { base, at, head, to } => format!("zero {base} at {at}: {} bytes, zeros to {to}", head.len()),
        Step::ZeroRange { base, from, to } => format!("unwritten {base} {from} to {to}"),
        Step::Truncate { base, len } => format!("cut {base} to {len}"),
        Step::Rename { from, to } => format!("rename {from} to {}", name(*to)),
        Step::Remove { files, names } => {
            let files = files.iter().map(|&kind| name(kind)).chain(names.iter().cloned());
            format!("remove {}", files.collect::<Vec<_>>().join(" "))
        }
        Step::WriteFile { file, contents } => format!("write {}, {} bytes", name(*file), contents.len()),
        Step::Sync => "sync".to_owned(),
        other => format!("{other:?}"),
    };
    result.err().map_or(text.clone(), |errno| format!("{text}: {errno}"))
}

/// A log in the making, its directory, and what else a start knows.
#[derive(Clone, Debug, Default)]
struct World {
    directory: Directory,
    segment: Offset,
    next: Offset,
    at: u64,
    epoch: i32,
    checkpoint: Option<Entry>,
}

impl World {
    fn batch(&self, base: Offset, records: usize, size: usize) -> BatchBuilder {
        let value = vec![b'v'; size];
        BatchBuilder::new().appended(base, LeaderEpoch(self.epoch)).values(records, 1000 + base.0, &value)
    }

    fn append(&mut self, batch: BatchBuilder) {
        let bytes = batch.build();
        self.directory.write(FileKind::Log(self.segment), self.at, &bytes);
        self.at += bytes.len() as u64;
        self.next = BatchView::parse(&bytes).expect("just built").next_offset();
    }

    /// Seals the active segment as a running broker does, with its indexes.
    fn roll(&mut self) {
        self.directory.file(FileKind::Log(self.segment)).truncate(self.at as usize);
        self.write_index(true);
        self.segment = self.next;
        self.at = 0;
        self.directory.file(FileKind::Log(self.segment));
    }

    fn write_index(&mut self, seal: bool) {
        let log = self.directory.files[&name(FileKind::Log(self.segment))].clone();
        let mut index = SegmentIndex::new(self.segment, 4096);
        let mut at = 0;
        while let Ok(batch) = BatchView::parse(&log[at..]) {
            index.on_append(&BatchSpan::of(FilePos(at as u64), &batch));
            at += batch.size_bytes();
        }
        if seal {
            index.seal();
        }
        *self.directory.file(FileKind::Index(self.segment)) = index.offsets.as_bytes().to_vec();
        *self.directory.file(FileKind::TimeIndex(self.segment)) = index.times.as_bytes().to_vec();
    }

    fn entry(&self) -> Entry {
        Entry {
            partition: PartitionId::default(),
            stable: self.next,
            segment: self.segment,
            at: FilePos(self.at),
            high_watermark: self.next,
            log_start: Offset(0),
            producers_from: None,
        }
    }

    fn input(&self, last_stop: LastStop) -> RecoveryInput {
        RecoveryInput {
            files: self.directory.listing(),
            checkpoint: self.checkpoint,
            last_stop,
            leader_epoch_max: LeaderEpoch(self.epoch),
            index_interval_bytes: 4096,
            tail_read_bytes_max: 64 * 1024,
            unwritten: UnwrittenExtents::Allowed,
        }
    }
}

fn show(log: &RecoveredLog) -> String {
    let mut out = format!("start={} end={} hw={}\n", log.log_start, log.end, log.high_watermark);
    for s in &log.sealed {
        _ = writeln!(out, "sealed {}: len={} end={} max_timestamp={}", s.base, s.len, s.end, s.max_timestamp);
    }
    if let Some(a) = &log.active {
        _ = writeln!(
            out,
            "active {}: end={} allocated={} {:?} partial={} timestamps={},{}",
            a.base,
            a.end,
            a.allocated,
            a.extents,
            a.partial_block.len(),
            a.first_timestamp,
            a.max_timestamp.0
        );
        let (offsets, times) = (&a.index, &a.time_index);
        if !offsets.is_empty() || !times.is_empty() {
            _ = writeln!(out, "index: {} offsets, {} times", offsets.len(), times.len());
        }
    }
    let epochs: Vec<_> = log.epochs.iter().map(|(epoch, start)| format!("{epoch}@{start}")).collect();
    _ = writeln!(out, "epochs: {}", epochs.join(" "));
    if !log.producers.is_empty() || log.snapshot.is_some() {
        let of = |s: crate::log::producers::ProducerSummary| format!("{}:{}", s.id, s.last_sequence);
        let producers: Vec<_> = log.producers.summaries().into_iter().map(of).collect();
        let (snapshot, uncovered) = (log.snapshot, log.uncovered_from);
        _ = writeln!(out, "producers: {} from snapshot {snapshot:?}, uncovered {uncovered:?}", producers.join(" "));
    }
    if let Some(cut) = log.cut {
        let Cut { segment, at, why, segments_removed } = cut;
        _ = writeln!(out, "cut: {segment} at {at}: {why}; {segments_removed} later segments removed");
    }
    for Cut { segment, at, why, .. } in &log.damaged {
        _ = writeln!(out, "damaged: {segment} at {at}: {why}");
    }
    if !log.unindexed.is_empty() {
        _ = writeln!(out, "unindexed: {:?}", log.unindexed);
    }
    if log.below_checkpoint {
        _ = writeln!(out, "ends below the checkpoint");
    }
    if let Some(errno) = log.suspect {
        _ = writeln!(out, "suspect: {errno}");
    }
    out
}

fn number<T: FromStr<Err: Error + 'static>>(
    args: &mut ArgumentConsumer<'_>,
    key: &str,
    default: T,
) -> Result<T, Box<dyn Error>> {
    args.take_key(key).map_or(Ok(default), |value| Ok(value.parse()?))
}

impl goldenscript::Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let mut out = String::new();
        let segment = Offset(number(&mut args, "segment", self.segment.0)?);
        match command.name.as_str() {
            // append [records=N] [size=BYTES] [epoch=N] [count=N] [producer=ID sequence=N]
            "append" => {
                self.epoch = number(&mut args, "epoch", self.epoch)?;
                let (records, size) = (number(&mut args, "records", 2)?, number(&mut args, "size", 20)?);
                let producer: Option<i64> = args.take_key("producer").map(str::parse).transpose()?;
                let sequence = number(&mut args, "sequence", 0)?;
                for _ in 0..number(&mut args, "count", 1)? {
                    let batch = self.batch(self.next, records, size);
                    self.append(match producer {
                        Some(id) => batch.producer(ProducerId(id), ProducerEpoch(0), sequence),
                        None => batch,
                    });
                }
                writeln!(out, "segment {}: {} bytes, next offset {}", self.segment, self.at, self.next)?;
            }
            // A batch where no appender put it: at=POSITION base=OFFSET
            "put" => {
                let at = number(&mut args, "at", self.at)?;
                let records = number(&mut args, "records", 2)?;
                let epoch = number(&mut args, "epoch", self.epoch)?;
                let base = Offset(number(&mut args, "base", self.next.0)?);
                let mut world = self.clone();
                world.epoch = epoch;
                let bytes = world.batch(base, records, 20).build();
                self.directory.write(FileKind::Log(segment), at, &bytes);
                writeln!(out, "{} bytes at {at}", bytes.len())?;
            }
            "roll" => self.roll(),
            "index" => self.write_index(false),
            // The file gets this length, by a cut or by zeros.
            "length" => {
                let len = args.next_pos().ok_or("how long")?.parse()?;
                self.directory.file(FileKind::Log(segment)).resize(len, 0);
            }
            "flip" => {
                let at: usize = args.next_pos().ok_or("flip where")?.parse()?;
                self.directory.file(FileKind::Log(segment))[at] ^= 1;
            }
            "bad" => {
                let block: u64 = args.next_pos().ok_or("which block")?.parse()?;
                self.directory.bad.insert((name(FileKind::Log(segment)), block * BLOCK));
            }
            "no-unwritten" => self.directory.no_unwritten = true,
            "epochs" => {
                let mut epochs = Vec::new();
                while let Some(entry) = args.next_pos() {
                    let (epoch, start) = entry.split_once('@').ok_or("EPOCH@OFFSET")?;
                    epochs.push((LeaderEpoch(epoch.parse()?), Offset(start.parse()?)));
                }
                let text = LeaderEpochs::recovered(&epochs).encode();
                self.directory.files.insert(name(FileKind::LeaderEpochs), text.into_bytes());
            }
            // What a recovery finds at this moment becomes the snapshot here.
            "snapshot" => {
                let input = self.input(LastStop::Crash);
                let log = self.directory.clone().recovered(input, &mut String::new())?;
                self.directory
                    .files
                    .insert(name(FileKind::Snapshot(log.end)), producer_snapshot::encode(&log.producers));
            }
            // checkpoint [stable=N] [at=N] [start=N] [producers=OFFSET]; what is not given is the present end.
            "checkpoint" => {
                let now = self.entry();
                self.checkpoint = Some(Entry {
                    stable: Offset(number(&mut args, "stable", now.stable.0)?),
                    at: FilePos(number(&mut args, "at", now.at.0)?),
                    high_watermark: Offset(number(&mut args, "hw", now.high_watermark.0)?),
                    log_start: Offset(number(&mut args, "start", 0)?),
                    producers_from: args.take_key("producers").map(str::parse).transpose()?.map(Offset),
                    segment,
                    ..now
                });
            }
            "file" => _ = self.directory.files.insert(args.next_pos().ok_or("which file")?.to_owned(), vec![0; 8]),
            "remove" => _ = self.directory.files.remove(args.next_pos().ok_or("which file")?),
            "files" => {
                for (name, bytes) in &self.directory.files {
                    writeln!(out, "{name} {}", bytes.len())?;
                }
            }
            // recover [clean] [epoch_max=N]
            "recover" => {
                let mut input = self.input(LastStop::Crash);
                input.leader_epoch_max = LeaderEpoch(number(&mut args, "epoch_max", self.epoch)?);
                if args.next_pos() == Some("clean") {
                    input.last_stop = LastStop::Clean;
                }
                let log = self.directory.recovered(input.clone(), &mut out)?;
                out += &show(&log);
                input.files = self.directory.listing();
                let again = self.directory.recovered(input, &mut String::new())?;
                let same = (log.end, &log.epochs, &log.producers) == (again.end, &again.epochs, &again.producers);
                assert!(same, "once:\n{out}\nagain:\n{}", show(&again));
            }
            other => return Err(format!("unknown command {other}").into()),
        }
        args.reject_next()?;
        Ok(out)
    }
}

#[test]
fn recovery_transcripts() {
    for path in std::fs::read_dir("tests/golden/recovery").expect("the transcripts are there") {
        goldenscript::run(&mut World::default(), path.expect("a directory entry").path())
            .expect("the transcript holds");
    }
}

/// What happens to a log, as numbers to draw.
#[derive(Clone, Copy, Debug)]
enum Act {
    Append { records: usize, size: usize, producer: bool },
    Roll,
    Checkpoint,
    NewEpoch,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (1usize..5, 0usize..3000, any::<bool>())
            .prop_map(|(records, size, producer)| Act::Append { records, size, producer }),
        1 => Just(Act::Roll),
        2 => Just(Act::Checkpoint),
        1 => Just(Act::NewEpoch),
    ]
}

/// A log, what of it is synced at the least, and where each offset's batch lies.
struct Built {
    world: World,
    synced: Offset,
    batches: Vec<(Offset, Vec<u8>)>,
}

fn build(acts: &[Act]) -> Built {
    let mut world = World::default();
    let mut batches = Vec::new();
    let mut sequence = 0;
    world.directory.file(FileKind::Log(Offset(0)));
    for act in acts {
        match *act {
            Act::Append { records, size, producer } => {
                let mut batch = world.batch(world.next, records, size);
                if producer {
                    batch = batch.producer(ProducerId(7), ProducerEpoch(0), sequence);
                    sequence += records as i32;
                    let first = world.checkpoint.and_then(|entry| entry.producers_from);
                    if let (Some(entry), None) = (&mut world.checkpoint, first) {
                        // A checkpoint after this batch will name it; until then it lies behind the stable offset.
                        assert!(entry.stable <= world.next);
                    }
                }
                batches.push((world.next, batch.build()));
                world.append(batch);
            }
            Act::Roll if world.at > 0 => world.roll(),
            Act::Roll => {}
            Act::NewEpoch => world.epoch += 1,
            Act::Checkpoint => {
                let first = batches.iter().find(|(_, bytes)| producer_of(bytes) >= 0).map(|&(base, _)| base);
                world.checkpoint = Some(Entry { producers_from: first, ..world.entry() });
                let mut epochs = LeaderEpochs::default();
                for (base, bytes) in &batches {
                    epochs.assign(BatchView::parse(bytes).expect("just built").leader_epoch(), *base);
                }
                world.directory.files.insert(name(FileKind::LeaderEpochs), epochs.encode().into_bytes());
                world.write_index(false);
            }
        }
    }
    let synced = world.checkpoint.map_or(Offset(0), |entry| entry.stable);
    Built { world, synced, batches }
}

fn producer_of(batch: &[u8]) -> i64 {
    BatchView::parse(batch).expect("just built").header().producer_id.get()
}

/// All batches that the files hold after a recovery, in order.
fn contents(world: &World, log: &RecoveredLog) -> Vec<u8> {
    let sealed = log.sealed.iter().map(|segment| (segment.base, segment.len as usize));
    let active = log.active.iter().map(|active| (active.base, active.end.0 as usize));
    sealed
        .chain(active)
        .flat_map(|(base, len)| world.directory.files[&name(FileKind::Log(base))][..len].to_vec())
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    Cut(prop::sample::Index),
    Flip(prop::sample::Index),
    /// A block of what was not synced never reached the device.
    LostBlock(prop::sample::Index),
    Bad(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::None),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        any::<prop::sample::Index>().prop_map(Damage::Flip),
        any::<prop::sample::Index>().prop_map(Damage::LostBlock),
        any::<prop::sample::Index>().prop_map(Damage::Bad),
    ]
}

/// Damages the active segment behind `from`, as a crash does.
fn apply_damage(world: &mut World, from: usize, damage: Damage) {
    let key = name(FileKind::Log(world.segment));
    let file = world.directory.files.get_mut(&key).expect("the active segment");
    // In the batches that are not synced, or not far behind them.
    let left = file.len().min(world.at as usize + 9000).saturating_sub(from);
    if left == 0 {
        return;
    }
    match damage {
        Damage::None => {}
        Damage::Cut(at) => file.truncate(from + at.index(left)),
        Damage::Flip(at) => file[from + at.index(left)] ^= 0x10,
        Damage::LostBlock(at) => {
            let block = (from + at.index(left)) & !(BLOCK as usize - 1);
            let end = file.len().min(block + BLOCK as usize);
            file[block.max(from)..end].fill(0);
        }
        Damage::Bad(at) => {
            let block = (from + at.index(left)) as u64 & !(BLOCK - 1);
            // The block of the last synced byte is readable: it was written whole.
            if from as u64 <= block {
                world.directory.bad.insert((key, block));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_recovered_is_a_prefix_with_all_that_was_synced(
        acts in prop::collection::vec(act(), 1..40), damage in damage(), zeros in 0usize..200_000,
        lose_indexes in any::<bool>(), power in 0usize..4
    ) {
        let Built { mut world, synced, batches } = build(&acts);
        world.directory.file(FileKind::Log(world.segment)).resize(world.at as usize + zeros, 0);
        let from = world.checkpoint.filter(|entry| entry.segment == world.segment).map_or(0, |entry| entry.at.0);
        apply_damage(&mut world, from as usize, damage);
        if lose_indexes {
            world.directory.files.retain(|name, _| !name.ends_with("index"));
        }
        // The power goes in the middle of it; what was changed by then stays.
        let input = world.input(LastStop::Crash);
        let _ = world.directory.recover(input, power, &mut String::new());

        let mut trace = String::new();
        let input = world.input(LastStop::Crash);
        let log = world.directory.recovered(input, &mut trace).expect("no failure");
        prop_assert!(synced <= log.end, "synced up to {}, {}\n{}", synced, trace, show(&log));
        prop_assert!(!log.below_checkpoint);
        let expected: Vec<u8> =
            batches.iter().filter(|(base, _)| *base < log.end).flat_map(|(_, bytes)| bytes.clone()).collect();
        prop_assert!(contents(&world, &log) == expected, "{}\n{}", trace, show(&log));

        let active = log.active.as_ref().expect("a log with a file");
        let file = &world.directory.files[&name(FileKind::Log(active.base))];
        prop_assert_eq!(file.len() as u64, active.allocated.0);
        prop_assert!(file[active.end.0 as usize..].iter().all(|&byte| byte == 0), "{}", trace);
        prop_assert_eq!(&file[active.end.align_down().0 as usize..active.end.0 as usize], &active.partial_block[..]);

        // Epochs, producers and indexes are those of the batches.
        let mut epochs = LeaderEpochs::default();
        let mut producers = crate::log::producers::Producers::default();
        let mut index = SegmentIndex::new(active.base, 4096);
        let mut at = 0;
        for (base, bytes) in batches.iter().filter(|(base, _)| *base < log.end) {
            let view = BatchView::parse(bytes).expect("just built");
            epochs.assign(view.leader_epoch(), *base);
            producers.record(&view.facts(), *base);
            if active.base <= *base {
                index.on_append(&BatchSpan::of(FilePos(at), &view));
                at += bytes.len() as u64;
            }
        }
        prop_assert_eq!(&log.epochs[..], epochs.entries());
        prop_assert_eq!(&log.producers, &producers);
        prop_assert_eq!(log.active.as_ref().map(|a| a.max_timestamp), Some(index.times.max_timestamp()));
        let recovered = SegmentIndex::recovered(
            active.base, 4096, (&active.index, &active.time_index), active.max_timestamp);
        prop_assert_eq!(recovered.offsets.as_bytes(), index.offsets.as_bytes());
        prop_assert_eq!(recovered.times.as_bytes(), index.times.as_bytes());

        // Doing it again changes nothing.
        world.directory.bad.clear();
        let files = world.directory.files.clone();
        let again = world.directory.recovered(world.input(LastStop::Crash), &mut trace).expect("no failure");
        prop_assert_eq!((again.end, &again.epochs, &again.producers), (log.end, &log.epochs, &log.producers));
        prop_assert_eq!(&again.sealed.len(), &log.sealed.len());
        prop_assert!(files == world.directory.files, "{}", trace);
    }

    #[test]
    fn any_bytes_in_the_files_lead_to_a_value(
        log in prop::collection::vec(any::<u8>(), 0..6000), index in prop::collection::vec(any::<u8>(), 0..40),
        epochs in prop::collection::vec(any::<u8>(), 0..40), snapshot in prop::collection::vec(any::<u8>(), 0..80),
        keep in 0usize..3
    ) {
        let mut world = World::default();
        (0..keep).for_each(|_| world.append(world.batch(world.next, 3, 500)));
        let at = world.at;
        world.directory.write(FileKind::Log(Offset(0)), at, &log);
        *world.directory.file(FileKind::Index(Offset(0))) = index.clone();
        *world.directory.file(FileKind::TimeIndex(Offset(0))) = index;
        *world.directory.file(FileKind::LeaderEpochs) = epochs;
        *world.directory.file(FileKind::Snapshot(Offset(3))) = snapshot;
        let input = world.input(LastStop::Crash);
        let log = world.directory.recovered(input, &mut String::new()).expect("no failure");
        prop_assert_eq!(log.end, world.next);
    }
}
