//! Weights that are in memory as panels alone: they are packed when a program is loaded, and their elements are dropped.

use super::form::Form;
use super::gemm::{Size, Strided, pack_all};
use super::kept::Panels;
use super::micro_float;
use kiln_backend::BackendError;
use kiln_ir::{Bytes, BytesId, WeakBytes};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Panels that the bytes of weights are made of: those that other programs have are used again.
type Known = BTreeMap<BytesId, (WeakBytes, Form, Vec<Weak<Panels>>)>;

static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The panels that these bytes are made of, if they have this form.
pub fn of_bytes(bytes: &Bytes, form: Form) -> Option<Vec<Arc<Panels>>> {
    let known = known();
    let (_, _, panels) = known.get(&bytes.id()).filter(|(_, own, _)| *own == form)?;
    panels.iter().map(Weak::upgrade).collect()
}

impl Form {
    /// The panels of all groups.
    pub fn pack(&self, data: &[f32]) -> Result<Vec<Arc<Panels>>, BackendError> {
        let nr = micro_float::best().nr;
        let (size, one) = (Size { m: 0, n: self.n, k: self.k }, self.k * self.n);
        let pack = |data: &[f32]| {
            let right = Strided { data, row: self.row, col: self.col };
            Panels::new(self.n.next_multiple_of(nr) * self.k, |to| pack_all(size, &right, to)).map(Arc::new)
        };
        data.chunks_exact(one).map(pack).collect()
    }

    /// Bytes of the weight, which are made of its panels when they are read.
    pub fn bytes(self, panels: Vec<Arc<Panels>>) -> Bytes {
        let weak = panels.iter().map(Arc::downgrade).collect();
        let bytes = Bytes::made(4 * self.len(), move || self.unpack(&panels));
        let mut known = known();
        known.retain(|_, (bytes, ..)| bytes.upgrade().is_some());
        known.insert(bytes.id(), (bytes.downgrade(), self, weak));
        bytes
    }

    /// The bytes of the weight.
    fn unpack(&self, panels: &[Arc<Panels>]) -> Vec<u8> {
        let nr = micro_float::best().nr;
        let mut all = vec![0f32; self.len()];
        for (panels, to) in panels.iter().zip(all.chunks_exact_mut(self.k * self.n)) {
            for (i, panel) in panels.data::<f32>().chunks_exact(nr * self.k).enumerate() {
                for (p, line) in panel.chunks_exact(nr).enumerate() {
                    let columns = (i * nr..self.n).zip(line);
                    columns.for_each(|(j, x)| to[p * self.row + j * self.col] = *x);
                }
            }
        }
        bytemuck::cast_slice(&all).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_made_again_of_their_panels_and_kept_once() {
        for (k, n, groups) in [(1, 1, 1), (5, 33, 1), (7, 64, 2), (3, 100, 3)] {
            let data: Vec<f32> = (0..k * n * groups).map(|i| i as f32 - 3.5).collect();
            for (row, col) in [(n, 1), (1, k)] {
                let form = Form { k, n, row, col, groups };
                let panels = form.pack(&data).unwrap();
                assert_eq!(form.unpack(&panels), bytemuck::cast_slice::<f32, u8>(&data), "{form:?}");
                let bytes = form.bytes(panels.clone());
                let again = of_bytes(&bytes, form).unwrap();
                assert!(panels.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)), "{form:?}");
                assert_eq!(bytes.as_slice(), bytemuck::cast_slice::<f32, u8>(&data));
                assert!(of_bytes(&bytes, Form { groups: groups + 1, ..form }).is_none());
            }
        }
    }
}
