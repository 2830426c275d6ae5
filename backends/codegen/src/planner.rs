//! Planning of launches by the families' code: in a build, to record them as data; before a run, where they
//! are not recorded.

use crate::side::SideParams;
use crate::site::{Cx, Site, op_error};
use crate::slice::insert::place_words;
use crate::views::{View, view_words};
use crate::{Dialect, Kernel, Views};
use kiln_backend::launch::{KernelOperands, Launch, LaunchSite, PlanLaunches, RegionValue};
use kiln_backend::{BackendError, CompiledKernel};
use kiln_ir::{Fact, ValueId};
use kiln_ops::slice::insert::Placed;
use std::cell::Cell;

/// The kernel of a tactic's name.
pub fn find(name: &str, site: &Site<'_>) -> Result<&'static Kernel, BackendError> {
    named(site.kernels(), name)
}

fn named(
    mut kernels: impl Iterator<Item = &'static Kernel>,
    name: &str,
) -> Result<&'static Kernel, BackendError> {
    kernels.find(|k| k.name == name).ok_or_else(|| {
        BackendError::Incompatible(format!(
            "this backend has no tactic \"{name}\" for the region; build the plan again"
        ))
    })
}

/// Plans launches by the code of a kernel's family.
pub struct HostPlanner {
    kernel: &'static Kernel,
    pub(crate) dialect: &'static Dialect,
}

impl HostPlanner {
    /// The planner of a kernel.
    pub fn new(kernel: &'static Kernel, dialect: &'static Dialect) -> HostPlanner {
        HostPlanner { kernel, dialect }
    }

    /// The planner of a stored kernel, by the name of its tactic. Refuses kernels that another build of the backend compiled.
    pub fn stored(
        stored: &CompiledKernel,
        tactic: &str,
        site: &Site<'_>,
    ) -> Result<HostPlanner, BackendError> {
        stored.check_launch_code(site.dialect.launch_code)?;
        Ok(HostPlanner::new(find(tactic, site)?, site.dialect))
    }

    /// The launches, and whether all that the kernel asked for was known.
    pub(crate) fn plan(&self, site: &LaunchSite<'_>) -> Result<(Vec<Launch>, bool), BackendError> {
        let inputs = site.anchor().map(|n| &n.inputs[..]).unwrap_or_default();
        let views = inputs.iter().enumerate().map(|(i, v)| view(site, i, *v));
        let views: Vec<Option<View>> = views.collect::<Result<_, _>>()?;
        // A frame reads through the moves: the kernel sees inputs as their shapes say.
        let framed = self.kernel.views == Views::Framed;
        let mut words: Vec<Vec<u32>> = vec![place(site)?.map(place_words).transpose()?.unwrap_or_default()];
        for view in views.iter().flatten().filter(|_| framed) {
            words.push(view_words(view)?);
        }
        // Each read through a view is a loop over its dimensions, which the kernel does not count.
        let looked: usize = views.iter().flatten().filter(|_| framed).map(|v| v.shape.len() + 1).sum();
        let rows = SideParams::of(site, self.dialect.spans.is_some())?;
        let lanes = site.operands.lanes.first().copied().unwrap_or(1) as usize;
        let cx = Cx {
            op: site.op(),
            tactic: site.tactic,
            inputs: site.inputs(),
            outputs: site.outputs(),
            fused: site.operands.fused,
            side: rows.clone(),
            holds: site.holds,
            views: if framed { Vec::new() } else { views },
            wanted: site.wanted.to_vec(),
            rounds: site.rounds / (1 + looked),
            lanes: rows.as_ref().map_or(lanes, SideParams::lanes),
            dialect: self.dialect,
            missed: Cell::new(false),
        };
        let mut launches = (self.kernel.launch)(&cx)?;
        for launch in &mut launches {
            rows.iter().try_for_each(|r| r.apply(launch))?;
            launch.words.extend(words.iter().flatten());
        }
        Ok((launches, !cx.missed.get()))
    }
}

impl PlanLaunches for HostPlanner {
    fn launches(&self, site: &LaunchSite<'_>) -> Result<Vec<Launch>, BackendError> {
        self.plan(site).map(|(launches, _)| launches)
    }
}

/// The view of an input of the anchor in the value that is bound for it; none where no node is in front of it.
fn view(site: &LaunchSite<'_>, i: usize, v: Option<ValueId>) -> Result<Option<View>, BackendError> {
    let moves = site.operands.moves.get(i).map_or(&[][..], Vec::as_slice);
    if v.is_none() || moves.is_empty() {
        return Ok(None);
    }
    let lost = || BackendError::Internal("a layout change whose shapes are not known".into());
    let shape = |v: Option<&ValueId>| v.and_then(|&v| (site.fact)(v).ty.static_dims()).ok_or_else(lost);
    let node = |at: &u32| site.node(*at).ok_or_else(lost);
    let first = node(&moves[0])?;
    let mut view = View::whole(&shape(first.inputs.first().and_then(Option::as_ref))?);
    for at in moves {
        let node = node(at)?;
        let facts: Vec<Option<&Fact>> = node.inputs.iter().map(|v| v.map(|v| (site.fact)(v))).collect();
        view = view.through(&node.op, &facts, &shape(node.outputs.first())?)?;
    }
    Ok(Some(view))
}

/// The place of the result in what it is inserted into.
fn place(site: &LaunchSite<'_>) -> Result<Option<Placed>, BackendError> {
    let Some(at) = site.operands.insert else { return Ok(None) };
    let lost = || BackendError::Internal("a part whose place is not known".into());
    let shape = |v: Option<ValueId>| v.and_then(|v| (site.fact)(v).ty.static_dims()).ok_or_else(lost);
    let node = site.node(at).ok_or_else(lost)?;
    let (part, whole) = (node.inputs.get(1).copied().flatten(), node.outputs.first().copied());
    Placed::of(node.op.attrs(), &shape(part)?, &shape(whole)?).map(Some).map_err(op_error)
}

/// The operands of a region's kernel. `lanes` are the elements of each stored output that one thread of a map computes.
pub fn operands(site: &Site<'_>, lanes: Vec<u32>) -> Result<KernelOperands, BackendError> {
    let lost = || BackendError::Internal("an operand is no value of the region".into());
    let input = |v: &ValueId| site.graph.inputs.iter().position(|i| i == v).map(|i| i as u32);
    let result = |v: &ValueId| {
        let mut nodes = site.graph.nodes().enumerate();
        nodes.find_map(|(k, (_, n))| {
            Some(RegionValue::Result(k as u32, n.outputs.iter().position(|o| o == v)? as u32))
        })
    };
    let value = |v: &ValueId| input(v).map(RegionValue::Input).or_else(|| result(v));
    let extras: Option<_> = site.extras.iter().map(input).collect();
    let extra_shapes: Option<_> = site.lies.iter().map(value).collect();
    let positions = |all: &Vec<usize>| all.iter().map(|&k| k as u32).collect();
    Ok(KernelOperands {
        anchor: site.anchor.map(|(k, _)| k as u32),
        fused: site.fused.is_some(),
        moves: site.moves.iter().map(positions).collect(),
        extras: extras.ok_or_else(lost)?,
        extra_shapes: extra_shapes.ok_or_else(lost)?,
        extra_slices: site.slices.iter().map(|at| at.map(|k| k as u32)).collect(),
        lanes,
        insert: site.insert.map(|(k, _)| k as u32),
        side: site.side.map(|(k, _)| k as u32),
    })
}
