//! Flags of `kiln trtexec`: those of trtexec 10 and 11 are all known, and each one that is taken changes the build or the run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, digits, kiln};

/// All flags of trtexec 11.1.
const ELEVEN: &str = "onnx loadEngine saveEngine getPlanVersionOnly asyncFileReader minShapes optShapes maxShapes shapes \
    profile useProfile inputIOFormats outputIOFormats loadInputs dumpOutput exportOutput dumpRawBindingsToFile \
    useManagedMemory exposeDMA includeDataTransfers noDataTransfers loadRefOutputs refPair accuracyAlgorithm \
    accuracyThreshold atol rtol memPoolSize builderOptimizationLevel avgTiming maxTactics maxAuxStreams sparsity \
    tacticSources noTF32 stronglyTyped directIO refit refitFromOnnx stripWeights stripAllWeights allowWeightStreaming \
    weightStreamingBudget hardwareCompatibilityLevel runtimePlatform versionCompatible excludeLeanRuntime leanDLLPath \
    useRuntime tilingOptimizationLevel l2LimitForTiling preview decomposableAttentions monitorMemory tempdir \
    tempfileControls cpuOnly skipInference dumpKernelText remoteAutoTuningConfig timingCacheFile errorOnTimingCacheMiss \
    noBuilderCache noCompilationCache tuneBuildRoutes tuneBuildRouteFile tuningSearch tuningCacheFile tuningTimeOut \
    setBuildRoute helpBuildRoute saveAllEngines dryRun continue iterations warmUp duration sleepTime idleTime infStreams \
    threads noCudaGraph useCudaGraph noSpinWait useSpinWait timeDeserialize timeRefit separateProfileRun \
    persistentCacheRatio allocationStrategy device consistency verbose avgRuns percentile dumpRefit dumpProfile \
    dumpLayerInfo dumpOptimizationProfile profilingVerbosity exportTimes exportProfile exportLayerInfo markDebug \
    markUnfusedTensorsAsDebugTensors saveDebugTensors saveAllDebugTensors staticPlugins dynamicPlugins \
    setPluginsToSerialize ignoreParsedPluginLibs enablePluginOverride pluginInstanceNorm safetyPlugins safe \
    buildDLAStandalone useDLACore allowGPUFallback adjustForDLA reportCapabilityDLA uint8AsymmetricQuantizationDLA \
    layerDeviceTypes help";

/// Flags that 11 has no more, and 10.16 and earlier ones have.
const TEN: &str = "best fp16 bf16 int8 fp8 int4 calib calibProfile minShapesCalib optShapesCalib maxShapesCalib \
    layerPrecisions layerOutputTypes precisionConstraints restricted weightless explicitBatch workspace buildOnly streams \
    plugins batch maxBatch deploy model uff uffInput uffNHWC output minTiming heuristic vc nvtxMode";

/// Words of a line with a model that does not exist, so that nothing is built.
fn line(flag: &str, value: &str) -> Vec<String> {
    let flag = if value.is_empty() { format!("--{flag}") } else { format!("--{flag}={value}") };
    vec!["trtexec".into(), "--onnx=missing.onnx".into(), flag]
}

#[test]
fn every_flag_of_both_versions_is_known() {
    let flags: Vec<&str> = ELEVEN.split_whitespace().chain(TEN.split_whitespace()).collect();
    assert!(ELEVEN.split_whitespace().count() >= 122 && flags.len() > 148, "{}", flags.len());
    let help = kiln(&["trtexec", "--help"]);
    assert_eq!(help.code, 0);
    for flag in flags {
        let listed = help.stdout.lines().filter(|l| l.starts_with("  --")).any(|l| {
            let mut names = l.trim().split(", ").map(|n| n.split(['=', '[']).next().unwrap_or(n));
            names.any(|n| n == format!("--{flag}"))
        });
        assert!(listed, "--{flag} is not in the help");
        let words = line(flag, "");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let r = kiln(&words);
        assert!(!r.stderr.contains("is not a flag"), "--{flag}: {}", r.stderr);
    }
}

#[test]
fn refusals_say_why_and_what_to_do() {
    for (flag, value, words) in [
        ("useDLACore", "0", "no backend for DLA"),
        ("buildDLAStandalone", "", "no backend for DLA"),
        ("safe", "", "no safety runtime"),
        ("leanDLLPath", "x.so", "one runtime"),
        ("useRuntime", "lean", "full is taken"),
        ("weightStreamingBudget", "200%", "0% to 100%"),
        ("hardwareCompatibilityLevel", "turing+", "wanted none, ampere+"),
        ("runtimePlatform", "windowsAMD64", "sameAsBuild is taken"),
        ("tuneBuildRoutes", "-a=[on|off]", "there are level, fuse"),
        ("setBuildRoute", "-fuse=[on|off]", "has 2 values"),
        ("tuningSearch", "slow", "wanted fast, full or mixed"),
        ("tuningTimeOut", "3", "--tuneBuildRoutes"),
        ("tuneBuildRouteFile", "/no/file", "No such file"),
        ("helpBuildRoute", "speed", "there are level, fuse"),
        ("batch", "8", "--optShapes"),
        ("uff", "m.uff", "--onnx"),
        ("remoteAutoTuningConfig", "x", "timing cache"),
    ] {
        let words_of_line = line(flag, value);
        let r = kiln(&words_of_line.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(r.code, 2, "--{flag}: {}", r.stderr);
        assert!(r.stderr.contains(words) && r.stderr.contains("[E] --"), "--{flag}: {}", r.stderr);
        assert!(r.stdout.contains("&&&& FAILED Kiln.trtexec"), "--{flag}: {}", r.stdout);
    }
}

#[test]
fn wrong_lines_are_refused_before_anything_runs() {
    let f = Folder::new();
    let model = format!("--onnx={}", digits("lenet_a.onnx"));
    for (words, wanted) in [
        (vec![], "give a model by --onnx"),
        (vec!["--fp61"], "Is --fp16 meant?"),
        (vec!["--iterations=ten"], "wanted a whole number"),
        (vec!["--onnx"], "--onnx wants a value"),
        (vec![model.as_str(), "--loadEngine=x"], "give one of the two"),
        (vec![model.as_str(), "--errorOnTimingCacheMiss"], "--timingCacheFile"),
        (vec![model.as_str(), "--loadRefOutputs=logits:x"], "--accuracyThreshold"),
        (vec![model.as_str(), "--accuracyThreshold=1"], "--loadRefOutputs"),
        (vec![model.as_str(), "--refPair=0", "--loadInputs=input:x"], "at least two pairs"),
        (vec![model.as_str(), "--profile=1", "--optShapes=input:1x1x28x28"], "not all profiles below"),
        (vec![model.as_str(), "--percentile=101"], "0 to 100"),
        (vec![model.as_str(), "--tacticSources=CUDNN"], "has no sign"),
        (vec![model.as_str(), "--memPoolSize=disk:1"], "is no pool"),
        (vec![model.as_str(), "--refitFromOnnx"], "--loadEngine"),
        (vec!["lenet.onnx"], "is not a flag"),
    ] {
        let r = kiln(&[&["trtexec"][..], &words].concat());
        assert_eq!(r.code, 2, "{words:?}: {}", r.stderr);
        assert!(r.stderr.contains(wanted), "{words:?}: {}", r.stderr);
    }
    let r = kiln(&["trtexec", &format!("--onnx={}", f.name("none.onnx"))]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("none.onnx") && r.stdout.contains("&&&& FAILED"), "{}{}", r.stdout, r.stderr);
    // Options of the build are checked by its own rules.
    let r = kiln(&["trtexec", &model, "--fp16", "--stronglyTyped"]);
    assert_eq!(r.code, 1);
    assert!(r.stderr.contains("--strongly-typed"), "{}", r.stderr);
}

#[test]
fn flags_without_effect_are_named_with_the_reason() {
    let model = format!("--onnx={}", digits("lenet_a.onnx"));
    let r = kiln(&[
        "trtexec",
        &model,
        "--skipInference",
        "--useCudaGraph",
        "--monitorMemory",
        "--memPoolSize=dlaSRAM:1",
        "--exportTimes=t.json",
    ]);
    assert_eq!(r.code, 0, "{}", r.stderr);
    for flag in ["--useCudaGraph", "--monitorMemory", "--memPoolSize=dlaSRAM:1", "--exportTimes"] {
        assert!(r.stderr.contains(&format!("[W] {flag} has no effect: ")), "{flag}: {}", r.stderr);
    }
}
