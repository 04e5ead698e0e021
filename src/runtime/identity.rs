//! `meta.properties`: which cluster, node and directory a data directory is. Kafka's format, with a line of our own that
//! names the format of everything below it.

use std::path::Path;

use crate::fatal::Reason;
use crate::ids::{BrokerId, TopicId};

/// Name of the file.
pub const META_PROPERTIES: &str = "meta.properties";
/// Format of the data directory that this version writes, and the newest it reads.
const FORMAT: u32 = 1;

/// Who a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: TopicId,
    /// The broker.
    pub node: BrokerId,
    /// The directory itself.
    pub directory: TopicId,
}

/// Why a `meta.properties` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not readable as ours.
    Foreign(String),
    /// Of a newer format.
    Newer(String),
}

impl Fault {
    /// As an ending for the operator.
    pub fn in_dir(&self, path: &Path) -> Reason {
        let (Fault::Foreign(why) | Fault::Newer(why)) = self;
        Reason::ForeignDir(format!("{}: {why}", path.join(META_PROPERTIES).display()))
    }
}

impl Identity {
    /// The file's contents.
    pub fn encode(&self) -> String {
        let Identity { cluster, node, directory } = self;
        format!(
            "#\nversion=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={directory}\npinion.format={FORMAT}\n"
        )
    }

    /// Reads the file.
    pub fn parse(text: &str) -> Result<Identity, Fault> {
        let value = |name: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim())
        };
        let missing = |name: &str| Fault::Foreign(format!("it has no usable {name}"));
        let Some(format) = value("pinion.format") else {
            return Err(Fault::Foreign("it is not pinion's (it may be Kafka's own)".to_string()));
        };
        match format.parse::<u32>() {
            Ok(format) if format > FORMAT => {
                return Err(Fault::Newer(format!("its format is {format}, this version reads up to {FORMAT}")));
            }
            Ok(1) if value("version") == Some("1") => {}
            _ => return Err(missing("version")),
        }
        let id =
            |name: &str| value(name).and_then(TopicId::parse).filter(|id| !id.is_none()).ok_or_else(|| missing(name));
        Ok(Identity {
            cluster: id("cluster.id")?,
            node: BrokerId(value("node.id").and_then(|node| node.parse().ok()).ok_or_else(|| missing("node.id"))?),
            directory: id("directory.id")?,
        })
    }
}

/// A random uuid (RFC 9562, version 4).
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn random() -> Result<TopicId, Reason> {
    let mut bytes = [0u8; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Reason::Kernel(format!("getrandom: {errno}")))?;
    assert_eq!(length, bytes.len(), "requests of up to 256 bytes are never cut short (getrandom(2))");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(TopicId(bytes))
}

/// A random seed.
///
/// # Errors
/// When the kernel gives no random bytes.
pub fn random_seed() -> Result<u64, Reason> {
    let TopicId(bytes) = random()?;
    let half = |range: std::ops::Range<usize>| u64::from_le_bytes(bytes[range].try_into().expect("eight bytes"));
    Ok(half(0..8) ^ half(8..16).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity { cluster: TopicId([1; 16]), node: BrokerId(3), directory: TopicId([2; 16]) }
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(Identity::parse(&identity().encode()), Ok(identity()));
    }

    #[test]
    fn a_newer_format_and_kafkas_own_file_are_told_apart() {
        let newer = identity().encode().replace("pinion.format=1", "pinion.format=2");
        assert!(matches!(Identity::parse(&newer), Err(Fault::Newer(why)) if why.contains("format is 2")));
        let kafkas = identity().encode().replace("pinion.format=1\n", "");
        assert!(matches!(Identity::parse(&kafkas), Err(Fault::Foreign(why)) if why.contains("Kafka")));
    }

    #[test]
    fn damage_is_refused_with_the_line_that_is_missing() {
        for name in ["cluster.id", "node.id", "directory.id", "version"] {
            let damaged = identity().encode().replace(&format!("{name}="), "x=");
            assert_eq!(Identity::parse(&damaged), Err(Fault::Foreign(format!("it has no usable {name}"))));
        }
    }

    #[test]
    fn random_ids_differ() {
        let (a, b) = (random().expect("random"), random().expect("random"));
        assert!(a != b && !a.is_none());
        assert_ne!(random_seed(), random_seed());
    }
}
