//! The table of a library's layers, as definitions.

use super::handshake::{self, MAX_TABLE};
use super::layer::LoadedLayer;
use super::layer_functions::Functions;
use super::library::Plugin;
use super::{PluginError, field_views, native_table};
use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ops::plugin::kernel::{CountForm, KernelForm, Language, Param};
use kiln_ops::plugin::pattern::Pattern;
use kiln_ops::plugin::record::{FieldDef, LayerName, LayerRecord, Library, TypedKernel};
use kiln_ops::plugin::registry;
use kiln_ops::plugin::shapes::Shape;
use kiln_ops::plugin::types::Combination;
use std::sync::Arc;

/// More layers, fields or kernels are refused.
const MOST: u64 = 1024;
/// Longer texts are refused.
const MAX_TEXT: u64 = 1 << 20;
/// Name of the table in messages.
const TABLE: &str = "table of \"kiln.layer/1\"";

impl Plugin {
    /// Reads the library's layers and registers them in this process, all or none. Those that are registered already are
    /// returned again.
    pub fn layers(self: &Arc<Plugin>) -> Result<Vec<Arc<LayerRecord>>, PluginError> {
        let library = self.layer_library()?;
        let mut records = Vec::new();
        for (i, table) in self.layer_tables()?.into_iter().enumerate() {
            let record = Reader { plugin: self, index: i }.record(table, &library)?;
            records.push(record);
        }
        let taken = |r: &LayerRecord, by: &LayerRecord| PluginError::LayerTaken {
            path: self.info().path.clone(),
            layer: r.name.to_string(),
            by: by.library.path.clone(),
        };
        for r in &records {
            let other = registry::find(&r.name.space, &r.name.name, Some(&r.name.version));
            if let Some(other) = other.filter(|o| o.library.path != r.library.path) {
                return Err(taken(r, &other));
            }
        }
        let path = &self.info().path;
        let name = |r: &LayerRecord| r.name.to_string();
        let mut all = Vec::with_capacity(records.len());
        for r in records {
            let layer = name(&r);
            all.push(registry::register(r).map_err(|by| PluginError::LayerTaken {
                path: path.clone(),
                layer,
                by: by.library.path.clone(),
            })?);
        }
        Ok(all)
    }

    fn layer_library(&self) -> Result<Library, PluginError> {
        let info = self.info();
        Ok(Library {
            name: info.name.clone(),
            version: info.version.clone(),
            digest: self.digest()?,
            path: info.path.clone(),
        })
    }

    fn layer_tables(&self) -> Result<Vec<*const kiln_layer>, PluginError> {
        let path = &self.info().path;
        let table: *const kiln_layers_v1 = self.interface(KILN_KIND_LAYERS, "layers", KILN_LAYER_V1)?.cast();
        if table.is_null() {
            return Err(handshake::missing(
                path,
                TABLE,
                "table: get_interface gave none",
                "a null pointer".into(),
            ));
        }
        // SAFETY: every table begins with its size.
        let size = unsafe { table.cast::<u32>().read_unaligned() };
        handshake::check_size(path, TABLE, size, size_of::<kiln_layers_v1>())?;
        // SAFETY: the table says that it has this size; null pointers are valid.
        let list = unsafe { view::sized(table, TABLE) }.and_then(|t| match t.layer_count {
            // SAFETY: the library is mapped for good and gave this as its list.
            1..=MOST => unsafe { view::slice(t.layers, t.layer_count) },
            n => Err(BackendError::InvalidArgument(format!("{n} layers, wants 1 to {MOST}"))),
        });
        list.map(<[_]>::to_vec).map_err(|e| self.layer_error("list", e.parts().0))
    }

    fn layer_error(&self, layer: &str, found: String) -> PluginError {
        PluginError::Layer { path: self.info().path.clone(), layer: layer.to_owned(), found }
    }
}

/// Reads one layer.
struct Reader<'a> {
    plugin: &'a Arc<Plugin>,
    index: usize,
}

impl Reader<'_> {
    fn record(&self, table: *const kiln_layer, library: &Library) -> Result<LayerRecord, PluginError> {
        let path = &self.plugin.info().path;
        let what = format!("number {}", self.index);
        if table.is_null() {
            return Err(self.plugin.layer_error(&what, "its table is a null pointer".into()));
        }
        // SAFETY: every table begins with its size.
        let size = unsafe { table.cast::<u32>().read_unaligned() };
        handshake::check_size(path, "table of a layer", size, size_of::<u64>())?;
        // SAFETY: the table says that it has this size; null slots are valid.
        let t = unsafe { view::sized(table, TABLE) };
        let t = t.map_err(|e| self.plugin.layer_error(&what, e.parts().0))?;
        // SAFETY: the library is mapped for good, and its texts are constant.
        let name = unsafe { name(&t) }.map_err(|e| self.plugin.layer_error(&what, e.parts().0))?;
        let wrong = |found: String| self.plugin.layer_error(&name.to_string(), found);
        for (slot, there) in [
            ("run", t.run.is_some()),
            ("destroy", t.create.is_none() || t.destroy.is_some()),
            ("outputs or describe", t.outputs.len > 0 || t.describe.is_some()),
        ] {
            if !there {
                return Err(wrong(format!(
                    "it has no {slot}, which is required; found a null pointer, or a table of {size} bytes that ends before it"
                )));
            }
        }
        // SAFETY: as above.
        let record = unsafe { self.parts(&t, name.clone(), library) };
        let record = record.map_err(|e| wrong(e.parts().0))?;
        record.check().map_err(|e| wrong(e.to_string()))?;
        Ok(record)
    }

    /// # Safety
    /// The table is one of the library, which is mapped for good.
    unsafe fn parts(
        &self,
        t: &kiln_layer,
        name: LayerName,
        library: &Library,
    ) -> Result<LayerRecord, BackendError> {
        // SAFETY: as this function's contract says.
        unsafe {
            let fields = list(t.fields, t.field_count, "fields")?.iter();
            let fields = fields.map(|f| field(f)).collect::<Result<Vec<_>, _>>()?;
            let kernels = list(t.kernels, t.kernel_count, "kernels")?.iter();
            let kernels = kernels.filter_map(|k| kernel(*k).transpose()).collect::<Result<Vec<_>, _>>()?;
            let tables = list(t.natives, t.native_count, "native forms")?.iter();
            let tables =
                tables.filter_map(|n| native_table::read(*n).transpose()).collect::<Result<Vec<_>, _>>()?;
            let natives = tables.iter().map(|n| n.typed.clone()).collect();
            let (own, defs) = (name.clone(), fields.clone());
            let functions = Functions(Arc::new(LoadedLayer::new(self.plugin.clone(), *t, own, defs, tables)));
            let (outputs, expression) = (text(t.outputs, "outputs")?, text(t.expression, "expression")?);
            let shapes = if outputs.is_empty() { None } else { Some(Shape::list(outputs).map_err(invalid)?) };
            Ok(LayerRecord {
                name,
                doc: text(t.doc, "doc")?.to_owned(),
                fields,
                types: Combination::list(text(t.types, "types")?).map_err(invalid)?,
                shapes,
                aliases: aliases(text(t.aliases, "aliases")?)?,
                workspace: text(t.workspace, "workspace")?.to_owned(),
                expression: Some(expression.to_owned()).filter(|e| !e.is_empty()),
                tolerance: text(t.tolerance, "tolerance")?.to_owned(),
                kernels,
                natives,
                patterns: Pattern::list(text(t.patterns, "patterns")?).map_err(invalid)?,
                library: library.clone(),
                functions: Arc::new(functions),
            })
        }
    }
}

fn invalid(e: kiln_ir::OpError) -> BackendError {
    BackendError::InvalidArgument(e.to_string())
}

/// # Safety
/// The view is constant text of a library.
unsafe fn text<'a>(s: kiln_str, what: &str) -> Result<&'a str, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe { view::text(s, what, MAX_TEXT) }
}

/// # Safety
/// The list is a constant of a library.
unsafe fn list<'a, T>(ptr: *const T, count: u64, what: &str) -> Result<&'a [T], BackendError> {
    if count > MOST {
        return Err(BackendError::InvalidArgument(format!("{count} {what}, at most {MOST} are taken")));
    }
    // SAFETY: as this function's contract says.
    unsafe { view::slice(ptr, count) }
}

/// # Safety
/// The table is one of a library.
unsafe fn name(t: &kiln_layer) -> Result<LayerName, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe {
        Ok(LayerName {
            space: text(t.space, "namespace")?.to_owned(),
            name: text(t.name, "name")?.to_owned(),
            version: text(t.version, "version")?.to_owned(),
        })
    }
}

/// # Safety
/// The definition is one of a library.
unsafe fn field(f: &kiln_field_def) -> Result<FieldDef, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe {
        let name = text(f.name, "the name of a field")?;
        let default = field_views::read(&f.value)
            .map_err(|e| BackendError::InvalidArgument(format!("field \"{name}\": {}", e.parts().0)))?;
        Ok(FieldDef {
            name: name.to_owned(),
            doc: text(f.doc, "the doc of a field")?.to_owned(),
            required: f.required != 0,
            default,
        })
    }
}

/// The kernel of a table; `None` of a language that is not known here.
///
/// # Safety
/// The table is one of a library.
unsafe fn kernel(table: *const kiln_layer_kernel) -> Result<Option<TypedKernel>, BackendError> {
    // SAFETY: as this function's contract says; every table begins with its size.
    unsafe {
        let size = table.cast::<u32>().as_ref().copied().unwrap_or(0);
        if !(size_of::<u64>()..=MAX_TABLE as usize).contains(&(size as usize)) {
            let why =
                format!("the table of a kernel has {size} bytes, wants {} to {MAX_TABLE}", size_of::<u64>());
            return Err(BackendError::InvalidArgument(why));
        }
        let k = view::sized(table, "the table of a kernel")?;
        let language = match k.language {
            KILN_LANGUAGE_CUDA => Language::Cuda,
            KILN_LANGUAGE_WGSL => Language::Wgsl,
            _ => return Ok(None),
        };
        let types = text(k.types, "types of a kernel")?;
        let own = |s: kiln_str, what: &str| text(s, what).map(str::to_owned);
        let count = CountForm {
            entry: own(k.count_entry, "entry that finds sizes")?,
            grid: own(k.count_grid, "grid of the entry that finds sizes")?,
            block: own(k.count_block, "block of the entry that finds sizes")?,
        };
        Ok(Some(TypedKernel {
            types: if types.is_empty() { Vec::new() } else { Combination::list(types).map_err(invalid)? },
            form: KernelForm {
                language,
                tactic: own(k.tactic, "tactic")?,
                condition: own(k.condition, "condition")?,
                source: own(k.source, "source")?,
                entry: own(k.entry, "entry")?,
                grid: own(k.grid, "grid")?,
                block: own(k.block, "block")?,
                shared: own(k.shared, "shared")?,
                params: Param::list(text(k.params, "params")?).map_err(invalid)?,
                count: Some(count).filter(|c| !c.entry.is_empty()),
            },
        }))
    }
}

/// Pairs "0:0, 1:2".
fn aliases(text: &str) -> Result<Vec<(usize, usize)>, BackendError> {
    let pair = |p: &str| {
        let (i, o) = p.split_once(':')?;
        Some((i.trim().parse().ok()?, o.trim().parse().ok()?))
    };
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts
        .map(|p| {
            pair(p).ok_or_else(|| {
                BackendError::InvalidArgument(format!(
                    "alias \"{p}\", wants the numbers of an input and an output: \"0:0\""
                ))
            })
        })
        .collect()
}
