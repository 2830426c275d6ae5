//! Parsing graphs.

use super::cursor::{Lookup, Parser};
use super::lex::Token;
use super::values::{Bounds, Contents};
use crate::attr::Attrs;
use crate::error::IrError;
use crate::format::{FormatError, Packing, TensorFormat};
use crate::graph::{Graph, Meta, Node, NodeId, Recipe, Source, ValueId, Weight, WeightUse, WeightsRole};
use crate::infer::{Fact, Value};
use crate::op::Op;
use crate::ty::TensorType;
use crate::wire::MAX_NESTING;
use std::collections::HashMap;
use std::sync::Arc;

/// A graph that is being read.
#[derive(Default)]
struct Scope {
    g: Graph,
    ids: HashMap<String, ValueId>,
    /// Bounds of device symbols.
    bounds: Bounds,
}

pub(super) fn parse(text: &str, lookup: Lookup<'_>) -> Result<Graph, IrError> {
    let mut p = Parser::new(text, lookup)?;
    let g = p.graph(0)?;
    match p.token {
        Token::End => Ok(g),
        _ => Err(p.wanted("the end, as the graph is complete")),
    }
}

impl Parser<'_> {
    fn graph(&mut self, depth: usize) -> Result<Graph, IrError> {
        if depth > MAX_NESTING {
            return Err(self.error(format!("graphs nest deeper than {MAX_NESTING}")));
        }
        if !self.accept_word("graph")? {
            return Err(self.wanted("`graph`"));
        }
        let name = self.string("the name of the graph in quotes")?;
        let mut s = Scope { g: Graph::new(&name), ..Scope::default() };
        s.g.strong_types = self.accept_word("strong")?;
        self.expect('{')?;
        while !self.accept('}')? {
            self.statement(&mut s, depth)?;
        }
        Ok(s.g)
    }

    fn statement(&mut self, s: &mut Scope, depth: usize) -> Result<(), IrError> {
        if self.accept_word("device")? {
            self.bound(s)
        } else if self.accept_word("input")? {
            self.input(s)
        } else if self.accept_word("weight")? {
            self.weight(s, depth)
        } else if self.accept_word("role")? {
            self.role(s)
        } else if self.accept_word("range")? {
            self.range(s)
        } else if self.accept_word("debug")? {
            s.g.debug.insert(self.string("the tensor's name in quotes")?);
            Ok(())
        } else if self.accept_word("formats")? {
            self.formats(s)
        } else if self.accept_word("packed")? {
            self.packed(s)
        } else if self.accept_word("output")? {
            self.outputs(s)
        } else if self.accept_word("do")? {
            self.node(s, Vec::new(), depth)
        } else {
            let mut outputs = Vec::new();
            loop {
                outputs.push(self.output_of_node(s)?);
                if !self.accept(',')? {
                    break;
                }
            }
            self.expect('=')?;
            self.node(s, outputs, depth)
        }
    }

    fn bound(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let Token::Device(name) = self.token.clone() else { return Err(self.wanted("a device symbol")) };
        self.advance()?;
        self.expect('<')?;
        self.expect('=')?;
        let bound = self.dim(&s.bounds)?;
        match s.bounds.insert(name.clone(), bound) {
            None => Ok(()),
            Some(_) => Err(self.error(format!("?{name} has a bound already"))),
        }
    }

    fn input(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let name = self.value_name()?;
        self.expect(':')?;
        let ty = self.ty(&s.bounds)?;
        let value = if self.accept('=')? { Some(self.contents(s, &name, &ty)?) } else { None };
        let v = self.define(s, &name, Fact { ty, value }, Source::Input)?;
        s.g.inputs.push(v);
        Ok(())
    }

    fn weight(&mut self, s: &mut Scope, depth: usize) -> Result<(), IrError> {
        let value = self.value_name()?;
        self.expect(':')?;
        let ty = self.ty(&s.bounds)?;
        self.expect('=')?;
        let Value::Const(tensor) = self.contents(s, &value, &ty)? else {
            return Err(self.error(format!("weight %{value} is to have elements, not dimensions")));
        };
        let name = match self.accept_word("name")? {
            true => Some(Arc::from(self.string("the weight's name in quotes")?)),
            false => None,
        };
        let recipe = match self.accept_word("recipe")? {
            true => Some(Arc::new(self.recipe(depth)?)),
            false => None,
        };
        let fact = Fact::constant(tensor.clone());
        self.define(s, &value, fact, Source::Weight(Weight { tensor, name, recipe })).map(drop)
    }

    fn role(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let layer = Arc::from(self.string("the layer's name in quotes")?);
        let found = WeightsRole::ALL.into_iter().find_map(|role| match self.accept_word(role.name()) {
            Ok(false) => None,
            accepted => Some(accepted.map(|_| role)),
        });
        let role = found.ok_or_else(|| self.wanted("a role of weights, such as kernel"))??;
        let weight = Arc::from(self.string("the weight's name in quotes")?);
        s.g.weight_uses.push(WeightUse { layer, role, weight });
        Ok(())
    }

    fn range(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let name = self.string("the tensor's name in quotes")?;
        self.expect('[')?;
        let ends = self.items(']', Self::float)?;
        let [lo, hi] = ends[..] else { return Err(self.error("a range has two ends".to_owned())) };
        s.g.ranges.insert(name, [lo as f32, hi as f32]);
        Ok(())
    }

    fn formats(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let name = self.string("the tensor's name in quotes")?;
        self.expect('[')?;
        let formats = self.items(']', Self::format)?;
        s.g.allowed_formats.insert(name, formats.into_iter().collect());
        Ok(())
    }

    fn packed(&mut self, s: &mut Scope) -> Result<(), IrError> {
        let name = self.string("the tensor's name in quotes")?;
        let format = self.format()?;
        let channels = u64::try_from(self.int()?).map_err(|_| self.error("channels are 0 or more"))?;
        s.g.packings.insert(name, Packing::from_parts(format, channels));
        Ok(())
    }

    fn format(&mut self) -> Result<TensorFormat, IrError> {
        self.word("the name of a format")?.parse().map_err(|e: FormatError| self.error(e.to_string()))
    }

    fn recipe(&mut self, depth: usize) -> Result<Recipe, IrError> {
        self.expect('[')?;
        let sources = self.items(']', |p| p.string("the name of a source in quotes").map(Arc::from))?;
        let graph = self.graph(depth + 1)?;
        if graph.inputs.len() != sources.len() || graph.outputs.len() != 1 {
            let message = "a recipe has as many sources as its graph has inputs, and one output";
            return Err(self.error(message));
        }
        Ok(Recipe { graph, sources })
    }

    fn outputs(&mut self, s: &mut Scope) -> Result<(), IrError> {
        loop {
            let v = self.used(s)?;
            s.g.outputs.push(v);
            if !self.accept(',')? {
                return Ok(());
            }
        }
    }

    /// A value that is defined already.
    fn used(&mut self, s: &Scope) -> Result<ValueId, IrError> {
        let line = self.line;
        let name = self.value_name()?;
        s.ids
            .get(&name)
            .copied()
            .ok_or_else(|| IrError::Parse { line, message: format!("%{name} is read before it is defined") })
    }

    fn define(&self, s: &mut Scope, name: &str, fact: Fact, source: Source) -> Result<ValueId, IrError> {
        let v = s.g.add_value(name, fact, source);
        match s.ids.insert(name.to_owned(), v) {
            None => Ok(v),
            Some(_) => Err(self.error(format!("%{name} is defined twice"))),
        }
    }

    /// The name of an output, with what is known of it.
    fn output_of_node(&mut self, s: &Scope) -> Result<(String, Option<Fact>), IrError> {
        let Token::Value(_) = self.token else {
            return Err(self.wanted("`device`, `input`, `weight`, `do`, `output`, a value or `}`"));
        };
        let name = self.value_name()?;
        if !self.accept(':')? {
            return Ok((name, None));
        }
        let ty = self.ty(&s.bounds)?;
        let value = if self.accept_word("is")? { Some(self.contents(s, &name, &ty)?) } else { None };
        Ok((name, Some(Fact { ty, value })))
    }

    fn contents(&mut self, s: &Scope, name: &str, ty: &TensorType) -> Result<Value, IrError> {
        match self.contents_of(&s.bounds, name, ty)? {
            Contents::Tensor(t) => Ok(Value::Const(t)),
            Contents::Dims(d) => Ok(Value::Dims(d)),
        }
    }

    fn node(
        &mut self,
        s: &mut Scope,
        outputs: Vec<(String, Option<Fact>)>,
        depth: usize,
    ) -> Result<(), IrError> {
        let line = self.line;
        let at = |e: IrError| IrError::Parse { line, message: e.to_string() };
        let op = self.word("the name of an operator")?;
        self.expect('(')?;
        let inputs = self.items(')', |p| match p.accept_word("_")? {
            true => Ok(None),
            false => p.used(s).map(Some),
        })?;
        let attrs = if self.accept('{')? { self.attrs()? } else { Attrs::new() };
        let op = Op::new(&op, attrs).map_err(at)?;
        let name = match (self.token.clone(), outputs.first()) {
            (Token::At(name), _) => self.advance().map(|_| name)?,
            (_, Some((name, _))) => name.clone(),
            _ => return Err(self.error("a layer without outputs needs `@` and its name")),
        };
        let meta = if self.accept_word("meta")? { self.meta()? } else { Meta::default() };
        let mut regions = Vec::new();
        while self.is_word("graph") {
            regions.push(self.graph(depth + 1)?);
        }
        let wrap = |e| at(IrError::layer(&name, op.name(), e));
        op.check_arity(&inputs.iter().map(Option::is_some).collect::<Vec<_>>()).map_err(wrap)?;
        let facts = facts(s, &op, &name, &inputs, &outputs).map_err(at)?;
        let id = NodeId(s.g.nodes.len() as u32);
        let mut ids = Vec::new();
        for (k, ((value, _), fact)) in outputs.iter().zip(facts).enumerate() {
            ids.push(self.define(s, value, fact, Source::Node(id, k))?);
        }
        s.g.nodes.push(Some(Node { name, op, inputs, outputs: ids, regions, meta }));
        s.g.order.push(id);
        Ok(())
    }

    fn meta(&mut self) -> Result<Meta, IrError> {
        let mut m = Meta::default();
        self.expect('{')?;
        self.items('}', |p| {
            let key = p.word("`precision`, `outputs` or `text`")?;
            p.expect('=')?;
            match key.as_str() {
                "precision" => m.precision = Some(p.dtype()?),
                "text" => m.metadata = p.string("text in quotes")?,
                "outputs" => {
                    p.expect('[')?;
                    m.output_types = p.items(']', |p| match p.accept_word("_")? {
                        true => Ok(None),
                        false => p.dtype().map(Some),
                    })?;
                }
                _ => return Err(p.error(format!("meta has no `{key}`; it has precision, outputs and text"))),
            }
            Ok(())
        })?;
        Ok(m)
    }
}

/// Facts of a node's outputs: as written, or inferred where no type is written.
fn facts(
    s: &Scope,
    op: &Op,
    name: &str,
    inputs: &[Option<ValueId>],
    outputs: &[(String, Option<Fact>)],
) -> Result<Vec<Fact>, IrError> {
    if let Some(all) = outputs.iter().map(|o| o.1.clone()).collect::<Option<Vec<_>>>() {
        return Ok(all);
    }
    let ins: Vec<_> = inputs.iter().map(|v| v.map(|v| s.g.value(v).fact.clone())).collect();
    let inferred = op.infer(&ins, name).map_err(|e| IrError::layer(name, op.name(), e))?;
    if inferred.len() != outputs.len() {
        let (found, wanted) = (outputs.len(), inferred.len());
        return Err(IrError::Structure(format!(
            "layer \"{name}\" has {wanted} outputs, {found} are written"
        )));
    }
    Ok(outputs.iter().zip(inferred).map(|(o, f)| o.1.clone().unwrap_or(f)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attr, DType};

    /// Attributes in braces.
    fn attrs(text: &str) -> Result<Attrs, IrError> {
        let mut p = Parser::new(text, &|_| None)?;
        p.expect('{')?;
        p.attrs()
    }

    #[test]
    fn every_kind_of_attribute_survives() {
        let text = |a: Attr| format!("{{k={a}}}");
        for a in [
            Attr::Int(i64::MIN),
            Attr::Float(1e-5),
            Attr::Float(-0.0),
            Attr::Float(f64::NEG_INFINITY),
            Attr::Float(3.0),
            Attr::Bool(false),
            Attr::Str("a, b]} \u{7f}\t\"".into()),
            Attr::Ints(vec![]),
            Attr::Ints(vec![1, -2]),
            Attr::Floats(vec![]),
            Attr::Floats(vec![0.1, f64::INFINITY, -1.0]),
            Attr::Strs(vec!["x".into(), String::new()]),
            Attr::DType(DType::F8E4M3),
            Attr::Bytes(vec![]),
            Attr::Bytes(vec![0, 255]),
        ] {
            assert_eq!(attrs(&text(a.clone())).unwrap(), Attrs::new().with("k", a));
        }
    }
}
