//! Calls of the model's own functions, replaced by the nodes of the function.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::convert::Converter;
use super::functions::full_name;
use super::scope::{Frame, Text};
use super::{Attribute, Node, Opsets};
use crate::error::{NodeFault, OnnxError};
use crate::proto::{FunctionProto, NodeProto};

impl<'a> Converter<'a> {
    /// Appends the nodes of `function` for `call`. Values inside get the call's name as a prefix; an output that the
    /// function passes through gets an Identity node.
    pub fn call(
        &mut self,
        mut call: Node,
        proto: &NodeProto,
        function: &'a FunctionProto,
        text: &mut Text<'_>,
        nodes: &mut Vec<Node>,
    ) -> Result<(), OnnxError> {
        let name = full_name(function);
        if let Some(start) = self.calls.iter().position(|outer| std::ptr::eq(*outer, function)) {
            let functions = self.calls[start..].iter().map(|outer| full_name(outer)).chain([name]).collect();
            return Err(OnnxError::FunctionCycle { functions });
        }
        check_arity(&call, function, &name)?;
        call.attributes = self.attributes(proto, &call, text)?;
        let opsets = Opsets::read(&function.opset_import)?;
        let mut body = Text { opsets: &opsets, frame: Some(self.frame(&call, function, name)) };
        self.charge(&body, call.weight() + signature_weight(function))?;
        self.defaults(&call, function, &mut body)?;
        let copies = self.bind(&call, function, &mut body)?;
        self.calls.push(function);
        self.nested(|converter| {
            for (index, node) in function.node.iter().enumerate() {
                converter.node(node, index, &mut body, nodes)?;
            }
            Ok(())
        })?;
        self.calls.pop();
        let opset = opsets.version("").or(text.opsets.version("")).unwrap_or(1);
        nodes.extend(copies.into_iter().map(|(from, to)| self.identity(&call, opset, from, to)));
        Ok(())
    }

    fn frame(&mut self, call: &Node, function: &FunctionProto, name: String) -> Frame {
        let label = if call.name.is_empty() { self.names.fresh(call.op.clone()) } else { call.name.clone() };
        let defaults = function.attribute_proto.iter().map(|attribute| &attribute.name);
        let declared: BTreeSet<String> = function.attribute.iter().chain(defaults).cloned().collect();
        Frame {
            function: name,
            prefix: format!("{label}/"),
            scopes: vec![HashMap::new()],
            attributes: call.attributes.clone(),
            declared,
        }
    }

    /// Adds the default values of the attributes that the call leaves out.
    fn defaults(
        &mut self,
        call: &Node,
        function: &FunctionProto,
        body: &mut Text<'_>,
    ) -> Result<(), OnnxError> {
        for default in &function.attribute_proto {
            let given = body.frame.as_ref().is_some_and(|frame| frame.attributes.contains_key(&default.name));
            if given {
                continue;
            }
            let value = self.attribute(default, call, body)?;
            self.charge(body, value.as_ref().map_or(0, Attribute::weight))?;
            if let (Some(value), Some(frame)) = (value, &mut body.frame) {
                frame.attributes.insert(default.name.clone(), value);
            }
        }
        Ok(())
    }

    /// Names the function's inputs, outputs and values after the call. Returns the copies, from and to, that outputs
    /// need which are inputs or occur twice.
    fn bind(
        &mut self,
        call: &Node,
        function: &FunctionProto,
        body: &mut Text<'_>,
    ) -> Result<Vec<(String, String)>, OnnxError> {
        let Some(frame) = &mut body.frame else { return Ok(Vec::new()) };
        let mut scope = HashMap::new();
        for (index, input) in function.input.iter().enumerate() {
            scope.insert(input.clone(), call.input(index).unwrap_or_default().to_owned());
        }
        let defined: HashSet<&String> = function.node.iter().flat_map(|node| &node.output).collect();
        if let Some(name) = function.input.iter().find(|input| !input.is_empty() && defined.contains(input)) {
            let function = frame.function.clone();
            return Err(call.error(NodeFault::FunctionDuplicate { function, name: name.clone() }));
        }
        let mut copies = Vec::new();
        for (index, output) in function.output.iter().enumerate() {
            let Some(outer) = call.output(index) else { continue };
            match scope.get(output) {
                Some(from) if !from.is_empty() => copies.push((from.clone(), outer.to_owned())),
                None if defined.contains(output) => drop(scope.insert(output.clone(), outer.to_owned())),
                _ => {
                    let function = frame.function.clone();
                    return Err(call.error(NodeFault::FunctionOutput { function, output: output.clone() }));
                }
            }
        }
        for name in defined {
            if !name.is_empty() && !scope.contains_key(name) {
                scope.insert(name.clone(), self.names.fresh(format!("{}{name}", frame.prefix)));
            }
        }
        frame.scopes = vec![scope];
        Ok(copies)
    }

    fn identity(&mut self, call: &Node, opset: i64, from: String, to: String) -> Node {
        Node {
            name: self.names.fresh(format!("{}/Identity", call.label())),
            op: "Identity".to_owned(),
            domain: String::new(),
            opset,
            inputs: vec![from],
            outputs: vec![to],
            attributes: BTreeMap::new(),
        }
    }
}

/// About how much memory a call takes beside the nodes of the function.
fn signature_weight(function: &FunctionProto) -> u64 {
    let names = function.input.iter().chain(&function.output).chain(&function.attribute);
    let defaults = function.attribute_proto.iter().map(|attribute| &attribute.name);
    let imports = function.opset_import.iter().map(|import| &import.domain);
    4096 + names.chain(defaults).chain(imports).map(|name| 128 + name.len() as u64).sum::<u64>()
}

fn check_arity(call: &Node, function: &FunctionProto, name: &str) -> Result<(), OnnxError> {
    let sides = [
        ("inputs", call.inputs.len(), function.input.len()),
        ("outputs", call.outputs.len(), function.output.len()),
    ];
    for (what, found, wanted) in sides {
        if found > wanted {
            let function = name.to_owned();
            return Err(call.error(NodeFault::CallArity { function, what, found, wanted }));
        }
    }
    Ok(())
}
