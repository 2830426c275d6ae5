//! The budget of host memory: asked before a tensor is made.
//!
//! One budget holds for the process. Tensors in memory count against it as long as they live, and [`reserve`]
//! is asked for an operator's further needs. A network that needs more memory than is available ends with an
//! error that names its layer; the process does not end, and the machine does not swap. The limit is that of
//! [`set_limit`], else that of the variable `KILN_MEMORY_LIMIT`, else a share of the memory that was
//! available at the first request.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// The variable that sets the limit, in bytes or with a suffix: see [`parse`]. Plug-ins, which have a budget of their own,
/// read it, too.
pub const VARIABLE: &str = "KILN_MEMORY_LIMIT";

/// The share of the available memory that is the limit by default, in percent.
const SHARE: u64 = 80;
/// The limit where nothing is known of the system's memory.
const UNKNOWN: u64 = 64 << 30;
/// Allocations of this size and more are tried before they are promised.
const TRIED: u64 = 1 << 20;

/// Bytes of the limit; 0 as long as it is not known.
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// Bytes of tensors and reservations.
static USED: AtomicU64 = AtomicU64::new(0);

/// More memory was wanted than the budget has left.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "needs {wanted} bytes of memory beside the {used} in use, and the limit is {limit}: make the tensors smaller or raise \
     the limit (--memory-limit, KILN_MEMORY_LIMIT)"
)]
pub struct Exceeded {
    /// Bytes that were wanted.
    pub wanted: u64,
    /// Bytes of tensors that live.
    pub used: u64,
    /// The limit in bytes; where the system refused earlier, what could be had.
    pub limit: u64,
}

/// The limit in bytes.
pub fn limit() -> u64 {
    match LIMIT.load(Ordering::Relaxed) {
        0 => {
            let given = std::env::var(VARIABLE).ok().and_then(|v| parse(&v).ok());
            let found = given.unwrap_or_else(|| available().map_or(UNKNOWN, |a| a / 100 * SHARE)).max(1);
            // Of two threads that come here at once the first decides.
            match LIMIT.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => found,
                Err(other) => other,
            }
        }
        n => n,
    }
}

/// Sets the limit in bytes, for the whole process.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes.max(1), Ordering::Relaxed);
}

/// Bytes of tensors that live and of reservations.
pub fn used() -> u64 {
    USED.load(Ordering::Relaxed)
}

/// Bytes that are left.
pub fn left() -> u64 {
    limit().saturating_sub(used())
}

/// Takes bytes from the budget until the reservation is dropped; an error where they are not left, or where the system
/// does not give them.
pub fn reserve(bytes: u64) -> Result<Reservation, Exceeded> {
    let (used, limit) = (used(), limit());
    if bytes > limit.saturating_sub(used) {
        return Err(Exceeded { wanted: bytes, used, limit });
    }
    if bytes >= TRIED {
        // A limit of the address space, or a system that promises no more than it has, shows here and not as an abort.
        let refused = || Exceeded { wanted: bytes, used, limit: limit.min(used.saturating_add(bytes) - 1) };
        let size = usize::try_from(bytes).map_err(|_| refused())?;
        Vec::<u8>::new().try_reserve_exact(size).map_err(|_| refused())?;
    }
    Ok(Reservation::of(bytes))
}

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation(u64);

impl Reservation {
    /// Bytes that are in use already, whatever the limit is.
    pub fn of(bytes: u64) -> Reservation {
        USED.fetch_add(bytes, Ordering::Relaxed);
        Reservation(bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A number of bytes as people write it: `800000000`, `512M`, `1.5G`; `K`, `M`, `G`, `T` are powers of 1024, and `iB` or
/// `B` may follow. The text says what is wrong.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a number of bytes, as 800000000, 512M or 1.5G");
    let upper = text.trim().to_ascii_uppercase();
    let body = upper.strip_suffix('B').unwrap_or(&upper);
    let body = body.strip_suffix('I').filter(|b| b.ends_with(['K', 'M', 'G', 'T'])).unwrap_or(body);
    let (number, shift) = match body.chars().last() {
        Some('K') => (&body[..body.len() - 1], 10),
        Some('M') => (&body[..body.len() - 1], 20),
        Some('G') => (&body[..body.len() - 1], 30),
        Some('T') => (&body[..body.len() - 1], 40),
        _ => (body, 0),
    };
    if let Ok(n) = number.parse::<u64>() {
        return n.checked_mul(1 << shift).filter(|&n| n > 0).ok_or_else(wrong);
    }
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let bytes = number.parse::<f64>().ok().filter(|_| plain).map(|n| n * (1u64 << shift) as f64);
    bytes.filter(|&b| b >= 1.0 && b < u64::MAX as f64).map(|b| b as u64).ok_or_else(wrong)
}

/// Bytes that this process can still take, by the machine and by the control groups that it is in; `None` where the
/// system does not say.
pub fn available() -> Option<u64> {
    let proc = Path::new("/proc");
    let machine = std::fs::read_to_string(proc.join("meminfo")).ok().and_then(|t| meminfo(&t));
    let groups = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let group = group_available(&groups, Path::new("/sys/fs/cgroup"));
    machine.into_iter().chain(group).min()
}

/// `MemAvailable` of /proc/meminfo in bytes.
fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Memory that the control groups of /proc/self/cgroup leave: the least of a group and all above it, version
/// 2 or 1.
fn group_available(groups: &str, root: &Path) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, names) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file "]),
            c if c.split(',').any(|c| c == "memory") => (
                root.join("memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
            ),
            _ => continue,
        };
        let mut group = PathBuf::from(path.trim_start_matches('/'));
        loop {
            least = least.into_iter().chain(left_in(&base.join(&group), names)).min();
            if !group.pop() {
                break;
            }
        }
    }
    least
}

/// Memory that one control group leaves. File pages that are not in use are freed first, and so do not count.
fn left_in(folder: &Path, [limit, usage, cache]: [&str; 3]) -> Option<u64> {
    let number = |name: &str| std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(limit)?;
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|l| l.strip_prefix(cache)?.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(number(usage).unwrap_or(0).saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes() {
        for (text, bytes) in [
            ("7", 7),
            ("512M", 512 << 20),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
            ("1kb", 1024),
            ("3T", 3 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "x", "1e9", "G", "1X", "99999999999T", "inf", "nan", "1.2.3M"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_the_system_says() {
        let text = "MemTotal:       16311588 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(meminfo(text), Some(2 << 20));
        assert_eq!(meminfo("MemTotal: 5 kB\n"), None);
        let root = tempfile();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        // Version 2: the group itself has no limit, the one above has.
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "1000000\n");
        write("a/memory.current", "700000\n");
        write("a/memory.stat", "anon 1\ninactive_file 200000\n");
        assert_eq!(group_available("0::/a/b\n", &root), Some(500_000));
        assert_eq!(group_available("0::/b\n", &root), None);
        // Version 1, beside another hierarchy.
        write("memory/c/memory.limit_in_bytes", "5000\n");
        write("memory/c/memory.usage_in_bytes", "4000\n");
        assert_eq!(group_available("5:cpu:/c\n4:hugetlb,memory:/c\n", &root), Some(1000));
        std::fs::remove_dir_all(&root).unwrap();
    }

    fn tempfile() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kiln-budget-{:?}", std::time::Instant::now()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn tensors_count_as_long_as_they_live() {
        let before = used();
        let bytes = 300 << 20;
        let t = crate::Tensor::zeros(crate::DType::U8, &[bytes]).unwrap();
        let copy = t.clone();
        assert!(used() >= before + bytes as u64);
        drop((t, copy));
        assert!(used() < before + bytes as u64);
        let e = reserve(u64::MAX / 2).unwrap_err();
        assert!(e.to_string().contains("--memory-limit"), "{e}");
    }
}
