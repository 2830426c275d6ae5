//! Launches as data for shapes that vary: a table of those at every shape that the profiles of a plan allow.

use crate::planner::HostPlanner;
use kiln_backend::launch::{
    Condition, KernelOperands, Launch, LaunchProgram, LaunchSite, MOST_POINTS, Variable,
};
use kiln_backend::{BackendError, ShapeRange, Tactic};
use kiln_ir::{Bindings, Dim, Fact, Graph, NodeId, Value, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A region's kernel whose launches are planned in a build.
pub(crate) struct BuildSite<'a> {
    pub graph: &'a Graph,
    pub nodes: Vec<NodeId>,
    pub operands: &'a KernelOperands,
    pub tactic: &'a Tactic,
    pub wanted: Vec<bool>,
    pub rounds: usize,
    pub planner: &'a HostPlanner,
}

impl BuildSite<'_> {
    /// The launches as data, where they depend on nothing but what the build knows of the region.
    pub fn recorded(&self) -> Option<LaunchProgram> {
        LaunchProgram::record(self.rounds, |holds| self.launches(&|v| &self.graph.value(v).fact, holds))
    }

    /// The launches where values have these facts.
    pub fn launches<'b>(
        &'b self,
        fact: &'b dyn Fn(ValueId) -> &'b Fact,
        holds: &'b dyn Fn(Condition) -> bool,
    ) -> Result<Vec<Launch>, BackendError> {
        let &BuildSite { graph, ref nodes, operands, tactic, ref wanted, rounds, planner } = self;
        let site = LaunchSite { graph, nodes, operands, tactic, fact, wanted, rounds, holds };
        if site.computes_nothing() {
            return Ok(Vec::new());
        }
        match planner.plan(&site)? {
            (launches, true) => Ok(launches),
            _ => {
                Err(BackendError::Unsupported("its launches depend on contents that only a run knows".into()))
            }
        }
    }
}

/// The launches of a region's kernel at every shape of these ranges.
///
/// # Errors
/// Where there are more shapes than a table may have, or the launches depend on more than shapes and contents that the host
/// reads.
pub fn tabulated(site: &BuildSite<'_>, ranges: &[ShapeRange]) -> Result<LaunchProgram, BackendError> {
    let graph = site.graph;
    let read: Vec<Operand> = graph.inputs.iter().filter_map(|&v| Operand::of(graph, v)).collect();
    let mut inputs = Vec::with_capacity(ranges.len());
    for range in ranges {
        let found = read.iter().map(|o| o.fact(&range.inputs));
        inputs.push(found.collect::<Option<Vec<Fact>>>().ok_or_else(lost)?);
    }
    let variables: Vec<(usize, Variable)> = read
        .iter()
        .enumerate()
        .flat_map(|(i, o)| o.variables(&inputs, i).into_iter().map(move |v| (i, v)))
        .collect();
    let mut points = Points { site, read: &read, variables: &variables, all: BTreeMap::new() };
    let mut looked = 0u64;
    for (range, facts) in ranges.iter().zip(&inputs) {
        points.add(range, facts, &mut looked)?;
    }
    let (all, names) = (points.all, variables.iter().map(|&(_, v)| v).collect());
    if all.is_empty() {
        return Err(BackendError::Unsupported(
            "no shape within the profiles is one that its layers accept".into(),
        ));
    }
    LaunchProgram::of_tables(site.rounds, names, all.keys().cloned(), |values, holds| {
        let facts = all.get(values).ok_or_else(lost)?;
        site.launches(&|v| &facts[v.0 as usize], holds)
    })
}

fn lost() -> BackendError {
    BackendError::Internal("a range of shapes does not have the inputs of its region".into())
}

/// An input of the region, and the place where a node reads it.
struct Operand {
    /// Its position among the inputs.
    input: usize,
    node: u32,
    port: u32,
    /// Whether the host reads its contents.
    host: bool,
}

impl Operand {
    fn of(graph: &Graph, v: ValueId) -> Option<Operand> {
        let input = graph.inputs.iter().position(|&i| i == v)?;
        let nodes = || graph.nodes().enumerate();
        let mut uses = nodes().flat_map(|(k, (_, n))| {
            let ports = n.inputs.iter().enumerate().filter(|(_, i)| **i == Some(v));
            ports.map(move |(p, _)| (k, p, n.op.port(p).is_some_and(|port| port.host)))
        });
        let (node, port, first) = uses.next()?;
        let host = first || uses.any(|(_, _, host)| host);
        Some(Operand { input, node: node as u32, port: port as u32, host })
    }

    /// Its fact in a range; with contents only if the host reads them, as a run knows those alone for certain.
    fn fact(&self, inputs: &Graph) -> Option<Fact> {
        let fact = &inputs.value(*inputs.inputs.get(self.input)?).fact;
        Some(Fact { value: fact.value.clone().filter(|_| self.host), ..fact.clone() })
    }

    /// The dimensions, and the elements that the host reads, that are not one number in all ranges.
    fn variables(&self, ranges: &[Vec<Fact>], i: usize) -> Vec<Variable> {
        let facts = || ranges.iter().map(|facts| &facts[i]);
        let rank = facts().map(|f| f.ty.rank()).max().unwrap_or(0);
        let vary = |all: Vec<Option<&Dim>>| {
            all.iter().any(|d| d.is_none_or(|d| d.as_const().is_none()) || *d != all[0])
        };
        let sizes = (0..rank).filter(|&axis| vary(facts().map(|f| f.ty.dims.get(axis)).collect()));
        let mut all: Vec<Variable> =
            sizes.map(|axis| Variable::Size(self.node, self.port, axis as u32)).collect();
        let contents: Vec<Option<Vec<Dim>>> = facts().map(Fact::as_dims).collect();
        let count = contents.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let element =
            |at: &usize| vary(contents.iter().map(|c| c.as_ref().and_then(|c| c.get(*at))).collect());
        all.extend((0..count).filter(element).map(|at| Variable::Element(self.node, self.port, at as u32)));
        all
    }
}

/// Facts of all values of the region, by values of the variables.
struct Points<'a> {
    site: &'a BuildSite<'a>,
    read: &'a [Operand],
    variables: &'a [(usize, Variable)],
    all: BTreeMap<Vec<i64>, Vec<Fact>>,
}

impl Points<'_> {
    /// Adds all shapes of a range; `looked` counts those of all ranges.
    fn add(&mut self, range: &ShapeRange, facts: &[Fact], looked: &mut u64) -> Result<(), BackendError> {
        let symbols = symbols(range, facts)?;
        let count =
            symbols.iter().try_fold(1u64, |n, (_, lo, hi)| n.checked_mul(hi.abs_diff(*lo).checked_add(1)?));
        *looked = count.and_then(|n| looked.checked_add(n)).filter(|n| *n <= MOST_POINTS).ok_or_else(|| {
            let ranges: Vec<String> = symbols.iter().map(|(s, lo, hi)| format!("{s} from {lo} to {hi}")).collect();
            BackendError::Unsupported(format!(
                "its launches depend on {}, which is more than the {MOST_POINTS} shapes that a plan holds launches for; give \
                 narrower profiles, or several of fewer shapes",
                ranges.join(", ")
            ))
        })?;
        let mut at: Vec<i64> = symbols.iter().map(|(_, lo, _)| *lo).collect();
        loop {
            let mut bindings = Bindings::default();
            for ((name, _, _), n) in symbols.iter().zip(&at) {
                let _ = bindings.bind(name, *n);
            }
            self.point(facts, &bindings)?;
            // The next point, with the last symbol as the fastest one.
            let Some(next) = (0..at.len()).rev().find(|&i| at[i] < symbols[i].2) else { return Ok(()) };
            at[next] += 1;
            (next + 1..at.len()).for_each(|i| at[i] = symbols[i].1);
        }
    }

    /// Adds a shape, unless the layers do not accept it, so that no run has it.
    fn point(&mut self, facts: &[Fact], bindings: &Bindings) -> Result<(), BackendError> {
        let known = |f: &Fact| known(f, bindings);
        let Some(own) = facts.iter().map(known).collect::<Option<Vec<Fact>>>() else { return Ok(()) };
        let value = |&(i, v): &(usize, Variable)| -> Option<i64> {
            match v {
                Variable::Size(_, _, axis) => own[i].ty.dims.get(axis as usize)?.as_const(),
                Variable::Element(_, _, at) => own[i].as_dims()?.get(at as usize)?.as_const(),
            }
        };
        // An operand whose contents are not known in all ranges cannot be told apart by them.
        let values = self.variables.iter().map(value).collect::<Option<Vec<i64>>>().ok_or_else(|| {
            BackendError::Unsupported("its launches depend on contents that the build does not know".into())
        })?;
        if self.all.contains_key(&values) {
            return Ok(());
        }
        let graph = self.site.graph;
        let mut inputs: Vec<Fact> = graph.inputs.iter().map(|&v| graph.value(v).fact.clone()).collect();
        for (o, fact) in self.read.iter().zip(own) {
            inputs[o.input] = fact;
        }
        if let Ok(inferred) = graph.infer_from(&inputs) {
            self.all.insert(values, inferred);
        }
        Ok(())
    }
}

/// The symbols of these facts with their ranges.
fn symbols(range: &ShapeRange, facts: &[Fact]) -> Result<Vec<(Arc<str>, i64, i64)>, BackendError> {
    let mut names = BTreeSet::new();
    for fact in facts {
        let elements = fact.value.as_ref().and_then(|v| if let Value::Dims(d) = v { Some(d) } else { None });
        let dims = fact.ty.dims.iter().chain(elements.into_iter().flatten());
        dims.for_each(|d| d.visit(&mut |s| _ = names.insert(s.name.clone())));
    }
    let ranged = |name: Arc<str>| match range.symbols.iter().find(|(s, ..)| **s == *name) {
        Some(&(_, lo, hi)) => Ok((name, lo, hi)),
        None => {
            Err(BackendError::Unsupported(format!("its launches depend on \"{name}\", which nothing bounds")))
        }
    };
    names.into_iter().map(ranged).collect()
}

/// A fact with numbers for symbols; `None` where a dimension is negative or no number.
fn known(fact: &Fact, bindings: &Bindings) -> Option<Fact> {
    let number = |d: &Dim| d.eval(bindings).ok().map(Dim::new);
    let mut ty = fact.ty.clone();
    for d in ty.dims.iter_mut() {
        *d = number(d).filter(|d| d.as_const() >= Some(0))?;
    }
    Some(match &fact.value {
        Some(Value::Dims(elements)) => {
            Fact::contents(ty, elements.iter().map(number).collect::<Option<_>>()?)
        }
        value => Fact { ty, value: value.clone() },
    })
}
