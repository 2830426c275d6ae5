#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use super::*;
use crate::dim::Dim;
use crate::problem::Rng;
use crate::tensor::Tensor;

/// Place of an element by the definition of its format in words, a row for each.
fn place(format: TensorFormat, [n, c, d, h, w]: [usize; 5], [_, cc, dd, hh, ww]: [usize; 5]) -> usize {
    let up = |v: usize| cc.div_ceil(v) * v;
    let planes = |v: usize| (((n * cc.div_ceil(v) + c / v) * dd + d) * hh + h) * ww * v + w * v + c % v;
    let last = |v: usize| (((n * dd + d) * hh + h) * ww + w) * up(v) + c;
    match format {
        TensorFormat::Linear => (((n * cc + c) * dd + d) * hh + h) * ww + w,
        TensorFormat::Chw2 => planes(2),
        TensorFormat::Chw4 => planes(4),
        TensorFormat::Chw16 => planes(16),
        TensorFormat::Chw32 | TensorFormat::Cdhw32 => planes(32),
        TensorFormat::Hwc | TensorFormat::Dhwc => last(1),
        TensorFormat::Hwc8 | TensorFormat::Dhwc8 => last(8),
        TensorFormat::Hwc16 => last(16),
    }
}

fn shape(format: TensorFormat, rng: &mut Rng) -> [usize; 5] {
    let mut size = |most: i64| rng.int(1, most) as usize;
    let (n, c, d, h, w) = (size(3), size(40), size(3), size(4), size(5));
    [n, c, if format.min_rank() == 4 { d } else { 1 }, h, w]
}

fn dims(format: TensorFormat, [n, c, d, h, w]: [usize; 5]) -> Vec<usize> {
    if format.min_rank() == 4 { vec![n, c, d, h, w] } else { vec![n, c, h, w] }
}

#[test]
fn elements_are_where_the_definition_says_and_padding_is_zero() {
    let mut rng = Rng::new(3);
    for format in TensorFormat::ALL {
        for &dtype in format.types().iter().filter(|t| t.bits() >= 8) {
            for _ in 0..4 {
                let s = shape(format, &mut rng);
                let x = rng.tensor(dtype, &dims(format, s));
                let y = pack(&x, format).unwrap();
                let size = dtype.bits() as usize / 8;
                let mut left = y.bytes().to_vec();
                for i in 0..x.len() {
                    let (w, r) = (i % s[4], i / s[4]);
                    let (h, r) = (r % s[3], r / s[3]);
                    let (d, r) = (r % s[2], r / s[2]);
                    let at = place(format, [r / s[1], r % s[1], d, h, w], s) * size;
                    assert_eq!(x.bytes()[i * size..][..size], left[at..at + size], "{format} {dtype} {s:?}");
                    left[at..at + size].fill(0);
                }
                assert!(left.iter().all(|&b| b == 0), "{format} {dtype} {s:?}: padding");
                let packing = Packing::of_shape(format, dtype, x.shape()).unwrap();
                assert_eq!(packing.bytes(dtype, x.shape()), Some(y.bytes().len() as u64));
                // Padding is not read.
                let mut dirty = y.bytes().to_vec();
                let marked = Tensor::from_bytes(dtype, y.shape(), vec![1; dirty.len()]).unwrap();
                let used = unpack(&marked, format, x.shape()).and_then(|m| pack(&m, format)).unwrap();
                dirty.iter_mut().zip(used.bytes()).filter(|(_, u)| **u == 0).for_each(|(b, _)| *b = 0x7e);
                let dirty = Tensor::from_bytes(dtype, y.shape(), dirty).unwrap();
                assert_eq!(unpack(&dirty, format, x.shape()).unwrap().bytes(), x.bytes(), "{format} {dtype}");
            }
        }
    }
}

#[test]
fn strides_count_vectors() {
    let of = |f: TensorFormat, t, s: &[usize]| Packing::of_shape(f, t, s).unwrap().strides(s);
    let s = [2, 35, 3, 5];
    assert_eq!(of(TensorFormat::Linear, DType::F32, &s), [525, 15, 5, 1]);
    assert_eq!(of(TensorFormat::Chw32, DType::I8, &s), [30, 15, 5, 1]);
    assert_eq!(of(TensorFormat::Hwc8, DType::F16, &s), [75, 1, 25, 5]);
    assert_eq!(of(TensorFormat::Hwc, DType::U8, &s), [525, 1, 175, 35]);
    assert_eq!(of(TensorFormat::Dhwc8, DType::F16, &[2, 9, 4, 3, 5]), [120, 1, 30, 10, 2]);
    assert_eq!(of(TensorFormat::Hwc8, DType::F16, &[9, 3, 5]), [1, 10, 2]);
}

#[test]
fn the_table_has_every_format_once_with_its_words() {
    for f in TensorFormat::ALL {
        assert_eq!(f.record().format, f);
        assert_eq!(f.name().parse(), Ok(f));
    }
    assert_eq!("chw".parse(), Ok(TensorFormat::Linear));
    assert!(matches!("dla_hwc4".parse::<TensorFormat>(), Err(FormatError::Foreign(_))));
    assert!(matches!("chw8".parse::<TensorFormat>(), Err(FormatError::Unknown { .. })));
    let words = |f: TensorFormat, t| f.describe(t);
    assert_eq!(words(TensorFormat::Linear, DType::F32), "Row major linear FP32 format");
    assert_eq!(
        words(TensorFormat::Chw32, DType::I8),
        "Thirty-two wide channel vectorized row major Int8 format"
    );
    assert_eq!(words(TensorFormat::Hwc8, DType::F16), "Channel major FP16 format where channel % 8 == 0");
    assert_eq!(words(TensorFormat::Hwc, DType::F32), "Channel major FP32 format");
}

#[test]
fn vectors_are_described_by_dimension_and_width() {
    let f = TensorFormat::Chw4;
    assert_eq!((f.vectorized_dim(4), f.vectorized_dim(3), f.vectorized_dim(2)), (Some(1), Some(0), None));
    assert_eq!((TensorFormat::Cdhw32.vectorized_dim(5), TensorFormat::Cdhw32.width()), (Some(1), 32));
    assert_eq!((TensorFormat::Hwc.vectorized_dim(4), TensorFormat::Hwc.width()), (None, 1));
}

#[test]
fn what_a_format_does_not_take_is_refused_by_kind() {
    let new = |f, t, d: &[Dim]| Packing::new(f, t, d).unwrap_err();
    let four: Vec<Dim> = [1, 3, 4, 4].map(Dim::new).to_vec();
    assert!(matches!(new(TensorFormat::Hwc8, DType::F32, &four), FormatError::Type { .. }));
    assert!(matches!(new(TensorFormat::Dhwc, DType::F32, &four[..3]), FormatError::Rank { wanted: 4, .. }));
    let open = [Dim::new(1), Dim::host("c"), Dim::new(2), Dim::new(2)];
    let e = new(TensorFormat::Chw32, DType::F32, &open);
    assert!(matches!(e, FormatError::Channels { axis: 1, .. }), "{e}");
    // Without vectors nothing has to be known.
    assert!(Packing::new(TensorFormat::Hwc, DType::F32, &open).is_ok());
    let x = Tensor::f32(&[1, 2, 2, 2], &[0.0; 8]).unwrap();
    let e = unpack(&x, TensorFormat::Hwc, &[1, 3, 2, 2]).unwrap_err();
    assert!(matches!(e, FormatError::Shape { .. }), "{e}");
}

#[test]
fn shapes_in_memory_fit_what_they_were_made_of() {
    let mut rng = Rng::new(5);
    for format in TensorFormat::ALL {
        let s = dims(format, shape(format, &mut rng));
        let dtype = format.types()[0];
        let p = Packing::of_shape(format, dtype, &s).unwrap();
        let physical = p.physical_shape(&s);
        assert_eq!(p.logical_shape(&physical).unwrap(), s, "{format}");
        let known: Vec<Dim> = physical.iter().map(|&d| Dim::new(d as i64)).collect();
        assert!(p.fits(dtype, &known), "{format}");
        assert!(!p.fits(dtype, &known[..known.len().min(2)]) || format == TensorFormat::Linear, "{format}");
        if format.is_vectorized() {
            let mut other = known.clone();
            other.pop();
            other.push(Dim::new(7));
            assert!(!p.fits(dtype, &other), "{format}");
        }
    }
}
