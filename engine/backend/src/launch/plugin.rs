//! Kernels of plug-in layers in source form: their tactics, and launches by formulas that the operator holds. Running them needs
//! neither the plug-in's library nor code generation.

use super::{Condition, Grid, KernelOperands, Launch, LaunchProgram, LaunchSite, PlanLaunches};
use crate::{BackendError, Binding, CompiledKernel, EntryPoint, Region, Tactic, host_layer};
use kiln_ir::attr::Attrs;
use kiln_ir::{Fact, Graph, Node, OpError, ValueId};
use kiln_ops::plugin::kernel::{KernelForm, KernelLaunch, Language, Site};
use kiln_ops::plugin::packings::Packings;
use kiln_ops::plugin::{self, PLUGIN};

/// First part of the names of tactics; the second is the plug-in's.
pub const PLUGIN_TACTICS: &str = "plugin.";

/// A kernel of a plug-in layer.
pub struct PluginKernel {
    form: KernelForm,
    fields: Attrs,
    attrs: Attrs,
    packings: Packings,
    /// Names of the sizes that the layer finds.
    open: Vec<String>,
    /// Pairs of an input and the output that begins with its contents.
    aliases: Vec<(usize, usize)>,
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
        for form in forms(node, language)? {
            let name = form.tactic.clone();
            let source = format!("{form:?}");
            let kernel = PluginKernel::of(node, form)?;
            let facts = node.inputs.iter().map(|v| v.map(|v| &g.value(v).fact));
            let site = kernel.site(facts, &[]);
            let why = match kernel.form.applies(&site) {
                _ if !kernel.open.is_empty() && kernel.form.count.is_none() => Some(
                    "sizes of its results are found by a run, and it has no entry that finds them".to_owned(),
                ),
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
        Ok(PluginKernel {
            form,
            fields: plugin::fields(&attrs).map_err(wrong)?,
            packings: Packings::of_attrs(&attrs).map_err(wrong)?,
            open: plugin::found_sizes(&attrs).map_err(wrong)?,
            aliases: plugin::aliases(&attrs).map_err(wrong)?,
            attrs,
        })
    }

    /// The kernel as the plug-in defines it.
    pub fn form(&self) -> &KernelForm {
        &self.form
    }

    /// Whether it has a workspace.
    pub fn has_workspace(&self) -> bool {
        self.attrs.str("workspace").is_ok_and(|w| !w.is_empty())
    }

    /// Whether a launch in front of the others finds sizes.
    pub fn counts(&self) -> bool {
        self.form.count.is_some() && !self.open.is_empty()
    }

    /// Pairs of an input and the output that begins with its contents.
    pub fn aliases(&self) -> &[(usize, usize)] {
        &self.aliases
    }

    fn site<'a>(
        &'a self,
        facts: impl Iterator<Item = Option<&'a Fact>>,
        found: &'a [(String, i64)],
    ) -> Site<'a> {
        let (packings, open) = (&self.packings, &self.open[..]);
        Site { packings, open, found, ..Site::new(facts.flatten().collect(), &self.fields) }
    }

    /// Threads of a block and bytes of shared memory, for a graph of the layer alone.
    pub fn block(&self, graph: &Graph) -> Result<Block, BackendError> {
        let node = host_layer::layer(graph);
        let facts = node.iter().flat_map(|n| &n.inputs).map(|v| v.map(|v| &graph.value(v).fact));
        let site = self.site(facts, &[]);
        Ok(Block {
            threads: self.form.threads(&site).map_err(wrong)?,
            counting: if self.counts() { self.form.count_threads(&site).map_err(wrong)? } else { None },
            shared: self.form.shared(&site).map_err(wrong)?,
        })
    }

    /// The compiled kernel, with its launches where they are known. `entries` are those of [`PluginKernel::launches`]: the
    /// kernel's own, the one that finds sizes, and one for each alias, which copies words.
    pub fn store(
        &self,
        graph: &Graph,
        tactic: &Tactic,
        rounds: usize,
        entries: Vec<EntryPoint>,
        bindings: Vec<Binding>,
        code: Vec<u8>,
    ) -> CompiledKernel {
        let operands = KernelOperands { anchor: Some(0), ..KernelOperands::default() };
        let nodes: Vec<_> = graph.nodes().map(|(id, _)| id).collect();
        let constant = |holds: &dyn Fn(Condition) -> bool| {
            let (graph, nodes, operands, wanted) = (graph, &nodes[..], &operands, &[][..]);
            let fact = |v: ValueId| &graph.value(v).fact;
            let site = LaunchSite { graph, nodes, operands, tactic, fact: &fact, wanted, rounds, holds };
            if site.computes_nothing() { Ok(Vec::new()) } else { self.launches(&site) }
        };
        // The second launch is known when the first one has run.
        let launches = if self.counts() { None } else { LaunchProgram::record(rounds, constant) };
        CompiledKernel { entries, bindings, operands: Some(operands), launches, ..CompiledKernel::of(code) }
    }
}

/// Sizes of the blocks of a kernel in CUDA C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Threads.
    pub threads: u32,
    /// Threads of the entry that finds sizes.
    pub counting: Option<u32>,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// Threads of a block of the entry points that copy, and words that each copies.
pub const COPY_THREADS: u32 = 256;
const COPY_WORDS: u64 = 16;
/// Blocks of one dimension that every device has.
const MOST_BLOCKS: u64 = 65535;

impl PluginKernel {
    /// The launch that copies the contents of an input to the beginning of an output.
    fn copy(&self, entry: usize, words: &[u32], output: &Fact) -> Result<Launch, BackendError> {
        let bytes = output.ty.static_volume().and_then(|n| output.ty.dtype.bytes_for(n as u64));
        let count = bytes.map(|n| n.div_ceil(4)).ok_or_else(|| {
            BackendError::Unsupported("a size of an alias is known during a run only".into())
        })?;
        let blocks = count.div_ceil(u64::from(COPY_THREADS) * COPY_WORDS).min(MOST_BLOCKS);
        let last = u32::try_from(count).map_err(|_| {
            BackendError::Unsupported(format!("an alias of {count} words, at most 2^32 are copied"))
        })?;
        let words = words.iter().copied().chain([last]).collect::<Vec<_>>();
        Ok(Launch::map(entry, words).on(Grid::Groups(blocks)))
    }
}

impl PlanLaunches for PluginKernel {
    fn launches(&self, site: &LaunchSite<'_>) -> Result<Vec<Launch>, BackendError> {
        let outputs = site.outputs();
        let found = plugin::sizes_of_run(&self.attrs, &outputs).map_err(wrong)?;
        let of_run = self.site(site.inputs().into_iter(), &found);
        let scratch = plugin::workspace(&self.attrs, &self.fields, of_run.inputs.clone()).map_err(wrong)?;
        let on = |entry: usize, mut l: KernelLaunch| {
            // The number of words that a copy has.
            l.words.extend((!self.aliases.is_empty()).then_some(0));
            Launch::map(entry, l.words).on(Grid::Groups(l.grid)).scratch(scratch)
        };
        let mut all = Vec::new();
        if self.counts() {
            let first = self.form.count_launch(&of_run).map_err(wrong)?;
            all.extend(first.map(|l| Launch { counts: true, ..on(1, l) }));
            if found.len() < self.open.len() {
                return Ok(all);
            }
        }
        let main = self.form.launch(&of_run).map_err(wrong)?;
        let first = 1 + usize::from(self.counts());
        for (k, &(_, j)) in self.aliases.iter().enumerate() {
            let output =
                outputs.get(j).ok_or_else(|| BackendError::Internal("an alias of no output".into()))?;
            all.push(self.copy(first + k, &main.words, output)?);
        }
        all.push(on(0, main));
        Ok(all)
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
