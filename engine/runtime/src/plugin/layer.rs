//! Layers of libraries: instances, and runs of the reference form.

use super::call;
use super::contained::{Unwinding, contained};
use super::field_views::FieldViews;
use super::host_tensor::HostTensor;
use super::library::Plugin;
use super::native_table::NativeTable;
use ::kiln_backend::{BackendError, stop};
use kiln_abi::*;
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use kiln_ops::plugin::record::{Arrangement, FieldDef, LayerName, LayerRun};
use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

/// Instances that are kept for later calls, of one layer.
const MOST_KEPT: usize = 64;
/// Longer descriptions of shapes are refused.
const MAX_TEXT: usize = 16 << 10;

/// The functions of a layer of a library.
pub struct LoadedLayer {
    plugin: Arc<Plugin>,
    table: kiln_layer,
    name: LayerName,
    fields: Vec<FieldDef>,
    natives: Vec<NativeTable>,
    /// Instances that no call uses, by their fields.
    free: Mutex<HashMap<Vec<u8>, Vec<Instance>>>,
}

/// An instance, never used by two calls at once.
pub(super) struct Instance(NonNull<kiln_layer_instance>);

impl Instance {
    pub(super) fn as_ptr(&self) -> *mut kiln_layer_instance {
        self.0.as_ptr()
    }
}

// SAFETY: the ABI lets instances be called from any thread, by one at a time.
unsafe impl Send for Instance {}

impl LoadedLayer {
    pub(super) fn new(
        plugin: Arc<Plugin>,
        table: kiln_layer,
        name: LayerName,
        fields: Vec<FieldDef>,
        natives: Vec<NativeTable>,
    ) -> LoadedLayer {
        LoadedLayer { plugin, table, name, fields, natives, free: Mutex::default() }
    }

    pub(super) fn name(&self) -> &LayerName {
        &self.name
    }

    pub(super) fn natives(&self) -> &[NativeTable] {
        &self.natives
    }

    pub(super) fn views(&self, fields: &Attrs) -> FieldViews {
        FieldViews::new(&self.fields, fields)
    }

    /// Refuses calls while the process ends.
    pub(super) fn check_alive(&self) -> Result<(), OpError> {
        match self.plugin.is_alive() {
            true => Ok(()),
            false => Err(OpError::Unsupported("the process ends; plug-ins are no longer called".into())),
        }
    }

    /// A new instance; none where the layer has no `create`.
    pub(super) fn instance(&self, views: &FieldViews) -> Result<Option<Instance>, BackendError> {
        let Some(create) = self.table.create.map(Unwinding::unwinding) else { return Ok(None) };
        // SAFETY: fields, place and sink live for the call.
        let made = call::object(|out, err| unsafe { create(views.as_ptr(), views.len(), out, err) })?;
        Ok(Some(Instance(made)))
    }

    /// The error of a call, with the layer and its library.
    pub(super) fn error(&self, e: BackendError) -> OpError {
        let at = self.plugin.info().path.display();
        let name = &self.name;
        match e {
            BackendError::Unsupported(why) => {
                OpError::Unsupported(format!("plug-in layer {name} ({at}): {why}"))
            }
            BackendError::InvalidArgument(why) => {
                OpError::Value(format!("plug-in layer {name} ({at}): {why}"))
            }
            BackendError::Panicked(why) => OpError::Value(format!(
                "plug-in layer {name} ({at}) panicked: {why}; report it to its author"
            )),
            e => OpError::Value(format!("plug-in layer {name} ({at}): {e}")),
        }
    }

    /// Runs `f` with an instance for these fields that nobody else uses; null where the layer has no `create`.
    fn with<T>(
        &self,
        fields: &Attrs,
        f: impl FnOnce(*mut kiln_layer_instance, &FieldViews) -> Result<T, BackendError>,
    ) -> Result<T, OpError> {
        self.check_alive()?;
        let views = self.views(fields);
        if self.table.create.is_none() {
            return f(ptr::null_mut(), &views).map_err(|e| self.error(e));
        }
        let key = minicbor::to_vec(fields).unwrap_or_default();
        let kept = self.lock().get_mut(&key).and_then(Vec::pop);
        let instance = match kept {
            Some(instance) => Some(instance),
            None => self.instance(&views).map_err(|e| self.error(e))?,
        };
        let lost = || self.error(BackendError::Internal("it made no instance".into()));
        let instance = instance.ok_or_else(lost)?;
        let result = f(instance.0.as_ptr(), &views);
        match &result {
            // Its state is unknown: it is neither used again nor destroyed.
            Err(BackendError::Panicked(_)) => {}
            _ => self.keep(key, instance),
        }
        result.map_err(|e| self.error(e))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Vec<Instance>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: Vec<u8>, instance: Instance) {
        let mut free = self.lock();
        if free.values().map(Vec::len).sum::<usize>() < MOST_KEPT {
            free.entry(key).or_default().push(instance);
        } else {
            drop(free);
            self.destroy(instance);
        }
    }

    pub(super) fn destroy(&self, instance: Instance) {
        if let Some(destroy) = self.table.destroy.filter(|_| self.plugin.is_alive()) {
            let destroy = destroy.unwinding();
            // SAFETY: the library made the instance, nobody uses it, and the library has not ended.
            if let Err(e) = contained(|| unsafe { destroy(instance.0.as_ptr()) }) {
                tracing::warn!("{}", self.error(e));
            }
        }
    }

    /// Runs the reference form.
    pub(super) fn call(&self, r: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError> {
        let LayerRun { fields, workspace, aliases, inputs, outputs, arrangement: how } = *r;
        let run =
            self.table.run.ok_or_else(|| OpError::Unsupported("a layer without a reference form".into()))?;
        let run = run.unwinding();
        let mut ins = inputs.iter().map(|t| HostTensor::copy(t, how)).collect::<Result<Vec<_>, _>>()?;
        let mut outs = Vec::with_capacity(outputs.len());
        for (j, ty) in outputs.iter().enumerate() {
            let alias = aliases.iter().find(|a| a.1 == j).and_then(|a| inputs.get(a.0));
            outs.push(match alias {
                Some(from) => HostTensor::copy(from, how)?,
                None => HostTensor::new(ty.dtype, &bounds(ty)?, how)?,
            });
        }
        let room = usize::try_from(workspace).map_err(|_| OpError::TooLarge(format!("{workspace} bytes")))?;
        let mut room = HostTensor::new(DType::U8, &[room], Arrangement::Dense)?;
        let (ins_views, out_views) = {
            // An input that an output is an alias of is the same memory.
            let mut ins: Vec<kiln_host_tensor> = ins.iter_mut().map(HostTensor::view).collect();
            let outs: Vec<kiln_host_tensor> = outs.iter_mut().map(HostTensor::view).collect();
            for &(i, j) in aliases {
                if let (Some(input), Some(output)) = (ins.get_mut(i), outs.get(j)) {
                    input.data = output.data;
                }
            }
            (ins, outs)
        };
        self.with(fields, |instance, views| {
            let call = kiln_layer_call {
                struct_size: size_of::<kiln_layer_call>() as u32,
                reserved: 0,
                fields: views.as_ptr(),
                field_count: views.len(),
                inputs: ins_views.as_ptr(),
                input_count: ins_views.len() as u64,
                outputs: out_views.as_ptr(),
                output_count: out_views.len() as u64,
                workspace: room.view().data,
                workspace_bytes: workspace,
            };
            // SAFETY: the instance is used by this call alone; views and sink live for the call.
            call::status(|err| unsafe { run(instance, &call, err) })
        })
        .inspect_err(|_| stop::checkpoint())?;
        let all = ins.iter().map(|t| ("input", t)).chain(outs.iter().map(|t| ("output", t)));
        let broken = all.chain([("workspace", &room)]).enumerate().find(|(_, (_, t))| !t.is_guarded());
        if let Some((at, (what, _))) = broken {
            let at = if what == "output" { at - ins.len() } else { at };
            return Err(
                self.error(BackendError::Internal(format!("it wrote outside of the memory of {what} {at}")))
            );
        }
        self.results(&outs, outputs)
    }

    /// The outputs, whose sizes must be those of their types, or within bounds and the same for one symbol.
    fn results(&self, outs: &[HostTensor], types: &[TensorType]) -> Result<Vec<Tensor>, OpError> {
        let mut found: HashMap<String, i64> = HashMap::new();
        for (j, (t, ty)) in outs.iter().zip(types).enumerate() {
            for (axis, (&n, d)) in t.dims().iter().zip(&ty.dims).enumerate() {
                let bound = bound(d)?;
                let same = d.as_const().is_some() || *found.entry(d.to_string()).or_insert(n) == n;
                let fits = if d.as_const().is_some() { n == bound } else { (0..=bound).contains(&n) && same };
                if !fits {
                    let wanted = if d.as_const().is_some() {
                        format!("{bound}")
                    } else {
                        format!("0 to {bound}, the same for one size")
                    };
                    let why = format!("it left size {n} of dimension {axis} of output {j}, wants {wanted}");
                    return Err(self.error(BackendError::Internal(why)));
                }
            }
        }
        outs.iter()
            .map(|t| t.finish().map_err(|e| self.error(BackendError::Internal(e.to_string()))))
            .collect()
    }
}

/// The greatest dimensions of an output.
fn bounds(ty: &TensorType) -> Result<Vec<usize>, OpError> {
    ty.dims.iter().map(|d| Ok(bound(d)?.max(0) as usize)).collect()
}

fn bound(d: &Dim) -> Result<i64, OpError> {
    let bound = d.as_const().or_else(|| d.upper_bound()?.as_const());
    bound.ok_or_else(|| OpError::Value(format!("the size {d} of an output has no bound that is known")))
}

impl Drop for LoadedLayer {
    fn drop(&mut self) {
        let free: Vec<Instance> = self.lock().drain().flat_map(|(_, v)| v).collect();
        free.into_iter().for_each(|i| self.destroy(i));
    }
}

impl LoadedLayer {
    /// Checks fields.
    pub(super) fn check(&self, fields: &Attrs) -> Result<(), OpError> {
        self.with(fields, |_, _| Ok(()))
    }

    /// The shapes of the outputs as text.
    pub(super) fn describe(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<String, OpError> {
        let describe =
            self.table.describe.ok_or_else(|| OpError::Unsupported("a layer without shapes".into()))?;
        let describe = describe.unwinding();
        let mut dims: Vec<Vec<i64>> =
            inputs.iter().map(|t| t.dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect()).collect();
        let views: Vec<kiln_host_tensor> = inputs
            .iter()
            .zip(&mut dims)
            .map(|(t, d)| kiln_host_tensor {
                dtype: t.dtype.code().into(),
                ndim: d.len() as u32,
                dims: d.as_mut_ptr(),
                strides: ptr::null(),
                data: ptr::null_mut(),
                bytes: 0,
            })
            .collect();
        let bytes = self.with(fields, |instance, fields| {
            let call = kiln_layer_call {
                struct_size: size_of::<kiln_layer_call>() as u32,
                reserved: 0,
                fields: fields.as_ptr(),
                field_count: fields.len(),
                inputs: views.as_ptr(),
                input_count: views.len() as u64,
                outputs: ptr::null(),
                output_count: 0,
                workspace: ptr::null_mut(),
                workspace_bytes: 0,
            };
            // SAFETY: the instance is used by this call alone; views and sinks live for the call.
            call::bytes(|out, err| unsafe { describe(instance, &call, out, err) })
        })?;
        let wrong = |why: String| self.error(BackendError::Internal(why));
        if bytes.len() > MAX_TEXT {
            return Err(wrong(format!(
                "it described shapes by {} bytes, at most {MAX_TEXT} are taken",
                bytes.len()
            )));
        }
        String::from_utf8(bytes)
            .map_err(|e| wrong(format!("it described shapes by text that is not UTF-8: {e}")))
    }
}
