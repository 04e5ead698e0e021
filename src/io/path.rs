//! File names of a data directory: Kafka's for partitions, ours below `.pinion`. Always relative to the data directory,
//! whose open descriptor the *at calls start from.

use std::ffi::CString;

use crate::ids::CoreId;
use crate::shard::action::{FileKind, PartitionDir, PartitionFile};

/// A name for a system call.
///
/// # Panics
/// On a NUL byte: topic names are checked long before (Kafka allows letters, digits, `.`, `_` and `-`).
pub fn c_string(path: String) -> CString {
    CString::new(path).expect("NUL in a file name")
}

/// `<topic>-<partition>`
pub fn dir(dir: &PartitionDir) -> CString {
    c_string(dir.name.to_string())
}

/// `<topic>-<partition>/<file>`
pub fn file(file: &PartitionFile) -> CString {
    c_string(format!("{}/{}", file.dir.name, file_name(file.kind)))
}

/// `<topic>-<partition>/<file>.tmp`, where a file is written before it is renamed into place.
pub fn temporary(file: &PartitionFile) -> CString {
    c_string(format!("{}/{}.tmp", file.dir.name, file_name(file.kind)))
}

/// Kafka's name of a file in a partition's directory.
pub fn file_name(kind: FileKind) -> String {
    match kind {
        FileKind::Log(base) => format!("{base:020}.log"),
        FileKind::Index(base) => format!("{base:020}.index"),
        FileKind::TimeIndex(base) => format!("{base:020}.timeindex"),
        FileKind::Snapshot(offset) => format!("{offset:020}.snapshot"),
        FileKind::LeaderEpochs => "leader-epoch-checkpoint".to_string(),
        FileKind::Metadata => "partition.metadata".to_string(),
    }
}

/// `.pinion/checkpoint-<core>`
pub fn checkpoint(core: CoreId) -> CString {
    c_string(format!(".pinion/checkpoint-{core}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DirId, Offset};

    #[test]
    fn names_are_kafkas() {
        assert_eq!(file_name(FileKind::Log(Offset(42))), "00000000000000000042.log");
        assert_eq!(file_name(FileKind::Index(Offset(0))), "00000000000000000000.index");
        assert_eq!(file_name(FileKind::TimeIndex(Offset(i64::MAX))), "09223372036854775807.timeindex");
        assert_eq!(file_name(FileKind::Snapshot(Offset(7))), "00000000000000000007.snapshot");
        let dir = PartitionDir { dir: DirId(0), name: "orders-3".into() };
        let metadata = PartitionFile { dir, kind: FileKind::Metadata };
        assert_eq!(file(&metadata).as_c_str(), c"orders-3/partition.metadata");
        assert_eq!(temporary(&metadata).as_c_str(), c"orders-3/partition.metadata.tmp");
        assert_eq!(checkpoint(CoreId(2)).as_c_str(), c".pinion/checkpoint-2");
    }
}
