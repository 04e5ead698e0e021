//! A small ext4 of its own, on a loop device: it can be filled, lost and frozen.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::process::skip;

/// The file system, mounted; gone when dropped.
pub struct SmallDisk {
    image: PathBuf,
    device: String,
    /// Where it is mounted.
    pub path: PathBuf,
    /// Thaws the file system should this process be killed while it is frozen: nothing could end the broker then.
    thaw: Option<Child>,
}

/// Runs a command; what it printed, or why it failed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

impl SmallDisk {
    /// Makes one of so many MiB below `root`; says on behalf of `test` that it was skipped where that cannot be done.
    pub fn new(test: &str, root: &Path, mib: u64) -> Option<SmallDisk> {
        let made = SmallDisk::make(root, mib);
        made.map_err(|reason| skip(&format!("broker: {test}"), &format!("no small file system: {reason}"))).ok()
    }

    fn make(root: &Path, mib: u64) -> Result<SmallDisk, String> {
        let (image, path) = (root.join("disk.img"), root.join("disk"));
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(mib << 20).map_err(|error| error.to_string())?;
        std::fs::create_dir(&path).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)])?;
        let device = run("losetup", &["--find", "--show", text(&image)])?;
        let disk = SmallDisk { image, device, path, thaw: None };
        run("mount", &[&disk.device, text(&disk.path)])?;
        Ok(disk)
    }

    /// A data directory on this disk, named from `root`, where the broker's log then is: that must not hang or be full.
    pub fn data(&self, root: &Path) -> PathBuf {
        let (name, data) = (root.join("data"), self.path.join("data"));
        std::fs::create_dir(&data).expect("created");
        std::os::unix::fs::symlink(&data, &name).expect("linked");
        name
    }

    /// A file that takes so many MiB.
    pub fn fill(&self, mib: u64) -> PathBuf {
        let filler = self.path.join("filler");
        run("fallocate", &["-l", &format!("{mib}MiB"), text(&filler)]).expect("there is room");
        filler
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.path).expect("it is mounted");
        space.f_bavail * space.f_frsize
    }

    /// Takes the device away under the file system: every access beyond its first MiB is an I/O error from now on.
    pub fn lose(&self) {
        let file = std::fs::File::options().write(true).open(&self.image).expect("the image");
        file.set_len(1 << 20).expect("cut");
        run("losetup", &["--set-capacity", &self.device]).expect("the device is cut");
    }

    /// Lets every write hang until [`SmallDisk::thaw`].
    pub fn freeze(&mut self) {
        let path = text(&self.path).to_owned();
        let thaw = format!("exec 2>/dev/null; sleep 120; fsfreeze --unfreeze '{path}'");
        self.thaw = Some(Command::new("sh").args(["-c", &thaw]).stdin(Stdio::null()).spawn().expect("a shell"));
        run("fsfreeze", &["--freeze", &path]).expect("frozen");
    }

    /// Lets the writes go on.
    pub fn thaw(&mut self) {
        self.end_freeze().expect("thawed");
    }

    fn end_freeze(&mut self) -> Result<(), String> {
        let Some(mut thaw) = self.thaw.take() else { return Ok(()) };
        let thawed = run("fsfreeze", &["--unfreeze", text(&self.path)]).map(drop);
        // It has ended by itself when the test took too long.
        let _ = thaw.kill();
        let _ = thaw.wait();
        thawed
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let thawed = self.end_freeze();
        // A broker that has just been killed may hold it for a moment; lazily unmounted it goes with the last user.
        let unmounted = run("umount", &["--lazy", text(&self.path)]);
        let detached = run("losetup", &["--detach", &self.device]);
        for failure in [thawed.err(), unmounted.map(drop).err(), detached.map(drop).err()].into_iter().flatten() {
            eprintln!("{failure}");
        }
    }
}
