//! Options of the provider, under the names that the TensorRT provider has for them where they mean that.

use crate::error::Fail;
use kiln::{DType, MemoryPool, ShapeRequest, Sparsity};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of a session.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub backend: Option<String>,
    pub fallback: Option<String>,
    pub device: Option<String>,
    pub types: Vec<DType>,
    pub level: Option<usize>,
    pub workspace: Option<u64>,
    pub sparsity: bool,
    pub min_subgraph: usize,
    pub engine_cache: bool,
    pub engine_cache_path: Option<PathBuf>,
    pub engine_cache_prefix: String,
    pub timing_cache: bool,
    pub timing_cache_path: Option<PathBuf>,
    pub min: Shapes,
    pub opt: Shapes,
    pub max: Shapes,
    pub plugins: Option<PathBuf>,
    pub detailed_log: bool,
    pub context_enable: bool,
    pub context_embed: bool,
    pub context_path: Option<PathBuf>,
    /// Options that change what is built, as text: part of the key of a stored engine.
    pub key: String,
}

type Shapes = BTreeMap<String, Vec<i64>>;

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
];

impl Options {
    /// Reads the options of a session; an unknown one is an error that lists those that there are.
    pub fn read<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Options, Fail> {
        let mut options = Options { min_subgraph: 1, ..Options::default() };
        for (name, value) in entries {
            let short = name.strip_prefix("trt_").or_else(|| name.strip_prefix("kiln_")).unwrap_or(name);
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

    /// The shapes that the options give for these inputs.
    pub fn shapes(&self, inputs: &[String]) -> ShapeRequest {
        let mut request = ShapeRequest::default();
        for name in inputs {
            self.min.get(name).map(|d| request.min(name, d));
            self.opt.get(name).map(|d| request.opt(name, d));
            self.max.get(name).map(|d| request.max(name, d));
        }
        request
    }

    /// Sets what a build of Kiln needs to know.
    pub fn apply(&self, build: &mut kiln::BuildOptions) {
        build.backend.clone_from(&self.backend);
        build.fallback.clone_from(&self.fallback);
        build.config.reduced.clone_from(&self.types);
        if let Some(level) = self.level {
            build.config.set_optimization_level(level);
        }
        if let Some(bytes) = self.workspace {
            build.config.pools.insert(MemoryPool::Workspace, bytes);
        }
        if self.sparsity {
            build.config.sparsity = Sparsity::Enable;
        }
        if self.timing_cache {
            let folder = self.timing_cache_path.clone().unwrap_or_else(|| self.folder());
            build.timing_cache = Some(folder.join("kiln.timing"));
        }
    }

    /// The folder of stored engines.
    pub fn folder(&self) -> PathBuf {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let cache =
            std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute()).or_else(home);
        let usual = cache.unwrap_or_else(std::env::temp_dir).join("kiln").join("onnxruntime");
        self.engine_cache_path.clone().unwrap_or(usual)
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
        let e = Options::read([("trt_dla_enable", "1")].into_iter()).unwrap_err();
        assert!(
            e.text.contains("no option \"trt_dla_enable\"") && e.text.contains("fp16_enable"),
            "{}",
            e.text
        );
        assert!(Options::read([("fp16_enable", "maybe")].into_iter()).is_err());
    }
}
