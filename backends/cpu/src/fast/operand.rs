//! Operands of matrix products as batches of matrices with strides.

/// One operand: its batch dimensions and the strides of its matrix.
pub struct Operand {
    pub batch: Vec<usize>,
    pub rows: usize,
    pub cols: usize,
    pub row: usize,
    pub col: usize,
}

/// Reading order of an operand of this shape; `None` for a scalar.
pub fn operand(shape: &[usize], trans: bool, left: bool) -> Option<Operand> {
    match *shape {
        [] => None,
        [n] if left => Some(Operand { batch: vec![], rows: 1, cols: n, row: n, col: 1 }),
        [n] => Some(Operand { batch: vec![], rows: n, cols: 1, row: 1, col: n }),
        [ref batch @ .., r, c] => {
            let batch = batch.to_vec();
            Some(match trans {
                false => Operand { batch, rows: r, cols: c, row: c, col: 1 },
                true => Operand { batch, rows: c, cols: r, row: 1, col: c },
            })
        }
    }
}
