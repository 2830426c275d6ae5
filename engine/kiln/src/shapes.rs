//! Shapes that a user asks for, completed to a profile.

use crate::Error;
use kiln_ir::{Dim, Tensor};
use kiln_runtime::{IoMode, IoTensor, Profile};
use std::collections::{BTreeMap, HashMap};

/// Shapes or values asked for of one input, each perhaps absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ends {
    min: Option<Vec<i64>>,
    opt: Option<Vec<i64>>,
    max: Option<Vec<i64>>,
}

impl Ends {
    /// Least, usual and greatest; what is absent is taken from what is there, the nearest first.
    fn complete(&self) -> Option<[Vec<i64>; 3]> {
        let Ends { min, opt, max } = self;
        let first = |of: [&Option<Vec<i64>>; 3]| of.into_iter().flatten().next().cloned();
        Some([first([min, opt, max])?, first([opt, max, min])?, first([max, opt, min])?])
    }
}

/// Least, usual and greatest shapes by input, and values of shape inputs. Of the three any may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapeRequest {
    shapes: BTreeMap<String, Ends>,
    values: BTreeMap<String, Ends>,
}

/// A profile, and which of its dimensions were assumed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shaped {
    /// The profile; it holds every input.
    pub profile: Profile,
    /// Inputs with dimensions that nobody gave, with the shape that they got.
    pub assumed: Vec<(String, Vec<i64>)>,
}

impl ShapeRequest {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty() && self.values.is_empty()
    }

    /// Whether there is a shape for this input.
    pub fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }

    /// Whether there are values for this shape input.
    pub fn has_values(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Sets the least shape of an input.
    pub fn min(&mut self, name: &str, dims: &[i64]) -> &mut Self {
        self.shapes.entry(name.to_owned()).or_default().min = Some(dims.to_vec());
        self
    }

    /// Sets the shape that kernels are chosen for.
    pub fn opt(&mut self, name: &str, dims: &[i64]) -> &mut Self {
        self.shapes.entry(name.to_owned()).or_default().opt = Some(dims.to_vec());
        self
    }

    /// Sets the greatest shape of an input.
    pub fn max(&mut self, name: &str, dims: &[i64]) -> &mut Self {
        self.shapes.entry(name.to_owned()).or_default().max = Some(dims.to_vec());
        self
    }

    /// Sets the only shape of an input.
    pub fn fixed(&mut self, name: &str, dims: &[i64]) -> &mut Self {
        self.min(name, dims).opt(name, dims).max(name, dims)
    }

    /// Sets the least values of a shape input.
    pub fn min_values(&mut self, name: &str, values: &[i64]) -> &mut Self {
        self.values.entry(name.to_owned()).or_default().min = Some(values.to_vec());
        self
    }

    /// Sets the values of a shape input that kernels are chosen for.
    pub fn opt_values(&mut self, name: &str, values: &[i64]) -> &mut Self {
        self.values.entry(name.to_owned()).or_default().opt = Some(values.to_vec());
        self
    }

    /// Sets the greatest values of a shape input.
    pub fn max_values(&mut self, name: &str, values: &[i64]) -> &mut Self {
        self.values.entry(name.to_owned()).or_default().max = Some(values.to_vec());
        self
    }

    /// Asks for exactly the shapes of these tensors, and of shape inputs for their elements, where nothing else was asked for.
    pub fn take_from<'a>(&mut self, io: &[IoTensor], given: impl IntoIterator<Item = (&'a str, &'a Tensor)>) {
        for (name, x) in given {
            let Some(t) = io.iter().find(|t| t.mode == IoMode::Input && t.name == name) else { continue };
            if !self.has(name) {
                self.fixed(name, &x.shape().iter().map(|&d| d as i64).collect::<Vec<_>>());
            }
            if t.is_shape_input && x.dtype().is_int() && !self.has_values(name) {
                let v = x.to_i64();
                self.min_values(name, &v).opt_values(name, &v).max_values(name, &v);
            }
        }
    }

    /// Completes the request to a profile of these inputs. A dimension that is not set is the network's own
    /// number. Failing that, it is that of another input with the same symbol, or `default` of the input and
    /// the axis.
    pub fn profile(&self, io: &[IoTensor], default: &dyn Fn(&str, usize) -> i64) -> Result<Shaped, Error> {
        let inputs = || io.iter().filter(|t| t.mode == IoMode::Input);
        let unknown = |n: &&String| inputs().all(|t| &t.name != *n);
        if let Some(name) = self.shapes.keys().chain(self.values.keys()).find(unknown) {
            let known: Vec<&str> = inputs().map(|t| t.name.as_str()).collect();
            let message = format!("the network has no such input; it has {}", known.join(", "));
            return Err(Error::Shape { name: name.clone(), message });
        }
        let mut shaped = Shaped { profile: Profile::new(), assumed: Vec::new() };
        let mut symbols: HashMap<String, [i64; 3]> = HashMap::new();
        for t in inputs() {
            let Some([min, opt, max]) = self.shapes.get(&t.name).and_then(Ends::complete) else { continue };
            shaped.profile.set_shape(&t.name, &min, &opt, &max)?;
            for (i, d) in t.dims.iter().enumerate().filter(|(_, d)| d.as_const().is_none()) {
                if let (Some(&a), Some(&b), Some(&c)) = (min.get(i), opt.get(i), max.get(i)) {
                    symbols.insert(d.to_string(), [a, b, c]);
                }
            }
        }
        for t in inputs().filter(|t| !self.has(&t.name)) {
            let mut assumed = false;
            let dims: Vec<[i64; 3]> = t
                .dims
                .iter()
                .enumerate()
                .map(|(i, d)| match d.as_const().map(|n| [n; 3]).or_else(|| known(d, &symbols)) {
                    Some(ends) => ends,
                    None => {
                        assumed = true;
                        let own = [default(&t.name, i); 3];
                        *symbols.entry(d.to_string()).or_insert(own)
                    }
                })
                .collect();
            let end = |k: usize| dims.iter().map(|d| d[k]).collect::<Vec<i64>>();
            shaped.profile.set_shape(&t.name, &end(0), &end(1), &end(2))?;
            if assumed {
                shaped.assumed.push((t.name.clone(), end(1)));
            }
        }
        for (name, ends) in &self.values {
            if let Some([min, opt, max]) = ends.complete() {
                shaped.profile.set_values(name, &min, &opt, &max)?;
            }
        }
        Ok(shaped)
    }
}

fn known(d: &Dim, symbols: &HashMap<String, [i64; 3]>) -> Option<[i64; 3]> {
    symbols.get(&d.to_string()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::DType;

    fn input(name: &str, dims: Vec<Dim>) -> IoTensor {
        IoTensor {
            name: name.into(),
            mode: IoMode::Input,
            dtype: DType::F32,
            dims,
            packing: Default::default(),
            is_shape_input: false,
        }
    }

    #[test]
    fn what_is_left_out_comes_from_other_ends_other_inputs_and_the_default() {
        let io = [
            input("a", vec![Dim::host("n"), 4.into()]),
            input("b", vec![Dim::host("n"), Dim::host("m")]),
            input("c", vec![2.into()]),
        ];
        let mut r = ShapeRequest::default();
        r.min("a", &[1, 4]).max("a", &[8, 4]);
        let s = r.profile(&io, &|_, _| 1).unwrap();
        let range = |n: &str| {
            let r = &s.profile.shapes[n];
            [r.min.clone(), r.opt.clone(), r.max.clone()]
        };
        assert_eq!(range("a"), [[1, 4], [8, 4], [8, 4]]);
        assert_eq!(range("b"), [[1, 1], [8, 1], [8, 1]]);
        assert_eq!(range("c"), [[2], [2], [2]]);
        assert_eq!(s.assumed, [("b".to_owned(), vec![8, 1])]);
    }

    #[test]
    fn names_that_are_no_inputs_are_refused() {
        let mut r = ShapeRequest::default();
        r.fixed("z", &[1]);
        let e = r.profile(&[input("a", vec![2.into()])], &|_, _| 1).unwrap_err();
        assert!(e.to_string().contains("\"z\"") && e.to_string().contains("it has a"), "{e}");
    }
}
