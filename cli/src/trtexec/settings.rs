//! Settings of a run of `kiln trtexec`, as its flags put them together.

use super::accuracy::Tolerance;
use super::routes::{Route, Tuning};
use super::values::{self, Budget, DebugForm, Source};
use crate::failure::Failure;
use crate::options::{ModelOptions, Named};
use clap::Parser;
use kiln::Verbosity;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// End of the range of an input's shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Least.
    Min,
    /// Usual.
    Opt,
    /// Greatest.
    Max,
}

/// Shapes of one optimization profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileShapes {
    pub min: Vec<Named>,
    pub opt: Vec<Named>,
    pub max: Vec<Named>,
}

/// Files of inputs and of wanted outputs, as `name:file`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub onnx: Option<PathBuf>,
    pub load_engine: Option<PathBuf>,
    pub save_engine: Option<PathBuf>,
    pub plan_version_only: bool,
    /// Shapes by profile.
    pub profiles: BTreeMap<usize, ProfileShapes>,
    /// The profile that further shapes belong to.
    profile: usize,
    /// Shapes to run with.
    pub shapes: Vec<Named>,
    pub use_profile: Option<usize>,
    /// Options of `kiln build`.
    pub options: Vec<String>,
    pub pools: Vec<String>,
    pub tactic_sources: Vec<Source>,
    pub samples: Option<u32>,
    pub max_tactics: Option<usize>,
    pub error_on_cache_miss: bool,
    pub weight_budget: Option<Budget>,
    pub version_compatible: bool,
    pub embed_plugins: bool,
    /// The model to refit from; an empty path is the model of `--onnx`.
    pub refit_from: Option<PathBuf>,
    /// Files by pair; those of no pair are of pair 0.
    pub pairs: BTreeMap<usize, Pair>,
    /// The pair that further files belong to.
    pub pair: Option<usize>,
    pub accuracy: Tolerance,
    pub iterations: usize,
    pub warm_up: Duration,
    pub duration: Duration,
    pub sleep: Duration,
    pub idle: Duration,
    pub streams: usize,
    pub threads: bool,
    pub transfers: bool,
    pub skip_inference: bool,
    pub time_deserialize: bool,
    pub time_refit: bool,
    pub verbose: bool,
    pub help: bool,
    pub version: bool,
    pub avg_runs: usize,
    pub percentiles: Vec<f64>,
    pub verbosity: Verbosity,
    pub dump_refit: bool,
    pub dump_output: bool,
    pub dump_bindings: bool,
    pub dump_profile: bool,
    pub dump_layers: bool,
    pub dump_profiles: bool,
    pub export_times: Option<PathBuf>,
    pub export_output: Option<PathBuf>,
    pub export_profile: Option<PathBuf>,
    pub export_layers: Option<PathBuf>,
    pub debug_files: Vec<String>,
    pub debug_forms: Vec<DebugForm>,
    /// Settings of the build by name.
    pub route: Route,
    pub tuning: Tuning,
    /// Flags of the tuner that were given.
    pub tuner_flags: Vec<&'static str>,
    /// The setting whose help is asked for; all if it is empty.
    pub help_route: Option<String>,
    /// Flags without effect, with the reason.
    pub notes: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            onnx: None,
            load_engine: None,
            save_engine: None,
            plan_version_only: false,
            profiles: BTreeMap::new(),
            profile: 0,
            shapes: Vec::new(),
            use_profile: None,
            options: Vec::new(),
            pools: Vec::new(),
            tactic_sources: Vec::new(),
            samples: None,
            max_tactics: None,
            error_on_cache_miss: false,
            weight_budget: None,
            version_compatible: false,
            embed_plugins: false,
            refit_from: None,
            pairs: BTreeMap::new(),
            pair: None,
            accuracy: Tolerance::default(),
            iterations: 10,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(3),
            sleep: Duration::ZERO,
            idle: Duration::ZERO,
            streams: 1,
            threads: false,
            transfers: false,
            skip_inference: false,
            time_deserialize: false,
            time_refit: false,
            verbose: false,
            help: false,
            version: false,
            avg_runs: 10,
            percentiles: vec![90.0, 95.0, 99.0],
            verbosity: Verbosity::Names,
            dump_refit: false,
            dump_output: false,
            dump_bindings: false,
            dump_profile: false,
            dump_layers: false,
            dump_profiles: false,
            export_times: None,
            export_output: None,
            export_profile: None,
            export_layers: None,
            debug_files: Vec::new(),
            debug_forms: Vec::new(),
            route: Route::new(),
            tuning: Tuning::default(),
            tuner_flags: Vec::new(),
            help_route: None,
            notes: Vec::new(),
        }
    }
}

/// Options of `kiln build` alone, to be read by its rules.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    model: ModelOptions,
}

impl Settings {
    /// Refuses flags that do not go together.
    ///
    /// # Errors
    /// A sentence on them.
    pub fn check(&self) -> Result<(), String> {
        if self.help || self.version || self.help_route.is_some() {
            return Ok(());
        }
        match (&self.onnx, &self.load_engine) {
            (None, None) => {
                return Err("give a model by --onnx=FILE, or an engine by --loadEngine=FILE".into());
            }
            (Some(_), Some(_)) if self.refit_from.is_none() => {
                return Err("--onnx builds an engine and --loadEngine loads one: give one of the two".into());
            }
            _ => {}
        }
        if self.plan_version_only && self.load_engine.is_none() {
            return Err("--getPlanVersionOnly reads an engine: give it by --loadEngine=FILE".into());
        }
        if self.refit_from.is_some() && self.load_engine.is_none() {
            return Err("--refitFromOnnx refits an engine: give it by --loadEngine=FILE".into());
        }
        if self.refit_from.as_ref().is_some_and(|p| p.as_os_str().is_empty()) && self.onnx.is_none() {
            return Err("--refitFromOnnx names no model: give one, or --onnx=FILE".into());
        }
        if self.error_on_cache_miss && !self.options.iter().any(|o| o == "--timing-cache") {
            return Err("--errorOnTimingCacheMiss needs times: give --timingCacheFile=FILE".into());
        }
        let profiles = self.profiles.len();
        if let Some(n) = self.profiles.keys().next_back().filter(|n| **n + 1 != profiles) {
            return Err(format!(
                "--profile={n} is given, and not all profiles below it have shapes: give all"
            ));
        }
        self.check_tuning()?;
        self.check_pairs()
    }

    fn check_tuning(&self) -> Result<(), String> {
        if let (true, Some(flag)) = (self.tuning.choices.is_empty(), self.tuner_flags.first()) {
            return Err(format!("{flag} says how to tune: give routes by --tuneBuildRoutes='-NAME=[A|B] …'"));
        }
        let routes = !self.tuning.choices.is_empty() || !self.route.is_empty();
        if routes && self.load_engine.is_some() {
            return Err(
                "build routes say how to build, and --loadEngine is built: give a model by --onnx".into()
            );
        }
        if self.tuning.resume && self.tuning.cache.is_none() {
            return Err("--continue takes times of a file: give it by --tuningCacheFile=FILE".into());
        }
        if self.tuning.save_all && self.save_engine.is_none() {
            return Err("--saveAllEngines needs a name for engines: give it by --saveEngine=FILE".into());
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), String> {
        let wants = self.pairs.values().any(|p| !p.outputs.is_empty());
        if wants && self.accuracy.threshold.is_none() {
            return Err(
                "--loadRefOutputs needs --accuracyThreshold, the greatest difference that passes".into()
            );
        }
        if !wants && self.accuracy.threshold.is_some() {
            return Err("--accuracyThreshold needs wanted outputs: give --loadRefOutputs=NAME:FILE".into());
        }
        if self.pair.is_some() && self.pairs.len() < 2 {
            return Err("--refPair groups at least two pairs: leave it out for one".into());
        }
        let without = self.pairs.iter().find(|(_, p)| p.outputs.is_empty());
        match without.filter(|_| self.pairs.len() > 1) {
            Some((n, _)) => {
                Err(format!("pair {n} has no wanted outputs: give --loadRefOutputs behind --refPair={n}"))
            }
            None => Ok(()),
        }
    }

    /// Adds an option of `kiln build`; an empty value is none.
    pub fn option(&mut self, name: &str, value: &str) {
        // Options without a value may be given twice here, and not there.
        if !self.options.iter().any(|o| o == name) || !value.is_empty() {
            self.options.push(name.to_owned());
            self.options.extend((!value.is_empty()).then(|| value.to_owned()));
        }
    }

    /// Adds shapes to the profile that is open.
    pub fn add_shapes(&mut self, end: End, text: &str) -> Result<(), String> {
        let shapes = values::shapes(text)?;
        let profile = self.profiles.entry(self.profile).or_default();
        let to = match end {
            End::Min => &mut profile.min,
            End::Opt => &mut profile.opt,
            End::Max => &mut profile.max,
        };
        to.extend(shapes);
        Ok(())
    }

    /// Opens another profile.
    pub fn choose_profile(&mut self, text: &str) -> Result<(), String> {
        self.profile = values::number(text)?;
        Ok(())
    }

    /// Adds files to the pair that is open.
    pub fn add_files(&mut self, of: fn(&mut Pair) -> &mut Vec<String>, text: &str) -> Result<(), String> {
        let files = values::split(text);
        if let Some(wrong) = files.iter().find(|f| !f.contains(':')) {
            return Err(format!("\"{wrong}\" is not NAME:FILE"));
        }
        of(self.pairs.entry(self.pair.unwrap_or(0)).or_default()).extend(files);
        Ok(())
    }

    /// Adds plug-in libraries.
    pub fn add_plugins(&mut self, text: &str) -> Result<(), String> {
        for path in values::split(text) {
            self.option("--plugin", &path);
        }
        Ok(())
    }

    /// Sets limits of memory, and notes pools that Kiln does not have.
    pub fn set_pools(&mut self, text: &str) -> Result<(), String> {
        let (pools, notes) = values::pools(text)?;
        self.pools.extend(pools);
        self.notes.extend(notes);
        Ok(())
    }

    /// The options of `kiln build`, as its own rules read them.
    pub fn model_options(&self) -> Result<ModelOptions, Failure> {
        let mut options = self.options.clone();
        if !self.pools.is_empty() {
            options.extend(["--mem-pool-size".to_owned(), self.pools.join(",")]);
        }
        let parsed = Options::try_parse_from(options).map_err(|e| {
            let text = e.to_string();
            let end = text.find("\n\n").unwrap_or(text.len());
            Failure::Input(format!(
                "as options of `kiln build`: {}",
                text[..end].trim_start_matches("error: ")
            ))
        })?;
        Ok(parsed.model)
    }
}
