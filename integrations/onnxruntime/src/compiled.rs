//! A fused part of a graph: its model, and the engine that is built of it.

use crate::error::{Fail, described};
use crate::options::Options;
use kiln::{DiscoverOptions, Engine, ExecutionContext, Model, Plan, Profile, ShapeRequest};
use kiln_onnx::proto::{ModelProto, tensor_shape_proto::Dimension, type_proto};
use prost::Message;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An engine and its contexts that no run uses.
pub struct Built {
    pub engine: Engine,
    free: Mutex<Vec<ExecutionContext>>,
}

impl Built {
    fn new(engine: Engine) -> Built {
        Built { engine, free: Mutex::default() }
    }

    /// A context for one run.
    pub fn take(&self) -> Result<ExecutionContext, Fail> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match free {
            Some(context) => Ok(context),
            None => Ok(self.engine.create_context()?),
        }
    }

    /// Keeps a context for the next run.
    pub fn put(&self, context: ExecutionContext) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(context);
    }
}

/// Engines of this process by key, so that sessions of one model share them.
static SHARED: Mutex<Option<HashMap<String, Weak<Built>>>> = Mutex::new(None);

/// A part that is built at once, or when shapes are known.
pub struct Part {
    /// The model, encoded; none if it came as a plan.
    pub model: Option<Vec<u8>>,
    pub options: Options,
    /// Names of its inputs in the order of the fused node, and those of its outputs.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// Inputs whose elements decide shapes.
    pub shape_inputs: Vec<String>,
    pub state: Mutex<State>,
}

/// The engine of a part, and the shapes that it has seen.
#[derive(Default)]
pub struct State {
    pub built: Option<Arc<Built>>,
    seen: Option<Seen>,
}

impl State {
    /// With an engine that is there.
    pub fn of(built: Arc<Built>) -> State {
        State { built: Some(built), ..State::default() }
    }
}

/// Least and greatest shapes, and elements of shape inputs, of the runs so far.
#[derive(Clone, Default)]
struct Seen {
    shapes: HashMap<String, [Vec<i64>; 2]>,
    values: HashMap<String, [Vec<i64>; 2]>,
}

/// Shape of an input, and its elements if they decide shapes.
pub struct Given {
    pub name: String,
    pub shape: Vec<i64>,
    pub values: Option<Vec<i64>>,
}

fn stretch(to: &mut HashMap<String, [Vec<i64>; 2]>, name: &str, found: &[i64]) {
    let ends = to.entry(name.to_owned()).or_insert_with(|| [found.to_vec(), found.to_vec()]);
    if ends[0].len() != found.len() {
        *ends = [found.to_vec(), found.to_vec()];
    }
    let [least, greatest] = ends;
    least.iter_mut().zip(found).for_each(|(a, b)| *a = (*a).min(*b));
    greatest.iter_mut().zip(found).for_each(|(a, b)| *a = (*a).max(*b));
}

/// Whether a profile of an engine has room for these shapes and elements.
fn fits(profile: &Profile, given: &[Given]) -> bool {
    given.iter().all(|g| {
        let shape = profile.shapes.get(&g.name).is_none_or(|r| r.contains(&g.shape));
        let values = g.values.as_ref().and_then(|v| Some(profile.values.get(&g.name)?.contains(v)));
        shape && values.unwrap_or(true)
    })
}

impl Part {
    fn builder(&self) -> kiln::EngineBuilder {
        Engine::builder().plugins(discover(&self.options))
    }

    fn on_device(&self, builder: kiln::EngineBuilder) -> kiln::EngineBuilder {
        match &self.options.device {
            Some(device) => builder.device(device.as_str()),
            None => builder,
        }
    }

    /// Whether all shapes are known before a run.
    pub fn is_static(model: &Model) -> bool {
        model
            .io_tensors()
            .iter()
            .all(|t| !t.is_shape_input && (t.mode != kiln::IoMode::Input || t.ty().static_dims().is_some()))
    }

    /// Whether an engine is for all shapes that the part can have.
    pub fn is_fixed(&self, built: &Built) -> bool {
        built
            .engine
            .io_tensors()
            .iter()
            .all(|t| !t.is_shape_input && (t.mode != kiln::IoMode::Input || t.ty().static_dims().is_some()))
    }

    /// Whether the inputs of a run have the ranks of the engine's.
    pub fn has_ranks(built: &Built, given: &[(&str, usize)]) -> bool {
        let rank =
            |name: &str| built.engine.io_tensors().iter().find(|t| t.name == name).map(|t| t.dims.len());
        given.iter().all(|(name, found)| rank(name).is_none_or(|r| r == *found))
    }

    /// Loads a plan.
    pub fn load(&self, plan: Vec<u8>) -> Result<Arc<Built>, Fail> {
        Ok(Arc::new(Built::new(self.on_device(self.builder()).build(Plan::read(plan)?)?)))
    }

    /// Builds an engine for these shapes, or takes one that is there: of this process, or a stored one.
    pub fn build(&self, request: &ShapeRequest, given: &[Given]) -> Result<Arc<Built>, Fail> {
        let bytes = self.model.as_ref().ok_or_else(|| {
            Fail::new("the model holds a plan, which does not run these shapes: compile it again with shapes that include them")
        })?;
        let bytes = &with_ranks(bytes, given);
        let key = self.key(bytes, request);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get_or_insert_default();
        if let Some(built) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(built);
        }
        drop(shared);
        let engine = match self.stored(&key) {
            Some(engine) => engine,
            None => {
                let mut options = kiln::BuildOptions::default();
                self.options.apply(&mut options);
                options.shapes = request.clone();
                let builder = self.on_device(self.builder().options(options));
                let plan = builder.build_plan(Model::from_bytes(bytes.clone(), None)?)?.plan;
                if self.options.engine_cache {
                    let path = self.path(&key);
                    if let Some(folder) = path.parent() {
                        let made = std::fs::create_dir_all(folder);
                        made.map_err(|e| Fail::new(format!("cannot make {}: {e}", folder.display())))?;
                    }
                    plan.write_file(&path)?;
                }
                self.on_device(self.builder()).build(plan)?
            }
        };
        let built = Arc::new(Built::new(engine));
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get_or_insert_default();
        known.retain(|_, b| b.strong_count() > 0);
        known.insert(key, Arc::downgrade(&built));
        Ok(built)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.options.folder().join(format!("{}{key}.kiln", self.options.engine_cache_prefix))
    }

    /// A stored engine that runs here.
    fn stored(&self, key: &str) -> Option<Engine> {
        let path = self.path(key);
        (self.options.engine_cache && path.is_file())
            .then(|| self.on_device(self.builder()).build(path.as_path()).ok())
            .flatten()
    }

    fn key(&self, model: &[u8], request: &ShapeRequest) -> String {
        let mut hash = blake3::Hasher::new();
        let version = env!("CARGO_PKG_VERSION");
        for part in
            [model, self.options.key.as_bytes(), format!("{request:?}").as_bytes(), version.as_bytes()]
        {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().to_hex().to_string()
    }

    /// The engine for a run with these inputs, which is built anew where they are outside of what it is for.
    pub fn engine(&self, given: &[Given]) -> Result<Arc<Built>, Fail> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &state.built {
            let profiles = built.engine.profiles();
            if profiles.is_empty() || profiles.iter().any(|p| fits(p, given)) {
                return Ok(built.clone());
            }
        }
        let seen = state.seen.get_or_insert_default();
        for g in given {
            stretch(&mut seen.shapes, &g.name, &g.shape);
            if let Some(values) = &g.values {
                stretch(&mut seen.values, &g.name, values);
            }
        }
        let seen = seen.clone();
        let wide = self.build(&self.request(&seen, given, true), given);
        let built = match wide {
            Ok(built) => built,
            // Ranges of independent inputs may not go together; these very shapes do.
            Err(_) => self.build(&self.request(&seen, given, false), given)?,
        };
        state.built = Some(built.clone());
        Ok(built)
    }

    /// Shapes to build for: those of the options, or those that were seen with room for more.
    fn request(&self, seen: &Seen, given: &[Given], wide: bool) -> ShapeRequest {
        let mut request = self.options.shapes(&self.inputs);
        for g in given {
            let set = request.has(&g.name);
            let [least, greatest] = match seen.shapes.get(&g.name) {
                Some(ends) if wide => ends.clone(),
                _ => [g.shape.clone(), g.shape.clone()],
            };
            // From the second build on, sizes that changed have room up to the next power of two.
            let room =
                |(a, b): (&i64, &i64)| if a == b { *b } else { b.unsigned_abs().next_power_of_two() as i64 };
            let most: Vec<i64> = least.iter().zip(&greatest).map(room).collect();
            if !set {
                request.min(&g.name, &least).opt(&g.name, &g.shape).max(&g.name, &most);
            }
            if let Some(values) = &g.values {
                let [least, greatest] = match seen.values.get(&g.name) {
                    Some(ends) if wide => ends.clone(),
                    _ => [values.clone(), values.clone()],
                };
                request
                    .min_values(&g.name, &least)
                    .opt_values(&g.name, values)
                    .max_values(&g.name, &greatest);
            }
        }
        request
    }
}

/// A model whose inputs have as many dimensions as those of a run. ONNX Runtime 1.23 describes values of unknown rank as scalars.
fn with_ranks(model: &[u8], given: &[Given]) -> Vec<u8> {
    let Ok(mut proto) = ModelProto::decode(model) else { return model.to_vec() };
    let Some(graph) = &mut proto.graph else { return model.to_vec() };
    let mut changed = false;
    for input in &mut graph.input {
        let rank = given.iter().find(|g| g.name == input.name).map(|g| g.shape.len());
        let ty = input.r#type.as_mut().and_then(|t| t.value.as_mut());
        if let (Some(rank), Some(type_proto::Value::TensorType(t))) = (rank, ty) {
            let shape = t.shape.get_or_insert_default();
            if shape.dim.len() != rank {
                shape.dim = vec![Dimension::default(); rank];
                changed = true;
            }
        }
    }
    if !changed {
        return model.to_vec();
    }
    // Shapes of outputs come from those of inputs, and may be as unknown.
    for output in &mut graph.output {
        if let Some(type_proto::Value::TensorType(t)) = output.r#type.as_mut().and_then(|t| t.value.as_mut())
        {
            t.shape = None;
        }
    }
    proto.encode_to_vec()
}

/// An error if the backend is not here.
pub fn check_exists(options: &Options) -> Result<(), Fail> {
    let Some(name) = &options.backend else { return Ok(()) };
    let all = kiln::backends(&discover(options)).0;
    match all.get(name) {
        Ok(_) => Ok(()),
        Err(_) => {
            let known = all.names().collect::<Vec<_>>().join(", ");
            Err(Fail::argument(format!(
                "Kiln has no backend \"{name}\" here, only {known}; option kiln_plugin_path names places"
            )))
        }
    }
}

/// Registers the layers of a library, for models of this process.
pub fn load_layers(library: &Path) -> Result<(), Fail> {
    let loaded = kiln::plugin::load_layers(library, &DiscoverOptions::default().policy);
    loaded.map(drop).map_err(|e| Fail::argument(described(&e)))
}

/// Places of plug-ins.
fn discover(options: &Options) -> DiscoverOptions {
    let mut plugins = DiscoverOptions::default();
    plugins.search.explicit.extend(options.plugins.clone());
    plugins.search.system.extend(beside_library());
    plugins
}

/// Refuses what the backend has no kernel for, with the name of the layer if one is at fault. Backends that are linked in run all.
pub fn check_backend(options: &Options, model: &[u8]) -> Result<(), (Option<String>, String)> {
    let Some(backend) = options.backend.as_deref() else { return Ok(()) };
    if kiln::is_linked(backend) || options.fallback.is_some() {
        return Ok(());
    }
    let part = Part {
        model: None,
        options: options.clone(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        shape_inputs: Vec::new(),
        state: Mutex::default(),
    };
    let mut build = kiln::BuildOptions::default();
    options.apply(&mut build);
    build.config.set_optimization_level(0);
    build.timing_cache = None;
    let model = Model::from_bytes(model.to_vec(), None).map_err(|e| (None, described(&e)))?;
    match part.builder().options(build).build_plan(model) {
        Ok(_) => Ok(()),
        Err(e) => {
            let layer = match &e {
                kiln::Error::Build { source: kiln::report::BuildError::NoTactic { layer, .. }, .. } => {
                    Some(layer.split(" + ").next().unwrap_or(layer).to_owned())
                }
                _ => None,
            };
            Err((layer, described(&e)))
        }
    }
}

/// The folder of this library, where a package has backends.
fn beside_library() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = beside_library as fn() -> Option<PathBuf>;
    // SAFETY: an address of this library, and a place for what is known of it.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a value of the struct, and the call only wrote to it.
    let name = unsafe { info.assume_init() }.dli_fname;
    if !found || name.is_null() {
        return None;
    }
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: the name of a library that is loaded ends with a NUL.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)).parent()?.to_owned())
}
