//! Patterns of operators that a plug-in layer may replace: "a = mul(i0, $beta); b = sigmoid(a); mul(i0, b)".

use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::error::OpError;
use kiln_ir::op::{Op, find};

/// More operators of a pattern are refused.
const MOST_NODES: usize = 64;
/// More patterns of a layer are refused.
const MOST: usize = 64;

/// A pattern: operators in order, the last one with the layer's only output.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The operators.
    pub nodes: Vec<PatternNode>,
    /// Number of inputs of the layer.
    pub inputs: usize,
}

/// An operator of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternNode {
    /// The operator; attributes that the pattern does not name have their defaults.
    pub op: Op,
    /// Attributes that fields of the layer are bound to: (attribute, field).
    pub bound: Vec<(String, String)>,
    /// The inputs.
    pub args: Vec<Arg>,
}

/// An input of an operator of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An input of the layer.
    Input(usize),
    /// The result of an operator of the pattern.
    Node(usize),
    /// A constant of one element, which is a field of the layer.
    Field(String),
    /// A constant of one element with this value.
    Number(f64),
}

fn wrong(text: &str, found: &str) -> OpError {
    OpError::Value(format!(
        "pattern \"{}\": {found}, wants operators over inputs, fields and numbers: \"a = mul(i0, $beta); sigmoid(a)\"",
        text.trim()
    ))
}

impl Pattern {
    /// Reads the patterns of a layer, separated by bars.
    pub fn list(text: &str) -> Result<Vec<Pattern>, OpError> {
        let parts: Vec<&str> = text.split('|').filter(|p| !p.trim().is_empty()).collect();
        if parts.len() > MOST {
            return Err(wrong(text, &format!("{} patterns, at most {MOST} are taken", parts.len())));
        }
        parts.into_iter().map(Pattern::parse).collect()
    }

    fn parse(text: &str) -> Result<Pattern, OpError> {
        let parts: Vec<&str> = text.split(';').map(str::trim).filter(|p| !p.is_empty()).collect();
        if parts.is_empty() || parts.len() > MOST_NODES {
            return Err(wrong(text, &format!("{} operators, at most {MOST_NODES} are taken", parts.len())));
        }
        let (mut nodes, mut names) = (Vec::new(), Vec::new());
        for part in parts {
            let (name, call) = match part.split_once('=') {
                Some((name, call)) if !name.contains(['(', '{']) => (name.trim(), call.trim()),
                _ => ("", part),
            };
            nodes.push(node(text, call, &names)?);
            names.push(name);
        }
        let args = || nodes.iter().flat_map(|n: &PatternNode| &n.args);
        let read = |k: usize| args().any(|a| *a == Arg::Node(k));
        if let Some(k) = (0..nodes.len() - 1).find(|&k| !read(k)) {
            return Err(wrong(text, &format!("nothing reads operator {k}")));
        }
        let inputs = args().filter_map(|a| if let Arg::Input(i) = a { Some(i + 1) } else { None }).max();
        let inputs = inputs.unwrap_or(0);
        if let Some(i) = (0..inputs).find(|&i| args().all(|a| *a != Arg::Input(i))) {
            return Err(wrong(text, &format!("nothing reads input i{i}")));
        }
        Ok(Pattern { nodes, inputs })
    }

    /// Names of the fields that it binds.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().flat_map(|n| {
            let args = n.args.iter().filter_map(|a| if let Arg::Field(f) = a { Some(&**f) } else { None });
            args.chain(n.bound.iter().map(|b| &*b.1))
        })
    }
}

/// "op(args){attributes}"; the braces may be absent.
fn node(text: &str, call: &str, names: &[&str]) -> Result<PatternNode, OpError> {
    let (name, rest) = call.split_once('(').ok_or_else(|| wrong(text, &format!("\"{call}\"")))?;
    let (args, attrs) = rest.split_once(')').ok_or_else(|| wrong(text, &format!("\"{call}\"")))?;
    let attrs = match attrs.trim() {
        "" => "",
        a => a.strip_prefix('{').and_then(|a| a.strip_suffix('}')).ok_or_else(|| wrong(text, a))?,
    };
    let def = find(name.trim()).ok_or_else(|| wrong(text, &format!("no operator \"{}\"", name.trim())))?;
    let args = args.split(',').map(str::trim).filter(|a| !a.is_empty());
    let args = args.map(|a| arg(a, names).ok_or_else(|| wrong(text, &format!("argument \"{a}\""))));
    let args = args.collect::<Result<Vec<_>, _>>()?;
    let (mut given, mut bound) = (Attrs::new(), Vec::new());
    for part in attrs.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let unknown = || wrong(text, &format!("attribute \"{part}\" of {}", def.name));
        let (key, value) = part.split_once('=').ok_or_else(unknown)?;
        let (key, value) = (key.trim(), value.trim());
        let known = def.attrs.iter().find(|a| a.name == key).ok_or_else(unknown)?;
        match value.strip_prefix('$') {
            Some(field) => {
                // The field's value takes the place of the default.
                given.set(key, (known.default)());
                bound.push((key.to_owned(), field.to_owned()));
            }
            None => given.set(key, attr(&(known.default)(), value).ok_or_else(unknown)?),
        }
    }
    Ok(PatternNode { op: Op::from_def(def, given)?, bound, args })
}

/// A value of the kind of `like`.
fn attr(like: &Attr, text: &str) -> Option<Attr> {
    Some(match like {
        Attr::Int(_) => Attr::Int(text.parse().ok()?),
        Attr::Float(_) => Attr::Float(text.parse().ok()?),
        Attr::Bool(_) => Attr::Bool(text.parse().ok()?),
        Attr::Str(_) => Attr::Str(text.to_owned()),
        Attr::Ints(_) => Attr::Ints(text.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?),
        _ => return None,
    })
}

fn arg(text: &str, names: &[&str]) -> Option<Arg> {
    if let Some(field) = text.strip_prefix('$') {
        return Some(Arg::Field(field.to_owned()));
    }
    if let Some(k) = names.iter().rposition(|n| *n == text) {
        return Some(Arg::Node(k));
    }
    match text.strip_prefix('i').and_then(|n| n.parse().ok()) {
        Some(i) if i < 256 => Some(Arg::Input(i)),
        _ => text.parse().ok().map(Arg::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read() {
        let all = Pattern::list("a = mul(i0, $beta); b = sigmoid(a); mul(i0, b) | swish(i0)").unwrap();
        let args = |p: &Pattern| p.nodes.iter().map(|n| n.args.clone()).collect::<Vec<_>>();
        let (beta, x) = (Arg::Field("beta".into()), Arg::Input(0));
        let wanted = [vec![x.clone(), beta], vec![Arg::Node(0)], vec![x.clone(), Arg::Node(1)]];
        assert_eq!(args(&all[0]), wanted);
        assert_eq!((all.len(), args(&all[1])), (2, vec![vec![x]]));
        assert_eq!(all[0].fields().collect::<Vec<_>>(), ["beta"]);
        let [soft] = &Pattern::list("softmax(i0){axis=$axis}").unwrap()[..] else { panic!() };
        assert_eq!(soft.nodes[0].bound, [("axis".to_owned(), "axis".to_owned())]);
        let [add] = &Pattern::list("add(i0, 0.5)").unwrap()[..] else { panic!() };
        assert_eq!(add.nodes[0].args[1], Arg::Number(0.5));
        assert_eq!(Pattern::list(""), Ok(Vec::new()));
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for (text, says) in [
            ("nothing(i0)", "no operator \"nothing\""),
            ("add(i0", "\"add(i0\""),
            ("add(i0, y)", "argument \"y\""),
            ("a = neg(i0); neg(i0)", "nothing reads operator 0"),
            ("add(i1, i1)", "nothing reads input i0"),
            ("softmax(i0){slope=1}", "attribute \"slope=1\" of softmax"),
            ("softmax(i0){axis=x}", "attribute \"axis=x\""),
            ("softmax(i0) axis", "axis"),
            (";", "0 operators"),
        ] {
            let e = Pattern::list(text).unwrap_err().to_string();
            assert!(e.contains(says), "{text}: {e}");
        }
    }
}
