//! Definitions of plug-in layers.

use super::formula::Formula;
use super::kernel::{KernelForm, is_identifier};
use super::native::{NativeCall, NativeDevice, NativeForm, NativeRun};
use super::pattern::Pattern;
use super::shapes::Shape;
use super::types::{self, Combination};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Names, namespaces and versions have at most this many bytes.
pub const MAX_NAME: usize = 1023;

/// Name of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerName {
    /// Namespace; may be empty.
    pub space: String,
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colons = if self.space.is_empty() { "" } else { "::" };
        write!(f, "\"{}{colons}{}\", version {}", self.space, self.name, self.version)
    }
}

/// The library that defines a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Library {
    /// Name in its descriptor.
    pub name: String,
    /// Version of the library.
    pub version: String,
    /// BLAKE3 hash of the file, in hexadecimal.
    pub digest: String,
    /// Path of the file.
    pub path: PathBuf,
}

/// Definition of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDef {
    /// Name.
    pub name: String,
    /// Meaning, for users.
    pub doc: String,
    /// Whether the user must give it.
    pub required: bool,
    /// Default, which also sets the kind.
    pub default: Attr,
}

/// A kernel in source form, with the combinations of element types that it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedKernel {
    /// Combinations; none: all of the layer's.
    pub types: Vec<Combination>,
    /// The kernel.
    pub form: KernelForm,
}

/// A native form, with the combinations of element types that it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedNative {
    /// Combinations; none: all of the layer's.
    pub types: Vec<Combination>,
    /// The form.
    pub form: NativeForm,
}

/// The functions of a layer. Callable from any thread.
pub trait LayerFunctions: Send + Sync {
    /// Checks fields, which are complete.
    fn check(&self, fields: &Attrs) -> Result<(), OpError>;

    /// Completes fields, of a layer without a list of types.
    fn complete(&self, given: &Attrs) -> Result<Attrs, OpError> {
        self.check(given)?;
        Ok(given.clone())
    }

    /// The element types of the outputs, of a layer without a list of types.
    fn output_types(&self, _fields: &Attrs, _inputs: &[TensorType]) -> Result<Vec<DType>, OpError> {
        Err(OpError::Unsupported("a layer without element types".into()))
    }

    /// The shapes of the outputs as text, of a layer without fixed ones.
    fn describe(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<String, OpError>;

    /// Runs the reference form.
    fn run(&self, run: &LayerRun<'_>) -> Result<Vec<Tensor>, OpError>;

    /// Makes a native form ready for a context.
    fn attach(
        &self,
        _fields: &Attrs,
        _device: NativeDevice,
        tactic: &str,
        _call: &NativeCall,
    ) -> Result<Box<dyn NativeRun>, OpError> {
        Err(OpError::Unsupported(format!("the layer has no native form \"{tactic}\"")))
    }
}

/// A run of the reference form of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerRun<'a> {
    /// Fields, complete.
    pub fields: &'a Attrs,
    /// Bytes of workspace.
    pub workspace: u64,
    /// Pairs of an input and the output that begins with its contents.
    pub aliases: &'a [(usize, usize)],
    /// Inputs.
    pub inputs: &'a [Tensor],
    /// Types of the outputs; sizes that the layer finds are symbols with bounds.
    pub outputs: &'a [TensorType],
    /// Arrangement of elements in memory.
    pub arrangement: Arrangement,
}

/// Arrangement of elements in the memory that a layer reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// Row-major without gaps.
    #[default]
    Dense,
    /// Row-major with gaps behind each row.
    Padded,
}

/// Definition of a layer.
pub struct LayerRecord {
    /// Name.
    pub name: LayerName,
    /// Description for users.
    pub doc: String,
    /// Fields.
    pub fields: Vec<FieldDef>,
    /// Combinations of element types; none where functions decide on fields and types.
    pub types: Vec<Combination>,
    /// Shapes of the outputs; `None` where a function describes them.
    pub shapes: Option<Vec<Shape>>,
    /// Pairs of an input and the output that is the same memory.
    pub aliases: Vec<(usize, usize)>,
    /// Formula of the bytes of workspace; empty: none.
    pub workspace: String,
    /// The expression form.
    pub expression: Option<String>,
    /// Name of the tolerance; empty: the usual one.
    pub tolerance: String,
    /// Kernels in source form.
    pub kernels: Vec<TypedKernel>,
    /// Native forms.
    pub natives: Vec<TypedNative>,
    /// Operators that it may replace.
    pub patterns: Vec<Pattern>,
    /// The library.
    pub library: Library,
    /// Functions.
    pub functions: Arc<dyn LayerFunctions>,
}

impl fmt::Debug for LayerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerRecord({})", self.name)
    }
}

impl LayerRecord {
    /// Checks what a library says of the layer.
    pub fn check(&self) -> Result<(), OpError> {
        let LayerName { space, name, version } = &self.name;
        for (what, text, least) in [("name", name, 1), ("namespace", space, 0), ("version", version, 1)] {
            if !(least..=MAX_NAME).contains(&text.len()) {
                return Err(OpError::Value(format!(
                    "its {what} has {} bytes, wants {least} to {MAX_NAME}",
                    text.len()
                )));
            }
        }
        for (i, f) in self.fields.iter().enumerate() {
            if !is_identifier(&f.name) || self.fields[..i].iter().any(|g| g.name == f.name) {
                return Err(OpError::Value(format!(
                    "field \"{}\", wants a name of its own of letters, digits and _",
                    f.name
                )));
            }
        }
        let outputs = self.types.first().map_or(0, |t| t.outputs.len());
        if let Some(t) = self.types.iter().find(|t| t.outputs.len() != outputs) {
            return Err(OpError::Value(format!(
                "types \"{t}\" have another number of outputs than {outputs}"
            )));
        }
        if let Some(shapes) = self.shapes.as_ref().filter(|s| s.len() != outputs) {
            return Err(OpError::Value(format!("{} shapes of {outputs} outputs", shapes.len())));
        }
        if let Some(&(i, o)) = self.aliases.iter().find(|a| a.1 >= outputs) {
            return Err(OpError::Value(format!("alias {i}:{o} names output {o} of {outputs}")));
        }
        if self.expression.is_some() && outputs != 1 {
            return Err(OpError::Value(format!(
                "an expression of a layer with {outputs} outputs, wants one"
            )));
        }
        for text in self.expression.iter().chain(Some(&self.workspace).filter(|w| !w.is_empty())) {
            Formula::parse(text)?;
        }
        if !TOLERANCES.contains(&self.tolerance.as_str()) {
            return Err(OpError::Value(format!(
                "tolerance \"{}\", wants one of exact, sum, conditioned",
                self.tolerance
            )));
        }
        if let Some(t) = self.types.iter().find(|t| self.expression.is_some() && !t.is_linear()) {
            return Err(OpError::Value(format!("types \"{t}\" of an expression, which has no formats")));
        }
        for k in &self.kernels {
            k.form.check().map_err(|e| OpError::Value(format!("kernel \"{}\": {e}", k.form.tactic)))?;
        }
        if !self.patterns.is_empty() && outputs != 1 {
            return Err(OpError::Value(format!("a pattern of a layer with {outputs} outputs, wants one")));
        }
        let mut bound = self.patterns.iter().flat_map(Pattern::fields);
        if let Some(name) = bound.find(|n| self.fields.iter().all(|f| f.name != *n)) {
            return Err(OpError::Value(format!(
                "a pattern binds the field \"{name}\", which the layer does not have"
            )));
        }
        for (i, n) in self.natives.iter().enumerate() {
            let wrong =
                |why: String| Err(OpError::Value(format!("native form \"{}\": {why}", n.form.tactic)));
            if self.natives[..i]
                .iter()
                .any(|m| (m.form.device, &m.form.tactic) == (n.form.device, &n.form.tactic))
            {
                return wrong("another one has this tactic, wants names of their own".into());
            }
            n.form.check().or_else(|e| wrong(e.to_string()))?;
        }
        Ok(())
    }

    /// Fields with defaults filled in. Unknown, missing and wrong ones are refused.
    pub fn complete(&self, given: &Attrs) -> Result<Attrs, OpError> {
        if self.types.is_empty() {
            return self.functions.complete(given);
        }
        let wrong =
            |name: &str, found: String, wanted: String| OpError::Attr { name: name.into(), found, wanted };
        if let Some((name, _)) = given.iter().find(|(n, _)| self.fields.iter().all(|f| f.name != *n)) {
            let names: Vec<&str> = self.fields.iter().map(|f| f.name.as_str()).collect();
            let known =
                if names.is_empty() { "no field".to_owned() } else { format!("one of {}", names.join(", ")) };
            return Err(wrong(name, "given".into(), format!("{known}: there is no such field")));
        }
        let mut all = Attrs::new();
        for f in &self.fields {
            let value = match (given.get(&f.name), &f.default) {
                (None, _) if f.required => {
                    return Err(wrong(&f.name, "missing".into(), f.default.kind().into()));
                }
                (None, default) => default.clone(),
                (Some(Attr::Int(n)), Attr::Float(_)) => Attr::Float(*n as f64),
                (Some(Attr::Bool(b)), Attr::Int(_)) => Attr::Int(i64::from(*b)),
                (Some(Attr::Ints(v)), Attr::Floats(_)) => Attr::Floats(v.iter().map(|n| *n as f64).collect()),
                (Some(v), default) if v.same_kind(default) => v.clone(),
                (Some(v), default) => return Err(wrong(&f.name, v.kind().into(), default.kind().into())),
            };
            all.set(&f.name, value);
        }
        self.functions.check(&all)?;
        Ok(all)
    }

    /// The element types of the outputs for inputs of these types.
    pub fn output_types(&self, inputs: &[DType]) -> Result<&[DType], OpError> {
        types::outputs(&self.types, inputs)
    }

    /// The types of the outputs: sizes over the symbols of [`Shape::dims`].
    pub fn outputs(&self, fields: &Attrs, inputs: &[TensorType]) -> Result<Vec<TensorType>, OpError> {
        let dtypes = match self.types.is_empty() {
            true => self.functions.output_types(fields, inputs)?,
            false => self.output_types(&inputs.iter().map(|t| t.dtype).collect::<Vec<_>>())?.to_vec(),
        };
        let ranks: Vec<usize> = inputs.iter().map(TensorType::rank).collect();
        let found;
        let shapes = match &self.shapes {
            Some(shapes) => shapes,
            None => {
                found = Shape::list(&self.functions.describe(fields, inputs)?)?;
                &found
            }
        };
        if shapes.len() != dtypes.len() {
            return Err(OpError::Value(format!(
                "describes {} shapes of {} outputs",
                shapes.len(),
                dtypes.len()
            )));
        }
        let all = shapes
            .iter()
            .zip(dtypes)
            .map(|(s, dtype)| Ok(TensorType { dtype, dims: s.dims(&ranks, fields)? }));
        all.collect()
    }

    /// The layer by its reference form and kernels alone.
    pub fn without_expression(&self) -> LayerRecord {
        LayerRecord {
            name: self.name.clone(),
            doc: self.doc.clone(),
            fields: self.fields.clone(),
            types: self.types.clone(),
            shapes: self.shapes.clone(),
            aliases: self.aliases.clone(),
            workspace: self.workspace.clone(),
            expression: None,
            tolerance: self.tolerance.clone(),
            kernels: self.kernels.clone(),
            natives: self.natives.clone(),
            patterns: self.patterns.clone(),
            library: self.library.clone(),
            functions: self.functions.clone(),
        }
    }
}

/// Names of tolerances.
pub const TOLERANCES: [&str; 4] = ["", "exact", "sum", "conditioned"];
