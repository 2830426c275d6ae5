//! Units of layers that have one type, and what they cost in each.

use super::super::Search;
use super::super::price::{Item, launch};
use super::labels::Problem;
use crate::passes::precision::{self, Choice, Types, bounded, greatest_code, host, multiplies, range_of};
use crate::passes::{self, PassCx, fold_constants, io_types, patterns};
use crate::points::Points;
use crate::search::{GAIN, Given};
use crate::{BuildError, bodies, regions};
use kiln_backend::Region;
use kiln_ir::graph::Uses;
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Node, NodeId, Op, Tensor, TensorType, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The border of a graph, whose values are of f32.
const BORDER: usize = 0;

/// Units of a graph with the problem of labelling them; the labels are types.
pub struct Units {
    /// Nodes of each unit; none of the border.
    nodes: Vec<Vec<NodeId>>,
    /// The types; f32 is the first.
    labels: Vec<DType>,
    /// Costs in nanoseconds.
    pub problem: Problem,
    /// Nodes that may have several types, or must have a narrower one.
    chosen: BTreeSet<NodeId>,
}

/// Regions that one label needs; `None` where it cannot be had.
type Form = Option<Vec<Item>>;

impl Units {
    /// Cuts a graph into units and takes their times.
    pub fn new(
        search: &mut Search<'_, '_>,
        g: &Graph,
        choices: &BTreeMap<NodeId, Choice>,
    ) -> Result<Units, BuildError> {
        let points = match search.given {
            Given::Profiles => Points::of(g, search.cx.config)?,
            Given::Facts(usual, spans) => bodies::points(g, usual, spans)?,
        };
        let cx = search.cx;
        let uses = g.uses();
        let mut labels = vec![DType::F32];
        for t in cx.config.reduced.iter().chain(choices.values().flat_map(|c| &c.types)) {
            if !labels.contains(t) {
                labels.push(*t);
            }
        }
        let nodes = cut(g, &cx, choices, &labels);
        let mut forms: Vec<Vec<Form>> = Vec::new();
        let mut class: BTreeMap<String, usize> = BTreeMap::new();
        let mut of_unit = vec![None; nodes.len()];
        for (u, members) in nodes.iter().enumerate() {
            let Some(choice) = members.first().and_then(|n| choices.get(n)).filter(|c| c.types.len() > 1)
            else {
                continue;
            };
            let region = Region::extract_with(g, members, &uses)?;
            let facts: Vec<Fact> = region.inputs.iter().map(|v| points.opt[v.0 as usize].clone()).collect();
            let border = Border::of(g, &cx, &region);
            let key = format!("{:?} {border:?}\n{}", choice.types, search.tuner.text(&region, &facts)?);
            of_unit[u] = Some(match class.get(&key) {
                Some(&k) => k,
                None => {
                    let layer = members.first().and_then(|&n| g.get(n)).map_or("", |n| &n.name);
                    let form = |t: &DType| match choice.types.contains(t) {
                        true if greatest_code(*t).is_some() => {
                            on_codes(&cx, layer, &region, &facts, &border, *t)
                        }
                        true => form(&cx, layer, &region, &facts, *t),
                        false => Ok(None),
                    };
                    forms.push(labels.iter().map(form).collect::<Result<_, _>>()?);
                    class.insert(key, forms.len() - 1);
                    forms.len() - 1
                }
            });
        }
        search.tuner.ahead(forms.iter().flatten().flatten().flatten().map(Item::parts))?;
        let mut costs = Vec::with_capacity(forms.len());
        for forms in &forms {
            costs.push(forms.iter().map(|f| search.form_ns(f)).collect::<Result<Vec<f64>, _>>()?);
        }
        let mut problem = Problem::default();
        for (members, class) in nodes.iter().zip(&of_unit) {
            let choice = members.first().and_then(|n| choices.get(n));
            let own = class.and_then(|k| costs.get(k)).map(|c| known(c));
            let wish = choice.and_then(|c| c.wish).unwrap_or(DType::F32);
            // Between equal times the wish decides, else f32.
            let biased = |c: &Vec<f64>| {
                let bias = |(i, &ns): (usize, &f64)| if labels[i] == wish { ns } else { ns * (1.0 + GAIN) };
                c.iter().enumerate().map(bias).collect()
            };
            problem.units.push(match (own, choice) {
                (Some(c), _) => biased(&c),
                (None, Some(c)) => labels.iter().map(|t| fixed(c.types.contains(t))).collect(),
                (None, None) => {
                    let node = members.first().and_then(|&n| g.get(n));
                    let narrow = node.and_then(|n| narrow_cast(g, n, &labels));
                    // A cast of the network goes where both sides have the narrow type.
                    let kept = match (node.and_then(|n| n.outputs.first()), narrow) {
                        (Some(&y), Some(to)) => search.cast_ns(&points.opt[y.0 as usize].ty, to)?,
                        _ => 0.0,
                    };
                    let cost = |&t: &DType| if t == DType::F32 { kept } else { fixed(Some(t) == narrow) };
                    labels.iter().map(cost).collect()
                }
            });
        }
        let chosen = choices.keys().copied().collect();
        let mut units = Units { nodes, labels, problem, chosen };
        units.connect(search, g, &points, &uses)?;
        Ok(units)
    }

    /// Units of a node each, behind the border, with what they cost.
    #[cfg(test)]
    pub fn of_costs(nodes: &[NodeId], labels: &[DType], costs: Vec<Vec<f64>>) -> Units {
        let border = [vec![0.0; labels.len()]];
        let problem = Problem { units: border.into_iter().chain(costs).collect(), ..Problem::default() };
        let of = [Vec::new()].into_iter().chain(nodes.iter().map(|&n| vec![n])).collect();
        Units { nodes: of, labels: labels.to_vec(), problem, chosen: nodes.iter().copied().collect() }
    }

    /// The labelling that keeps f32 wherever that may be.
    pub fn widest(&self) -> Vec<usize> {
        self.uniform(0)
    }

    /// For each narrower type the labelling that takes it wherever that may be.
    pub fn narrowest(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        (1..self.labels.len()).map(|l| self.uniform(l))
    }

    /// Labellings with codes where layers multiply, and floats of 16 bits wherever else that may be.
    pub fn products_on_codes<'a>(&'a self, g: &'a Graph) -> impl Iterator<Item = Vec<usize>> + 'a {
        let pairs = (1..self.labels.len()).filter(|&l| self.coded(l)).flat_map(move |code| {
            (1..self.labels.len()).filter(|&l| self.half(l)).map(move |other| (code, other))
        });
        pairs.map(|(code, other)| {
            let (codes, others) = (self.uniform(code), self.uniform(other));
            let product = |nodes: &[NodeId]| nodes.iter().any(|&n| g.get(n).is_some_and(multiplies));
            let of = |(u, nodes): (usize, &Vec<NodeId>)| if product(nodes) { codes[u] } else { others[u] };
            self.nodes.iter().enumerate().map(of).collect()
        })
    }

    /// The label with which these are the types throughout.
    pub fn label_throughout(&self, types: &Types) -> Option<usize> {
        (0..self.labels.len()).find(|&l| self.types(&self.uniform(l)) == *types)
    }

    /// Names of a unit's layers.
    pub fn names<'g>(&self, g: &'g Graph, unit: usize) -> impl Iterator<Item = &'g str> {
        self.nodes[unit].iter().filter_map(|&n| Some(g.get(n)?.name.as_str()))
    }

    /// Whether a label is a type of 8 bits or fewer.
    pub fn coded(&self, label: usize) -> bool {
        greatest_code(self.labels[label]).is_some() || self.labels[label] == DType::F8E4M3
    }

    /// Whether a label is a float of 16 bits.
    pub fn half(&self, label: usize) -> bool {
        matches!(self.labels[label], DType::F16 | DType::BF16)
    }

    /// A label wherever it is possible, beside codes a float of 16 bits where that is, else the first label that is.
    pub fn uniform(&self, label: usize) -> Vec<usize> {
        let half = (1..self.labels.len()).find(|&l| self.coded(label) && self.half(l));
        let wanted: Vec<usize> = [Some(label), half].into_iter().flatten().collect();
        let of = |u: &Vec<f64>| {
            let possible = |l: &usize| u[*l].is_finite();
            let other = || (0..u.len()).find(possible).unwrap_or(0);
            wanted.iter().copied().find(possible).unwrap_or_else(other)
        };
        self.problem.units.iter().map(of).collect()
    }

    /// The narrower types of layers by a labelling.
    pub fn types(&self, found: &[usize]) -> Types {
        let labelled = self.nodes.iter().zip(found).filter(|(_, l)| **l != 0);
        let typed = labelled.flat_map(|(nodes, &l)| nodes.iter().map(move |&n| (n, self.labels[l])));
        typed.filter(|(n, _)| self.chosen.contains(n)).collect()
    }

    /// Adds the costs of casts between units.
    fn connect(
        &mut self,
        search: &mut Search<'_, '_>,
        g: &Graph,
        points: &Points,
        uses: &Uses,
    ) -> Result<(), BuildError> {
        let unit: HashMap<NodeId, usize> =
            self.nodes.iter().enumerate().flat_map(|(u, nodes)| nodes.iter().map(move |&n| (n, u))).collect();
        let constant = fold_constants::constant_layers(g, &search.cx);
        let free = |u: usize| {
            let follows = |n: &NodeId| g.get(*n).is_some_and(|n| n.op.roles().keeps_f32 && bounded(n));
            u != BORDER && self.nodes[u].iter().all(follows)
        };
        let to = self.labels.get(1).copied().unwrap_or(DType::F32);
        let mut known: BTreeMap<String, f64> = BTreeMap::new();
        for v in g.value_ids().filter(|&v| g.ty(v).dtype == DType::F32) {
            let from = match g.producer(v) {
                Some((id, _)) if constant.contains(&id) => continue,
                Some((id, _)) => unit.get(&id).copied().unwrap_or(BORDER),
                None if g.inputs.contains(&v) => BORDER,
                None => continue,
            };
            let as_is = |(n, i): &&(NodeId, usize)| g.get(*n).is_some_and(|n| !host(n, *i));
            let mut readers: BTreeSet<usize> =
                uses.of_value(v).iter().filter(as_is).filter_map(|(n, _)| unit.get(n).copied()).collect();
            if uses.is_output(v) {
                readers.insert(BORDER);
            }
            let count = readers.len() as f64;
            readers.remove(&from);
            if readers.is_empty() || free(from) {
                continue;
            }
            let ty = &points.opt[v.0 as usize].ty;
            let cost = match known.get(&ty.to_string()) {
                Some(&ns) => ns,
                None => *known.entry(ty.to_string()).or_insert(search.cast_ns(ty, to)?),
            };
            let edges = readers.into_iter().filter(|&r| !free(r)).map(|r| (from, r, cost / count));
            self.problem.edges.extend(edges);
        }
        Ok(())
    }
}

/// Cost of a unit in a type that nothing is to be compared with.
fn fixed(possible: bool) -> f64 {
    if possible { 0.0 } else { f64::INFINITY }
}

/// Costs of which some are known. Where none is, all are equal.
fn known(costs: &[f64]) -> Vec<f64> {
    match costs.iter().all(|c| !c.is_finite()) {
        true => vec![0.0; costs.len()],
        false => costs.to_vec(),
    }
}

/// The type that a cast widens to f32, or narrows from it, if that is a label: its readers or its source may then have that type
/// without a cast.
fn narrow_cast(g: &Graph, node: &Node, labels: &[DType]) -> Option<DType> {
    let (x, y) = (node.inputs.first().copied().flatten()?, *node.outputs.first()?);
    let ends = [g.ty(x).dtype, g.ty(y).dtype];
    let other = match ends {
        [t, DType::F32] | [DType::F32, t] => t,
        _ => return None,
    };
    (node.op.is(CAST) && other != DType::F32 && labels.contains(&other)).then_some(other)
}

/// Regions whose layers have the same choice; the others are cut into single layers. The border comes first.
fn cut(g: &Graph, cx: &PassCx<'_>, choices: &BTreeMap<NodeId, Choice>, labels: &[DType]) -> Vec<Vec<NodeId>> {
    let mut units = vec![Vec::new()];
    for nodes in regions::form(g, cx.backend, cx.target, cx.config.fuse) {
        let first = nodes.first().and_then(|n| choices.get(n));
        let cast = |n: &NodeId| g.get(*n).is_some_and(|n| narrow_cast(g, n, labels).is_some());
        if first.is_some() && nodes.iter().all(|n| choices.get(n) == first && !cast(n)) {
            units.push(nodes);
        } else {
            units.extend(nodes.into_iter().map(|n| vec![n]));
        }
    }
    units
}

/// The regions that a unit becomes in a type; `None` where a cast is left inside of it.
fn form(
    cx: &PassCx<'_>,
    layer: &str,
    region: &Region,
    facts: &[Fact],
    to: DType,
) -> Result<Form, BuildError> {
    let layer = layer.to_owned();
    if to == DType::F32 {
        return Ok(Some(vec![Item { layer, region: region.clone(), facts: facts.to_vec() }]));
    }
    let mut g = region.graph.clone();
    let types = g.nodes().map(|(id, _)| (id, to)).collect();
    let by_host = |g: &Graph, v: ValueId| {
        g.nodes().any(|(_, n)| (0..n.inputs.len()).any(|i| n.inputs[i] == Some(v) && host(n, i)))
    };
    let narrowed: Vec<bool> =
        g.inputs.iter().map(|&v| g.ty(v).dtype == DType::F32 && !by_host(&g, v)).collect();
    for (i, _) in narrowed.iter().enumerate().filter(|(_, n)| **n) {
        let v = g.inputs[i];
        io_types::input(&mut g, v, to)?;
    }
    for k in 0..g.outputs.len() {
        let y = g.outputs[k];
        if g.ty(y).dtype == DType::F32 {
            io_types::output(&mut g, y, to)?;
        }
    }
    precision::apply(&mut g, cx, &types)?;
    let clean = [fold_constants::PASS, passes::canonicalize::PASS];
    passes::run_list(&mut g, cx, &clean)?;
    items(cx, &layer, &g, facts, &narrowed, to).map(Some)
}

/// Facts around a region: by input, then by output.
#[derive(Debug)]
struct Border {
    constant: Vec<bool>,
    /// Whether ranges are known.
    inputs: Vec<bool>,
    outputs: Vec<bool>,
}

impl Border {
    fn of(g: &Graph, cx: &PassCx<'_>, region: &Region) -> Border {
        let ranged = |&v: &ValueId| range_of(g, cx.config, v).is_some();
        Border {
            constant: region.inputs.iter().map(|&v| patterns::constant(g, v)).collect(),
            inputs: region.inputs.iter().map(ranged).collect(),
            outputs: region.outputs.iter().map(ranged).collect(),
        }
    }
}

/// A step between codes, for timing.
const STEP: f64 = 0.05;

/// The regions that a unit becomes on codes of 8 bits. `None` where a range is missing.
fn on_codes(
    cx: &PassCx<'_>,
    layer: &str,
    region: &Region,
    facts: &[Fact],
    border: &Border,
    to: DType,
) -> Result<Form, BuildError> {
    let mut g = region.graph.clone();
    let reads = |g: &Graph, v: ValueId, f: &dyn Fn(&Node, usize) -> bool| {
        g.nodes().any(|(_, n)| (0..n.inputs.len()).any(|i| n.inputs[i] == Some(v) && f(n, i)))
    };
    let mut coded = vec![false; g.inputs.len()];
    for (i, v) in g.inputs.clone().into_iter().enumerate() {
        let factor = reads(&g, v, &|n, i| multiplies(n) && i < 2);
        let float = g.ty(v).dtype == DType::F32 && !reads(&g, v, &host);
        if !float || (border.constant[i] && !factor) {
            continue;
        }
        if !border.constant[i] && !border.inputs[i] {
            return Ok(None);
        }
        coded[i] = true;
        let ones = vec![1; if border.constant[i] { g.ty(v).rank() } else { 0 }];
        let step = Tensor::from_elems(DType::F32, &ones, &Elems::F(vec![STEP]));
        let step = step.map(|t| g.add_constant(&format!("step{i}"), t));
        g.value_mut(v).fact = Fact::of(TensorType { dtype: to, ..g.ty(v).clone() });
        let op = Op::new(DEQUANTIZE, Attrs::new())?;
        let wide = g.insert_node(0, &format!("wide{i}"), op, &[Some(v), step])?;
        for &id in &g.order().to_vec()[1..] {
            let inputs = g.get_mut(id).map(|n| n.inputs.iter_mut().flatten());
            inputs.into_iter().flatten().filter(|x| **x == v).for_each(|x| *x = wide[0]);
        }
    }
    for k in (0..g.outputs.len()).filter(|&k| border.outputs[k]) {
        let y = g.outputs[k];
        if g.ty(y).dtype == DType::F32 {
            let step = Tensor::from_elems(DType::F32, &[], &Elems::F(vec![STEP]));
            let step = step.map(|t| g.add_constant(&format!("by{k}"), t));
            let op = Op::new(QUANTIZE, Attrs::new().with("to", to))?;
            g.outputs[k] = g.add_node(&format!("codes{k}"), op, &[Some(y), step])?[0];
        }
    }
    let passes = [patterns::QUANTIZED, fold_constants::PASS, passes::canonicalize::PASS];
    passes::run_list(&mut g, cx, &passes)?;
    items(cx, layer, &g, facts, &coded, to).map(Some)
}

/// The regions of a unit whose inputs have another type where it is narrowed.
fn items(
    cx: &PassCx<'_>,
    layer: &str,
    g: &Graph,
    facts: &[Fact],
    narrowed: &[bool],
    to: DType,
) -> Result<Vec<Item>, BuildError> {
    let facts = facts.iter().zip(narrowed).map(|(f, narrow)| match narrow {
        true => Fact::of(TensorType { dtype: to, ..f.ty.clone() }),
        false => f.clone(),
    });
    let facts: Vec<Fact> = facts.collect();
    let all = g.infer_from(&facts)?;
    let uses = g.uses();
    let item = |nodes: Vec<NodeId>| {
        let region = Region::extract_with(g, &nodes, &uses)?;
        let facts = region.inputs.iter().map(|v| all[v.0 as usize].clone()).collect();
        Ok(Item { layer: layer.to_owned(), region, facts })
    };
    regions::form(g, cx.backend, cx.target, cx.config.fuse).into_iter().map(item).collect()
}

impl Search<'_, '_> {
    /// The time of regions that one label needs; infinite where it cannot be had.
    fn form_ns(&mut self, form: &Form) -> Result<f64, BuildError> {
        let Some(items) = form else { return Ok(f64::INFINITY) };
        let mut sum = 0.0;
        for i in items {
            sum += launch(self.cx.target) + self.known_ns(i)?;
        }
        Ok(sum)
    }

    /// The time of a region, else what the backend expects; infinite where it has no kernel or says nothing.
    pub(super) fn known_ns(&mut self, i: &Item) -> Result<f64, BuildError> {
        match self.tuner.time(&i.layer, &i.region, &i.facts) {
            Ok(ns) if ns.is_finite() => Ok(ns),
            Ok(_) => Ok(self.tuner.estimate(&i.layer, &i.region, &i.facts)?.unwrap_or(f64::INFINITY)),
            Err(BuildError::NoTactic { .. }) => Ok(f64::INFINITY),
            Err(e) => Err(e),
        }
    }

    /// The time of a cast of this type at the usual shapes; nothing where it cannot be known.
    fn cast_ns(&mut self, ty: &TensorType, to: DType) -> Result<f64, BuildError> {
        let mut g = Graph::new("");
        let x = g.add_input("x", Fact::of(ty.clone()));
        g.outputs = g.add_node("cast", Op::new(CAST, Attrs::new().with("to", to))?, &[Some(x)])?;
        let region = Region::extract(&g, g.order())?;
        let item = Item { layer: "cast".into(), region, facts: vec![Fact::of(ty.clone())] };
        let expected = match self.tuner.estimate(&item.layer, &item.region, &item.facts) {
            Ok(Some(ns)) => ns,
            Ok(None) => self.known_ns(&item)?,
            Err(BuildError::NoTactic { .. }) => return Ok(0.0),
            Err(e) => return Err(e),
        };
        Ok(if expected.is_finite() { expected + launch(self.cx.target) } else { 0.0 })
    }
}
