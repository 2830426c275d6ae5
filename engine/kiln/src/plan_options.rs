//! Options that only say how to build, which a plan is past.

use crate::build::{BuildOptions, HardwareCompatibility};
use kiln_builder::{BuildConfig, Refit};
use kiln_plan::Verbosity;

/// An option that is set and says how to build, the backend, the device and who is told of the build aside.
pub(crate) fn set_option(o: &BuildOptions) -> Option<&'static str> {
    let set = [
        (o.fallback.is_some(), "fallback"),
        (o.target.is_some(), "target"),
        (o.hardware_compatibility != HardwareCompatibility::None, "hardware_compatibility"),
        (!o.shapes.is_empty(), "shapes"),
        (!o.profiles.is_empty(), "profile"),
        (o.max_batch.is_some(), "max_batch"),
        (o.verbosity != Verbosity::default(), "verbosity"),
        (o.timing_cache.is_some(), "timing_cache"),
        (o.portable, "portable"),
        (o.embed_plugins, "embed_plugins"),
        (o.strip_weights, "strip_weights"),
        (o.times.is_some(), "times"),
        (o.strict_times, "strict_times"),
        (o.replay.is_some(), "replay"),
    ];
    set.into_iter().find(|(set, _)| *set).map(|(_, option)| option).or_else(|| of_config(&o.config))
}

fn of_config(config: &BuildConfig) -> Option<&'static str> {
    let d = BuildConfig::default();
    // Without `..`: a new setting must be decided on here.
    let BuildConfig {
        reduced,
        ranges,
        narrowing,
        layer_types,
        tf32,
        tactic_sources,
        version_compatible,
        sparsity,
        strong_types,
        io_type,
        io,
        direct_io,
        constraints,
        debug_tensors,
        refit,
        fold,
        fold_limit,
        fold_budget,
        fuse,
        search,
        locked,
        estimates,
        excluded_tactics,
        tactic_rules,
        deterministic,
        selector,
        reject_empty,
        share_times,
        pools,
        limit,
        max_tactics,
        estimate_limit,
        samples,
        shape_buckets,
        max_aux_streams,
        profiles,
        monitor: _,
        strict,
        replace_by_plugins,
    } = config;
    let set = [
        (!reduced.is_empty(), "reduced"),
        (!ranges.is_empty(), "ranges"),
        (*narrowing != d.narrowing, "narrowing"),
        (!layer_types.is_empty(), "layer_types"),
        (*tf32 != d.tf32, "tf32"),
        (!tactic_sources.is_empty(), "tactic_sources"),
        (*version_compatible, "version_compatible"),
        (*sparsity != d.sparsity, "sparsity"),
        (*strong_types, "strong_types"),
        (io_type.is_some(), "io_type"),
        (!io.is_empty(), "io"),
        (*direct_io, "direct_io"),
        (*constraints != d.constraints, "constraints"),
        (!debug_tensors.is_empty(), "debug_tensors"),
        (*refit != Refit::Off, "refit"),
        (*fold != d.fold, "fold"),
        (*fold_limit != d.fold_limit, "fold_limit"),
        (*fold_budget != d.fold_budget, "fold_budget"),
        (*fuse != d.fuse, "fuse"),
        (*search != d.search, "search"),
        (*locked, "locked"),
        (*estimates, "estimates"),
        (!excluded_tactics.is_empty(), "excluded_tactics"),
        (!tactic_rules.is_empty(), "tactic_rules"),
        (*deterministic, "deterministic"),
        (selector.is_some(), "selector"),
        (*reject_empty, "reject_empty"),
        (*share_times != d.share_times, "share_times"),
        (!pools.is_empty(), "pools"),
        (!limit.is_none(), "limit"),
        (*max_tactics != d.max_tactics, "max_tactics"),
        (estimate_limit.to_bits() != d.estimate_limit.to_bits(), "estimate_limit"),
        (*samples != d.samples, "samples"),
        (*shape_buckets != d.shape_buckets, "shape_buckets"),
        (*max_aux_streams != d.max_aux_streams, "max_aux_streams"),
        (!profiles.is_empty(), "profiles"),
        (*strict, "strict"),
        (!replace_by_plugins.is_empty(), "replace_by_plugins"),
    ];
    set.into_iter().find(|(set, _)| *set).map(|(_, option)| option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn options_that_say_how_to_build_are_named() {
        let named = |change: &dyn Fn(&mut BuildOptions)| {
            let mut options = BuildOptions::default();
            change(&mut options);
            set_option(&options)
        };
        assert_eq!(named(&|_| ()), None);
        assert_eq!(named(&|o| o.backend = Some("cpu".into())), None);
        assert_eq!(named(&|o| o.strict_times = true), Some("strict_times"));
        assert_eq!(named(&|o| o.config.reduced = vec![DType::F16]), Some("reduced"));
        assert_eq!(named(&|o| o.config.fuse = false), Some("fuse"));
        assert_eq!(named(&|o| o.config.estimate_limit = 2.0), Some("estimate_limit"));
        assert_eq!(named(&|o| o.config.limit.sms = Some(1)), Some("limit"));
        assert_eq!(named(&|o| o.config.set_optimization_level(5)), Some("max_tactics"));
    }
}
