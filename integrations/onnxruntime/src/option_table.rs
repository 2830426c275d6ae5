//! The options by name: those of the TensorRT provider keep its names where they mean that; others of it have no effect, or are refused,
//! with the reason.

use crate::error::Fail;
use crate::options::{Options, Shapes};
use kiln::DType;
use kiln::calibration::CalibrationTable;
use std::path::PathBuf;

/// One option: its name without the prefixes `trt_` and `kiln_`, and how a text sets it.
struct Entry(&'static str, bool, fn(&mut Options, &str) -> Result<(), String>);

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "True" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        other => Err(format!("\"{other}\" is not a switch, wanted 1 or 0")),
    }
}

fn permit(o: &mut Options, dtype: DType, text: &str) -> Result<(), String> {
    if switch(text)? {
        o.types.push(dtype);
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not such a number"))
}

/// Shapes as `name:1x3x224x224,other:1x8`.
fn shapes(text: &str) -> Result<Shapes, String> {
    let one = |part: &str| {
        let (name, dims) =
            part.rsplit_once(':').ok_or_else(|| format!("\"{part}\", wanted name:1x3x224x224"))?;
        let dims: Result<Vec<i64>, String> = dims.split('x').map(number).collect();
        Ok((name.trim().to_owned(), dims?))
    };
    text.split(',').filter(|p| !p.trim().is_empty()).map(one).collect()
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// All options; the second field says whether it changes what is built.
const ENTRIES: &[Entry] = &[
    Entry("backend", true, |o, t| {
        o.backend = Some(t.into());
        Ok(())
    }),
    Entry("fallback", true, |o, t| {
        o.fallback = Some(t.into());
        Ok(())
    }),
    Entry("device_id", true, |o, t| {
        o.device = Some(t.into());
        Ok(())
    }),
    Entry("fp16_enable", true, |o, t| permit(o, DType::F16, t)),
    Entry("bf16_enable", true, |o, t| permit(o, DType::BF16, t)),
    Entry("int8_enable", true, |o, t| permit(o, DType::I8, t)),
    Entry("builder_optimization_level", true, |o, t| {
        let level = number(t)?;
        if level > 5 {
            return Err(format!("{level}, wanted 0 to 5"));
        }
        o.level = Some(level);
        Ok(())
    }),
    Entry("max_workspace_size", true, |o, t| {
        let bytes: u64 = number(t)?;
        o.workspace = (bytes > 0).then_some(bytes);
        Ok(())
    }),
    Entry("sparsity_enable", true, |o, t| {
        o.sparsity = switch(t)?;
        Ok(())
    }),
    Entry("min_subgraph_size", false, |o, t| {
        o.min_subgraph = number(t)?;
        Ok(())
    }),
    Entry("engine_cache_enable", false, |o, t| {
        o.engine_cache = switch(t)?;
        Ok(())
    }),
    Entry("engine_cache_path", false, |o, t| {
        o.engine_cache_path = path(t);
        Ok(())
    }),
    Entry("engine_cache_prefix", false, |o, t| {
        o.engine_cache_prefix = t.into();
        Ok(())
    }),
    Entry("timing_cache_enable", false, |o, t| {
        o.timing_cache = switch(t)?;
        Ok(())
    }),
    Entry("timing_cache_path", false, |o, t| {
        o.timing_cache_path = path(t);
        Ok(())
    }),
    Entry("profile_min_shapes", true, |o, t| {
        o.min = shapes(t)?;
        Ok(())
    }),
    Entry("profile_opt_shapes", true, |o, t| {
        o.opt = shapes(t)?;
        Ok(())
    }),
    Entry("profile_max_shapes", true, |o, t| {
        o.max = shapes(t)?;
        Ok(())
    }),
    Entry("plugin_path", false, |o, t| {
        o.plugins = path(t);
        Ok(())
    }),
    Entry("detailed_build_log", false, |o, t| {
        o.detailed_log = switch(t)?;
        Ok(())
    }),
    Entry("int8_calibration_table_name", true, |o, t| {
        if !t.is_empty() {
            let table = CalibrationTable::read(t).map_err(|e| {
                format!("{e}; wanted a table as TensorRT writes it, as those of ONNX Runtime are not read")
            })?;
            o.ranges = table.ranges();
        }
        Ok(())
    }),
    Entry("force_timing_cache", true, |o, t| {
        o.strict_times = !switch(t)?;
        Ok(())
    }),
    Entry("engine_hw_compatible", true, |o, t| {
        o.compatible = switch(t)?;
        Ok(())
    }),
    Entry("tactic_sources", true, |o, t| {
        o.tactic_sources = sources(t)?;
        Ok(())
    }),
    Entry("extra_plugin_lib_paths", true, |o, t| {
        o.layers = t.split(';').filter_map(path).collect();
        Ok(())
    }),
    Entry("op_types_to_exclude", false, |o, t| {
        o.excluded = t.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        Ok(())
    }),
    Entry("dump_subgraphs", false, |o, t| {
        o.dump_subgraphs = switch(t)?;
        Ok(())
    }),
];

/// Libraries that kernels may come from, as `-CUDNN,+CUBLAS_LT`.
fn sources(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (wanted, name) = match (part.strip_prefix('+'), part.strip_prefix('-')) {
            (Some(name), _) => (true, name),
            (_, Some(name)) => (false, name),
            _ => return Err(format!("\"{part}\", wanted + or - in front of a library")),
        };
        let library = match name {
            "CUDNN" => "cudnn",
            "CUBLAS" | "CUBLAS_LT" => "cublaslt",
            "EDGE_MASK_CONVOLUTIONS" | "JIT_CONVOLUTIONS" => continue,
            other => return Err(format!("\"{other}\" is no library; there are CUBLAS, CUBLAS_LT, CUDNN")),
        };
        found.retain(|n| n != library);
        if wanted {
            found.push(library.to_owned());
        }
    }
    Ok(found)
}

/// Options of the TensorRT provider that change nothing here, with the reason.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("cuda_graph_enable", "runs on CUDA are recorded and replayed without being asked to"),
    ("auxiliary_streams", "a run takes one stream"),
    ("build_heuristics_enable", "builder_optimization_level decides how much is timed"),
    ("layer_norm_fp32_fallback", "norms sum in f32 in all types"),
    ("context_memory_sharing_enable", "each context has memory of its own, which it keeps from run to run"),
    ("force_sequential_engine_build", "builds on one device take turns where they share a timing cache"),
    ("preview_features", "there are no preview features"),
    ("load_user_initializer", "weights come from the graph, wherever its user has them"),
    ("max_partition_iterations", "the largest parts are found at once"),
    ("int8_use_native_calibration_table", "a calibration table is always read as TensorRT writes it"),
];

/// Options of the TensorRT provider that are refused unless they are off, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("dla_enable", "Kiln has no DLA: choose a GPU or a processor by kiln_backend"),
    ("dla_core", "Kiln has no DLA: choose a GPU or a processor by kiln_backend"),
    ("has_user_compute_stream", "runs take tensors in host memory, in an order of their own"),
    ("user_compute_stream", "runs take tensors in host memory, in an order of their own"),
    ("engine_decryption_enable", "stored engines are not encrypted"),
    ("engine_decryption_lib_path", "stored engines are not encrypted"),
    (
        "weight_stripped_engine_enable",
        "stored engines hold their weights; use kiln build --strip for such plans",
    ),
    ("onnx_model_folder_path", "stored engines hold their weights, so the model is not needed"),
    ("onnx_bytestream", "stored engines hold their weights, so the model is not needed"),
    ("onnx_bytestream_size", "stored engines hold their weights, so the model is not needed"),
    ("external_data_bytestream", "stored engines hold their weights, so the model is not needed"),
    ("external_data_bytestream_size", "stored engines hold their weights, so the model is not needed"),
    ("dump_ep_context_model", "set ep.context_enable to 1 among the entries of the session"),
    ("ep_context_file_path", "set ep.context_file_path among the entries of the session"),
    ("ep_context_embed_mode", "set ep.context_embed_mode among the entries of the session"),
];

/// Whether a value leaves an option off.
fn is_off(value: &str) -> bool {
    ["", "0", "false", "False"].contains(&value)
}

fn reason(list: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(n, _)| *n == name).map(|(_, why)| *why)
}

impl Options {
    /// Reads the options of a session; an unknown one is an error that lists those that there are.
    pub fn read<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Options, Fail> {
        let mut options = Options { min_subgraph: 1, ..Options::default() };
        for (name, value) in entries {
            let short = name.strip_prefix("trt_").or_else(|| name.strip_prefix("kiln_")).unwrap_or(name);
            if let Some(why) = reason(WITHOUT_EFFECT, short) {
                if !is_off(value) {
                    options.notes.push(format!("option \"{name}\" has no effect: {why}"));
                }
                continue;
            }
            if let Some(why) = reason(REFUSED, short) {
                if !is_off(value) {
                    return Err(Fail::argument(format!("option \"{name}\" of {value} is refused: {why}")));
                }
                continue;
            }
            let entry = ENTRIES.iter().find(|e| e.0 == short).ok_or_else(|| {
                let known: Vec<&str> = ENTRIES.iter().map(|e| e.0).collect();
                Fail::argument(format!("Kiln has no option \"{name}\"; it has {}", known.join(", ")))
            })?;
            (entry.2)(&mut options, value).map_err(|e| Fail::argument(format!("option \"{name}\": {e}")))?;
            if entry.1 {
                options.key.push_str(&format!("{short}={value}\n"));
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]
    use super::*;

    #[test]
    fn names_of_the_tensorrt_provider_and_own_ones_are_read() {
        let given =
            [("trt_fp16_enable", "1"), ("kiln_backend", "cpu"), ("trt_profile_max_shapes", "a:1x2,b:c:3")];
        let o = Options::read(given.into_iter()).unwrap();
        assert_eq!((o.types, o.backend.as_deref()), (vec![DType::F16], Some("cpu")));
        assert_eq!((o.max["a"].clone(), o.max["b:c"].clone()), (vec![1, 2], vec![3]));
        let e = Options::read([("trt_no_such", "1")].into_iter()).unwrap_err();
        assert!(e.text.contains("no option \"trt_no_such\"") && e.text.contains("fp16_enable"), "{}", e.text);
        let more = [("trt_tactic_sources", "+CUDNN,-CUBLAS"), ("trt_op_types_to_exclude", "Conv, Relu")];
        let o = Options::read(more.into_iter()).unwrap();
        assert_eq!(
            (o.tactic_sources, o.excluded),
            (vec!["cudnn".to_owned()], vec!["Conv".into(), "Relu".into()])
        );
        assert!(Options::read([("trt_tactic_sources", "CUDNN")].into_iter()).is_err());
        assert!(Options::read([("fp16_enable", "maybe")].into_iter()).is_err());
    }

    /// The options of the TensorRT provider, as its page lists them.
    const ALL: &str = "device_id user_compute_stream has_user_compute_stream trt_max_workspace_size trt_max_partition_iterations \
        trt_min_subgraph_size trt_fp16_enable trt_bf16_enable trt_int8_enable trt_int8_calibration_table_name \
        trt_int8_use_native_calibration_table trt_dla_enable trt_dla_core trt_engine_cache_enable trt_engine_cache_path \
        trt_engine_cache_prefix trt_engine_decryption_enable trt_engine_decryption_lib_path trt_force_sequential_engine_build \
        trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_timing_cache_enable trt_timing_cache_path \
        trt_force_timing_cache trt_detailed_build_log trt_build_heuristics_enable trt_cuda_graph_enable trt_sparsity_enable \
        trt_builder_optimization_level trt_auxiliary_streams trt_tactic_sources trt_extra_plugin_lib_paths \
        trt_profile_min_shapes trt_profile_max_shapes trt_profile_opt_shapes trt_dump_subgraphs trt_dump_ep_context_model \
        trt_ep_context_file_path trt_ep_context_embed_mode trt_weight_stripped_engine_enable trt_onnx_model_folder_path \
        trt_onnx_bytestream trt_onnx_bytestream_size trt_external_data_bytestream trt_external_data_bytestream_size \
        trt_engine_hw_compatible trt_op_types_to_exclude trt_preview_features trt_load_user_initializer";

    #[test]
    fn every_option_of_the_tensorrt_provider_is_known_and_says_why_it_is_refused() {
        for name in ALL.split_whitespace() {
            let short = name.strip_prefix("trt_").unwrap_or(name);
            let homes = [
                ENTRIES.iter().any(|e| e.0 == short),
                reason(WITHOUT_EFFECT, short).is_some(),
                reason(REFUSED, short).is_some(),
            ];
            assert_eq!(homes.iter().filter(|h| **h).count(), 1, "{name}: {homes:?}");
        }
        for (name, why) in REFUSED {
            let given = format!("trt_{name}");
            let e = Options::read([(given.as_str(), "1")].into_iter()).unwrap_err();
            assert!(e.text.contains(&given) && e.text.contains(why), "{}", e.text);
            assert!(Options::read([(given.as_str(), "0")].into_iter()).unwrap().notes.is_empty());
        }
        for (name, why) in WITHOUT_EFFECT {
            let o = Options::read([(*name, "1")].into_iter()).unwrap();
            assert!(o.notes.len() == 1 && o.notes[0].contains(why), "{:?}", o.notes);
        }
    }
}
