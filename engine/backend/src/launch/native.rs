//! Native forms of plug-in layers: their tactics. Runs call the library, which plans name with version and hash.

use crate::launch::KernelOperands;
use crate::{BackendError, CompiledKernel, Program, Region, Step, Tactic, host_layer};
use kiln_ir::attr::Attrs;
use kiln_ir::{Fact, Graph, Node, Op, OpError};
use kiln_ops::plugin::kernel::Site;
use kiln_ops::plugin::native::{NativeCall, NativeDevice, NativeForm, NativeRun};
use kiln_ops::plugin::packings::Packings;
use kiln_ops::plugin::{self, PLUGIN};

/// First part of the names of tactics; the second is the plug-in's.
pub const NATIVE_TACTICS: &str = "native.";
/// Parameter of tactics: 1 where graphs record the work, 0 where each run calls the library.
pub const CAPTURABLE: &str = "capturable";

/// A native form of a plug-in layer.
pub struct NativeKernel {
    form: NativeForm,
    fields: Attrs,
    op: Op,
}

impl NativeKernel {
    /// The tactics of a region that is one plug-in layer with native forms for a device, and why others are not there; none of other
    /// regions.
    pub fn tactics(
        region: &Region,
        device: NativeDevice,
    ) -> Result<(Vec<Tactic>, Vec<String>), BackendError> {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        let g = &region.graph;
        let Some(node) = host_layer::layer(g) else { return Ok((found, refused)) };
        for form in forms(node, device)? {
            let kernel = NativeKernel::of(node, form)?;
            let facts: Vec<&Fact> = node.inputs.iter().flatten().map(|v| &g.value(*v).fact).collect();
            let name = format!("{NATIVE_TACTICS}{}", kernel.form.tactic);
            match kernel.refusal(&facts)? {
                Some(why) => refused.push(format!("{name}: {why}")),
                None => found.push(kernel.tactic(&name, &facts)),
            }
        }
        Ok((found, refused))
    }

    /// Why the form does not run a layer.
    fn refusal(&self, facts: &[&Fact]) -> Result<Option<String>, BackendError> {
        let open = plugin::found_sizes(self.op.attrs()).map_err(NativeKernel::error)?;
        if !open.is_empty() && !self.form.counts {
            return Ok(Some(
                "sizes of its results are found by a run, and it does not count (KILN_NATIVE_COUNTS)".into(),
            ));
        }
        let condition = &self.form.condition;
        let packings = self.packings()?;
        match self.form.applies(&Site { packings: &packings, ..Site::new(facts.to_vec(), &self.fields) }) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(format!("its condition \"{condition}\" does not hold"))),
            Err(e) => Ok(Some(e.to_string())),
        }
    }

    fn tactic(&self, name: &str, facts: &[&Fact]) -> Tactic {
        let library = self.op.attrs().str("library").unwrap_or_default();
        Tactic {
            workspace: self.workspace(facts.to_vec()).unwrap_or(0),
            source_hash: Tactic::hash_of(&format!("{:?} {library}", self.form)),
            note: "each run needs the plug-in's library, in the version that the plan was built with".into(),
            ..Tactic::plain(name).with(CAPTURABLE, self.form.capturable.into())
        }
    }

    /// The form of a tactic for the only node of a graph; none of tactics that are not native.
    pub fn find(
        graph: &Graph,
        tactic: &Tactic,
        device: NativeDevice,
    ) -> Result<Option<NativeKernel>, BackendError> {
        let named = tactic.name.strip_prefix(NATIVE_TACTICS).zip(host_layer::layer(graph));
        let Some((name, node)) = named else { return Ok(None) };
        let form = forms(node, device)?.into_iter().find(|f| f.tactic == name).ok_or_else(|| {
            BackendError::Incompatible(format!(
                "the plug-in layer has no native form \"{name}\"; build the plan again"
            ))
        })?;
        NativeKernel::of(node, form).map(Some)
    }

    fn of(node: &Node, form: NativeForm) -> Result<NativeKernel, BackendError> {
        let fields = plugin::fields(node.op.attrs()).map_err(NativeKernel::error)?;
        Ok(NativeKernel { form, fields, op: node.op.clone() })
    }

    /// The form as the plug-in defines it.
    pub fn form(&self) -> &NativeForm {
        &self.form
    }

    /// Bytes of workspace for inputs of which this is known.
    pub fn workspace(&self, inputs: Vec<&Fact>) -> Result<u64, BackendError> {
        plugin::workspace(self.op.attrs(), &self.fields, inputs).map_err(NativeKernel::error)
    }

    /// Pairs of an input and the output that begins with its contents.
    pub fn aliases(&self) -> Result<Vec<(usize, usize)>, BackendError> {
        plugin::aliases(self.op.attrs()).map_err(NativeKernel::error)
    }

    /// Formats of inputs and outputs.
    pub fn packings(&self) -> Result<Packings, BackendError> {
        Packings::of_attrs(self.op.attrs()).map_err(NativeKernel::error)
    }

    /// The form in which plans store it: operands and no code.
    pub fn store() -> CompiledKernel {
        let operands = KernelOperands { anchor: Some(0), ..KernelOperands::default() };
        CompiledKernel { operands: Some(operands), ..CompiledKernel::of(Vec::new()) }
    }

    /// Makes it ready for a context.
    pub fn attach(&self, call: &NativeCall) -> Result<Box<dyn NativeRun>, BackendError> {
        plugin::attach_native(&self.op, self.form.device, &self.form.tactic, call)
            .map_err(NativeKernel::error)
    }

    /// The error of a layer.
    pub fn error(e: OpError) -> BackendError {
        match e {
            OpError::Unsupported(why) => BackendError::Unsupported(why),
            e => BackendError::InvalidArgument(e.to_string()),
        }
    }
}

fn forms(node: &Node, device: NativeDevice) -> Result<Vec<NativeForm>, BackendError> {
    if !node.op.is(PLUGIN) {
        return Ok(Vec::new());
    }
    let all = plugin::natives(node.op.attrs()).map_err(NativeKernel::error)?;
    Ok(all.into_iter().filter(|f| f.device == device).collect())
}

/// Whether each run has to call a library for a step, so that no graph holds it.
pub fn splits_graphs(step: &Step) -> bool {
    step.tactic.name.starts_with(NATIVE_TACTICS) && step.tactic.params.get(CAPTURABLE) != Some(&1)
}

/// Whether a step, or one in its bodies, splits graphs.
pub fn any_splits_graphs(program: &Program) -> bool {
    program.steps.iter().any(|s| splits_graphs(s) || s.bodies.iter().any(any_splits_graphs))
}
