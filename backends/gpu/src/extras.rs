//! The words by which a fused expression finds its operands.

use kiln_backend::BackendError;
use kiln_backend::launch::{word, words};
use kiln_ops::util::broadcast_strides;

/// Words of the extras of a fused expression: the rank of its output, its dimensions, and the strides of every extra; rank 0
/// says that all are laid out like the output.
pub fn extra_words(dims: &[usize], extras: &[Vec<usize>]) -> Result<Vec<u32>, BackendError> {
    if extras.iter().any(|own| own.len() > dims.len()) {
        return Err(BackendError::Internal("an extra of greater rank than the output".into()));
    }
    let strides: Vec<Vec<usize>> = extras.iter().map(|own| broadcast_strides(own, dims)).collect();
    let (dims, strides) = join(dims, &strides);
    if dims.len() <= 1 && strides.iter().all(|s| s.first().is_none_or(|&s| s == 1)) {
        return Ok(vec![0]);
    }
    let mut w = vec![word(dims.len())?];
    w.extend(words(dims)?);
    for s in strides {
        w.extend(words(s)?);
    }
    Ok(w)
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
        assert_eq!(extra_words(&[2, 3], &[vec![2, 3]]), Ok(vec![0]));
        assert_eq!(extra_words(&[2, 3], &[vec![3]]), Ok(vec![2, 2, 3, 0, 1]));
        assert!(extra_words(&[3], &[vec![2, 3]]).is_err());
    }
}
