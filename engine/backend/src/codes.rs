//! Errors as codes of the C ABI, and back.

use crate::BackendError;
use kiln_abi as abi;

impl BackendError {
    /// The code of the C ABI.
    pub fn code(&self) -> i32 {
        match self {
            BackendError::Unsupported(_) => abi::KILN_UNSUPPORTED,
            BackendError::InvalidArgument(_) => abi::KILN_INVALID_ARGUMENT,
            BackendError::OutOfMemory { .. } => abi::KILN_OUT_OF_MEMORY,
            BackendError::DeviceLost(_) => abi::KILN_DEVICE_LOST,
            BackendError::Incompatible(_) => abi::KILN_INCOMPATIBLE,
            BackendError::Io(_) => abi::KILN_IO,
            BackendError::Cancelled { .. } => abi::KILN_CANCELLED,
            BackendError::Panicked(_) => abi::KILN_PANICKED,
            BackendError::Execution { .. } => abi::KILN_EXECUTION,
            BackendError::Internal(_) => abi::KILN_INTERNAL,
        }
    }

    /// Payload of an error beside its code: the message without the code's own text, and details by name.
    pub fn parts(&self) -> (String, Vec<(&'static str, String)>) {
        match self {
            BackendError::Unsupported(m)
            | BackendError::InvalidArgument(m)
            | BackendError::DeviceLost(m)
            | BackendError::Incompatible(m)
            | BackendError::Io(m)
            | BackendError::Panicked(m)
            | BackendError::Internal(m) => (m.clone(), vec![]),
            BackendError::Cancelled { layer } if layer.is_empty() => (String::new(), vec![]),
            BackendError::Cancelled { layer } => (String::new(), vec![("layer", layer.clone())]),
            BackendError::OutOfMemory { what, bytes } => (what.clone(), vec![("bytes", bytes.to_string())]),
            BackendError::Execution { layer, message } => (message.clone(), vec![("layer", layer.clone())]),
        }
    }

    /// The error of a code, a message and details. A code that this version does not know is a defect of the backend.
    pub fn from_parts(code: i32, message: String, detail: impl Fn(&str) -> Option<String>) -> BackendError {
        match code {
            abi::KILN_UNSUPPORTED => BackendError::Unsupported(message),
            abi::KILN_INVALID_ARGUMENT => BackendError::InvalidArgument(message),
            abi::KILN_OUT_OF_MEMORY => BackendError::OutOfMemory {
                what: message,
                bytes: detail("bytes").and_then(|s| s.parse().ok()).unwrap_or(0),
            },
            abi::KILN_DEVICE_LOST => BackendError::DeviceLost(message),
            abi::KILN_INCOMPATIBLE => BackendError::Incompatible(message),
            abi::KILN_IO => BackendError::Io(message),
            abi::KILN_CANCELLED => BackendError::Cancelled { layer: detail("layer").unwrap_or_default() },
            abi::KILN_PANICKED => BackendError::Panicked(message),
            abi::KILN_EXECUTION => {
                BackendError::Execution { layer: detail("layer").unwrap_or_default(), message }
            }
            abi::KILN_INTERNAL => BackendError::Internal(message),
            other => BackendError::Internal(format!("status {other}, which is none: {message}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_survive_the_crossing() {
        let m = || "why".to_owned();
        for e in [
            BackendError::Unsupported(m()),
            BackendError::InvalidArgument(m()),
            BackendError::OutOfMemory { what: m(), bytes: 1 << 40 },
            BackendError::DeviceLost(m()),
            BackendError::Incompatible(m()),
            BackendError::Io(m()),
            BackendError::cancelled(),
            BackendError::Cancelled { layer: "l".into() },
            BackendError::Panicked(m()),
            BackendError::Execution { layer: "l".into(), message: m() },
            BackendError::Internal(m()),
        ] {
            let (message, details) = e.parts();
            let detail = |k: &str| details.iter().find(|d| d.0 == k).map(|d| d.1.clone());
            assert_eq!(BackendError::from_parts(e.code(), message, detail), e);
        }
        assert!(BackendError::from_parts(5, m(), |_| None).to_string().contains("status 5"));
    }
}
