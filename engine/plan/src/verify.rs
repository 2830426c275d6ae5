//! The verifier of programs: what must hold before one is loaded.

use crate::PlanError;
use kiln_backend::{MemoryRules, Order, Place, Program, Step, flow, is_view_op};
use kiln_ir::{Node, NodeId, Source, ValueId};
use std::collections::{BTreeMap, HashMap};

fn bad(message: String) -> PlanError {
    PlanError::Program(message)
}

/// Checks a program. The graph is well formed; the steps cover every node once, in an order in which values
/// are defined before they are read; and the memory plan is sound. A memory plan is sound if places fit their
/// values, are inside the arena and aligned. No two values that are live at once overlap, except that an
/// output may take the place of an input that its step reads last. Bodies of control flow are checked
/// likewise, and that they fit their regions.
pub fn verify(program: &Program, rules: &MemoryRules) -> Result<(), PlanError> {
    program.graph.verify().map_err(|e| bad(e.to_string()))?;
    formats_fit(program)?;
    let step_of = steps_cover(program)?;
    bodies_fit(program, rules)?;
    if program.memory.places.is_empty() {
        return Ok(());
    }
    places_fit(program, rules)?;
    parts_in_place(program)?;
    no_overlap(program, &step_of)?;
    match Order::of(program) {
        Some(order) => apart(program, &order),
        None => Ok(()),
    }
}

/// Values that steps touch at the same time lie in different memory: each lives from the first step that may run beside one that touches it
/// to the last one. An output may take the place of an input that its step reads behind all others.
fn apart(p: &Program, order: &Order) -> Result<(), PlanError> {
    let mut touch: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (s, step) in p.steps.iter().enumerate() {
        let nodes = step.nodes.iter().filter_map(|&n| p.graph.get(n));
        let all = nodes.flat_map(|n| n.inputs.iter().flatten().chain(&n.outputs));
        all.filter(|&&v| range(p, v).is_some()).for_each(|&v| touch.entry(v).or_default().push(s));
    }
    let life = |steps: &[usize]| {
        let beside = steps.iter().map(|&s| order.beside(s));
        beside.fold((usize::MAX, 0), |(a, b), (x, y)| (a.min(x), b.max(y)))
    };
    let mut all: Vec<(usize, usize, ValueId)> =
        touch.iter().map(|(&v, steps)| (life(steps), v)).map(|((from, to), v)| (from, to, v)).collect();
    all.sort_unstable();
    let mut live: Vec<(usize, ValueId)> = Vec::new();
    for (from, to, v) in all {
        live.retain(|(end, _)| *end >= from);
        for &(_, other) in &live {
            let (Some((o, n)), Some((offset, size))) = (range(p, other), range(p, v)) else { continue };
            let ends = |a: ValueId, b: ValueId| {
                let (first, last) = (&touch[&a], &touch[&b]);
                first.iter().all(|&x| last.iter().all(|&y| x == y || order.is_before(x, y)))
            };
            if o < offset + size && offset < o + n && !ends(other, v) && !ends(v, other) {
                let name = |v: ValueId| p.graph.value(v).name.clone();
                return Err(bad(format!(
                    "\"{}\" and \"{}\" lie in the same memory, and steps that touch them run at the same time",
                    name(other),
                    name(v)
                )));
            }
        }
        live.push((to, v));
    }
    Ok(())
}

/// Formats are those of inputs and outputs, which have shapes in memory that fit.
fn formats_fit(p: &Program) -> Result<(), PlanError> {
    let g = &p.graph;
    for (name, packing) in &g.packings {
        let border = || g.inputs.iter().chain(&g.outputs).copied();
        let found = border().find(|&v| g.value(v).name == *name).map(|v| g.ty(v));
        if !found.is_some_and(|ty| packing.fits(ty.dtype, &ty.dims)) {
            let ty = found.map_or("no input or output".to_owned(), |ty| ty.to_string());
            return Err(bad(format!(
                "\"{name}\" is {ty}, which is no shape in memory of format {}",
                packing.format
            )));
        }
    }
    Ok(())
}

/// The step of every node.
fn steps_cover(p: &Program) -> Result<HashMap<NodeId, usize>, PlanError> {
    let mut step_of = HashMap::new();
    for (s, step) in p.steps.iter().enumerate() {
        for &n in &step.nodes {
            let node =
                p.graph.get(n).ok_or_else(|| bad(format!("step \"{}\" runs {n:?}, no node", step.name)))?;
            if step_of.insert(n, s).is_some() {
                return Err(bad(format!("layer \"{}\" is run twice", node.name)));
            }
            for &v in node.inputs.iter().flatten() {
                if p.graph.producer(v).is_some_and(|(from, _)| !step_of.contains_key(&from)) {
                    let name = &p.graph.value(v).name;
                    return Err(bad(format!(
                        "layer \"{}\" reads \"{name}\" before it is computed",
                        node.name
                    )));
                }
            }
        }
    }
    match p.graph.nodes().find(|(n, _)| !step_of.contains_key(n)) {
        Some((_, node)) => Err(bad(format!("layer \"{}\" is in no step", node.name))),
        None => Ok(step_of),
    }
}

/// Bodies of control flow fit their regions, and are sound programs themselves.
fn bodies_fit(p: &Program, rules: &MemoryRules) -> Result<(), PlanError> {
    for step in &p.steps {
        match flow::node(&p.graph, step) {
            Some(node) => step.check_bodies(node).map_err(|e| bad(e.to_string()))?,
            None if step.bodies.is_empty() && step.tactic.name != flow::INTERPRETED => (),
            None => return Err(bad(format!("step \"{}\" has bodies, but is no control flow", step.name))),
        }
        step.bodies.iter().try_for_each(|body| verify(body, rules))?;
    }
    Ok(())
}

/// A step of several layers that writes a part of a tensor in place writes nothing else of it: the other elements have to be there.
fn parts_in_place(p: &Program) -> Result<(), PlanError> {
    let place = |v: ValueId| p.memory.places.get(v.0 as usize);
    for step in p.steps.iter().filter(|s| s.nodes.len() > 1) {
        for node in step.nodes.iter().filter_map(|&n| p.graph.get(n)) {
            for &(i, o) in node.op.def().traits.must_alias {
                let into = node.inputs.get(i).copied().flatten();
                let (Some(into), Some(&out)) = (into, node.outputs.get(o)) else { continue };
                let there = matches!(place(out), Some(Place::Arena { .. })) && place(out) == place(into);
                if !there || p.graph.outputs.contains(&out) {
                    return Err(bad(format!(
                        "step \"{}\" writes a part of \"{}\", whose other elements lie in other memory",
                        step.name,
                        p.graph.value(out).name
                    )));
                }
            }
        }
    }
    Ok(())
}

fn places_fit(p: &Program, rules: &MemoryRules) -> Result<(), PlanError> {
    let m = &p.memory;
    let values = p.graph.value_ids().count();
    if m.places.len() != values {
        return Err(bad(format!("{} places for {values} values", m.places.len())));
    }
    let workspace = p.steps.iter().map(Step::workspace).max().unwrap_or(0);
    if m.scratch.checked_add(workspace).is_none_or(|end| end > m.arena) {
        return Err(bad(format!("{workspace} bytes of scratch at {} in an arena of {}", m.scratch, m.arena)));
    }
    for v in p.graph.value_ids() {
        let def = p.graph.value(v);
        let place = m.places[v.0 as usize];
        let right = match (place, &def.source) {
            (Place::Input(i), Source::Input) => p.graph.inputs.get(i as usize) == Some(&v),
            (Place::Weight, Source::Weight(_)) | (Place::None, _) => true,
            (Place::Arena { .. } | Place::Dynamic, Source::Node(..)) => true,
            (Place::Input(_), Source::Node(..)) => views_input(p, v),
            _ => false,
        };
        if !right {
            return Err(bad(format!("\"{}\" can't lie at {place:?}", def.name)));
        }
        if let Place::Arena { offset, size } = place {
            let end = offset.checked_add(size);
            let limit = if workspace > 0 { m.scratch } else { m.arena };
            if end.is_none_or(|end| end > limit) || offset % rules.alignment.max(1) != 0 {
                return Err(bad(format!(
                    "\"{}\" lies at {offset}, {size} bytes: wants multiples of {} below {limit}",
                    def.name, rules.alignment
                )));
            }
            let bytes = def.fact.ty.static_volume().and_then(|n| def.fact.ty.dtype.bytes_for(n as u64));
            if let Some(bytes) = bytes.filter(|&b| b > size) {
                return Err(bad(format!("\"{}\" has {bytes} bytes, its place {size}", def.name)));
            }
        }
    }
    Ok(())
}

/// Whether a value is a view of an input, itself stored in that input's memory, and not an output of the
/// network.
fn views_input(p: &Program, v: ValueId) -> bool {
    let from = |(_, n): (NodeId, &Node)| n.inputs.first().copied().flatten().filter(|_| is_view_op(&n.op));
    let place = |v: ValueId| p.memory.places.get(v.0 as usize);
    let from = p.graph.producer(v).and_then(from);
    !p.graph.outputs.contains(&v) && from.is_some_and(|x| place(x) == place(v))
}

/// The range of a value in the arena; none for empty ones.
fn range(p: &Program, v: ValueId) -> Option<(u64, u64)> {
    match p.memory.places.get(v.0 as usize)? {
        Place::Arena { offset, size } if *size > 0 => Some((*offset, *size)),
        _ => None,
    }
}

fn no_overlap(p: &Program, step_of: &HashMap<NodeId, usize>) -> Result<(), PlanError> {
    let last = last_steps(p, step_of);
    let mut live: BTreeMap<u64, (u64, ValueId)> = BTreeMap::new();
    let mut dying: HashMap<usize, Vec<ValueId>> = HashMap::new();
    for (s, step) in p.steps.iter().enumerate() {
        for v in defined(p, step) {
            let Some((offset, size)) = range(p, v) else { continue };
            let end = last.get(&v).copied().unwrap_or(s);
            dying.entry(end).or_default().push(v);
            let clash = live.range(..offset + size).next_back().filter(|(o, (n, _))| *o + n > offset);
            if let Some((&o, &(n, other))) = clash {
                let inherits =
                    o == offset && n == size && last.get(&other) == Some(&s) && reads(p, step, other);
                if !inherits {
                    let name = |v: ValueId| p.graph.value(v).name.clone();
                    return Err(bad(format!(
                        "\"{}\" and \"{}\" lie in the same memory",
                        name(other),
                        name(v)
                    )));
                }
            }
            live.insert(offset, (size, v));
        }
        for v in dying.remove(&s).into_iter().flatten() {
            if let Some((offset, _)) = range(p, v)
                && live.get(&offset).is_some_and(|&(_, own)| own == v)
            {
                live.remove(&offset);
            }
        }
    }
    Ok(())
}

fn defined<'a>(p: &'a Program, step: &'a Step) -> impl Iterator<Item = ValueId> + 'a {
    step.nodes.iter().filter_map(|&n| p.graph.get(n)).flat_map(|n| n.outputs.iter().copied())
}

fn reads(p: &Program, step: &Step, v: ValueId) -> bool {
    step.nodes.iter().filter_map(|&n| p.graph.get(n)).any(|n| n.inputs.contains(&Some(v)))
}

/// The step that reads each value last; of outputs of the network, one that never comes.
fn last_steps(p: &Program, step_of: &HashMap<NodeId, usize>) -> HashMap<ValueId, usize> {
    let mut last: HashMap<ValueId, usize> = HashMap::new();
    for (n, node) in p.graph.nodes() {
        let s = step_of.get(&n).copied().unwrap_or(0);
        for v in node.inputs.iter().flatten() {
            let at = last.entry(*v).or_insert(s);
            *at = s.max(*at);
        }
    }
    last.extend(p.graph.outputs.iter().map(|&v| (v, usize::MAX)));
    last
}
