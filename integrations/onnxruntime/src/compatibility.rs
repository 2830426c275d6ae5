//! Devices that plans of a compiled model run on: a text that ONNX Runtime keeps in the model, and asks about before loading the model.

use crate::abi::{COMPATIBILITY_UNKNOWN, COMPATIBLE, INCOMPATIBLE};
use crate::compiled::check_exists;
use crate::options::Options;
use std::ffi::c_int;

/// Start of the text.
const START: &str = "kiln";

/// The system that a plan is for.
const SYSTEM: (&str, &str) = (std::env::consts::OS, std::env::consts::ARCH);

/// Description of where plans with these options run.
pub fn needs(options: &Options) -> String {
    let backend = options.backend.as_deref().unwrap_or_default();
    format!("{START} {};{}-{};{backend}", env!("CARGO_PKG_VERSION"), SYSTEM.0, SYSTEM.1)
}

/// Whether plans with such a description run here. Their devices are compared when they are loaded.
pub fn judge(text: &str) -> c_int {
    if !text.starts_with(START) {
        return COMPATIBILITY_UNKNOWN;
    }
    let backend = text.rsplit(';').next().unwrap_or_default();
    let options =
        Options { backend: (!backend.is_empty()).then(|| backend.to_owned()), ..Options::default() };
    let same = text == needs(&options);
    if same && check_exists(&options).is_ok() { COMPATIBLE } else { INCOMPATIBLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_of_other_versions_systems_and_backends_do_not_run() {
        let cpu = Options { backend: Some("cpu".into()), ..Options::default() };
        let own = needs(&cpu);
        assert_eq!(judge(&own), COMPATIBLE);
        assert_eq!(judge(&needs(&Options::default())), COMPATIBLE);
        for (from, to) in [(SYSTEM.1, "other"), (";cpu", ";none"), (env!("CARGO_PKG_VERSION"), "0.0.1")] {
            assert_eq!(judge(&own.replace(from, to)), INCOMPATIBLE, "{to}");
        }
        assert_eq!((judge(""), judge("another provider")), (COMPATIBILITY_UNKNOWN, COMPATIBILITY_UNKNOWN));
    }
}
