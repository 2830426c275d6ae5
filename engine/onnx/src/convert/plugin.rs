//! Nodes of plug-ins: operators of a domain for which a plug-in layer is loaded.
//!
//! The layer has the node's operator as its name and the node's domain as its namespace. Attributes are fields. Exporters for
//! TensorRT write the attributes `plugin_namespace` and `plugin_version`; they name the layer and are not fields.

use kiln_ir::{Attr, Attrs, Tensor};
use kiln_network::PluginSpec;

use super::cx::Outs;
use super::importer::Importer;
use crate::error::{Refusal, unsupported};
use crate::model::{Attribute, Node};
use crate::ops;

const NAMESPACE: &str = "plugin_namespace";
const VERSION: &str = "plugin_version";
/// More elements of a tensor that is a field are refused.
const MOST_NUMBERS: usize = 65536;

/// Whether a node says that it is a plug-in's, as exporters for TensorRT write it.
pub(super) fn is_named(node: &Node) -> bool {
    [NAMESPACE, VERSION].iter().any(|name| matches!(node.attributes.get(*name), Some(Attribute::String(_))))
}

/// Name and version of the plug-in layer of a node, if one is loaded.
pub(super) fn layer(node: &Node) -> Option<PluginSpec> {
    let text = |name: &str| match node.attributes.get(name) {
        Some(Attribute::String(s)) => std::str::from_utf8(s).ok(),
        _ => None,
    };
    // An operator of the standard domain is that of ONNX, unless the node says that it is a plug-in's.
    if node.domain.is_empty() && !is_named(node) && ops::find("", &node.op).is_some() {
        return None;
    }
    let spaces = [text(NAMESPACE).unwrap_or(&node.domain), &node.domain, ""];
    let mut found = spaces.into_iter().map(|space| PluginSpec {
        version: text(VERSION).map(str::to_owned),
        ..PluginSpec::new(space, &node.op)
    });
    found.find(|spec| spec.find().is_ok())
}

impl Importer {
    /// Adds the plug-in layer of a node.
    pub(super) fn plugin(&mut self, node: &Node) -> Outs {
        let spec = layer(node).ok_or(Refusal::UnknownOperator)?;
        self.check_lists(node)?;
        self.check_types(node)?;
        let mut inputs: Vec<_> = node.inputs.iter().map(|name| self.lookup(name).flatten()).collect();
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        if let Some(i) = inputs.iter().position(Option::is_none) {
            return unsupported(format!(
                "input {i} of a plug-in layer is left out, and a later one is there"
            ));
        }
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let spec = PluginSpec { fields: self.plugin_fields(node)?, ..spec };
        let label = node.label();
        let outputs = self.net.add_named_plugin(&label, &inputs, spec)?.outputs().to_vec();
        if let Some(i) = (outputs.len()..node.outputs.len()).find(|&i| node.output(i).is_some()) {
            return unsupported(format!("output {i} of this plug-in layer, which has {}", outputs.len()));
        }
        *self.report.nodes.entry(node.op.clone()).or_default() += 1;
        self.settle_types(node, outputs)
    }

    /// Attributes of a node as fields. Tensors are numbers or lists of them.
    fn plugin_fields(&mut self, node: &Node) -> Result<Attrs, Refusal> {
        let mut fields = Attrs::new();
        let own = |n: &&str| ![NAMESPACE, VERSION].contains(n);
        for (name, value) in node.attributes.iter().filter(|(n, _)| own(&n.as_str())) {
            match value {
                Attribute::Int(n) => fields.set(name, *n),
                Attribute::Float(x) => fields.set(name, f64::from(*x)),
                Attribute::String(s) => fields.set(name, text(name, s)?),
                Attribute::Ints(v) => fields.set(name, v.clone()),
                Attribute::Floats(v) => {
                    fields.set(name, v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
                }
                Attribute::Strings(v) => {
                    fields.set(name, v.iter().map(|s| text(name, s)).collect::<Result<Vec<_>, _>>()?);
                }
                Attribute::Tensor(data) => {
                    let t = self.tensor(data, name)?;
                    fields.set(name, numbers(name, &t)?);
                }
                other => {
                    return unsupported(format!(
                        "attribute '{name}' of a plug-in layer is {}, wants numbers, text or a tensor",
                        other.kind()
                    ));
                }
            }
        }
        Ok(fields)
    }
}

fn text(name: &str, s: &[u8]) -> Result<String, Refusal> {
    match std::str::from_utf8(s) {
        Ok(s) => Ok(s.to_owned()),
        Err(_) => unsupported(format!("attribute '{name}' is not UTF-8")),
    }
}

/// The elements of a tensor: a number if it has no dimensions, else a list in row-major order.
fn numbers(name: &str, t: &Tensor) -> Result<Attr, Refusal> {
    if t.len() > MOST_NUMBERS {
        return unsupported(format!(
            "attribute '{name}' of a plug-in layer is a tensor of {} elements, wants at most {MOST_NUMBERS}; make it an input",
            t.len()
        ));
    }
    let scalar = t.shape().is_empty();
    Ok(match t.dtype().is_float() {
        true if scalar => Attr::Float(t.to_f64().first().copied().unwrap_or_default()),
        true => Attr::Floats(t.to_f64()),
        false if scalar => Attr::Int(t.to_i64().first().copied().unwrap_or_default()),
        false => Attr::Ints(t.to_i64()),
    })
}
