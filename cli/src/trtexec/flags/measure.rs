//! Flags for the measurement.

use super::Class::Own;
use super::Value::{None, Optional, Required};
use super::{Flag, flag, noted};
use crate::trtexec::values;

pub const FLAGS: &[Flag] = &[
    flag(
        "iterations",
        Required("N"),
        Own(|s, v| values::number(v).map(|n| s.iterations = n)),
        "Runs at least [10]",
    ),
    flag(
        "warmUp",
        Required("MS"),
        Own(|s, v| values::milliseconds(v).map(|t| s.warm_up = t)),
        "Milliseconds of runs before anything counts [200]",
    ),
    flag(
        "duration",
        Required("S"),
        Own(|s, v| values::seconds(v).map(|t| s.duration = t)),
        "Seconds at least [3]",
    ),
    flag(
        "sleepTime",
        Required("MS"),
        Own(|s, v| values::milliseconds(v).map(|t| s.sleep = t)),
        "Milliseconds between the copies of inputs and the run",
    ),
    flag(
        "idleTime",
        Required("MS"),
        Own(|s, v| values::milliseconds(v).map(|t| s.idle = t)),
        "Milliseconds between two runs",
    ),
    flag(
        "infStreams",
        Required("N"),
        Own(|s, v| values::streams(v).map(|n| s.streams = n)),
        "Contexts that run at once [1]",
    )
    .or(&["streams"]),
    flag(
        "threads",
        None,
        Own(|s, _| {
            s.threads = true;
            Ok(())
        }),
        "A thread for each context",
    ),
    flag(
        "includeDataTransfers",
        None,
        Own(|s, _| {
            s.transfers = true;
            Ok(())
        }),
        "Time copies of inputs and outputs, too",
    ),
    flag(
        "noDataTransfers",
        None,
        Own(|s, _| {
            s.transfers = false;
            Ok(())
        }),
        "Leave copies of inputs and outputs out [the default]",
    ),
    flag(
        "timeDeserialize",
        None,
        Own(|s, _| {
            s.time_deserialize = true;
            Ok(())
        }),
        "Time loading the engine, and do not run it",
    ),
    flag(
        "timeRefit",
        None,
        Own(|s, _| {
            s.time_refit = true;
            Ok(())
        }),
        "Time a refit of the engine by its own weights, or by --refitFromOnnx",
    ),
    flag(
        "skipInference",
        None,
        Own(|s, _| {
            s.skip_inference = true;
            Ok(())
        }),
        "Build, and do not run",
    )
    .or(&["buildOnly"]),
    noted("useCudaGraph", None, "Launches are recorded where the device can."),
    noted("noCudaGraph", None, "Launches are recorded where the device can."),
    noted("useSpinWait", None, "The backend waits in the way that suits its device."),
    noted("noSpinWait", None, "The backend waits in the way that suits its device."),
    noted("separateProfileRun", None, "Layers are timed in runs of their own in any case."),
    noted("persistentCacheRatio", Required("X"), "The device's cache is left to its driver."),
    noted("allocationStrategy", Required("SPEC"), "A context holds memory for all shapes of its engine."),
    noted("nvtxMode", Optional(""), "It is --profilingVerbosity now."),
];
