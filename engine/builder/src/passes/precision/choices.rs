//! Types that layers of f32 may run in.

use super::angles::angles;
use super::ranges::{greatest_code, multiplies, on_codes};
use super::{PassCx, host};
use crate::passes::Notes;
use crate::{BuildError, Constraints};
use kiln_backend::Region;
use kiln_ir::{DType, Fact, Graph, Node, NodeId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The types that a layer may run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// At least one; f32 is the first where it may keep that.
    pub types: Vec<DType>,
    /// One of them that the user would rather have.
    pub wish: Option<DType>,
}

/// The types of all layers that may run in another type than f32, or must. What the user asked for and cannot have is an error
/// under [`Constraints::Obey`], else a note.
pub fn choices(g: &Graph, cx: &PassCx<'_>) -> Result<BTreeMap<NodeId, Choice>, BuildError> {
    let config = cx.config;
    let asked = g.nodes().find(|(_, n)| n.meta.precision.is_some()).map(|(_, n)| n.name.clone());
    if config.strong_types || g.strong_types {
        return match (asked, config.reduced.is_empty()) {
            (Some(layer), _) => Err(BuildError::Precision {
                layer,
                message: "has a precision, but the network is strongly typed; insert a cast instead".into(),
            }),
            (_, false) => Err(BuildError::Precision {
                layer: g.name.clone(),
                message: "is strongly typed; reduced precision must come from casts in the network".into(),
            }),
            _ => Ok(BTreeMap::new()),
        };
    }
    if asked.is_none() && config.reduced.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut asker = Asker { g, cx, known: BTreeMap::new() };
    let mut all = BTreeMap::new();
    let angles = angles(g);
    for (id, node) in g.nodes() {
        if let Some(choice) = asker.choice(node, angles.contains(&id))? {
            all.insert(id, choice);
        }
    }
    if let Some(&to) = config.reduced.iter().find(|&&t| greatest_code(t).is_some()) {
        asker.note_without_codes(to, &cx.work.notes);
    }
    if asked.is_none() && all.is_empty() {
        asker.note_unused(&cx.work.notes);
    }
    Ok(all)
}

/// Asks the operators and the backend which types a layer can have. Equal layers are asked once.
struct Asker<'a> {
    g: &'a Graph,
    cx: &'a PassCx<'a>,
    known: BTreeMap<String, Result<(), String>>,
}

impl Asker<'_> {
    fn choice(&mut self, node: &Node, angle: bool) -> Result<Option<Choice>, BuildError> {
        let mut types = vec![DType::F32];
        if !node.op.roles().keeps_f32 && !angle {
            let permitted = self.cx.config.reduced.iter().copied();
            let narrower: Vec<DType> = permitted.filter(|t| *t != DType::F32).collect();
            types.extend(narrower.into_iter().filter(|&t| self.can(node, t).is_ok()));
        }
        let open = |types: Vec<DType>, wish| Some(Choice { types, wish }).filter(|c| c.types.len() > 1);
        let Some(to) = node.meta.precision else { return Ok(open(types, None)) };
        let strictness = self.cx.config.constraints;
        match (self.wanted(node, to), strictness) {
            (Ok(()), Constraints::None) => {
                if !types.contains(&to) {
                    types.push(to);
                }
                Ok(open(types, Some(to)))
            }
            (Ok(()), _) => Ok(Some(Choice { types: vec![to], wish: Some(to) }).filter(|_| to != DType::F32)),
            (Err(why), Constraints::Obey) => {
                let message = format!("must run in {to}, but {why}");
                Err(BuildError::Precision { layer: node.name.clone(), message })
            }
            (Err(why), _) => {
                let note = format!("layer \"{}\" should run in {to} and keeps its type: {why}", node.name);
                self.cx.work.notes.add(note);
                Ok(open(types, None))
            }
        }
    }

    /// Whether a layer may have the type that was set on it.
    fn wanted(&mut self, node: &Node, to: DType) -> Result<(), String> {
        let config = self.cx.config;
        let floats = node.inputs.iter().enumerate().filter_map(|(i, v)| v.filter(|_| !host(node, i)));
        let mut found = floats.map(|v| self.g.ty(v).dtype).filter(|t| t.is_float());
        if to == DType::F32 || found.clone().any(|t| t == to) && !found.any(|t| t == DType::F32) {
            return Ok(());
        }
        if !to.is_float() && greatest_code(to).is_none() {
            return Err(format!("layers of f32 run in f16, bf16, f8e4m3 or i8, not in {to}"));
        }
        if config.constraints != Constraints::Obey && !config.reduced.contains(&to) {
            return Err(format!("the build does not permit {to} (BuildConfig::reduced)"));
        }
        self.can(node, to)
    }

    /// Whether a layer of f32 can run in a type: its operator takes it, and the backend has a kernel.
    fn can(&mut self, node: &Node, to: DType) -> Result<(), String> {
        if greatest_code(to).is_some() {
            on_codes(self.g, self.cx.config, node)?;
            if !multiplies(node) {
                return Ok(());
            }
        }
        let mut key = format!("{to} {:?}", node.op);
        for (i, v) in node.inputs.iter().enumerate() {
            let known = v.filter(|_| host(node, i)).map(|v| &self.g.value(v).fact.value);
            // Writing to a string does not fail.
            let _ = write!(key, " {:?} {known:?}", v.map(|v| self.g.ty(v)));
        }
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let answer = self.ask(node, to);
        self.known.insert(key, answer.clone());
        answer
    }

    fn ask(&self, node: &Node, to: DType) -> Result<(), String> {
        if !node.regions.is_empty() {
            return Err("types of loops and conditionals are chosen inside of their bodies".into());
        }
        let mut alone = Graph::new("");
        let mut inputs = Vec::with_capacity(node.inputs.len());
        let mut touched = false;
        for (i, v) in node.inputs.iter().enumerate() {
            let Some(v) = *v else {
                inputs.push(None);
                continue;
            };
            let mut fact = self.g.value(v).fact.clone();
            // Sums of codes have no bias.
            if greatest_code(to).is_some() && i > 1 {
                continue;
            }
            if !host(node, i) {
                if fact.ty.dtype == DType::F32 {
                    (fact.ty.dtype, touched) = (to, true);
                }
                fact = Fact::of(fact.ty);
            }
            inputs.push(Some(alone.add_input(&format!("x{i}"), fact)));
        }
        if !touched {
            return Err("it reads nothing of f32".into());
        }
        let outputs = alone.add_node("y", node.op.clone(), &inputs);
        alone.outputs = outputs.map_err(|e| format!("{} has no such form: {e}", node.op.name()))?;
        let ids: Vec<NodeId> = alone.order().to_vec();
        let region = Region::extract(&alone, &ids).map_err(|e| e.to_string())?;
        let refused = |e| format!("backend {} has no kernel for it: {e}", self.cx.backend.name());
        self.cx.backend.supports(&region, self.cx.target).map_err(refused)
    }

    /// Reports that products of f32 stay off codes of 8 bits, with the reason of the first.
    fn note_without_codes(&self, to: DType, notes: &Notes) {
        let wide =
            |n: &&Node| multiplies(n) && n.inputs.iter().flatten().all(|&v| self.g.ty(v).dtype == DType::F32);
        let why = |n: &Node| Some((n.name.clone(), on_codes(self.g, self.cx.config, n).err()?));
        let all: Vec<_> = self.g.nodes().map(|(_, n)| n).filter(wide).filter_map(why).collect();
        if let [(layer, why), ..] = &all[..] {
            notes.add(format!("{} layers cannot run in {to}, \"{layer}\" for one: {why}", all.len()));
        }
    }

    /// Reports that no layer can use the permitted types, if there are layers of f32 that would.
    fn note_unused(&self, notes: &Notes) {
        let permitted = &self.cx.config.reduced;
        let mut reasons =
            self.known.values().filter_map(|r| r.as_ref().err()).filter(|r| r.contains("kernel"));
        if let Some(why) = reasons.next() {
            let types: Vec<String> = permitted.iter().map(ToString::to_string).collect();
            notes.add(format!("no layer can run in {}: {why}", types.join(" or ")));
        }
    }
}
