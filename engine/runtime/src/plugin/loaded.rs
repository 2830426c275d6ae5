//! Backends and devices of a library as the engine sees them.

use super::executable::LoadedExecutable;
use super::library::Plugin;
use super::objects::{BackendObject, DeviceObject, Library, Object};
use super::outgoing::{Payload, Tensors};
use super::{PluginError, PluginInfo, call};
use ::kiln_backend::wire::{self, BlobList, TensorViews};
use ::kiln_backend::{
    Backend, BackendError, Device, Executable, Program, Region, Tactic, Target, TimeRequest,
};
use kiln_abi::*;
use kiln_ir::{Source, ValueId};
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::Arc;

/// A backend of a library.
pub struct LoadedBackend {
    object: Arc<BackendObject>,
}

impl LoadedBackend {
    pub(super) fn new(plugin: Arc<Plugin>, table: kiln_backend_v1) -> Result<LoadedBackend, BackendError> {
        let library = Arc::new(Library { plugin, table });
        let create = library.slot(table.backend_create, "backend_create")?;
        // SAFETY: the place and the error sink live for the call.
        let ptr = call::object(|out, err| unsafe { create(out, err) })?;
        Ok(LoadedBackend { object: Arc::new(Object::new(ptr, table.backend_destroy, library, ())) })
    }

    /// The library that it comes from.
    pub fn info(&self) -> &PluginInfo {
        self.object.library().plugin.info()
    }
}

impl Plugin {
    /// Makes the backend that it offers.
    pub fn backend(self: &Arc<Plugin>) -> Result<LoadedBackend, PluginError> {
        let table = self.backend_table()?;
        LoadedBackend::new(self.clone(), table)
            .map_err(|source| PluginError::Init { path: self.info().path.clone(), source })
    }
}

fn region_payload(region: &Region) -> Result<Payload, BackendError> {
    let mut tensors = TensorViews::default();
    let cbor = region.to_cbor(&mut tensors)?;
    Ok(Payload::new(cbor, &tensors, BlobList::default()))
}

impl Backend for LoadedBackend {
    fn name(&self) -> &str {
        &self.info().name
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.backend_targets, "backend_targets")?;
        // SAFETY: the object is alive; the sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), out, err) })?;
        wire::targets_from_cbor(&bytes)
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        let lib = self.object.library();
        let Some(f) = lib.table.backend_supports else {
            // A library older than 1.7.
            return match self.tactics(region, target)?.is_empty() {
                true => Err(BackendError::Unsupported(format!("no tactic for {}", region.label()))),
                false => Ok(()),
            };
        };
        let (region, target) = (region_payload(region)?, target.to_cbor()?);
        let (r, t) = (region.view(), kiln_bytes::new(&target));
        // SAFETY: the object is alive; views and the sink live for the call.
        call::status(|err| unsafe { f(self.object.ptr(), &r, t, err) })
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.backend_tactics, "backend_tactics")?;
        let (region, target) = (region_payload(region)?, target.to_cbor()?);
        let (r, t) = (region.view(), kiln_bytes::new(&target));
        // SAFETY: the object is alive; views and sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), &r, t, out, err) })?;
        wire::tactics_from_cbor(&bytes)
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.backend_compile, "backend_compile")?;
        let (region, tactic, target) = (region_payload(region)?, tactic.to_cbor()?, target.to_cbor()?);
        let (r, a, t) = (region.view(), kiln_bytes::new(&tactic), kiln_bytes::new(&target));
        // SAFETY: the object is alive; views and sinks live for the call.
        call::bytes(|out, err| unsafe { f(self.object.ptr(), &r, a, t, out, err) })
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.backend_open, "backend_open")?;
        let target = target.to_cbor()?;
        let t = kiln_bytes::new(&target);
        // SAFETY: the object is alive; views, place and sink live for the call.
        let ptr = call::object(|out, err| unsafe { f(self.object.ptr(), t, out, err) })?;
        let object = Object::new(ptr, lib.table.device_destroy, lib.clone(), self.object.clone());
        Ok(Arc::new(LoadedDevice { object: Arc::new(object) }))
    }
}

/// Takes out what is there for refit only: recipes, and weights that nothing but a recipe reads.
fn strip(program: &mut Program) {
    let read: HashSet<ValueId> = program.weights().map(|(v, _)| v).collect();
    for v in program.graph.value_ids() {
        let def = program.graph.value_mut(v);
        match &mut def.source {
            Source::Weight(w) if read.contains(&v) => w.recipe = None,
            Source::Weight(_) => def.source = Source::Dead,
            _ => {}
        }
    }
}

struct LoadedDevice {
    object: Arc<DeviceObject>,
}

impl Device for LoadedDevice {
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.device_time, "device_time")?;
        let TimeRequest { graph, tactic, blob, inputs, samples } = *request;
        let mut tensors = TensorViews::default();
        let cbor = graph.to_cbor(&mut tensors)?;
        let graph = Payload::new(cbor, &tensors, BlobList::default());
        let (tactic, inputs) = (tactic.to_cbor()?, Tensors::new(inputs));
        let request = kiln_time_request {
            struct_size: size_of::<kiln_time_request>() as u32,
            samples,
            graph: graph.view(),
            tactic: kiln_bytes::new(&tactic),
            blob: kiln_bytes::new(blob),
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
        };
        // SAFETY: the object is alive; views and sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), &request, out, err) })?;
        wire::samples_from_cbor(&bytes)
    }

    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.device_load, "device_load")?;
        // SAFETY: as `make` calls it.
        self.make(program, |device, view, out, err| unsafe { f(device, view, out, err) })
    }

    fn load_within(
        &self,
        program: Arc<Program>,
        weight_budget: u64,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.device_load_within, "device_load_within")?;
        // SAFETY: as `make` calls it.
        self.make(program, |device, view, out, err| unsafe { f(device, view, weight_budget, out, err) })
    }

    fn free_memory(&self) -> Result<u64, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.device_free_memory, "free_memory")?;
        let mut bytes = 0;
        // SAFETY: the object is alive; the place lives for the call.
        call::status(|err| unsafe { f(self.object.ptr(), &mut bytes, err) })?;
        Ok(bytes)
    }

    unsafe fn read(
        &self,
        stream: *mut c_void,
        address: *const c_void,
        to: &mut [u8],
    ) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.device_read, "read")?;
        let (bytes, to) = (to.len() as u64, to.as_mut_ptr().cast());
        // SAFETY: the object is alive; the caller vouches for stream and address; the memory of the host has so many bytes.
        call::status(|err| unsafe { f(self.object.ptr(), stream, address, bytes, to, err) })
    }
}

impl LoadedDevice {
    /// Makes an executable by a slot: it is called with the device, which is alive, and with a view, a place and a sink that live for
    /// the call.
    fn make(
        &self,
        program: Arc<Program>,
        load: impl FnOnce(*mut kiln_device, &kiln_payload, *mut *mut kiln_executable, *mut kiln_error) -> i32,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let lib = self.object.library();
        let mut canonical = (*program).clone();
        strip(&mut canonical);
        let numbers = canonical.compact()?;
        let (mut tensors, mut blobs) = (TensorViews::default(), BlobList::default());
        let cbor = canonical.to_cbor(&mut tensors, &mut blobs)?;
        let payload = Payload::new(cbor, &tensors, blobs);
        let view = payload.view();
        let ptr = call::object(|out, err| load(self.object.ptr(), &view, out, err))?;
        let object = Object::new(ptr, lib.table.executable_destroy, lib.clone(), self.object.clone());
        Ok(Arc::new(LoadedExecutable::new(object, program, &numbers)))
    }
}
