//! `kiln trtexec`: its text by the expressions of scripts that parse it, its files by their schema, and the effect of its flags.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, Ran, command, data, digits, kiln, lenet, ok};
use kiln_npz::{Array, NpyType, read_npy, write_npy};
use serde_json::Value;
use std::process::Command;

/// Flags of a measurement that ends at once.
const SHORT: [&str; 3] = ["--warmUp=0", "--duration=0", "--iterations=12"];

/// Runs in a folder, as files without a path go there.
fn run_in(f: &Folder, args: &[&str]) -> Ran {
    let done = Command::new(command())
        .arg("trtexec")
        .args(args)
        .current_dir(f.path(""))
        .env_remove("KILN_PLUGIN_PATH")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    Ran { code: done.status.code().unwrap(), stdout: text(done.stdout), stderr: text(done.stderr) }
}

fn passes(f: &Folder, args: &[&str]) -> Ran {
    let r = run_in(f, &[args, &SHORT].concat());
    assert_eq!(r.code, 0, "{args:?}: {}{}", r.stdout, r.stderr);
    let (first, last) = (r.stdout.lines().next().unwrap(), r.stdout.lines().last().unwrap());
    assert!(
        first.starts_with("&&&& RUNNING Kiln.trtexec [Kiln v") && first.contains("# kiln trtexec --"),
        "{first}"
    );
    assert!(last.starts_with("&&&& PASSED Kiln.trtexec [Kiln v"), "{last}");
    r
}

fn fails(f: &Folder, args: &[&str], wanted: &str) {
    let r = run_in(f, &[args, &SHORT].concat());
    assert_eq!(r.code, 1, "{args:?}: {}{}", r.stdout, r.stderr);
    assert!(r.stderr.contains("[E] ") && r.stderr.contains(wanted), "{args:?}: {}", r.stderr);
    assert!(r.stdout.lines().last().unwrap().starts_with("&&&& FAILED"), "{}", r.stdout);
}

fn onnx() -> String {
    format!("--onnx={}", digits("lenet_a.onnx"))
}

fn json(f: &Folder, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(f.path(name)).unwrap()).unwrap()
}

/// The number behind a text, up to the first character that none of the scripts reads.
fn after(line: &str, text: &str) -> f64 {
    let rest = &line[line.find(text).unwrap_or_else(|| panic!("no \"{text}\" in {line}")) + text.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number behind \"{text}\" in {line}"))
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found = text.lines().find(|l| l.split_once("[I] ").is_some_and(|(_, l)| l.starts_with(start)));
    found.unwrap_or_else(|| panic!("no line \"{start}\" in {text}"))
}

#[test]
fn the_summary_is_text_that_scripts_parse() {
    let f = Folder::new();
    let r = passes(
        &f,
        &[&onnx(), "--percentile=50,99", "--avgRuns=5", "--includeDataTransfers", "--exportTimes=t.json"],
    );
    let text = &r.stdout;
    assert!(after(line(text, "Engine built in"), "Engine built in ") > 0.0);
    assert!(line(text, "=== Performance summary ===").starts_with('['));
    let rate = after(line(text, "Throughput"), "Throughput: ");
    let wall = after(line(text, "Total Host Walltime"), "Walltime: ");
    assert!((rate * wall / 12.0 - 1.0).abs() < 1e-3, "{rate} {wall}");
    let part = |name: &str| {
        let l = line(text, &format!("{name}: min"));
        let keys = ["min = ", "max = ", "mean = ", "median = ", "percentile(50%) = ", "percentile(99%) = "];
        keys.map(|k| {
            assert!(l.contains(&format!(
                "{k}{}",
                &l[l.find(k).unwrap() + k.len()..].split(" ms").next().unwrap()
            )));
            after(l, k)
        })
    };
    let [latency, enqueue, h2d, compute, d2h] =
        ["Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency"].map(part);
    for p in [latency, enqueue, h2d, compute, d2h] {
        assert!(p[0] > 0.0 && p[0] <= p[2] && p[2] <= p[1] && p[4] <= p[5] && p[5] <= p[1], "{p:?}");
    }
    // Host copies in and out are measured: the means add up.
    assert!((latency[2] / (h2d[2] + compute[2] + d2h[2]) - 1.0).abs() < 1e-3);
    assert_eq!(text.matches("Average on 5 runs - GPU latency: ").count(), 2);
    assert_eq!(text.matches("Average on 2 runs - GPU latency: ").count(), 1);
    let l = line(text, "Average on 5 runs");
    assert!(after(l, "Host latency: ") > after(l, "GPU latency: ") && after(l, "(enqueue ") > 0.0);
    // The file has the runs that the summary is of.
    let times = json(&f, "t.json");
    let times = times.as_array().unwrap();
    assert_eq!(times.len(), 12);
    for t in times {
        let n = |k: &str| t[k].as_f64().unwrap_or_else(|| panic!("no {k} in {t}"));
        let parts = [("H2d", "h2dMs"), ("Compute", "computeMs"), ("D2h", "d2hMs")];
        for (name, key) in parts {
            assert!((n(&format!("end{name}Ms")) - n(&format!("start{name}Ms")) - n(key)).abs() < 1e-9, "{t}");
        }
        assert!(n("startEnqMs") <= n("endEnqMs") && n("startH2dMs") < n("endH2dMs"), "{t}");
        assert!((n("h2dMs") + n("computeMs") + n("d2hMs") - n("latencyMs")).abs() < 1e-9, "{t}");
    }
    let mean = times.iter().map(|t| t["latencyMs"].as_f64().unwrap()).sum::<f64>() / 12.0;
    assert!((mean / latency[2] - 1.0).abs() < 1e-3);
}

/// Expressions of public scripts that read the output, with the number of groups that are numbers.
const EXPRESSIONS: [&str; 12] = [
    r"GPU Compute Time: min = ([\d.]+) ms, max = ([\d.]+) ms, mean = ([\d.]+) ms, median = ([\d.]+) ms",
    r"median = ([\d.]+) ms, percentile\(90%\) = ([\d.]+) ms, percentile\(95%\) = ([\d.]+) ms, percentile\(99%\) = ([\d.]+) ms",
    r"\[I\] Latency: min = ([\d.]+) ms.*mean = ([0-9]*\.?[0-9]+) ms",
    r"H2D Latency: min = (\d+\.?\d*) ms",
    r"D2H Latency: min = (\d+\.?\d*) ms",
    r"Enqueue Time: .*mean = ([\d.]+) ms",
    r"Throughput: ([\d.]+) qps",
    r"GPU latency:\s*([0-9.]+)\s*ms - Host latency:\s*([0-9.]+)\s*ms",
    r"Engine built in ([\d.]+) sec",
    r"Total Host Walltime: ([\d.]+) s",
    r"Total GPU Compute Time: ([\d.]+) s",
    r"Timing trace has ([0-9]+) queries over ([0-9.]+) s",
];

#[test]
fn expressions_of_scripts_find_their_numbers() {
    let f = Folder::new();
    let r = passes(&f, &[&onnx(), "--includeDataTransfers"]);
    for text in EXPRESSIONS {
        let found = regex::Regex::new(text)
            .unwrap()
            .captures(&r.stdout)
            .unwrap_or_else(|| panic!("no {text}: {}", r.stdout));
        for number in found.iter().skip(1).flatten() {
            assert!(number.as_str().parse::<f64>().is_ok(), "{text} finds {}", number.as_str());
        }
    }
    let stamp = regex::Regex::new(r"(?m)^\[\d{2}/\d{2}/\d{4}-\d{2}:\d{2}:\d{2}\] \[I\] ").unwrap();
    assert!(r.stdout.lines().filter(|l| !l.starts_with("&&&&")).all(|l| stamp.is_match(l)), "{}", r.stdout);
}

#[test]
fn without_transfers_nothing_is_copied_and_that_is_said() {
    let f = Folder::new();
    let r = passes(&f, &[&onnx(), "--verbose"]);
    for name in ["H2D Latency", "D2H Latency"] {
        assert_eq!(after(line(&r.stdout, &format!("{name}: min")), "max = "), 0.0);
    }
    assert!(r.stdout.contains("backend \"cpu\" on the host's processor"), "{}", r.stdout);
    assert!(r.stdout.contains("[V] inputs are set once; H2D and D2H Latency are 0"), "{}", r.stdout);
    let other = passes(&f, &[&onnx(), "--includeDataTransfers", "--noDataTransfers"]);
    assert_eq!(after(line(&other.stdout, "H2D Latency: min"), "max = "), 0.0);
    assert!(!other.stdout.contains("[V]"), "{}", other.stdout);
}

#[test]
fn an_engine_is_saved_loaded_and_reported_in_files_of_their_schema() {
    let f = Folder::new();
    passes(&f, &[&onnx(), "--saveEngine=e.plan", "--skipInference", "--profilingVerbosity=detailed"]);
    let r = passes(
        &f,
        &[
            "--loadEngine",
            "e.plan",
            "--exportProfile=p.json",
            "--exportLayerInfo=l.json",
            "--exportOutput=o.json",
            "--dumpProfile",
            "--dumpLayerInfo",
            "--dumpOutput",
            "--dumpRawBindingsToFile",
            "--dumpOptimizationProfile",
        ],
    );
    assert!(
        r.stdout.contains("Engine deserialized in ") && !r.stdout.contains("Engine built in"),
        "{}",
        r.stdout
    );
    assert!(
        r.stdout.contains("=== Profile (12 iterations ) ===") && r.stdout.contains("Total"),
        "{}",
        r.stdout
    );
    assert!(r.stdout.contains("Output Tensors:") && r.stdout.contains("logits: (1x10)"), "{}", r.stdout);
    assert!(r.stdout.contains("profile 0: input dimensions: MIN=1x1x28x28, OPT=1x1x28x28"), "{}", r.stdout);
    let p = json(&f, "p.json");
    let p = p.as_array().unwrap();
    assert_eq!(p[0], serde_json::json!({"count": 12}));
    let mut share = 0.0;
    for l in &p[1..] {
        let n = |k: &str| l[k].as_f64().unwrap_or_else(|| panic!("no {k} in {l}"));
        assert!(l["name"].is_string() && n("timeMs") > 0.0 && n("medianMs") > 0.0, "{l}");
        assert!((n("averageMs") * 12.0 / n("timeMs") - 1.0).abs() < 1e-6, "{l}");
        share += n("percentage");
    }
    assert!((share - 100.0).abs() < 1e-6, "{share}");
    let l = json(&f, "l.json");
    let layers = l["Layers"].as_array().unwrap();
    assert_eq!(layers.len(), p.len() - 1);
    assert!(layers.iter().all(|l| l["Name"].is_string() && l["TacticName"].is_string()), "{l}");
    assert_eq!(l["I/O Tensors"], serde_json::json!(["input", "logits"]));
    assert_eq!(l["Bindings"], l["I/O Tensors"]);
    let o = json(&f, "o.json");
    assert_eq!((o[0]["name"].as_str(), o[0]["dimensions"].as_str()), (Some("logits"), Some("1x10")));
    assert_eq!(o[0]["values"].as_array().unwrap().len(), 10);
    let raw = std::fs::read(f.path("logits.output.1.10.f32.raw")).unwrap();
    let first = f32::from_le_bytes(raw[..4].try_into().unwrap());
    assert_eq!((raw.len(), f64::from(first)), (40, o[0]["values"][0].as_f64().unwrap()));
    assert_eq!(std::fs::read(f.path("input.input.1.1.28.28.f32.raw")).unwrap().len(), 4 * 784);
    // A network of constants launches nothing: its profile has no layers, and that is said.
    let constant = format!("--onnx={}", data("folding/einsum.onnx").display());
    let r = passes(&f, &[&constant, "--exportProfile=none.json"]);
    assert_eq!(json(&f, "none.json"), serde_json::json!([{"count": 12}]));
    assert!(r.stderr.contains("No layer was timed"), "{}", r.stderr);
    // Names alone are the default.
    passes(&f, &[&onnx(), "--skipInference", "--exportLayerInfo=names.json"]);
    assert!(json(&f, "names.json")["Layers"].as_array().unwrap().iter().all(Value::is_string));
    passes(&f, &["--loadEngine=e.plan", "--saveEngine=copy.plan", "--skipInference"]);
    assert!(std::fs::read(f.path("copy.plan")).unwrap() == std::fs::read(f.path("e.plan")).unwrap());
    let r = passes(&f, &["--loadEngine=e.plan", "--getPlanVersionOnly"]);
    assert!(
        r.stdout.contains("with backend \"cpu\" version ") && !r.stdout.contains("Throughput"),
        "{}",
        r.stdout
    );
}

#[test]
fn inputs_come_from_raw_files_and_arrays_and_outputs_are_checked() {
    let f = Folder::new();
    let bytes: Vec<u8> = (0..784).flat_map(|i| ((i % 13) as f32 / 13.0).to_le_bytes()).collect();
    std::fs::write(f.path("x.raw"), &bytes).unwrap();
    let array = Array::new(NpyType::F32, vec![1, 1, 28, 28], bytes.clone()).unwrap();
    std::fs::write(f.path("x.npy"), write_npy(&array).unwrap()).unwrap();
    std::fs::write(f.path("short.raw"), &bytes[4..]).unwrap();
    let values = |name: &str| json(&f, name)[0]["values"].clone();
    // One engine, as other kernels round differently.
    passes(&f, &[&onnx(), "--saveEngine=e.plan", "--skipInference"]);
    let model = "--loadEngine=e.plan".to_owned();
    passes(&f, &[&model, "--loadInputs='input':x.raw", "--exportOutput=raw.json", "--dumpRawBindingsToFile"]);
    passes(&f, &[&model, "--loadInputs=input:x.npy", "--exportOutput=npy.json"]);
    passes(&f, &[&model, "--exportOutput=random.json"]);
    assert_eq!(values("raw.json"), values("npy.json"));
    assert_ne!(values("raw.json"), values("random.json"));
    fails(&f, &[&model, "--loadInputs=input:short.raw"], "has 3132 bytes");
    fails(&f, &[&model, "--loadInputs=image:x.raw"], "there is input");
    // Wanted outputs: equal ones pass, others fail by each measure.
    let wanted = "--loadRefOutputs=logits:logits.output.1.10.f32.raw";
    let r = passes(&f, &[&model, "--loadInputs=input:x.raw", wanted, "--accuracyThreshold=1e-6"]);
    assert!(r.stdout.contains("Accuracy loss (l0) for tensor logits: 0"), "{}", r.stdout);
    let mut off = std::fs::read(f.path("logits.output.1.10.f32.raw")).unwrap();
    let first = f32::from_le_bytes(off[..4].try_into().unwrap()) + 0.5;
    off[..4].copy_from_slice(&first.to_le_bytes());
    std::fs::write(f.path("off.raw"), &off).unwrap();
    let other = [&model, "--loadInputs=input:x.raw", "--loadRefOutputs=logits:off.raw"];
    for (more, loss) in [
        (["--accuracyThreshold=0.09", "--accuracyAlgorithm=l0"], "logits of pair 0: 0.1"),
        (["--accuracyThreshold=0.04", "--accuracyAlgorithm=l1"], "logits of pair 0: 0.05"),
        (["--accuracyThreshold=0.02", "--accuracyAlgorithm=l2"], "logits of pair 0: 0.025"),
        (["--accuracyThreshold=0.4", "--accuracyAlgorithm=lInf"], "logits of pair 0: 0.5"),
        (["--accuracyThreshold=1e-9", "--accuracyAlgorithm=cos"], "logits of pair 0: 0.0"),
    ] {
        fails(&f, &[&other[..], &more].concat(), loss);
    }
    passes(&f, &[&other[..], &["--accuracyThreshold=0.09", "--atol=0.6"]].concat());
    passes(&f, &[&other[..], &["--accuracyThreshold=0.09", "--rtol=1e9"]].concat());
    // Pairs: the second has other outputs.
    let pairs =
        ["--refPair=0", "--loadInputs=input:x.raw", wanted, "--refPair=1", "--loadInputs=input:x.npy"];
    let pairs =
        [&[model.as_str()][..], &pairs, &["--loadRefOutputs=logits:off.raw", "--accuracyThreshold=0.05"]]
            .concat();
    fails(&f, &pairs, "logits of pair 1: 0.1");
}

#[test]
fn shapes_and_profiles_decide_what_is_built_and_run() {
    let f = Folder::new();
    let model = onnx();
    let ranges = [
        "--minShapes=input:1x1x28x28",
        "--optShapes=input:2x1x28x28",
        "--maxShapes=input:4x1x28x28",
        "--profile=1",
        "--minShapes=input:5x1x28x28",
        "--optShapes=input:6x1x28x28",
        "--maxShapes=input:8x1x28x28",
    ];
    let build = [&[model.as_str(), "--saveEngine=e.plan", "--dumpOptimizationProfile"][..], &ranges].concat();
    let r = passes(&f, &build);
    assert!(
        r.stdout.contains("profile 1: input dimensions: MIN=5x1x28x28, OPT=6x1x28x28, MAX=8x1x28x28"),
        "{}",
        r.stdout
    );
    assert!(
        r.stdout.contains("Input binding for input with dimensions 2x1x28x28 is created."),
        "{}",
        r.stdout
    );
    let load = |more: &[&str]| passes(&f, &[&["--loadEngine=e.plan"][..], more].concat()).stdout;
    assert!(load(&["--useProfile=1"]).contains("with dimensions 6x1x28x28"));
    assert!(load(&["--shapes=input:7x1x28x28"]).contains("with dimensions 7x1x28x28"));
    fails(&f, &["--loadEngine=e.plan", "--useProfile=0", "--shapes=input:7x1x28x28"], "7");
    fails(&f, &["--loadEngine=e.plan", "--useProfile=2"], "there is no profile 2");
    assert!(passes(&f, &[&model, "--shapes=input:3x1x28x28"]).stdout.contains("with dimensions 3x1x28x28"));
}

#[test]
fn the_measurement_obeys_its_limits() {
    let f = Folder::new();
    let engine = lenet(&f, &[]);
    let load = format!("--loadEngine={engine}");
    let run = |more: &[&str]| {
        let r = run_in(&f, &[&[load.as_str()], more].concat());
        assert_eq!(r.code, 0, "{}", r.stderr);
        r.stdout
    };
    let queries = |text: &str| after(line(text, "Timing trace has"), "Timing trace has ");
    let none = ["--warmUp=0", "--duration=0"];
    assert_eq!(queries(&run(&[&none[..], &["--iterations=7"]].concat())), 7.0);
    assert_eq!(queries(&run(&[&none[..], &["--iterations=7", "--infStreams=3"]].concat())), 21.0);
    let several = run_in(&f, &[&[load.as_str()][..], &none, &["--iterations=1", "--infStreams=2"]].concat());
    assert!(several.stderr.contains("read the throughput"), "{}", several.stderr);
    let one = run_in(&f, &[&[load.as_str()][..], &none, &["--iterations=1"]].concat());
    assert!(!one.stderr.contains("read the throughput"), "{}", one.stderr);
    let threads =
        run(&[&none[..], &["--iterations=7", "--streams=2", "--threads", "--exportTimes=s.json"]].concat());
    assert_eq!((queries(&threads), json(&f, "s.json").as_array().unwrap().len()), (14.0, 14));
    let wall = |text: &str| after(line(text, "Total Host Walltime"), "Walltime: ");
    assert!(wall(&run(&["--warmUp=0", "--iterations=1", "--duration=0.2"])) >= 0.2);
    assert!(wall(&run(&[&none[..], &["--iterations=5", "--idleTime=30"]].concat())) >= 0.15);
    assert!(wall(&run(&[&none[..], &["--iterations=5", "--sleepTime=30"]].concat())) >= 0.15);
    let warm = run(&["--warmUp=150", "--duration=0", "--iterations=1"]);
    assert!(after(line(&warm, "Warmup completed"), "queries over ") >= 150.0, "{warm}");
}

#[test]
fn flags_of_the_build_reach_the_builder() {
    let f = Folder::new();
    let model = onnx();
    let layers = |more: &[&str]| {
        let args = [&[model.as_str(), "--skipInference", "--profilingVerbosity=detailed"][..], more];
        passes(&f, &[&args.concat()[..], &["--exportLayerInfo=l.json"]].concat());
        json(&f, "l.json").to_string()
    };
    // Timing caches.
    passes(&f, &[&model, "--skipInference", "--timingCacheFile=c.json"]);
    assert!(f.path("c.json").exists());
    let r = passes(
        &f,
        &[&model, "--skipInference", "--timingCacheFile=c.json", "--errorOnTimingCacheMiss", "--verbose"],
    );
    assert!(r.stdout.contains("[V] 0 kernels were timed"), "{}", r.stdout);
    fails(&f, &[&model, "--timingCacheFile=none.json", "--errorOnTimingCacheMiss"], "timing cache");
    // Types and formats of inputs and outputs.
    let formats = layers(&["--inputIOFormats=fp16:chw", "--outputIOFormats=fp16:chw"]);
    assert!(formats.contains("\"Datatype\":\"f16\""), "{formats}");
    let typed = layers(&["--layerPrecisions=*:fp16", "--precisionConstraints=obey"]);
    assert!(typed.contains("\"Datatype\":\"f16\""), "{typed}");
    let outputs = layers(&["--layerOutputTypes=/fc1/Gemm:fp16", "--precisionConstraints=obey"]);
    assert!(outputs.contains("\"to\":\"f16\""), "{outputs}");
    // Refit and stripped engines.
    passes(&f, &[&model, "--skipInference", "--refit", "--dumpRefit", "--saveEngine=r.plan", "--timeRefit"]);
    let r = passes(&f, &[&model, "--skipInference", "--refit", "--dumpRefit", "--timeRefit"]);
    assert!(r.stdout.contains("fc2.bias") && r.stdout.contains("Total refit time = "), "{}", r.stdout);
    passes(&f, &[&model, "--skipInference", "--stripAllWeights", "--saveEngine=s.plan"]);
    passes(&f, &[&model, "--skipInference", "--stripWeights", "--saveEngine=i.plan"]);
    for stripped in ["--loadEngine=s.plan", "--loadEngine=i.plan"] {
        fails(&f, &[stripped], "weights");
        let r = passes(
            &f,
            &[stripped, &format!("--refitFromOnnx={}", digits("lenet_a.onnx")), "--exportOutput=o.json"],
        );
        assert!(r.stdout.contains("Engine refitted in "), "{}", r.stdout);
    }
    passes(&f, &[&model, "--exportOutput=direct.json"]);
    let logits = |name: &str| {
        json(&f, name)[0]["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    let pairs: Vec<_> = logits("o.json").into_iter().zip(logits("direct.json")).collect();
    assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 1e-3), "{pairs:?}");
    // Several ways to say less or more.
    let r = passes(&f, &["--loadEngine=r.plan", "--timeDeserialize"]);
    assert!(
        r.stdout.contains("Total deserialization time = ") && !r.stdout.contains("Throughput"),
        "{}",
        r.stdout
    );
    let version = passes(&f, &[&model, "--skipInference", "--vc", "--saveEngine=v.plan"]);
    assert!(version.stdout.contains("versionCompatible: yes"));
    let told = ok(&["inspect", &f.name("v.plan"), "--json"]).json();
    assert_eq!(told["version_compatible"], true);
    let tuned = |more: &[&str]| {
        let args = [&[model.as_str(), "--skipInference", "--verbose", "--noBuilderCache"][..], more].concat();
        let r = passes(&f, &args);
        after(r.stdout.lines().find(|l| l.contains("kernels were timed")).unwrap(), "[V] ")
    };
    assert_eq!((tuned(&["--cpuOnly"]), tuned(&["--builderOptimizationLevel=0"])), (0.0, 0.0));
    assert!(tuned(&["--maxTactics=1"]) < tuned(&["--maxTactics=-1"]));
    for budget in ["--weightStreamingBudget=64K", "--weightStreamingBudget=10%"] {
        fails(&f, &["--loadEngine=r.plan", budget], "does not stream weights");
    }
    passes(&f, &["--loadEngine=r.plan", "--weightStreamingBudget=-2", "--device=0"]);
    fails(&f, &["--loadEngine=r.plan", "--device=7"], "7");
    fails(&f, &[&model, "--device=7"], "7");
    fails(&f, &[&model, "--backend=none"], "none");
    fails(&f, &[&model, "--staticPlugins=missing.so"], "missing.so");
}

#[test]
fn debug_tensors_are_stored_in_the_forms_that_are_asked_for() {
    let f = Folder::new();
    let build = [&onnx(), "--markDebug=/Relu", "--saveDebugTensors=/Relu:relu.raw"];
    passes(&f, &build);
    assert_eq!(std::fs::read(f.path("relu.raw")).unwrap().len(), 4 * 20 * 24 * 24);
    fails(&f, &[&onnx(), "--saveDebugTensors=/Relu:relu.raw"], "names no marked tensor");
    let r = passes(&f, &[&onnx(), "--markDebug=/Relu", "--saveAllDebugTensors=summary,numpy,string,raw"]);
    assert!(r.stdout.contains("Debug tensor /Relu (f32 1x20x24x24): min 0"), "{}", r.stdout);
    let array = read_npy(&std::fs::read(f.path("0000__Relu.npy")).unwrap()).unwrap();
    assert_eq!(array.to_f32().unwrap().len(), 20 * 24 * 24);
    let raw: Vec<u8> = array.to_f32().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(std::fs::read(f.path("0000__Relu.raw")).unwrap(), raw);
    assert!(std::fs::read_to_string(f.path("0000__Relu.txt")).unwrap().split(' ').count() == 20 * 24 * 24);
}

#[test]
fn a_calibration_table_is_read_for_codes() {
    let f = Folder::new();
    std::fs::write(f.path("table.txt"), "TRT-8601-EntropyCalibration2\ninput: 3c010204\n").unwrap();
    let r = passes(&f, &[&onnx(), "--int8", "--calib=table.txt", "--skipInference"]);
    assert!(r.stdout.contains("calib: table.txt"), "{}", r.stdout);
    std::fs::write(f.path("broken.txt"), "TRT-1-X\ninput zz\n").unwrap();
    fails(&f, &[&onnx(), "--int8", "--calib=broken.txt"], "line 2 of the calibration table");
    fails(&f, &[&onnx(), "--int8", "--calib=missing.txt"], "missing.txt");
    // A table is for types with codes.
    fails(&f, &[&onnx(), "--calib=table.txt"], "--int8");
}

/// Lines as users have them in their pages, with names of the models here.
#[test]
fn lines_of_public_pages_run() {
    let f = Folder::new();
    std::fs::copy(digits("lenet_a.onnx"), f.path("model.onnx")).unwrap();
    let text = std::fs::read_to_string(data("trtexec/lines.txt")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert!(lines.len() >= 60, "{}", lines.len());
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        assert!(line.starts_with("trtexec "), "{line}");
        passes(&f, &words);
    }
    assert!(kiln(&["trtexec", "--version"]).stdout.starts_with("Kiln v"));
}

/// Routes are tried, measured, remembered and stored; the fastest one is the engine.
#[test]
fn the_tuner_builds_by_each_route_and_keeps_the_fastest() {
    let f = Folder::new();
    let routes = "--tuneBuildRoutes=-fuse=[on|off] -estimates=on -level=[0|2]";
    let base = [&onnx(), "--backend=cpu", "--shapes=input:1x1x28x28", routes];
    let dry = passes(&f, &[&base[..], &["--dryRun"]].concat());
    for n in 0..4 {
        assert!(dry.stdout.contains(&format!("[I] Route {n}: -level=")), "{}", dry.stdout);
    }
    assert!(!dry.stdout.contains("Performance summary") && !dry.stdout.contains("Route 4"));

    let full = ["--tuningCacheFile=times.jsonl", "--saveEngine=best.plan", "--saveAllEngines"];
    let r = passes(&f, &[&base[..], &full].concat());
    let times = std::fs::read_to_string(f.path("times.jsonl")).unwrap();
    let times: Vec<Value> = times.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(times.len(), 4);
    let least =
        times.iter().min_by(|a, b| a["ms"].as_f64().unwrap().total_cmp(&b["ms"].as_f64().unwrap())).unwrap();
    let best = format!("Best build route: {} (", least["route"].as_str().unwrap());
    assert!(r.stdout.contains(&best) && r.stdout.contains("Performance summary"), "{}", r.stdout);
    let engine = std::fs::read(f.path("best.plan")).unwrap();
    let all: Vec<Vec<u8>> =
        (0..4).map(|n| std::fs::read(f.path(&format!("best.route{n}.plan"))).unwrap()).collect();
    assert!(all.contains(&engine) && all.iter().any(|a| *a != engine));
    passes(&f, &["--loadEngine=best.plan"]);

    // Routes that are known are not built again.
    let again = passes(&f, &[&base[..], &["--tuningCacheFile=times.jsonl", "--continue"]].concat());
    assert!(again.stdout.contains("4 routes are known") && again.stdout.contains(&best), "{}", again.stdout);
    assert_eq!(again.stdout.matches("Engine built in").count(), 1, "{}", again.stdout);

    for (search, most) in [("fast", 3), ("mixed", 4)] {
        let r = passes(&f, &[&base[..], &[&format!("--tuningSearch={search}")]].concat());
        let tried = r.stdout.matches("[I] Route ").count();
        assert!((3..=most).contains(&tried), "{search}: {tried}");
    }
    let late = passes(
        &f,
        &[&base[..], &["--tuningTimeOut=0.000001", "--tuningCacheFile=times.jsonl", "--continue"]].concat(),
    );
    assert!(late.stdout.contains(&best));
    fails(&f, &[&base[..], &["--tuningTimeOut=0.000001"]].concat(), "no build route gave an engine");
    let help = run_in(&f, &["--helpBuildRoute"]);
    assert!(help.code == 0 && help.stdout.contains("-level=[0|1|2|3|4|5]"), "{}", help.stdout);
    let one = run_in(&f, &["--helpBuildRoute=fuse"]);
    assert!(one.code == 0 && one.stdout.contains("-fuse=[on|off]") && !one.stdout.contains("-level"));
    let wrong = run_in(&f, &["--loadEngine=best.plan", "--setBuildRoute=-fuse=off"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("say how to build"), "{}", wrong.stderr);
}
