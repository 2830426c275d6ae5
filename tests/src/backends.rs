//! The backends that tests run on. Products of f32 are in IEEE arithmetic, unless a test asks for more.

use kiln_backend::assisted::ORACLE;
use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target, flow};
use kiln_runtime::plugin::{Policy, load};
use std::path::PathBuf;
use std::sync::Arc;

/// The linked-in CPU backend.
pub fn cpu() -> Arc<dyn Backend> {
    Arc::new(kiln_backend_cpu::Cpu::new())
}

/// The oracle as a backend.
pub fn reference() -> Arc<dyn Backend> {
    Arc::new(kiln_reference::Reference::new())
}

/// The CPU backend, with the oracle as a second tactic of every region without control flow.
pub fn cpu_or_oracle() -> Arc<dyn Backend> {
    Arc::new(OrOracle(kiln_backend_cpu::Cpu::new()))
}

struct OrOracle(kiln_backend_cpu::Cpu);

impl Backend for OrOracle {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        self.0.targets()
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let mut all = self.0.tactics(region, target)?;
        if flow::tactic(region).is_none() && all.iter().all(|t| t.name != ORACLE) {
            all.push(Tactic { source_hash: all[0].source_hash.clone(), ..Tactic::plain(ORACLE) });
        }
        Ok(all)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        self.0.open(target)
    }
}

/// The wgpu backend, loaded as the shared library beside the test's executable, where there is an adapter.
///
/// `None` with a clear line where the library was not built or no adapter is found; an error where
/// `KILN_REQUIRE_WGPU=1` says that both must be there.
pub fn wgpu() -> Result<Option<Arc<dyn Backend>>, String> {
    optional("wgpu", "KILN_REQUIRE_WGPU")
}

/// The CUDA backend, likewise, where there is a device; `KILN_REQUIRE_CUDA=1` says that there must be one.
pub fn cuda() -> Result<Option<Arc<dyn Backend>>, String> {
    Ok(optional("cuda", "KILN_REQUIRE_CUDA")?.map(|b| Arc::new(Ieee(b)) as Arc<dyn Backend>))
}

/// The CUDA backend as it is: products of f32 may be in TF32 where a build allows it.
pub fn cuda_with_tf32() -> Result<Option<Arc<dyn Backend>>, String> {
    optional("cuda", "KILN_REQUIRE_CUDA")
}

/// A backend whose targets do not allow TF32.
struct Ieee(Arc<dyn Backend>);

impl Backend for Ieee {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let mut all = self.0.targets()?;
        all.iter_mut().for_each(|t| t.features.retain(|f| f != "tf32"));
        Ok(all)
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        self.0.supports(region, target)
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        self.0.tactics(region, target)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.0.compile(region, tactic, target)
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        self.0.open(target)
    }
}

fn optional(name: &str, required: &str) -> Result<Option<Arc<dyn Backend>>, String> {
    match open(name) {
        Ok(b) => Ok(Some(b)),
        Err(why) if std::env::var_os(required).is_some() => Err(why),
        Err(why) => {
            eprintln!("skipped: {why}");
            Ok(None)
        }
    }
}

/// All backends that run on this machine, the CPU backend first.
pub fn all() -> Result<Vec<Arc<dyn Backend>>, String> {
    Ok([Some(cpu()), wgpu()?, cuda()?].into_iter().flatten().collect())
}

/// A backend's shared library, loaded; whether it finds a device is not asked.
pub fn loaded(name: &str) -> Result<Arc<dyn Backend>, String> {
    let path = library(name)?;
    let plugin = load(&path, &Policy::default()).map_err(|e| e.chain())?;
    Ok(Arc::new(plugin.backend().map_err(|e| e.to_string())?))
}

fn open(name: &str) -> Result<Arc<dyn Backend>, String> {
    let backend = loaded(name)?;
    let targets = backend.targets().map_err(|e| e.to_string())?;
    if targets.is_empty() { Err(format!("the {name} backend finds no device")) } else { Ok(backend) }
}

/// The shared library of a backend in the folder that cargo builds into.
fn library(name: &str) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let file = format!("libkiln_backend_{name}{}", std::env::consts::DLL_SUFFIX);
    let found = exe.ancestors().skip(1).take(3).map(|d| d.join(&file)).find(|p| p.is_file());
    found.ok_or_else(|| format!("{file} is not built: run cargo build -p kiln-backend-{name}"))
}
