//! Flags that are refused: hardware and formats that Kiln is not for.

use super::Value::{None, Required};
use super::{Flag, refused};

const DLA: &str =
    "Kiln has no backend for DLA: leave the flag out to build for the device that --device names.";
const SAFE: &str = "Kiln has no safety runtime: leave the flag out to build a standard engine.";
const LEAN: &str = "Kiln has one runtime, which no library file replaces: leave the flag out.";
const IMPLICIT: &str = "Models have their batch dimension: give it with --shapes or --optShapes.";
const FORMAT: &str = "Kiln imports ONNX: convert the model, and give it with --onnx.";

pub const FLAGS: &[Flag] = &[
    refused("useDLACore", Required("N"), DLA),
    refused("buildDLAStandalone", None, DLA),
    refused("adjustForDLA", None, DLA),
    refused("reportCapabilityDLA", None, DLA),
    refused("uint8AsymmetricQuantizationDLA", None, DLA),
    refused("layerDeviceTypes", Required("NAME:DEVICE,…"), DLA),
    refused("safe", None, SAFE),
    refused("consistency", None, SAFE),
    refused("restricted", None, SAFE),
    refused("safetyPlugins", Required("FILE"), SAFE),
    refused("leanDLLPath", Required("FILE"), LEAN),
    refused(
        "remoteAutoTuningConfig",
        Required("SPEC"),
        "Kiln times kernels on the device here: take its timing cache to other machines.",
    ),
    refused("batch", Required("N"), IMPLICIT),
    refused("maxBatch", Required("N"), IMPLICIT),
    refused("deploy", Required("FILE"), FORMAT),
    refused("model", Required("FILE"), FORMAT),
    refused("uff", Required("FILE"), FORMAT),
    refused("uffInput", Required("SPEC"), FORMAT),
    refused("uffNHWC", None, FORMAT),
    refused("output", Required("NAMES"), FORMAT),
];
