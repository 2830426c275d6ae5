//! Status codes of functions. The message of an error goes through `error_set` of the host.

/// Done.
pub const KILN_OK: i32 = 0;
/// An argument breaks the contract.
pub const KILN_INVALID_ARGUMENT: i32 = -1;
/// The backend can't do this. The message is the reason, which users read.
pub const KILN_UNSUPPORTED: i32 = -2;
/// Memory could not be had. Detail "bytes": how much, as decimal text.
pub const KILN_OUT_OF_MEMORY: i32 = -3;
/// The device is gone; the executable and its contexts are unusable.
pub const KILN_DEVICE_LOST: i32 = -4;
/// A file or library could not be read.
pub const KILN_IO: i32 = -5;
/// A payload or blob was made for something else.
pub const KILN_INCOMPATIBLE: i32 = -6;
/// The caller asked to stop. Detail "layer": the layer that the run had come to.
pub const KILN_CANCELLED: i32 = -7;
/// The code of the plug-in panicked or threw; the object that it happened in is unusable.
pub const KILN_PANICKED: i32 = -8;
/// A defect of the plug-in.
pub const KILN_INTERNAL: i32 = -9;
/// The contents of a tensor are illegal for a layer. Detail "layer": its name.
pub const KILN_EXECUTION: i32 = -10;
