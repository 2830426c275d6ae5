//! Numeric classes of errors.

use crate::Error;
use kiln_ir::ErrorCode;

impl Error {
    /// Class of the error, with the number that TensorRT has for it.
    ///
    /// ```
    /// let error = kiln::Engine::builder().backend("none").build(&kiln::Network::new("net")).expect_err("no such backend");
    /// assert_eq!(error.code().number(), 3);
    /// ```
    pub fn code(&self) -> ErrorCode {
        match self {
            #[cfg(feature = "build")]
            Error::Network(e) => e.code(),
            #[cfg(feature = "build")]
            Error::Build { source, .. } => source.code(),
            #[cfg(feature = "build")]
            Error::Import { .. } | Error::Calibration(_) => ErrorCode::InvalidArgument,
            #[cfg(not(feature = "build"))]
            Error::NoPlan { .. } => ErrorCode::UnsupportedState,
            Error::Text { source, .. } => source.code(),
            Error::NoBackend { .. } => ErrorCode::FailedInitialization,
            Error::Devices { source, .. } => match source.class() {
                ErrorCode::UnsupportedState => ErrorCode::FailedInitialization,
                code => code,
            },
            Error::Shape { .. }
            | Error::UnknownBackend { .. }
            | Error::NoDevice { .. }
            | Error::HardwareCompatibility { .. }
            | Error::OtherTarget { .. }
            | Error::Array { .. }
            | Error::WeightsFile { .. }
            | Error::File { .. }
            | Error::Elements(_)
            | Error::Tensor(_)
            | Error::Format(_) => ErrorCode::InvalidArgument,
            Error::Built { .. } | Error::NotPortable { .. } => ErrorCode::InvalidConfig,
            Error::Plugin(_) => ErrorCode::FailedInitialization,
            Error::Plan(e) => e.code(),
            Error::Runtime(e) => e.code(),
        }
    }
}
