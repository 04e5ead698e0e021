//! What the control core makes of what a start has found: a cluster to form, or one to go on with.

use std::sync::Arc;

use crate::control::codec::{DecodeError, Writer};
use crate::control::consensus::Consensus;
use crate::control::directories;
use crate::control::disk_watch::DiskWatch;
use crate::control::hosting::Hosting;
use crate::control::image::Image;
use crate::control::job::FoundDir;
use crate::control::prng::Prng;
use crate::control::proposals::Proposals;
use crate::control::raft_log::{Damage, LogEntry, Recovery, Snapshot};
use crate::control::records::{self, Record};
use crate::control::scrape::Scrape;
use crate::control::strays::Strays;
use crate::control::{Control, ControlConfig, Phase};
use crate::fatal::Reason;
use crate::ids::{LogIndex, MonoMicros, Term};
use crate::shard::message::DirView;

impl Control {
    /// Goes on from the metadata that `recovery` holds, or forms a cluster of one voter when there is none. `found`
    /// are the partition directories of all data directories. `seed` and the log decide every random choice.
    ///
    /// # Errors
    /// When the metadata is of another cluster or node, was formed with another `flush.mode`, or is gone while there
    /// are partitions.
    pub fn new(
        mut config: ControlConfig,
        mut recovery: Recovery,
        found: Vec<FoundDir>,
        seed: u64,
    ) -> Result<Control, Reason> {
        // Every start appends, so that even an equal seed gives another incarnation other ids.
        let last = recovery.entries.last().map_or(0, |entry| entry.index.0);
        let mut prng = Prng::new(seed ^ last.rotate_left(32));
        config.registration.incarnation = prng.uuid();
        let formed = recovery.snapshot.is_none().then(|| form(&config, &found)).transpose()?;
        if let Some(seed) = &formed {
            recovery.snapshots.push(seed.index);
            recovery.snapshot = Some(seed.clone());
        }
        let image = Arc::new(image_at_start(&config, &recovery)?);
        let unnamed = directories::account(&mut config, &recovery, recovery.snapshot.as_ref().expect("made above"))?;
        let mut online: Vec<bool> = config.dirs.iter().map(|dir| dir.online).collect();
        // Directories that are not named any more are like one more that is offline.
        online.extend(unnamed.then_some(false));
        let strays = Strays::new(found, prng.next_u64());
        let dirs: Arc<[DirView]> = config.dirs.clone().into();
        Ok(Control {
            phase: if formed.is_some() { Phase::Seeding } else { Phase::Electing },
            ready: false,
            consensus: Consensus::new(raft_id(&config), &recovery),
            proposed: (*image).clone(),
            proposals: Proposals::default(),
            held: Vec::new(),
            hosting: Hosting::new(config.registration.id, config.cores, &online, strays),
            prng,
            viewed: image.clone(),
            dirs_stale: false,
            dirs,
            image,
            view_at: None,
            last_view: None,
            // A single voter has nobody to wait for.
            campaign_at: Some(MonoMicros(0)),
            seed: formed,
            stopping: Vec::new(),
            clean: true,
            final_offsets: Vec::new(),
            disk: DiskWatch::new(config.free_bytes_min.clone()),
            scrape: Scrape::new(config.cores),
            config,
        })
    }
}

/// How the operator is told of damage to the metadata log in `path`.
pub fn reason_of(path: &str, damage: &Damage) -> Reason {
    let text = format!("the metadata log in {path}/.pinion/raft cannot be used: {damage}");
    match damage {
        Damage::Contents(DecodeError::Newer { .. }) => Reason::ForeignDir(text),
        Damage::Gap { .. } | Damage::NoSnapshot => Reason::MetadataLost(text),
        _ => Reason::DirFailed(text),
    }
}

/// The data of an entry.
pub(super) fn encode_records(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::default();
    records::encode(records, &mut writer);
    writer.bytes
}

/// The data of a snapshot.
pub(super) fn encode_image(image: &Image) -> Vec<u8> {
    encode_records(&image.records())
}

/// Makes a committed entry part of the image. The entry with which a leader begins its term carries no records.
pub(super) fn apply_entry(image: &mut Image, entry: &LogEntry) -> Result<(), Reason> {
    let records = match entry.data.is_empty() {
        true => vec![],
        false => records::decode(&entry.data).map_err(|error| unreadable(entry.index, error))?,
    };
    image.apply(entry.index, &records);
    Ok(())
}

fn form(config: &ControlConfig, found: &[FoundDir]) -> Result<Snapshot, Reason> {
    if let Some(found) = found.first() {
        let (first, name) = (&config.dirs[0].path, &found.dir.name);
        return Err(Reason::MetadataLost(format!(
            "there is no metadata log in {first}/.pinion/raft, but there are partitions such as {name}; are the data \
             directories named in their old order?"
        )));
    }
    let formed = Record::ClusterFormed { cluster_id: config.cluster_id.clone(), flush_mode: config.flush_mode };
    let voters = vec![raft_id(config)];
    Ok(Snapshot { index: LogIndex(0), term: Term(0), voters, learners: vec![], data: encode_records(&[formed]) })
}

fn image_at_start(config: &ControlConfig, recovery: &Recovery) -> Result<Image, Reason> {
    let snapshot = recovery.snapshot.as_ref().expect("a formed cluster has a snapshot");
    let path = &config.dirs[0].path;
    let records = records::decode(&snapshot.data).map_err(|error| unreadable(snapshot.index, error))?;
    let mut image = Image::new(config.topic_defaults.clone());
    image.apply_snapshot(snapshot.index, &records);
    if image.cluster_id != config.cluster_id {
        let (theirs, ours) = (&image.cluster_id, &config.cluster_id);
        return Err(Reason::ForeignDir(format!("the metadata log in {path} is of cluster {theirs}, not of {ours}")));
    }
    if !snapshot.voters.contains(&raft_id(config)) {
        let node = config.registration.id;
        return Err(Reason::ForeignDir(format!("the metadata log in {path} does not know node {node} as a voter")));
    }
    if image.flush_mode != config.flush_mode {
        return Err(Reason::Settings(format!(
            "flush.mode is {} since the cluster was formed and cannot become {}: take the setting away",
            image.flush_mode, config.flush_mode
        )));
    }
    Ok(image)
}

/// Raft ids start at 1, node ids at 0.
fn raft_id(config: &ControlConfig) -> u64 {
    u64::try_from(config.registration.id.0).expect("a node id is not negative") + 1
}

pub(super) fn unreadable(index: LogIndex, error: DecodeError) -> Reason {
    let text = format!("entry {index} of the metadata log cannot be read: {error}");
    match error {
        DecodeError::Newer { .. } => Reason::ForeignDir(text),
        _ => Reason::DirFailed(text),
    }
}
