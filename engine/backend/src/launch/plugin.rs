//! Kernels of plug-in layers in source form: their tactics, and launches by formulas that the operator holds. Running them needs
//! neither the plug-in's library nor code generation.

use super::{Grid, KernelOperands, Launch, LaunchProgram, LaunchSite, PlanLaunches};
use crate::{BackendError, Binding, CompiledKernel, EntryPoint, Region, Tactic, host_layer};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::DimKind;
use kiln_ir::{Fact, Graph, Node, OpError, ValueId};
use kiln_ops::plugin::kernel::{KernelForm, Language, Site};
use kiln_ops::plugin::{self, PLUGIN};

/// First part of the names of tactics; the second is the plug-in's.
pub const PLUGIN_TACTICS: &str = "plugin.";

/// A kernel of a plug-in layer.
pub struct PluginKernel {
    form: KernelForm,
    fields: Attrs,
    attrs: Attrs,
}

impl PluginKernel {
    /// The tactics of a region that is one plug-in layer with kernels in a language; none of other regions. `refuses`
    /// says why a device does not run a kernel, if it does not.
    pub fn tactics(
        region: &Region,
        language: Language,
        refuses: impl Fn(&PluginKernel) -> Option<String>,
    ) -> Result<(Vec<Tactic>, Vec<String>), BackendError> {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        let g = &region.graph;
        let Some(node) = host_layer::layer(g) else { return Ok((found, refused)) };
        let open = |v: &ValueId| g.ty(*v).dims.iter().any(|d| d.kind() == DimKind::Device);
        for form in forms(node, language)? {
            let name = form.tactic.clone();
            let source = format!("{form:?}");
            let kernel = PluginKernel::of(node, form)?;
            let facts = node.inputs.iter().map(|v| v.map(|v| &g.value(v).fact));
            let site = kernel.site(facts);
            let why = match kernel.form.applies(&site) {
                _ if node.outputs.iter().any(open) => {
                    Some("sizes of its results are found by a run".to_owned())
                }
                Ok(true) => refuses(&kernel),
                Ok(false) => Some(format!("its condition \"{}\" does not hold", kernel.form.condition)),
                Err(e) => Some(e.to_string()),
            };
            match why {
                Some(why) => refused.push(format!("{PLUGIN_TACTICS}{name}: {why}")),
                None => found.push(Tactic {
                    workspace: plugin::workspace(&kernel.attrs, &kernel.fields, site.inputs).unwrap_or(0),
                    source_hash: Tactic::hash_of(&source),
                    ..Tactic::plain(&format!("{PLUGIN_TACTICS}{name}"))
                }),
            }
        }
        Ok((found, refused))
    }

    /// The kernel of a tactic for the only node of a graph; none of tactics that are not of plug-ins.
    pub fn find(
        graph: &Graph,
        tactic: &Tactic,
        language: Language,
    ) -> Result<Option<PluginKernel>, BackendError> {
        let named = tactic.name.strip_prefix(PLUGIN_TACTICS).zip(host_layer::layer(graph));
        let Some((name, node)) = named else { return Ok(None) };
        let form = forms(node, language)?.into_iter().find(|f| f.tactic == name);
        let form = form.ok_or_else(|| {
            BackendError::Incompatible(format!(
                "the plug-in layer has no kernel \"{name}\"; build the plan again"
            ))
        })?;
        PluginKernel::of(node, form).map(Some)
    }

    fn of(node: &Node, form: KernelForm) -> Result<PluginKernel, BackendError> {
        let attrs = node.op.attrs().clone();
        Ok(PluginKernel { form, fields: plugin::fields(&attrs).map_err(wrong)?, attrs })
    }

    /// The kernel as the plug-in defines it.
    pub fn form(&self) -> &KernelForm {
        &self.form
    }

    /// Whether it has a workspace.
    pub fn has_workspace(&self) -> bool {
        self.attrs.str("workspace").is_ok_and(|w| !w.is_empty())
    }

    fn site<'a>(&'a self, facts: impl Iterator<Item = Option<&'a Fact>>) -> Site<'a> {
        Site { inputs: facts.flatten().collect(), fields: &self.fields }
    }

    /// Threads of a block and bytes of shared memory, for a graph of the layer alone.
    pub fn block(&self, graph: &Graph) -> Result<(u32, u32), BackendError> {
        let node = host_layer::layer(graph);
        let facts = node.iter().flat_map(|n| &n.inputs).map(|v| v.map(|v| &graph.value(v).fact));
        let site = self.site(facts);
        Ok((self.form.threads(&site).map_err(wrong)?, self.form.shared(&site).map_err(wrong)?))
    }

    /// The compiled kernel, with its launches where they are known.
    pub fn store(
        &self,
        graph: &Graph,
        tactic: &Tactic,
        rounds: usize,
        entry: EntryPoint,
        bindings: Vec<Binding>,
        code: Vec<u8>,
    ) -> CompiledKernel {
        let operands = KernelOperands { anchor: Some(0), ..KernelOperands::default() };
        let nodes: Vec<_> = graph.nodes().map(|(id, _)| id).collect();
        let launches = LaunchProgram::record(rounds, |holds| {
            let (graph, nodes, operands, wanted) = (graph, &nodes[..], &operands, &[][..]);
            let fact = |v: ValueId| &graph.value(v).fact;
            let site = LaunchSite { graph, nodes, operands, tactic, fact: &fact, wanted, rounds, holds };
            if site.computes_nothing() { Ok(Vec::new()) } else { self.launches(&site) }
        });
        CompiledKernel {
            entries: vec![entry],
            bindings,
            operands: Some(operands),
            launches,
            ..CompiledKernel::of(code)
        }
    }
}

impl PlanLaunches for PluginKernel {
    fn launches(&self, site: &LaunchSite<'_>) -> Result<Vec<Launch>, BackendError> {
        let site = self.site(site.inputs().into_iter());
        let launch = self.form.launch(&site).map_err(wrong)?;
        let scratch = plugin::workspace(&self.attrs, &self.fields, site.inputs).map_err(wrong)?;
        Ok(vec![Launch::map(0, launch.words).on(Grid::Groups(launch.grid)).scratch(scratch)])
    }
}

fn wrong(e: OpError) -> BackendError {
    match e {
        OpError::Unsupported(why) => BackendError::Unsupported(why),
        e => BackendError::InvalidArgument(format!("a kernel of a plug-in layer: {e}")),
    }
}

fn forms(node: &Node, language: Language) -> Result<Vec<KernelForm>, BackendError> {
    if !node.op.is(PLUGIN) {
        return Ok(Vec::new());
    }
    let all = plugin::kernels(node.op.attrs()).map_err(wrong)?;
    Ok(all.into_iter().filter(|f| f.language == language).collect())
}
