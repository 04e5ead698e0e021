//! Kafka's text checkpoints, written at a clean stop so that Kafka's own tools and a Kafka broker find what they expect.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::ids::Offset;
use crate::log::text_files::encode_offsets;
use crate::shard::message::FinalOffsets;

/// Writes the three files into every data directory; says whether all of it worked. A failure is logged: the stop then
/// counts as unclean.
pub fn write(dirs: &[PathBuf], offsets: &[FinalOffsets]) -> bool {
    let mut worked = true;
    // A data directory that is away has been served without, and is left alone.
    for (index, path) in dirs.iter().enumerate().filter(|(_, path)| path.is_dir()) {
        let mut here: Vec<&FinalOffsets> = offsets.iter().filter(|one| usize::from(one.dir.0) == index).collect();
        here.sort_by(|a, b| (&a.topic, a.index).cmp(&(&b.topic, b.index)));
        if let Err(error) = write_one(path, &here) {
            tracing::error!(dir = %path.display(), %error, "checkpoints could not be written");
            worked = false;
        }
    }
    worked
}

fn write_one(dir: &Path, offsets: &[&FinalOffsets]) -> io::Result<()> {
    write_file(dir, "recovery-point-offset-checkpoint", offsets, |one| one.recovery_point)?;
    write_file(dir, "replication-offset-checkpoint", offsets, |one| one.high_watermark)?;
    write_file(dir, "log-start-offset-checkpoint", offsets, |one| one.log_start)?;
    File::open(dir)?.sync_all()
}

fn write_file(
    dir: &Path,
    name: &str,
    offsets: &[&FinalOffsets],
    offset: impl Fn(&FinalOffsets) -> Offset,
) -> io::Result<()> {
    let rows: Vec<_> = offsets.iter().map(|one| (&*one.topic, one.index, offset(one))).collect();
    replace(&dir.join(name), encode_offsets(rows.into_iter()).as_bytes())
}

fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}
