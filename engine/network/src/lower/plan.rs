//! Plan of a lowering: layers to compute, their regions and their order.

use crate::flow::{Boundary, Scopes};
use crate::ids::ConstructId;
use crate::{LayerId, Network, NetworkError, TensorId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A region: the loops and branches around it, outermost first. `None` stands for the body of a loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope(Vec<(ConstructId, Option<usize>)>);

impl Scope {
    /// Outside of everything.
    pub(super) fn top() -> Scope {
        Scope::default()
    }

    /// The body of a loop, or a branch (0: true, 1: false) of a conditional, in this region.
    pub(super) fn enter(&self, c: ConstructId, branch: Option<usize>) -> Scope {
        let mut s = self.clone();
        s.0.push((c, branch));
        s
    }
}

/// Part of a region that is written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Unit {
    Layer(LayerId),
    Construct(ConstructId),
}

/// Place of a cycle.
pub(super) enum CycleAt {
    Construct(String),
    Layer(String),
}

/// Layers that are needed, and the branches that need them.
pub(super) struct Plan {
    live: HashSet<LayerId>,
    /// Layers inside of each conditional that each branch needs.
    branches: HashMap<ConstructId, [HashSet<LayerId>; 2]>,
}

impl Plan {
    pub(super) fn of(net: &Network, scopes: &Scopes) -> Result<Plan, NetworkError> {
        let outside = |l: &LayerId| {
            let depth = scopes.layer(net, *l).len();
            match net.layer_data(*l).def.boundary() {
                None => depth == 0,
                Some(b) => b.closes() && depth == 1,
            }
        };
        let mut roots: Vec<LayerId> = net.layer_ids().filter(outside).collect();
        roots.extend(effects(net, scopes, |_| true));
        let live = closure(net, roots, |_| true);
        let mut plan = Plan { live, branches: HashMap::new() };
        for (c, construct) in net.constructs.iter().enumerate() {
            if construct.conditional {
                let of = plan.split(net, scopes, c as u32)?;
                plan.branches.insert(c as u32, of);
            }
        }
        Ok(plan)
    }

    /// The layers that each branch of a conditional needs; one that both need is refused.
    fn split(
        &self,
        net: &Network,
        scopes: &Scopes,
        c: ConstructId,
    ) -> Result<[HashSet<LayerId>; 2], NetworkError> {
        let inside = |l: LayerId| self.live.contains(&l) && is_in(net, scopes, l, c);
        let needs = |branch: usize| {
            let outputs = net.constructs[c as usize].layers.iter().map(|&l| net.layer_data(l));
            let outputs = outputs.filter(|d| matches!(d.def.boundary(), Some(Boundary::IfOutput(_))));
            let tensors = outputs.filter_map(|d| d.inputs.get(branch).copied().flatten());
            let roots = tensors.filter_map(|t| net.producer(t)).filter(|&l| inside(l));
            closure(net, roots.collect(), inside)
        };
        let mut of = [needs(0), needs(1)];
        let both = |of: &[HashSet<LayerId>; 2]| of[0].intersection(&of[1]).min().copied();
        if let Some(l) = both(&of) {
            return Err(both_branches(net, c, l));
        }
        let kept = net.layer_ids().filter(|&l| inside(l) && net.layer_data(l).def.side_effect());
        let mut open: Vec<(LayerId, HashSet<LayerId>)> = kept
            .map(|l| {
                // A loop or conditional around it goes where it goes, as a whole.
                let around = scopes.layer(net, l).into_iter().filter(|&d| d != c);
                let decide = around.flat_map(|d| deciding(net, d)).filter(|&l| inside(l));
                (l, closure(net, decide.chain([l]).collect(), inside))
            })
            .collect();
        // Those that share something with a branch bring what they need into it, and that may decide on others.
        loop {
            let before = open.len();
            let mut left = Vec::with_capacity(before);
            for (l, needed) in open {
                match of.each_ref().map(|b| needed.iter().any(|l| b.contains(l))) {
                    [true, true] => return Err(both_branches(net, c, l)),
                    [false, false] => left.push((l, needed)),
                    [first, _] => of[usize::from(!first)].extend(&needed),
                }
            }
            open = left;
            if open.len() == before {
                break;
            }
        }
        // What follows from the inputs of the conditional alone happens in either branch.
        for branch in &mut of {
            open.iter().for_each(|(_, needed)| branch.extend(needed));
        }
        Ok(of)
    }

    /// Follows inputs of conditionals to what they pass on.
    pub(super) fn behind(&self, net: &Network, mut t: TensorId) -> TensorId {
        while let Some(l) = net.producer(t) {
            let d = net.layer_data(l);
            match (d.def.boundary(), d.inputs.first()) {
                (Some(Boundary::IfInput(_)), Some(&Some(from))) => t = from,
                _ => break,
            }
        }
        t
    }

    /// Units of a region, each after its operands; otherwise in the order in which they were added.
    pub(super) fn order(
        &self,
        net: &Network,
        scopes: &Scopes,
        scope: &Scope,
    ) -> Result<Vec<Unit>, NetworkError> {
        self.order_of(net, scopes, scope, |_| true)
    }

    /// As [`Plan::order`], of the layers that pass a test only.
    pub(super) fn order_of(
        &self,
        net: &Network,
        scopes: &Scopes,
        scope: &Scope,
        wanted: impl Fn(LayerId) -> bool,
    ) -> Result<Vec<Unit>, NetworkError> {
        let mut waits: BTreeMap<(LayerId, Unit), BTreeSet<Unit>> = BTreeMap::new();
        let mut first: HashMap<Unit, LayerId> = HashMap::new();
        let mut reads: Vec<(Unit, Unit, LayerId)> = Vec::new();
        for &l in self.live.iter().collect::<BTreeSet<_>>().into_iter().filter(|&&l| wanted(l)) {
            let Some(unit) = self.unit(net, scopes, scope, l) else { continue };
            first.entry(unit).or_insert(l);
            for &t in net.layer_data(l).inputs.iter().flatten() {
                let Some(p) = net.producer(t) else { continue };
                match self.unit(net, scopes, scope, p) {
                    Some(from) if from != unit => reads.push((unit, from, l)),
                    Some(Unit::Construct(c)) if gives(net, p, c) => {
                        return Err(CycleAt::Construct(net.constructs[c as usize].label()).into());
                    }
                    _ => (),
                }
            }
        }
        for (&unit, &l) in &first {
            waits.entry((l, unit)).or_default();
        }
        for (unit, from, _) in reads {
            // Units that a test left out do not count here.
            if let (Some(&l), true) = (first.get(&unit), first.contains_key(&from)) {
                waits.entry((l, unit)).or_default().insert(from);
            }
        }
        sort(net, waits)
    }

    /// The unit of a region that a layer belongs to; `None` if it is elsewhere.
    fn unit(&self, net: &Network, scopes: &Scopes, scope: &Scope, l: LayerId) -> Option<Unit> {
        let chain = scopes.layer(net, l);
        let around = chain.get(..scope.0.len())?;
        for (&c, &(own, branch)) in around.iter().zip(&scope.0) {
            let here = match branch {
                None => true,
                Some(b) => self.branches.get(&c).is_some_and(|of| of[b].contains(&l)),
            };
            if c != own || !here {
                return None;
            }
        }
        match chain.get(scope.0.len()) {
            Some(&c) => Some(Unit::Construct(c)),
            None => net.layer_data(l).def.boundary().is_none().then_some(Unit::Layer(l)),
        }
    }

    /// Whether the layer is needed at all.
    pub(super) fn is_live(&self, l: LayerId) -> bool {
        self.live.contains(&l)
    }
}

fn both_branches(net: &Network, c: ConstructId, l: LayerId) -> NetworkError {
    let construct = net.constructs[c as usize].label();
    NetworkError::BothBranches { layer: net.layer_data(l).name.clone(), construct }
}

/// The layers with side effects, and what ends or decides the constructs around them, among those that pass a test.
pub(super) fn effects(net: &Network, scopes: &Scopes, ok: impl Fn(LayerId) -> bool) -> Vec<LayerId> {
    let kept = |l: &LayerId| ok(*l) && net.layer_data(*l).def.side_effect();
    let mut all: Vec<LayerId> = net.layer_ids().filter(kept).collect();
    let around: BTreeSet<ConstructId> = all.iter().flat_map(|&l| scopes.layer(net, l)).collect();
    all.extend(around.into_iter().flat_map(|c| deciding(net, c)).filter(|&l| ok(l)));
    all
}

/// Whether a layer is inside of a construct, its own boundary aside.
pub(super) fn is_in(net: &Network, scopes: &Scopes, l: LayerId, c: ConstructId) -> bool {
    let own = net.layer_data(l).def.boundary().is_some_and(|b| b.construct() == c);
    !own && scopes.layer(net, l).contains(&c)
}

/// Whether a layer is an output of this construct.
fn gives(net: &Network, l: LayerId, c: ConstructId) -> bool {
    net.layer_data(l).def.boundary().is_some_and(|b| b.closes() && b.construct() == c)
}

/// The layers that these need, among those that pass a test. An output of a construct needs what ends or decides it.
pub(super) fn closure(net: &Network, roots: Vec<LayerId>, ok: impl Fn(LayerId) -> bool) -> HashSet<LayerId> {
    let (mut stack, mut seen) = (roots, HashSet::new());
    while let Some(l) = stack.pop() {
        if !seen.insert(l) {
            continue;
        }
        let d = net.layer_data(l);
        let mut next: Vec<LayerId> = d.inputs.iter().flatten().filter_map(|&t| net.producer(t)).collect();
        if let Some(b) = d.def.boundary().filter(Boundary::closes) {
            next.extend(deciding(net, b.construct()));
        }
        stack.extend(next.into_iter().filter(|&l| ok(l)));
    }
    seen
}

/// The layers that end or decide a construct.
fn deciding(net: &Network, c: ConstructId) -> impl Iterator<Item = LayerId> + '_ {
    let decides = |l: &LayerId| {
        let boundary = net.layer_data(*l).def.boundary();
        matches!(boundary, Some(Boundary::TripLimit(_) | Boundary::Condition(_)))
    };
    net.constructs[c as usize].layers.iter().copied().filter(decides)
}

fn sort(
    net: &Network,
    mut waits: BTreeMap<(LayerId, Unit), BTreeSet<Unit>>,
) -> Result<Vec<Unit>, NetworkError> {
    let mut readers: HashMap<Unit, Vec<(LayerId, Unit)>> = HashMap::new();
    for (key, from) in &waits {
        from.iter().for_each(|f| readers.entry(*f).or_default().push(*key));
    }
    let mut ready: BTreeSet<(LayerId, Unit)> =
        waits.iter().filter(|(_, w)| w.is_empty()).map(|(k, _)| *k).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(key) = ready.pop_first() {
        waits.remove(&key);
        order.push(key.1);
        for r in readers.remove(&key.1).unwrap_or_default() {
            if let Some(w) = waits.get_mut(&r) {
                w.remove(&key.1);
                if w.is_empty() {
                    ready.insert(r);
                }
            }
        }
    }
    let stuck = waits.keys().map(|k| k.1).max();
    match stuck {
        None => Ok(order),
        Some(Unit::Construct(c)) => Err(CycleAt::Construct(net.constructs[c as usize].label()).into()),
        Some(Unit::Layer(l)) => Err(CycleAt::Layer(net.layer_data(l).name.clone()).into()),
    }
}
