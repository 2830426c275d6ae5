//! Result codes of the driver as errors of the backend, with advice.

use super::library::DriverError;
use kiln_backend::{BackendError, watchdog};
use std::ffi::c_int;
use std::ops::RangeInclusive;

/// The kinds of errors that codes become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Memory,
    Unsupported,
    Incompatible,
    /// The context, and with it all that was made in it, is unusable.
    Lost,
}

use Meaning::{Incompatible, Lost, Memory, Unsupported};

const FAILED: &str = "A kernel failed or the hardware did: this process cannot use the device any more, so end it and start \
                      another; if it happens again, look at `dmesg` and `nvidia-smi -q` for errors, and run the engine under \
                      compute-sanitizer";
const ANOTHER_DRIVER: &str = "The driver's libraries and its kernel module differ: restart the machine after an update of the \
                              driver, or take the libraries of the installed driver into the container";
const BUILD_AGAIN: &str = "Build the plan again, for this device and with this driver";

/// Codes by the driver's header, and advice. All others are defects of this backend or of the driver.
const MEANINGS: [(RangeInclusive<c_int>, Meaning, &str); 23] = [
    (2..=2, Memory, ""),
    (4..=4, Lost, "The driver is shutting down: the process is ending, and must not start work any more"),
    (34..=34, Unsupported, "The library is the toolkit's stub: take its folder out of LD_LIBRARY_PATH"),
    (
        46..=46,
        Lost,
        "Other processes hold the device, or it is set to be used by one (`nvidia-smi -q -d COMPUTE`)",
    ),
    (
        100..=101,
        Unsupported,
        "Look whether `nvidia-smi` lists a device, and what CUDA_VISIBLE_DEVICES leaves of them",
    ),
    (200..=200, Incompatible, BUILD_AGAIN),
    (209..=209, Incompatible, BUILD_AGAIN),
    (214..=214, Lost, FAILED),
    (218..=218, Incompatible, BUILD_AGAIN),
    (219..=220, Lost, FAILED),
    (222..=222, Incompatible, "Install a newer driver, or build the plan with an older NVRTC"),
    (226..=226, Lost, FAILED),
    (304..=304, Unsupported, "Look at `dmesg`, and whether the process may open /dev/nvidia*"),
    (700..=702, Lost, FAILED),
    (709..=710, Lost, FAILED),
    (713..=719, Lost, FAILED),
    (800..=800, Unsupported, "The system does not let this process do that"),
    (801..=801, Unsupported, "A newer driver or another device may be able to do that"),
    (
        802..=802,
        Unsupported,
        "Start the fabric manager (`systemctl start nvidia-fabricmanager`), and wait until it is ready",
    ),
    (803..=804, Unsupported, ANOTHER_DRIVER),
    (805..=807, Lost, "The MPS server ended or refuses this process: start it again, and this process"),
    (808..=808, Memory, ""),
    (809..=810, Lost, FAILED),
];

fn meaning(code: c_int) -> Option<(Meaning, &'static str)> {
    MEANINGS.iter().find(|(codes, ..)| codes.contains(&code)).map(|&(_, m, advice)| (m, advice))
}

impl From<DriverError> for BackendError {
    fn from(e: DriverError) -> BackendError {
        let code = match &e {
            DriverError::Missing { .. } | DriverError::TooOld { .. } => {
                return BackendError::Unsupported(e.to_string());
            }
            DriverError::Hung { limit } => return watchdog::expired("the CUDA device", *limit),
            DriverError::Forked { .. } => return BackendError::DeviceLost(e.to_string()),
            DriverError::Layer(e) => return e.clone(),
            DriverError::Library { .. } => return BackendError::Internal(e.to_string()),
            DriverError::Call { code, .. } => *code,
        };
        let told = |advice: &str| format!("{e}. {advice}");
        match meaning(code) {
            Some((Memory, _)) => BackendError::OutOfMemory { what: e.to_string(), bytes: 0 },
            Some((Unsupported, advice)) => BackendError::Unsupported(told(advice)),
            Some((Incompatible, advice)) => BackendError::Incompatible(told(advice)),
            Some((Lost, advice)) => BackendError::DeviceLost(told(advice)),
            None => BackendError::Internal(e.to_string()),
        }
    }
}

/// Names the layer that the host was working for.
pub fn at_layer(e: BackendError, layer: &str) -> BackendError {
    let told = |what: String| format!("layer \"{layer}\": {what}");
    match e {
        BackendError::OutOfMemory { what, bytes } => BackendError::OutOfMemory { what: told(what), bytes },
        BackendError::DeviceLost(why) => {
            BackendError::DeviceLost(format!("noticed at layer \"{layer}\", maybe after it happened: {why}"))
        }
        BackendError::Unsupported(why) => BackendError::Unsupported(told(why)),
        BackendError::Incompatible(why) => BackendError::Incompatible(told(why)),
        BackendError::Internal(why) => BackendError::Internal(told(why)),
        e => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: c_int) -> BackendError {
        let (name, message) = ("CUDA_ERROR_X".to_owned(), "words".to_owned());
        DriverError::Call { call: "cuX", code, name, message }.into()
    }

    #[test]
    fn codes_are_listed_once_and_in_order() {
        for pair in MEANINGS.windows(2) {
            assert!(pair[0].0.end() < pair[1].0.start(), "{:?}", pair[1].0);
        }
    }

    #[test]
    fn errors_name_call_code_and_what_to_do() {
        let has = |e: BackendError, parts: &[&str]| {
            let text = e.to_string();
            assert!(parts.iter().all(|p| text.contains(p)), "{text}");
        };
        has(of(700), &["device lost", "cuX", "CUDA_ERROR_X", "end it and start another"]);
        has(of(46), &["device lost", "cuX", "Other processes"]);
        has(of(803), &["not supported", "restart the machine"]);
        has(of(802), &["fabric"]);
        has(of(2), &["out of memory", "cuX", "CUDA_ERROR_X"]);
        has(of(1), &["internal error", "cuX", "CUDA_ERROR_X"]);
        has(at_layer(of(2), "conv"), &["layer \"conv\"", "cuX"]);
        has(at_layer(of(719), "conv"), &["layer \"conv\"", "device lost"]);
    }
}
