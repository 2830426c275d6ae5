//! Time that a host waits for a device before it takes it for lost.

use crate::BackendError;
use std::time::Duration;

/// Seconds that one wait for a device may take; none where it is not set.
pub const VARIABLE: &str = "KILN_DEVICE_TIMEOUT";

/// The limit of waits that the environment sets.
pub fn limit() -> Option<Duration> {
    parse(&std::env::var(VARIABLE).ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok().filter(|s| *s > 0.0)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The error of a wait that has come to its limit.
pub fn expired(device: &str, limit: Duration) -> BackendError {
    BackendError::DeviceLost(format!(
        "{device} did not finish within {limit:?}, the limit that {VARIABLE} sets: a kernel hangs, or runs take longer. Set a \
         higher limit if they do; else end this process, as work in flight cannot be taken back, and look whether the device \
         answers others (nvidia-smi)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_seconds() {
        assert_eq!(parse("1.5"), Some(Duration::from_millis(1500)));
        for none in ["", "0", "-1", "x", "inf", "nan", "1e300"] {
            assert_eq!(parse(none), None, "{none}");
        }
        let e = expired("a device", Duration::from_secs(2)).to_string();
        assert!(e.contains("a device did not finish within 2s") && e.contains(VARIABLE), "{e}");
    }
}
