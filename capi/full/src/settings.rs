//! Options of builds by name: all that have no function of their own, and switches.

use kiln::cache::TimingCache;
use kiln::calibration::CalibrationTable;
use kiln::selection::TacticRecord;
use kiln::{BuildOptions, HardwareCompatibility, Narrowing, Verbosity};
use std::str::FromStr;

/// An option: its name, and how a text sets it.
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// Whether each value adds to those before.
    pub list: bool,
    /// Description.
    pub doc: &'static str,
    /// Sets it.
    pub set: fn(&mut BuildOptions, &str) -> Result<(), String>,
    /// A value other than at first.
    #[cfg(test)]
    pub sample: &'static str,
}

fn parsed<T: FromStr<Err: ToString>>(to: &mut T, text: &str) -> Result<(), String> {
    *to = text.parse().map_err(|e: T::Err| format!("\"{text}\": {}", e.to_string()))?;
    Ok(())
}

fn switch(to: &mut bool, text: &str) -> Result<(), String> {
    *to = match text {
        "1" | "true" | "on" => true,
        "0" | "false" | "off" => false,
        other => return Err(format!("\"{other}\" is not a switch, wanted 1 or 0")),
    };
    Ok(())
}

fn added<T>(to: &mut Vec<T>, value: T) -> Result<(), String> {
    to.push(value);
    Ok(())
}

macro_rules! settings {
    ($($name:literal, $list:literal, $sample:literal, $doc:literal, $set:expr;)*) => {
        /// All options.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            list: $list,
            doc: $doc,
            set: $set,
            #[cfg(test)]
            sample: $sample,
        }),*];
    };
}

settings! {
    "backend", false, "cpu", "backend to build for", |o, t| { o.backend = Some(t.into()); Ok(()) };
    "fallback", false, "cpu", "backend that takes the whole network if the first refuses a layer", |o, t| { o.fallback = Some(t.into()); Ok(()) };
    "tf32", false, "0", "products of f32 may round operands to TF32", |o, t| switch(&mut o.config.tf32, t);
    "narrowing", false, "everywhere", "layers that run in permitted types: \"faster\" ones, or \"everywhere\"", |o, t| {
        o.config.narrowing = match t {
            "faster" => Narrowing::Faster,
            "everywhere" => Narrowing::Everywhere,
            other => return Err(format!("\"{other}\", wanted faster or everywhere")),
        };
        Ok(())
    };
    "calibration_table", false, "", "file with ranges of tensors in TensorRT's format", |o, t| {
        let table = CalibrationTable::read(t).map_err(|e| e.to_string())?;
        o.config.ranges.extend(table.ranges());
        Ok(())
    };
    "strong_types", false, "1", "only casts and Q/DQ of the network change types", |o, t| switch(&mut o.config.strong_types, t);
    "io_type", false, "f16", "type of inputs and outputs of f32", |o, t| {
        o.config.io_type = Some(t.parse()?);
        Ok(())
    };
    "direct_io", false, "1", "refuse inputs and outputs that need a kernel of their own", |o, t| switch(&mut o.config.direct_io, t);
    "debug_tensor", true, "x", "tensor that runs can report", |o, t| added(&mut o.config.debug_tensors, t.into());
    "tactic_source", true, "cudnn", "library that kernels may come from", |o, t| added(&mut o.config.tactic_sources, t.into());
    "excluded_tactic", true, "matmul", "tactic that is not taken", |o, t| added(&mut o.config.excluded_tactics, t.into());
    "tactic_rule", true, "conv1=!oracle", "tactic that a layer must (layer=tactic) or must not have (layer=!tactic)", |o, t| {
        added(&mut o.config.tactic_rules, t.parse()?)
    };
    "replace_by_plugin", true, "acme::Swish", "plug-in layer that replaces what its pattern describes", |o, t| added(&mut o.config.replace_by_plugins, t.into());
    "fold", false, "0", "fold constants", |o, t| switch(&mut o.config.fold, t);
    "fold_limit", false, "5", "most bytes of a constant that folding makes", |o, t| parsed(&mut o.config.fold_limit, t);
    "fold_budget", false, "5", "most operations that folding spends", |o, t| parsed(&mut o.config.fold_budget, t);
    "fuse", false, "0", "fuse layers", |o, t| switch(&mut o.config.fuse, t);
    "search", false, "0", "try formats and cuts", |o, t| switch(&mut o.config.search, t);
    "locked", false, "1", "fail where the timing cache lacks a time", |o, t| switch(&mut o.config.locked, t);
    "estimates", false, "1", "time nothing", |o, t| switch(&mut o.config.estimates, t);
    "deterministic", false, "1", "only kernels that yield the same bits every time", |o, t| switch(&mut o.config.deterministic, t);
    "reject_empty", false, "1", "fail where the selector chooses nothing", |o, t| switch(&mut o.config.reject_empty, t);
    "share_times", false, "0", "equal layers share times", |o, t| switch(&mut o.config.share_times, t);
    "max_tactics", false, "2", "most kernels timed for a layer", |o, t| parsed(&mut o.config.max_tactics, t);
    "estimate_limit", false, "2.5", "kernels that are expected to be so many times slower are not timed", |o, t| parsed(&mut o.config.estimate_limit, t);
    "samples", false, "9", "samples of each kernel", |o, t| parsed(&mut o.config.samples, t);
    "strict", false, "1", "refuse networks whose runs need the host", |o, t| switch(&mut o.config.strict, t);
    "timing_cache_file", false, "times", "file of times that is read and added to", |o, t| { o.timing_cache = Some(t.into()); Ok(()) };
    "strict_times", false, "1", "refuse times of other devices", |o, t| switch(&mut o.strict_times, t);
    "replay", false, "", "choices of another build, as kiln_build_record returned them", |o, t| {
        o.replay = Some(TacticRecord::from_text(t)?);
        Ok(())
    };
    "times", false, "", "times that are known before, as text", |o, t| {
        o.times = Some(TimingCache::from_text(t)?);
        Ok(())
    };
    "verbosity", false, "detailed", "information on layers in the plan: \"none\", \"names\" or \"detailed\"", |o, t| {
        o.verbosity = match t {
            "none" => Verbosity::None,
            "names" => Verbosity::Names,
            "detailed" => Verbosity::Detailed,
            other => return Err(format!("\"{other}\", wanted none, names or detailed")),
        };
        Ok(())
    };
    "hardware_compatibility", false, "ampere_plus", "devices that run the plan: \"none\" others, or \"ampere_plus\"", |o, t| {
        o.hardware_compatibility = match t {
            "none" => HardwareCompatibility::None,
            "ampere_plus" => HardwareCompatibility::AmperePlus,
            other => return Err(format!("\"{other}\", wanted none or ampere_plus")),
        };
        Ok(())
    };
    "version_compatible", false, "1", "later versions of Kiln run the plan", |o, t| switch(&mut o.config.version_compatible, t);
    "shape_buckets", false, "3", "shapes of each profile that kernels are chosen for: 1, 3, 5 or 9", |o, t| {
        parsed(&mut o.config.shape_buckets, t)?;
        match o.config.shape_buckets {
            1 | 3 | 5 | 9 => Ok(()),
            other => Err(format!("{other}, wanted 1, 3, 5 or 9")),
        }
    };
    "max_aux_streams", false, "2", "streams beside the main one that layers may be put into", |o, t| parsed(&mut o.config.max_aux_streams, t);
    "limit_sms", false, "16", "multiprocessors of the device that the plan is for", |o, t| parsed(o.config.limit.sms.get_or_insert_default(), t);
    "limit_memory", false, "5", "bytes of the device that the plan is for", |o, t| parsed(o.config.limit.memory.get_or_insert_default(), t);
    "max_batch", false, "4", "greatest batch of a network with an implicit batch", |o, t| {
        o.max_batch = Some(t.parse().map_err(|e| format!("\"{t}\": {e}"))?);
        Ok(())
    };
    "portable", false, "1", "keep the network in the plan", |o, t| switch(&mut o.portable, t);
    "embed_plugins", false, "1", "put libraries of layers into the plan", |o, t| switch(&mut o.embed_plugins, t);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]
    use super::*;

    #[test]
    fn every_setting_changes_the_options_of_its_own() {
        let first = format!("{:?}", BuildOptions::default());
        for s in SETTINGS.iter().filter(|s| !s.sample.is_empty()) {
            let mut options = BuildOptions::default();
            (s.set)(&mut options, s.sample).unwrap();
            assert_ne!(format!("{options:?}"), first, "{} is ignored", s.name);
        }
    }

    #[test]
    fn nonsense_is_refused_and_names_sort_out() {
        let free = ["backend", "fallback", "timing_cache_file"];
        for s in SETTINGS.iter().filter(|s| !free.contains(&s.name) && (!s.list || s.name == "tactic_rule")) {
            assert!((s.set)(&mut BuildOptions::default(), "no\u{1}sense").is_err(), "{}", s.name);
        }
        let mut names: Vec<_> = SETTINGS.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }
}
