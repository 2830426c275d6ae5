//! The processor that this runs on: its name, its vectors and its caches.

use crate::fast::has_matrix_unit;
use crate::fast::simd::level;
use std::collections::BTreeMap;

/// Sizes of caches as Linux reports them, by the name of the number.
const CACHES: &[(&str, &str)] =
    &[("l1_bytes", "index0/size"), ("l2_bytes", "index2/size"), ("l3_bytes", "index3/size")];

/// The processor's name, or that of its architecture.
pub(crate) fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("model name"));
    let name = line.and_then(|l| l.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Numbers that kernels are chosen by: bits of the widest vectors, 1 for a matrix unit, and sizes of caches where the system reports them.
pub(crate) fn numbers() -> BTreeMap<String, u64> {
    let mut numbers = BTreeMap::from([("vector_bits".to_owned(), level().bits())]);
    if has_matrix_unit() {
        numbers.insert("matrix_unit".to_owned(), 1);
    }
    for (name, file) in CACHES {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/{file}"));
        if let Some(bytes) = text.ok().and_then(|t| size(t.trim())) {
            numbers.insert((*name).to_owned(), bytes);
        }
    }
    numbers
}

/// Bytes of a text such as "48K".
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(
            [size("48K"), size("2M"), size("64"), size("x")],
            [Some(48 << 10), Some(2 << 20), Some(64), None]
        );
        assert!(!name().is_empty() && numbers()["vector_bits"] >= 128);
    }
}
