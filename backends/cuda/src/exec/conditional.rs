//! Conditionals on the device: a node of the graph whose bodies are the branches. Where these give results of different sizes, a
//! result has room for either, and a word tells afterwards which branch was taken ([`Extent`]).

use super::asked::Test;
use super::branches::{Given, Input, Site};
use super::context::CudaContext;
use super::extent::Extent;
use super::flow::Bodies;
use super::memory::Range;
use super::moves::{Decision, Move};
use super::parts::OpenPart;
use super::plan::Planned;
use super::reasons;
use super::stop::{Made, Stop, host};
use super::values::bytes;
use crate::driver::Kind;
use kiln_backend::{BackendError, Shapes};
use kiln_ir::{Tensor, TensorType, ValueId};

/// A conditional, and the branches that may be taken.
pub(super) struct Choice {
    pub site: Site,
    /// The values that it gives.
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
        let branches = all.map(|(i, range)| (i, site.given(range).iter().map(Given::lent).collect()));
        let branches = branches.collect();
        Choice { site, values: values.to_vec(), branches }
    }

    /// The types of the results of each branch, as far as they are known before it is planned.
    fn types(&self, bodies: &mut Bodies) -> Made<Vec<Vec<Option<TensorType>>>> {
        let of = |(i, inputs): &(usize, Vec<Input>)| match bodies.body(*i)?.result_types(inputs.clone()) {
            // That is an error only where the branch is taken.
            Err(Stop::Failed(_)) => host(reasons::BRANCH_SHAPES),
            made => made,
        };
        self.branches.iter().map(of).collect()
    }

    /// What the results become, if the branches give these.
    fn extent(&self, bodies: &mut Bodies, mut given: Vec<Extent>) -> Made<Extent> {
        let last = given.pop().ok_or_else(|| BackendError::Internal("no branch".into()))?;
        Ok(match given.pop() {
            None => last,
            Some(first) if first == last => last,
            Some(first) => Extent::either(bodies.state()?, [first, last]),
        })
    }

    /// Copies of what a branch does not write to the places itself.
    fn moves(part: &OpenPart, places: &[Range]) -> Made<Vec<Move>> {
        let mut moves = Vec::new();
        for ((from, extent), to) in part.results.iter().zip(places) {
            moves.extend(Move::whole(*from, Range { size: extent.bytes()?, ..*to }));
        }
        Ok(moves)
    }

    /// The commands, where results have these places.
    fn commands(
        &self,
        bodies: &mut Bodies,
        parts: Vec<OpenPart>,
        places: &[Range],
        told: bool,
    ) -> Made<Vec<Planned>> {
        let (site, mut parts) = (&self.site, parts);
        if let [_] = parts[..]
            && let Some(only) = parts.pop()
        {
            let moves = Choice::moves(&only, places)?;
            let mut all: Vec<_> =
                only.planned.into_iter().map(|p| Planned { step: site.step, ..p }).collect();
            all.extend(site.planned(site.moves(bodies, &moves, &Decision::default())?));
            return Ok(all);
        }
        let Some(condition) = site.inputs.first().map(|c| c.at.address) else {
            return host(reasons::NO_CONDITION);
        };
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        for part in parts {
            let moves = Choice::moves(&part, places)?;
            let mut commands = bodies.commands(part.planned, &mut kept)?;
            commands.extend(site.moves(bodies, &moves, &Decision::default())?);
            all.push(commands);
        }
        let test = Some(Test::flag(condition));
        let decision = Decision { test, ..Decision::default() };
        let word = if told { Some(Range { address: bodies.state()?, size: 1 }) } else { None };
        let tells: Vec<Move> = word.and_then(|word| Move::whole(condition, word)).into_iter().collect();
        let (first, ahead) = site.deciding(bodies, &tells, &decision)?;
        let mut planned = site.planned(first);
        planned.extend(site.planned([bodies.node(Kind::If, ahead, all, kept)?]));
        Ok(planned)
    }
}

impl CudaContext {
    /// The commands of a conditional whose branches these bodies are.
    pub(super) fn conditional(
        &mut self,
        shapes: &Shapes,
        bodies: &mut Bodies,
        choice: &Choice,
    ) -> Made<Vec<Planned>> {
        let types = choice.types(bodies)?;
        let mut told = false;
        let mut places = Vec::with_capacity(choice.values.len());
        for (k, &v) in choice.values.iter().enumerate() {
            let known = |of: &Vec<Option<TensorType>>| of.get(k).cloned().flatten().map(Extent::Known);
            let all: Option<Vec<Extent>> = types.iter().map(known).collect();
            let extent = all.map(|all| choice.extent(bodies, all)).transpose()?;
            places.push(extent.map(|e| self.held(shapes, v, e, &mut told)).transpose()?);
        }
        let mut parts = Vec::new();
        for ((i, inputs), types) in choice.branches.iter().zip(&types) {
            let size = |ty: &Option<TensorType>| ty.as_ref().and_then(|ty| bytes(ty).ok());
            let wanted = places.iter().zip(types).map(|(at, ty)| Some(Range { size: size(ty)?, ..(*at)? }));
            parts.push(bodies.body(*i)?.open_part(inputs.clone(), &wanted.collect::<Vec<_>>())?);
        }
        let mut all = Vec::with_capacity(places.len());
        for (k, (&v, at)) in choice.values.iter().zip(places).enumerate() {
            all.push(match at {
                Some(at) => at,
                None => {
                    let given = parts.iter().filter_map(|p| Some(p.results.get(k)?.1.clone())).collect();
                    let extent = choice.extent(bodies, given)?;
                    self.held(shapes, v, extent, &mut told)?
                }
            });
        }
        choice.commands(bodies, parts, &all, told)
    }

    /// Memory for a result of a conditional, as large as it may become. `told`: must the branch be told that is taken?
    fn held(&mut self, shapes: &Shapes, v: ValueId, extent: Extent, told: &mut bool) -> Made<Range> {
        let most = extent.bytes()?;
        match (shapes.shape(v), &extent) {
            (Some(dims), Extent::Known(ty)) if ty.static_dims().as_ref() == Some(&dims) => (),
            (Some(_), _) => return host(reasons::BRANCH_SIZE),
            (None, _) => {
                *told |= matches!(extent, Extent::Branch { .. });
                self.leave_open(v, extent, most)?;
            }
        }
        let at = self.room(v, most)?;
        Ok(self.memory.fixed(at))
    }

    /// Lets the size of a value be known only behind the run, if nobody needs it before.
    pub(super) fn leave_open(&mut self, v: ValueId, extent: Extent, most: u64) -> Made<()> {
        let graph = &self.loaded.program.graph;
        if !self.may_leave_open {
            return host(reasons::WANTED_SIZE);
        }
        if graph.nodes().any(|(_, n)| n.inputs.contains(&Some(v))) {
            return host(reasons::WANTED_SIZE);
        }
        if self.memory.bound.outputs.get(&v).is_some_and(|r| r.size < most) {
            return host(reasons::BOUND_MEMORY);
        }
        self.open.insert(v, extent);
        Ok(())
    }

    /// What is known of the size of a value whose step was planned.
    pub(super) fn extent(&self, shapes: &Shapes, v: ValueId) -> Made<Extent> {
        let ty = &shapes.fact(v).ty;
        match (ty.static_dims(), self.open.get(v)) {
            (Some(_), _) => Ok(Extent::Known(ty.clone())),
            (None, Some(open)) => Ok(open.clone()),
            (None, None) => host(reasons::SIZE_INSIDE),
        }
    }
}
