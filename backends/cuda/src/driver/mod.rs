//! The driver: devices, streams, events, memory, modules, graphs. All `unsafe` of running lies here.

mod branch;
mod copy;
mod device;
mod graph;
mod library;
mod map;
mod memory;
mod module;
mod stream;
mod word;

pub use branch::{Branch, Kind};
pub use copy::Rows;
pub use device::{Attribute, Gpu, devices};
pub use graph::Graph;
pub use library::{Api, Conditional, DriverError};
pub use map::{MAP_ALIGNMENT, MAP_BYTES, encode};
pub use memory::{Buffer, Pinned};
pub use module::{Call, Command, Function, Launch, Module};
pub use stream::{Event, Stream};
pub use word::Word;

use kiln_backend::{BackendError, watchdog};

impl From<DriverError> for BackendError {
    fn from(e: DriverError) -> BackendError {
        match &e {
            DriverError::Missing { .. } | DriverError::TooOld { .. } => {
                BackendError::Unsupported(e.to_string())
            }
            DriverError::Call { code: library::OUT_OF_MEMORY, call, .. } => {
                BackendError::OutOfMemory { what: (*call).to_owned(), bytes: 0 }
            }
            // Codes that leave the context unusable: launch failures, illegal addresses, hardware errors.
            DriverError::Call {
                code: 4 | 46 | 214 | 219 | 220 | 226 | 700..=702 | 709 | 710 | 713..=719,
                ..
            } => BackendError::DeviceLost(format!(
                "{e}. A kernel failed or the hardware did: this process cannot use the device any more, so end it and start \
                 another; if it happens again, look at `dmesg` and `nvidia-smi -q` for errors, and run the engine under \
                 compute-sanitizer"
            )),
            DriverError::Hung { limit } => watchdog::expired("the CUDA device", *limit),
            DriverError::Forked { .. } => BackendError::DeviceLost(e.to_string()),
            DriverError::Call { code: 200 | 209 | 222, .. } => BackendError::Incompatible(e.to_string()),
            DriverError::Call { .. } | DriverError::Library { .. } => BackendError::Internal(e.to_string()),
        }
    }
}
