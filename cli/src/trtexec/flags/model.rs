//! Flags for the model, shapes, profiles, inputs and outputs.

use super::Class::{Build, Own};
use super::Value::{None, Optional, Required};
use super::{Flag, flag, noted, nothing, same};
use crate::trtexec::settings::End;
use crate::trtexec::values;

pub const FLAGS: &[Flag] = &[
    flag("onnx", Required("FILE"), Own(|s, v| set_path(&mut s.onnx, v)), "The model to build"),
    flag(
        "loadEngine",
        Required("FILE"),
        Own(|s, v| set_path(&mut s.load_engine, v)),
        "The engine to run instead of building one",
    ),
    flag(
        "saveEngine",
        Required("FILE"),
        Own(|s, v| set_path(&mut s.save_engine, v)),
        "The file for the engine that is built or refitted",
    ),
    flag(
        "getPlanVersionOnly",
        None,
        Own(|s, _| yes(&mut s.plan_version_only)),
        "Print the version that --loadEngine was built with, and load nothing",
    ),
    flag("backend", Required("NAME"), Build("--backend", same), "Kiln's backend (not a flag of trtexec)"),
    flag("device", Required("N"), Build("--device", same), "Number of the backend's device"),
    flag(
        "minShapes",
        Required("NAME:DIMS,…"),
        Own(|s, v| s.add_shapes(End::Min, v)),
        "Least shapes of inputs; of shape inputs, least elements",
    ),
    flag("optShapes", Required("NAME:DIMS,…"), Own(|s, v| s.add_shapes(End::Opt, v)), "Usual shapes"),
    flag("maxShapes", Required("NAME:DIMS,…"), Own(|s, v| s.add_shapes(End::Max, v)), "Greatest shapes"),
    flag(
        "shapes",
        Required("NAME:DIMS,…"),
        Own(|s, v| values::shapes(v).map(|v| s.shapes.extend(v))),
        "Shapes to run with, and the only ones of a build without the others",
    ),
    flag(
        "profile",
        Required("N"),
        Own(|s, v| s.choose_profile(v)),
        "The profile that --minShapes, --optShapes and --maxShapes behind it belong to",
    )
    .or(&["optProfile"]),
    flag(
        "useProfile",
        Required("N"),
        Own(|s, v| values::number(v).map(|n| s.use_profile = Some(n))),
        "The profile to run in",
    )
    .or(&["useOptimizationProfile"]),
    flag(
        "inputIOFormats",
        Required("TYPE:FORMAT+…,…"),
        Build("--input-io-formats", same),
        "Types and formats of all inputs in their order, as fp16:chw",
    ),
    flag(
        "outputIOFormats",
        Required("TYPE:FORMAT+…,…"),
        Build("--output-io-formats", same),
        "Types and formats of all outputs",
    ),
    flag("directIO", None, Build("--direct-io", nothing), "Refuse reformatting at inputs and outputs"),
    flag(
        "loadInputs",
        Required("NAME:FILE,…"),
        Own(|s, v| s.add_files(|p| &mut p.inputs, v)),
        "Inputs from files: raw elements, .npy, or .npz:ARRAY",
    ),
    flag(
        "loadRefOutputs",
        Required("NAME:FILE,…"),
        Own(|s, v| s.add_files(|p| &mut p.outputs, v)),
        "Wanted outputs, as --loadInputs",
    ),
    flag(
        "refPair",
        Required("N"),
        Own(|s, v| values::number(v).map(|n| s.pair = Some(n))),
        "The pair that --loadInputs and --loadRefOutputs behind it belong to",
    ),
    flag(
        "accuracyAlgorithm",
        Required("l0|l1|l2|lInf|cos"),
        Own(|s, v| v.parse().map(|a| s.accuracy.algorithm = a)),
        "Measure of the difference from wanted outputs [l0]",
    ),
    flag(
        "accuracyThreshold",
        Required("X"),
        Own(|s, v| values::positive(v).map(|x| s.accuracy.threshold = Some(x))),
        "The greatest difference that passes",
    ),
    flag(
        "atol",
        Required("X"),
        Own(|s, v| values::decimal(v).map(|x| s.accuracy.atol = x)),
        "Absolute tolerance of l0 [1e-5]",
    ),
    flag(
        "rtol",
        Required("X"),
        Own(|s, v| values::decimal(v).map(|x| s.accuracy.rtol = x)),
        "Relative tolerance of l0 [1e-5]",
    ),
    flag(
        "staticPlugins",
        Required("FILE"),
        Own(|s, v| s.add_plugins(v)),
        "A plug-in library to load [repeatable]",
    )
    .or(&["plugins"]),
    flag(
        "dynamicPlugins",
        Required("FILE"),
        Own(|s, v| s.add_plugins(v)),
        "A plug-in library to load, which --setPluginsToSerialize may put into the engine",
    ),
    flag(
        "setPluginsToSerialize",
        Required("FILE"),
        Own(|s, v| {
            s.embed_plugins = true;
            s.add_plugins(v)
        }),
        "Plug-in libraries to put into the engine, as far as its runs call them",
    ),
    flag(
        "embeddedPlugins",
        None,
        Build("--embedded-plugins", nothing),
        "Load the plug-in libraries that an engine holds: code of its author runs (not a flag of trtexec)",
    ),
    noted("ignoreParsedPluginLibs", None, "Kiln loads no library that a model names."),
    noted("enablePluginOverride", None, "A plug-in layer never replaces a layer of Kiln's own."),
    noted("pluginInstanceNorm", None, "Instance normalization has kernels of Kiln's own."),
    noted("asyncFileReader", None, "Engine files are mapped, which reads them as they are needed."),
    noted("explicitBatch", Optional(""), "Every model has its batch dimension."),
    noted("useManagedMemory", None, "Each backend takes the memory that suits its device."),
    noted("exposeDMA", None, "Copies of inputs and outputs are timed on their own in any case."),
];

fn set_path(to: &mut Option<std::path::PathBuf>, value: &str) -> Result<(), String> {
    *to = Some(value.into());
    Ok(())
}

fn yes(to: &mut bool) -> Result<(), String> {
    *to = true;
    Ok(())
}
