//! Shapes of the outputs of plug-in layers: "[i0.d*]; [n <= i0.d0, 4]".

use super::formula::{Formula, InputPart, Number, Sizes, input_part, unknown};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;

/// More dimensions of an output are refused.
const MOST_DIMS: usize = 64;

/// The shape of one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape(Vec<Item>);

#[derive(Clone, Debug, PartialEq)]
enum Item {
    /// All dimensions of an input.
    All(usize),
    /// A size.
    Size(Formula),
    /// A size that the layer finds, with its bound.
    Found(String, Formula),
}

impl Shape {
    /// Reads the list of a layer, separated by semicolons.
    pub fn list(text: &str) -> Result<Vec<Shape>, OpError> {
        text.split(';').map(Shape::parse).collect()
    }

    fn parse(text: &str) -> Result<Shape, OpError> {
        let text = text.trim();
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let inner = inner.ok_or_else(|| {
            OpError::Value(format!("shape \"{text}\", wants dimensions in brackets: \"[i0.d0, 4]\""))
        })?;
        let items: Vec<Item> = split(inner).into_iter().map(Item::parse).collect::<Result<_, _>>()?;
        if items.len() > MOST_DIMS {
            return Err(OpError::Value(format!(
                "a shape of {} dimensions, at most {MOST_DIMS} are taken",
                items.len()
            )));
        }
        Ok(Shape(items))
    }

    /// The dimensions as sizes over symbols `i<input>.d<axis>` and `i<input>.v<element>`, and device symbols for sizes that the
    /// layer finds. `ranks` are those of the inputs.
    pub fn dims(&self, ranks: &[usize], fields: &Attrs) -> Result<Vec<Dim>, OpError> {
        let mut dims = Vec::new();
        for item in &self.0 {
            match item {
                Item::All(i) => {
                    let rank = *ranks.get(*i).ok_or_else(|| no_input(*i, ranks.len()))?;
                    dims.extend((0..rank).map(|axis| Dim::host(format!("i{i}.d{axis}"))));
                }
                Item::Size(f) => dims.push(size(f, ranks, fields)?),
                Item::Found(name, bound) => {
                    dims.push(Dim::device(name.as_str(), Some(size(bound, ranks, fields)?)));
                }
            }
        }
        Ok(dims)
    }
}

/// Items between commas, those inside of parentheses left together.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    if items.len() == 1 && items[0].trim().is_empty() { Vec::new() } else { items }
}

impl Item {
    fn parse(text: &str) -> Result<Item, OpError> {
        let text = text.trim();
        let all = text.strip_prefix('i').and_then(|t| t.strip_suffix(".d*")).and_then(|n| n.parse().ok());
        if let Some(input) = all {
            return Ok(Item::All(input));
        }
        if let Some((name, bound)) = text.split_once("<=") {
            let name = name.trim();
            let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !plain {
                return Err(OpError::Value(format!(
                    "the name of a size \"{name}\", wants letters, digits and _"
                )));
            }
            return Ok(Item::Found(name.to_owned(), Formula::parse(bound)?));
        }
        Formula::parse(text).map(Item::Size)
    }
}

fn no_input(input: usize, inputs: usize) -> OpError {
    OpError::Value(format!("a shape names input {input} of {inputs}"))
}

fn size(f: &Formula, ranks: &[usize], fields: &Attrs) -> Result<Dim, OpError> {
    let name = |name: &str| -> Result<Dim, OpError> {
        match (input_part(name), number(fields, name)) {
            (Some((i, part)), _) => {
                let rank = *ranks.get(i).ok_or_else(|| no_input(i, ranks.len()))?;
                match part {
                    InputPart::Size(axis) if axis >= rank => Err(OpError::Value(format!(
                        "a shape names \"{name}\", and input {i} has {rank} dimensions"
                    ))),
                    InputPart::Size(_) | InputPart::Element(_) => Ok(Dim::host(name.to_owned())),
                    InputPart::Rank => Ok(Dim::new(rank as i64)),
                    InputPart::Volume => {
                        Ok((0..rank).map(|axis| Dim::host(format!("i{i}.d{axis}"))).product())
                    }
                }
            }
            (None, Some(Number::Int(n))) => Ok(Dim::new(n)),
            _ => Err(unknown(name, "a part of an input (i0.d1) or an integer field")),
        }
    };
    f.value(&mut Sizes(&name))
}

/// The value of a field that is one number.
pub fn number(fields: &Attrs, name: &str) -> Option<Number> {
    match fields.get(name)? {
        Attr::Int(n) => Some(Number::Int(*n)),
        Attr::Float(x) => Some(Number::Float(*x)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::ty::dims_text;

    fn dims(text: &str) -> Result<String, OpError> {
        let fields = Attrs::new().with("k", 3i64);
        let shapes = Shape::list(text)?;
        let all: Vec<String> = shapes
            .iter()
            .map(|s| s.dims(&[2, 3], &fields).map(|d| dims_text(&d)))
            .collect::<Result<_, _>>()?;
        Ok(all.join(" | "))
    }

    #[test]
    fn shapes_are_made_of_inputs_and_fields() {
        assert_eq!(dims("[i1.d*]").unwrap(), "i1.d0,i1.d1,i1.d2");
        assert_eq!(dims("[]; [k, min(i0.d1, 4)]").unwrap(), " | 3,min(4, i0.d1)");
        assert_eq!(dims("[i0.rank, i0.size]").unwrap(), "2,i0.d0*i0.d1");
        let shapes = Shape::list("[n <= i0.d0 * k, 4]").unwrap();
        let d = shapes[0].dims(&[1], &Attrs::new().with("k", 2i64)).unwrap();
        assert_eq!(d[0].upper_bound().unwrap().to_string(), "2*i0.d0");
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for (text, says) in [
            ("i0.d*", "brackets"),
            ("[i2.d*]", "input 2 of 2"),
            ("[i0.d2]", "has 2 dimensions"),
            ("[m]", "\"m\""),
            ("[a b <= 3]", "letters"),
            ("[1,,2]", "wants a number"),
        ] {
            let e = dims(text).unwrap_err().to_string();
            assert!(e.contains(says), "{text}: {e}");
        }
    }
}
