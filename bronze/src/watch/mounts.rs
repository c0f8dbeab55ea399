//! Which folders lie on a file system whose changes are made on other machines, so that no event tells of them here.

use std::path::Path;

/// Where this system lists its mounts.
const MOUNTS: &str = "/proc/self/mounts";
/// Kinds of file systems that others write to as well; each stands for its variants (`nfs4`, `fuse.sshfs`).
const SHARED: &[&str] = &[
    "nfs", "cifs", "smb", "9p", "ceph", "gluster", "fuse.", "lustre", "afs", "vboxsf", "vmhgfs", "virtiofs", "drvfs",
    "prl_fs", "davfs", "beegfs", "gpfs",
];

/// The kind of the file system of a folder, where it is one that others write to as well.
pub(super) fn shared_file_system(folder: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string(MOUNTS).ok()?;
    shared_kind(&mounts, folder)
}

fn shared_kind(mounts: &str, folder: &Path) -> Option<String> {
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        Some((unescaped(place), kind))
    });
    // The last of the longest: a later mount hides an earlier one.
    let inside = entries.filter(|(place, _)| folder.starts_with(place));
    let (_, kind) = inside.max_by_key(|(place, _)| place.len())?;
    SHARED.iter().any(|shared| kind.starts_with(shared)).then(|| kind.to_owned())
}

/// Spaces and their like are written as octal numbers.
fn unescaped(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(place.to_owned(), |place, (escape, plain)| place.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_says_what_a_folder_is() {
        let mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/x /mnt/nas nfs4 rw 0 0\n/dev/sdb /mnt/nas/local\\040disk xfs rw 0 0\n\
                      me@host: /mnt/ssh fuse.sshfs rw 0 0\n";
        let kind = |folder: &str| shared_kind(mounts, Path::new(folder));
        assert_eq!(kind("/home/x/landing"), None);
        assert_eq!(kind("/mnt/nas/in").as_deref(), Some("nfs4"));
        assert_eq!(kind("/mnt/nasty"), None);
        assert_eq!(kind("/mnt/nas/local disk/in"), None);
        assert_eq!(kind("/mnt/ssh").as_deref(), Some("fuse.sshfs"));
    }
}
