//! Conditionals on the device: a node of the graph whose bodies are the branches. If results of the branches
//! differ in size, a result has room for either. A word then records which branch was taken ([`Extent`]).

use super::condition::DeviceCondition;
use super::fallback::{Fallback, OnDevice, on_host};
use super::flow::{Flow, Site};
use super::launch::Planned;
use super::memory::Range;
use super::moves::{Decision, Move};
use super::parts::OpenPart;
use super::planning::{CudaBodies, Input, Operand, Planning};
use super::reasons;
use crate::driver::Kind;
use kiln_backend::{BackendError, Shapes};
use kiln_gpu::{Extent, bytes_of};
use kiln_ir::{Tensor, TensorType, ValueId};

/// A conditional, and the branches that may be taken.
pub struct Choice {
    pub site: Site,
    /// Outputs of the conditional.
    pub values: Vec<ValueId>,
    /// Number and inputs of each.
    branches: Vec<(usize, Vec<Input>)>,
}

impl Choice {
    /// With what its branches capture; only one may be taken where the condition is known.
    pub fn new(site: Site, values: &[ValueId], captures: [std::ops::Range<usize>; 2]) -> Choice {
        let known = site.inputs.first().and_then(|c| c.content.as_ref()).and_then(Tensor::scalar_i64);
        let taken = known.map(|c| usize::from(c == 0));
        let all = captures.into_iter().enumerate().filter(|(i, _)| taken.is_none_or(|t| t == *i));
        let branches = all.map(|(i, range)| (i, site.operands(range).iter().map(Operand::lent).collect()));
        let branches = branches.collect();
        Choice { site, values: values.to_vec(), branches }
    }

    /// The types of the results of each branch, as far as they are known before it is planned.
    fn types(&self, flow: &mut Flow<'_>) -> OnDevice<Vec<Vec<Option<TensorType>>>> {
        let of = |(i, inputs): &(usize, Vec<Input>)| match flow.body(*i)?.result_types(inputs.clone()) {
            // That is an error only where the branch is taken.
            Err(Fallback::Failed(_)) => on_host(reasons::BRANCH_SHAPES),
            made => made,
        };
        self.branches.iter().map(of).collect()
    }

    /// The extent of a result, from those that the branches give.
    fn extent(&self, flow: &mut Flow<'_>, mut given: Vec<Extent>) -> OnDevice<Extent> {
        let last = given.pop().ok_or_else(|| BackendError::Internal("no branch".into()))?;
        Ok(match given.pop() {
            None => last,
            Some(first) if first == last => last,
            Some(first) => Extent::either(flow.state()?, [first, last]),
        })
    }

    /// Copies of what a branch does not write to the places itself.
    fn moves(part: &OpenPart, places: &[Range]) -> OnDevice<Vec<Move>> {
        let mut moves = Vec::new();
        for ((from, extent), to) in part.results.iter().zip(places) {
            moves.extend(Move::whole(*from, Range { size: extent.bytes()?, ..*to }));
        }
        Ok(moves)
    }

    /// The commands, where results have these places.
    fn commands(
        &self,
        flow: &mut Flow<'_>,
        parts: Vec<OpenPart>,
        places: &[Range],
        told: bool,
    ) -> OnDevice<Vec<Planned>> {
        let (site, mut parts) = (&self.site, parts);
        if let [_] = parts[..]
            && let Some(only) = parts.pop()
        {
            let moves = Choice::moves(&only, places)?;
            let mut all: Vec<_> =
                only.planned.into_iter().map(|p| Planned { step: site.step, ..p }).collect();
            all.extend(site.planned(site.moves(flow, &moves, &Decision::default())?));
            return Ok(all);
        }
        let Some(condition) = site.inputs.first().map(|c| c.at.address) else {
            return on_host(reasons::NO_CONDITION);
        };
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        for part in parts {
            let moves = Choice::moves(&part, places)?;
            let mut commands = flow.commands(part.planned, &mut kept)?;
            commands.extend(site.moves(flow, &moves, &Decision::default())?);
            all.push(commands);
        }
        let test = Some(DeviceCondition::flag(condition));
        let decision = Decision { test, ..Decision::default() };
        let word = if told { Some(Range { address: flow.state()?, size: 1 }) } else { None };
        let tells: Vec<Move> = word.and_then(|word| Move::whole(condition, word)).into_iter().collect();
        let (first, ahead) = site.deciding(flow, &tells, &decision)?;
        let mut planned = site.planned(first);
        planned.extend(site.planned([flow.node(Kind::If, ahead, all, kept)?]));
        Ok(planned)
    }
}

/// The commands of a conditional whose branches these bodies are.
pub fn planned(
    run: &mut Planning<'_>,
    shapes: &Shapes,
    bodies: &mut CudaBodies,
    choice: &Choice,
) -> OnDevice<Vec<Planned>> {
    let types = choice.types(&mut Flow { bodies, queue: run.queue })?;
    let mut told = false;
    let mut places = Vec::with_capacity(choice.values.len());
    for (k, &v) in choice.values.iter().enumerate() {
        let known = |of: &Vec<Option<TensorType>>| of.get(k).cloned().flatten().map(Extent::Known);
        let all: Option<Vec<Extent>> = types.iter().map(known).collect();
        let extent = all.map(|all| choice.extent(&mut Flow { bodies, queue: run.queue }, all)).transpose()?;
        places.push(extent.map(|e| held(run, shapes, v, e, &mut told)).transpose()?);
    }
    let mut parts = Vec::new();
    for ((i, inputs), types) in choice.branches.iter().zip(&types) {
        let size = |ty: &Option<TensorType>| ty.as_ref().and_then(|ty| bytes_of(ty).ok());
        let wanted = places.iter().zip(types).map(|(at, ty)| Some(Range { size: size(ty)?, ..(*at)? }));
        let wanted = wanted.collect::<Vec<_>>();
        let mut flow = Flow { bodies, queue: run.queue };
        parts.push(flow.body(*i)?.open_part(inputs.clone(), &wanted)?);
    }
    let mut all = Vec::with_capacity(places.len());
    for (k, (&v, at)) in choice.values.iter().zip(places).enumerate() {
        all.push(match at {
            Some(at) => at,
            None => {
                let given = parts.iter().filter_map(|p| Some(p.results.get(k)?.1.clone())).collect();
                let extent = choice.extent(&mut Flow { bodies, queue: run.queue }, given)?;
                held(run, shapes, v, extent, &mut told)?
            }
        });
    }
    choice.commands(&mut Flow { bodies, queue: run.queue }, parts, &all, told)
}

/// Memory for a result of a conditional, as large as it may become. `told`: must the branch be told that is taken?
fn held(
    run: &mut Planning<'_>,
    shapes: &Shapes,
    v: ValueId,
    extent: Extent,
    told: &mut bool,
) -> OnDevice<Range> {
    let most = extent.bytes()?;
    match (shapes.shape(v), &extent) {
        (Some(dims), Extent::Known(ty)) if ty.static_dims().as_ref() == Some(&dims) => (),
        (Some(_), _) => return on_host(reasons::BRANCH_SIZE),
        (None, _) => {
            *told |= matches!(extent, Extent::Branch { .. });
            run.leave_open(v, extent, most)?;
        }
    }
    let at = run.run.room(run.queue, v, most)?;
    Ok(run.run.memory.notes.fixed(at))
}
