//! The versions of every ONNX operator, as one release of ONNX defines them, and the check of nodes against them.
//!
//! `schemas.txt` is written by `make.py` from the wheel of that release. An importer's row names the versions that it
//! implements; a node of any other version, with an attribute, input or type that its version lacks, is refused.
//! [`ranks`] adds what only the operators' texts say.

mod ranks;

use std::collections::HashMap;
use std::sync::OnceLock;

use kiln_ir::DType;

use crate::convert::{Cx, Refusal, held};
use crate::ops::Operator;
use crate::tensor::DataType;

const TABLE: &str = include_str!("schemas.txt");

/// Version 1 of most operators has it: a hint for reusing memory, without influence on results.
const HINT: &str = "consumed_inputs";

/// One version of an operator.
#[derive(Debug)]
struct Schema {
    since: i64,
    removed: bool,
    inputs: Vec<Input>,
    /// Largest number of outputs.
    outputs: usize,
    attributes: Vec<&'static str>,
}

#[derive(Debug)]
struct Input {
    name: &'static str,
    presence: Presence,
    types: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
    Repeated,
}

/// Versions by operator, oldest first. The standard set's operators have plain names, others `domain.Operator`.
type Table = HashMap<&'static str, Vec<Schema>>;

fn table() -> &'static Table {
    static TABLE_READ: OnceLock<Table> = OnceLock::new();
    TABLE_READ.get_or_init(|| {
        let mut types = HashMap::new();
        let mut table = Table::new();
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(' ') {
                Some(("types", rest)) => drop(rest.split_once(' ').map(|(n, list)| types.insert(n, list))),
                Some((name, rest)) => {
                    table.entry(name).or_default().extend(Schema::read(rest, &types));
                }
                None => {}
            }
        }
        table
    })
}

impl Schema {
    /// Reads the rest of an operator's line.
    fn read(line: &'static str, types: &HashMap<&str, &'static str>) -> Option<Schema> {
        let (head, rest) = line.split_once("in ")?;
        let (inputs, rest) = rest.split_once("out ")?;
        let (outputs, attributes) = rest.split_once(" attrs ").unwrap_or((rest, ""));
        let mut head = head.split_whitespace();
        let since = head.next()?.parse().ok()?;
        let input = |text: &'static str| {
            let (name, number) = text.split_once('=')?;
            let (name, presence) = match (name.strip_suffix('?'), name.strip_suffix('*')) {
                (Some(name), _) => (name, Presence::Optional),
                (_, Some(name)) => (name, Presence::Repeated),
                _ => (name, Presence::Required),
            };
            Some(Input { name, presence, types: types.get(number)? })
        };
        Some(Schema {
            since,
            removed: head.next() == Some("removed"),
            inputs: inputs.split_whitespace().map(input).collect::<Option<_>>()?,
            outputs: if outputs == "*" { usize::MAX } else { outputs.parse().ok()? },
            attributes: attributes.split_whitespace().collect(),
        })
    }

    /// The input at a position; the last one may repeat.
    fn input(&self, i: usize) -> Option<&Input> {
        self.inputs.get(i).or_else(|| self.inputs.last().filter(|last| last.presence == Presence::Repeated))
    }
}

/// Refuses a node whose version the importer does not implement, or that its version does not allow.
pub(crate) fn check(cx: &Cx<'_>, operator: &Operator) -> Result<(), Refusal> {
    let node = cx.node();
    let name = if node.domain.is_empty() { node.op.clone() } else { format!("{}.{}", node.domain, node.op) };
    let Some(versions) = table().get(name.as_str()) else {
        // Operators that no set of the table has: the importer's row is all that is known of them.
        let known = operator.versions.is_empty() || operator.versions.contains(&node.opset);
        return if known {
            ranks::check(cx, &name, None)
        } else {
            Err(unknown_version(node.opset, operator))
        };
    };
    let Some(schema) = versions.iter().rfind(|schema| schema.since <= node.opset) else {
        let first = versions.first().map_or(1, |schema| schema.since);
        return Err(Refusal::NotYetDefined { first });
    };
    if !operator.versions.contains(&schema.since) {
        return Err(match schema.removed {
            true => Refusal::Removed { since: schema.since },
            false => unknown_version(schema.since, operator),
        });
    }
    attributes(cx, schema)?;
    arity(cx, schema)?;
    types(cx, schema)?;
    ranks::check(cx, &name, Some(schema))
}

fn unknown_version(since: i64, operator: &Operator) -> Refusal {
    Refusal::UnknownVersion { since, known: operator.versions.to_vec() }
}

fn attributes(cx: &Cx<'_>, schema: &Schema) -> Result<(), Refusal> {
    if schema.attributes.contains(&HINT) {
        cx.skip(HINT);
    }
    let unknown = cx.node().attributes.keys().find(|name| !schema.attributes.contains(&name.as_str()));
    match unknown {
        Some(name) => Err(Refusal::UnknownAttribute { attribute: name.clone(), since: schema.since }),
        None => Ok(()),
    }
}

fn arity(cx: &Cx<'_>, schema: &Schema) -> Result<(), Refusal> {
    let node = cx.node();
    let beyond = |i: usize| node.input(i).is_some() && schema.input(i).is_none();
    if (0..node.inputs.len()).any(beyond) {
        let (found, most) = (node.inputs.len(), schema.inputs.len());
        return Err(Refusal::TooMany { what: "inputs", found, most, since: schema.since });
    }
    if node.outputs.len() > schema.outputs {
        let (found, most) = (node.outputs.len(), schema.outputs);
        return Err(Refusal::TooMany { what: "outputs", found, most, since: schema.since });
    }
    let missing = schema
        .inputs
        .iter()
        .enumerate()
        .find(|(i, input)| input.presence == Presence::Required && node.input(*i).is_none());
    match missing {
        Some((index, input)) => Err(Refusal::MissingInput { index, input: input.name, since: schema.since }),
        None => Ok(()),
    }
}

/// Checks element types as the network has them: types that ONNX has and Kiln lacks are stored as others.
fn types(cx: &Cx<'_>, schema: &Schema) -> Result<(), Refusal> {
    for index in 0..cx.input_count() {
        let (Some(t), Some(input)) = (cx.opt(index), schema.input(index)) else { continue };
        let found = cx.dtype(t);
        if !allows(input.types, found) {
            return Err(Refusal::InputType {
                index,
                input: input.name,
                found,
                wanted: input.types.replace(' ', ", "),
                since: schema.since,
            });
        }
    }
    Ok(())
}

fn allows(types: &str, found: DType) -> bool {
    let kept = |name: &str| DataType::from_name(&name.to_uppercase()).and_then(held) == Some(found);
    types.split(' ').any(|name| name == "other" || kept(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MAX_OPSET;
    use crate::ops;

    #[test]
    fn every_line_is_read() {
        let lines = TABLE.lines().filter(|l| !l.starts_with('#') && !l.starts_with("types ")).count();
        assert_eq!(table().values().map(Vec::len).sum::<usize>(), lines);
        let newest = table().values().flatten().map(|schema| schema.since).max();
        assert_eq!(newest, Some(MAX_OPSET));
        for name in table().values().flatten().flat_map(|s| &s.inputs).flat_map(|i| i.types.split(' ')) {
            assert!(name == "other" || DataType::from_name(&name.to_uppercase()).is_some(), "{name}");
        }
    }

    #[test]
    fn importers_name_versions_that_exist_and_all_that_are_in_force_at_the_newest_opset() {
        for operator in ops::all() {
            let Some(versions) = table().get(operator.name) else {
                let foreign = operator.name.contains('.') || operator.versions.is_empty();
                assert!(foreign, "{} is not an operator of ONNX", operator.name);
                continue;
            };
            for version in operator.versions {
                assert!(versions.iter().any(|s| s.since == *version), "{} {version}", operator.name);
            }
            let newest = versions.last().unwrap();
            assert!(newest.removed || operator.versions.contains(&newest.since), "{}", operator.name);
        }
    }

    #[test]
    fn types_are_compared_as_they_are_held() {
        assert!(allows("double float", DType::F32) && allows("uint16", DType::I32));
        assert!(!allows("float16 double", DType::I64) && allows("other", DType::I64));
    }
}
