//! Flags for the build.

use super::Class::{Build, BuildAll, Own};
use super::Value::{None, Optional, Required};
use super::{Flag, flag, noted, nothing, same};
use crate::trtexec::values;

pub const FLAGS: &[Flag] = &[
    flag("fp16", None, Build("--fp16", nothing), "Layers may run in f16, where that is faster"),
    flag("bf16", None, Build("--bf16", nothing), "Layers may run in bf16, where that is faster"),
    flag("int8", None, Build("--int8", nothing), "Layers may run on 8-bit codes, where ranges are known"),
    flag("fp8", None, Build("--fp8", nothing), "Layers may run on 8-bit floats, where ranges are known"),
    flag(
        "best",
        None,
        BuildAll(&["--fp16", "--bf16", "--int8", "--fp8"]),
        "Layers may run in any of these types",
    ),
    noted("int4", None, "Weights of four bits run as the model's Q/DQ layers say."),
    flag(
        "stronglyTyped",
        None,
        Build("--strongly-typed", nothing),
        "Only the model's casts and Q/DQ set types",
    ),
    flag("noTF32", None, Build("--no-tf32", nothing), "Products of f32 in IEEE arithmetic"),
    flag(
        "precisionConstraints",
        Required("none|prefer|obey"),
        Build("--precision-constraints", same),
        "Strictness of the types that are asked of layers",
    ),
    flag(
        "layerPrecisions",
        Required("NAME:TYPE,…"),
        Build("--layer-precisions", |v| Ok(values::unquoted(v))),
        "Types that layers compute in; * stands for any characters",
    ),
    flag(
        "layerOutputTypes",
        Required("NAME:TYPE+…,…"),
        Build("--layer-output-types", |v| Ok(values::unquoted(v))),
        "Types of layers' outputs",
    ),
    flag(
        "calib",
        Required("FILE"),
        Build("--calibration-cache", same),
        "A calibration table, with --int8 or --fp8",
    ),
    noted("calibProfile", Required("N"), "A table from --calib is read, and nothing is measured."),
    noted("minShapesCalib", Required("SHAPES"), "A table from --calib is read, and nothing is measured."),
    noted("optShapesCalib", Required("SHAPES"), "A table from --calib is read, and nothing is measured."),
    noted("maxShapesCalib", Required("SHAPES"), "A table from --calib is read, and nothing is measured."),
    flag(
        "sparsity",
        Required("disable|enable|force"),
        Build("--sparsity", same),
        "Use of weights of which two of four neighbours are 0",
    ),
    flag(
        "memPoolSize",
        Required("POOL:SIZE,…"),
        Own(|s, v| s.set_pools(v)),
        "Limits of memory: workspace, tacticSharedMem, tacticDRAM; MiB without a unit",
    ),
    flag(
        "workspace",
        Required("MIB"),
        Own(|s, v| s.set_pools(&format!("workspace:{v}"))),
        "The limit of --memPoolSize=workspace:MIB",
    ),
    flag(
        "timingCacheFile",
        Required("FILE"),
        Build("--timing-cache", same),
        "Measured times: read, and added to",
    ),
    flag(
        "errorOnTimingCacheMiss",
        None,
        Own(|s, _| {
            s.error_on_cache_miss = true;
            s.option("--locked", "");
            Ok(())
        }),
        "Fail where the timing cache has no answer",
    ),
    flag(
        "noBuilderCache",
        None,
        Build("--no-timing-cache", nothing),
        "Time equal layers each on its own, without a cache",
    ),
    noted("noCompilationCache", None, "Kernels that one build compiled are not kept for the next one."),
    flag(
        "builderOptimizationLevel",
        Required("0-5"),
        Build("--optimization-level", same),
        "Trouble that the build takes",
    ),
    flag(
        "avgTiming",
        Required("N"),
        Own(|s, v| values::at_least_one(v).map(|n| s.samples = Some(n))),
        "Samples taken of each kernel",
    ),
    noted("minTiming", Required("N"), "Every kernel is timed as often as --avgTiming says."),
    noted("heuristic", None, "It is --builderOptimizationLevel=2 now."),
    flag(
        "maxTactics",
        Required("N"),
        Own(|s, v| values::max_tactics(v).map(|n| s.max_tactics = n)),
        "Kernels timed for a layer at most; -1: as the optimization level says",
    ),
    flag(
        "tacticSources",
        Required("±NAME,…"),
        Own(|s, v| values::tactic_sources(v).map(|all| s.tactic_sources.extend(all))),
        "Libraries that kernels may or must not come from: CUBLAS_LT, CUDNN",
    ),
    flag("refit", None, Build("--refit", nothing), "Weights can be replaced after the build"),
    flag("stripWeights", None, Build("--strip-weights", nothing), "Leave out weights that a refit supplies")
        .or(&["weightless"]),
    flag(
        "stripAllWeights",
        None,
        BuildAll(&["--refit", "--strip-weights"]),
        "Leave out all weights that a refit can supply",
    ),
    flag(
        "refitFromOnnx",
        Optional(""),
        Own(|s, v| {
            s.refit_from = Some(v.into());
            Ok(())
        }),
        "Refit --loadEngine with the weights of this model, or of --onnx",
    ),
    flag(
        "versionCompatible",
        None,
        Own(|s, _| {
            s.version_compatible = true;
            Ok(())
        }),
        "Build an engine that other versions run",
    )
    .or(&["vc"]),
    flag(
        "hardwareCompatibilityLevel",
        Required("none|ampere+|sameComputeCapability"),
        Build("--hardware-compatibility", |v| match v {
            // Engines run on all devices of their architecture anyway.
            "none" | "sameComputeCapability" => Ok("none".into()),
            "ampere+" => Ok("ampere-plus".into()),
            _ => Err("wanted none, ampere+ or sameComputeCapability".into()),
        }),
        "Devices beside that of the build that are to run the engine",
    ),
    flag(
        "runtimePlatform",
        Required("sameAsBuild"),
        Own(|_, v| {
            values::only(
                v,
                "sameAsBuild",
                "Kiln builds for the platform it runs on: build where the engine runs",
            )
        }),
        "Only sameAsBuild",
    ),
    flag(
        "useRuntime",
        Required("full"),
        Own(|_, v| values::only(v, "full", "Kiln has one runtime, without lean and dispatch forms")),
        "Only full: there is one runtime",
    ),
    flag(
        "markDebug",
        Required("TENSORS"),
        Build("--mark-debug", |v| Ok(values::unquoted(v))),
        "Tensors that runs can store with --saveDebugTensors",
    ),
    noted(
        "markUnfusedTensorsAsDebugTensors",
        None,
        "All tensors between kernels can be stored with --saveAllDebugTensors, marked or not.",
    ),
    flag("cpuOnly", None, Build("--no-timing", nothing), "Time nothing: take kernels by estimates"),
    noted("excludeLeanRuntime", None, "Engines hold no runtime."),
    flag(
        "maxAuxStreams",
        Required("N"),
        Build("--max-aux-streams", |v| match v.parse::<usize>() {
            Ok(n) => Ok(n.to_string()),
            Err(_) => Err("wanted a number of streams".into()),
        }),
        "Streams beside the main one that layers may be put into, none by default",
    ),
    noted(
        "tilingOptimizationLevel",
        Required("0-3"),
        "Kiln's fusions are decided by --builderOptimizationLevel.",
    ),
    noted(
        "l2LimitForTiling",
        Required("SIZE"),
        "Kiln's kernels are chosen by times, which the cache is part of.",
    ),
    noted("preview", Required("FEATURES"), "Kiln has no preview features."),
    noted("decomposableAttentions", Required("NAMES"), "Attention is fused or not by its times."),
    noted("monitorMemory", None, "Memory of the engine is reported in any case."),
    noted("tempdir", Required("FOLDER"), "Builds make no temporary files but beside the file they write."),
    noted(
        "tempfileControls",
        Required("SPEC"),
        "Builds make no temporary files but beside the file they write.",
    ),
    noted("allowWeightStreaming", None, "Every engine can stream its weights, as far as its backend does."),
    flag(
        "weightStreamingBudget",
        Required("SIZE|PERCENT"),
        Own(|s, v| values::budget(v).map(|b| s.weight_budget = b)),
        "Memory of the device for weights: MiB without a unit, or a part such as 50%",
    ),
    noted("allowGPUFallback", None, "There is no DLA that layers could fall back from."),
    noted("threshold", Required("X"), "It belongs to parsers of formats other than ONNX."),
];
