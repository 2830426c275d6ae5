//! The words by which a fused expression finds its operands.

use kiln_backend::BackendError;
use kiln_backend::launch::{word, words};
use kiln_ir::Fact;
use kiln_ir::infer::normalize_axis;
use kiln_ops::slice::window::window;
use kiln_ops::util::{broadcast_strides, strides};

/// An operand of a fused expression.
pub struct Extra {
    /// Its shape, or that of the view of it that is read.
    pub shape: Vec<usize>,
    /// Its place in what is bound, if it is read through a slice.
    pub part: Option<Part>,
}

/// The place of a slice's elements in its input.
pub struct Part {
    /// Elements in front of the first one.
    offset: usize,
    /// Elements from one to the next, for each dimension.
    strides: Vec<usize>,
}

impl Part {
    /// The part of its input that a forward slice without gaps takes; `inputs` are facts of the slice's inputs.
    pub fn of(inputs: &[Option<&Fact>]) -> Result<Part, BackendError> {
        let lost = || BackendError::Internal("a slice whose bounds are not known".into());
        let given = |i: usize| inputs.get(i).copied().flatten();
        let ints = |i: usize| given(i).map(|f| f.as_const().map(|t| t.to_i64()).ok_or_else(lost)).transpose();
        let shape = given(0).and_then(|f| f.ty.static_dims()).ok_or_else(lost)?;
        let (starts, ends) = (ints(1)?.ok_or_else(lost)?, ints(2)?.ok_or_else(lost)?);
        let axes = ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let strides = strides(&shape);
        let mut offset = 0;
        for ((&axis, &start), &end) in axes.iter().zip(&starts).zip(&ends) {
            let axis = normalize_axis(axis, shape.len(), "axes");
            let axis = axis.map_err(|e| BackendError::InvalidArgument(e.to_string()))?;
            let w = window(shape[axis] as i64, start, end, 1);
            offset += if w.len > 0 { w.first as usize * strides[axis] } else { 0 };
        }
        Ok(Part { offset, strides })
    }
}

/// Words of the extras of a fused expression: the rank of its output, its dimensions, the strides of every extra, and the offsets of
/// those that are read through slices. Rank 0 says that all are laid out like the output, from their offsets on.
pub fn extra_words(dims: &[usize], extras: &[Extra]) -> Result<Vec<u32>, BackendError> {
    if extras.iter().any(|e| e.shape.len() > dims.len()) {
        return Err(BackendError::Internal("an extra of greater rank than the output".into()));
    }
    let strides: Vec<Vec<usize>> = extras.iter().map(|e| steps(e, dims)).collect();
    let (dims, strides) = join(dims, &strides);
    let mut w = vec![0];
    if dims.len() > 1 || strides.iter().any(|s| s.first().is_some_and(|&s| s != 1)) {
        w = vec![word(dims.len())?];
        w.extend(words(dims)?);
        for s in strides {
            w.extend(words(s)?);
        }
    }
    w.extend(words(extras.iter().filter_map(|e| e.part.as_ref()).map(|p| p.offset))?);
    Ok(w)
}

/// Elements of an extra from one element of the output to the next, for each dimension of the output.
fn steps(extra: &Extra, dims: &[usize]) -> Vec<usize> {
    let mut all = broadcast_strides(&extra.shape, dims);
    if let Some(part) = &extra.part {
        let lead = dims.len() - extra.shape.len();
        for (d, (&n, &s)) in extra.shape.iter().zip(&part.strides).enumerate() {
            all[lead + d] = if n == 1 && dims[lead + d] != 1 { 0 } else { s };
        }
    }
    all
}

/// Joins neighbouring dimensions that all strides walk as one, and drops those of size 1.
fn join(dims: &[usize], strides: &[Vec<usize>]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut out_dims: Vec<usize> = Vec::new();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); strides.len()];
    for (d, &n) in dims.iter().enumerate().filter(|(_, n)| **n != 1) {
        let fits =
            !out_dims.is_empty() && out.iter().zip(strides).all(|(o, s)| o.last() == Some(&(s[d] * n)));
        if fits {
            if let Some(last) = out_dims.last_mut() {
                *last *= n;
            }
            out.iter_mut().for_each(|o| o.truncate(o.len() - 1));
        } else {
            out_dims.push(n);
        }
        out.iter_mut().zip(strides).for_each(|(o, s)| o.push(s[d]));
    }
    (out_dims, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_join_where_all_strides_allow_it() {
        let (d, s) = join(&[2, 3, 4], &[vec![12, 4, 1], vec![0, 4, 1]]);
        assert_eq!((d, s), (vec![2, 12], vec![vec![12, 1], vec![0, 1]]));
    }

    #[test]
    fn operands_that_lie_like_the_output_need_no_strides() {
        let whole = |shape: &[usize]| Extra { shape: shape.to_vec(), part: None };
        assert_eq!(extra_words(&[2, 3], &[whole(&[2, 3])]), Ok(vec![0]));
        assert_eq!(extra_words(&[2, 3], &[whole(&[3])]), Ok(vec![2, 2, 3, 0, 1]));
        assert!(extra_words(&[3], &[whole(&[2, 3])]).is_err());
    }

    #[test]
    fn slices_are_read_where_they_are() {
        let whole = |shape: &[usize]| Extra { shape: shape.to_vec(), part: None };
        let part = |shape: &[usize], offset, strides: &[usize]| Extra {
            shape: shape.to_vec(),
            part: Some(Part { offset, strides: strides.to_vec() }),
        };
        // [4, 3] from row 2 on, of all columns.
        assert_eq!(extra_words(&[2, 3], &[part(&[2, 3], 6, &[3, 1])]), Ok(vec![0, 6]));
        // [2, 8] from column 4 on, beside what is laid out like the output.
        let both = [whole(&[2, 4]), part(&[2, 4], 4, &[8, 1])];
        assert_eq!(extra_words(&[2, 4], &both), Ok(vec![2, 2, 4, 4, 1, 8, 1, 4]));
        // One column of [2, 8], for all columns of the output.
        assert_eq!(extra_words(&[2, 4], &[part(&[2, 1], 5, &[8, 1])]), Ok(vec![2, 2, 4, 8, 0, 5]));
    }
}
