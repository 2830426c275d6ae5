//! Flags for reports, files of results and debug tensors.

use super::Class::Own;
use super::Value::{None, Optional, Required};
use super::{Flag, Setter, flag, noted};
use crate::trtexec::values;

/// A flag that turns something on.
macro_rules! on {
    ($field:ident) => {
        Own(|s, _| {
            s.$field = true;
            Ok(())
        })
    };
}

/// A flag that names a file.
macro_rules! file {
    ($field:ident) => {
        Own(|s, v| {
            s.$field = Some(v.into());
            Ok(())
        })
    };
}

pub const FLAGS: &[Flag] = &[
    flag("verbose", None, on!(verbose), "Print what the numbers mean, and notes of the build").or(&["v"]),
    flag("help", None, on!(help), "Print all flags").or(&["h"]),
    flag("version", None, on!(version), "Print the version").or(&["V"]),
    flag(
        "avgRuns",
        Required("N"),
        Own(|s, v| values::at_least_one(v).map(|n| s.avg_runs = n)),
        "Runs that a line of averages stands for [10]",
    ),
    flag(
        "percentile",
        Required("P,…"),
        Own(|s, v| values::percentiles(v).map(|p| s.percentiles = p)),
        "Percentiles of the summary [90,95,99]",
    ),
    flag("dumpRefit", None, on!(dump_refit), "Print the weights that a refit can replace"),
    flag("dumpOutput", None, on!(dump_output), "Print the outputs of the last run"),
    flag("dumpRawBindingsToFile", None, on!(dump_bindings), "Store inputs and outputs as raw files here"),
    flag("dumpProfile", None, on!(dump_profile), "Print times of layers"),
    flag("dumpLayerInfo", None, on!(dump_layers), "Print the layers of the engine"),
    flag("dumpOptimizationProfile", None, on!(dump_profiles), "Print the engine's profiles"),
    flag("exportTimes", Required("FILE"), file!(export_times), "Store the times of all runs as JSON"),
    flag("exportOutput", Required("FILE"), file!(export_output), "Store the outputs as JSON"),
    flag("exportProfile", Required("FILE"), file!(export_profile), "Store times of layers as JSON"),
    flag("exportLayerInfo", Required("FILE"), file!(export_layers), "Store the layers as JSON"),
    flag(
        "profilingVerbosity",
        Required("layer_names_only|detailed|none"),
        Own(VERBOSITY),
        "Detail in which the engine describes its layers",
    ),
    flag(
        "saveDebugTensors",
        Required("NAME:FILE,…"),
        Own(|s, v| {
            s.debug_files.extend(values::split(v));
            Ok(())
        }),
        "Store tensors that --markDebug named as raw files",
    ),
    flag(
        "saveAllDebugTensors",
        Optional("summary"),
        Own(|s, v| values::debug_forms(v).map(|forms| s.debug_forms = forms)),
        "Report all tensors between kernels: summary, numpy, string, raw",
    ),
    noted("nvtxVerbose", None, "It is --profilingVerbosity=detailed now."),
    noted("dumpKernelText", None, "Engines name their kernels: see --dumpLayerInfo."),
];

const VERBOSITY: Setter = |s, v| values::verbosity(v).map(|v| s.verbosity = v);
