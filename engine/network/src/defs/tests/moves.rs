//! Shuffle, concatenation, slice, padding, squeeze, unsqueeze, fill.

use crate::tests::{constant, f32s, input, ints, refused, run, through};
use crate::*;
use kiln_ir::tensor::Tensor;
use kiln_ir::{DType, Dim, TensorType};

type Change<P> = for<'a> fn(Layer<'a, P>) -> Result<Layer<'a, P>, NetworkError>;

fn shuffle(f: Change<Shuffle>) -> Result<Tensor, NetworkError> {
    through(&[f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])], |n, x| f(n.add_shuffle(x[0])?)?.output(0))
}

#[test]
fn shuffles_transpose_reshape_transpose() {
    let all: Change<Shuffle> =
        |l| l.set_first_transpose(&[1, 0])?.set_reshape_dimensions(&[2, 3])?.set_second_transpose(&[1, 0]);
    assert_eq!(shuffle(all).unwrap(), f32s(&[3, 2], &[1.0, 5.0, 4.0, 3.0, 2.0, 6.0]));
    assert_eq!(shuffle(|l| l.set_reshape_dimensions(&[0, -1, 1])).unwrap().shape(), [2, 3, 1]);
    assert_eq!(shuffle(|l| Ok(l)).unwrap().shape(), [2, 3]);
    refused(shuffle(|l| l.set_reshape_dimensions(&[4])), "same number of elements");
    refused(shuffle(|l| l.set_reshape_dimensions(&[-1, -1])), "more than one dimension");
    refused(
        shuffle(|l| l.set_zero_is_placeholder(false)?.set_reshape_dimensions(&[0, -1])),
        "-1 is ambiguous",
    );
    refused(shuffle(|l| l.set_first_transpose(&[0, 0])), "every axis of 2 once");
}

#[test]
fn a_dynamic_reshape_stays_dynamic() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2, 3]);
    let shape = input(&mut net, "shape", DType::I32, &[2]);
    let l = net.add_shuffle(x).unwrap().set_input(1, shape).unwrap();
    let (id, y) = (l.id(), l.output(0).unwrap());
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[f32s(&[2, 3], &[0.0; 6]), ints(DType::I32, &[2], &[-1, 2])]);
    assert_eq!(out[0].shape(), [3, 2]);
    refused(
        net.layer_of::<Shuffle>(id).unwrap().set_reshape_dimensions(&[6]),
        "can't become a constant again",
    );
}

#[test]
fn concatenations_join_along_one_axis() {
    let go = |a: Tensor, b: Tensor, axis: Option<i64>| {
        through(&[a, b], |n, x| {
            let l = n.add_concatenation(x)?;
            match axis {
                Some(a) => l.set_axis(a)?.output(0),
                None => l.output(0),
            }
        })
    };
    let (a, b) = (f32s(&[1, 2], &[1.0, 2.0]), f32s(&[1, 2], &[3.0, 4.0]));
    assert_eq!(go(a.clone(), b.clone(), None).unwrap(), f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));
    assert_eq!(go(a.clone(), b, Some(-1)).unwrap(), f32s(&[1, 4], &[1.0, 2.0, 3.0, 4.0]));
    // At rank 4 the channels are joined.
    let four = |c: usize| f32s(&[1, c, 1, 1], &vec![1.0; c]);
    assert_eq!(go(four(2), four(3), None).unwrap().shape(), [1, 5, 1, 1]);
    // Empty tensors are no exception.
    let empty = |z: usize| f32s(&[2, 0, z], &[]);
    assert_eq!(go(empty(3), empty(4), Some(2)).unwrap().shape(), [2, 0, 7]);
    refused(go(a.clone(), f32s(&[1, 3], &[0.0; 3]), Some(0)), "layer \"concatenation\"");
    refused(go(a.clone(), a, Some(2)), "\"axis\" is 2");
}

fn slice(start: i64, size: i64, stride: i64, mode: SampleMode) -> Result<Tensor, NetworkError> {
    through(&[f32s(&[4], &[10.0, 11.0, 12.0, 13.0])], |n, x| {
        n.add_slice(x[0], &[], &[], &[])?.set_mode(mode)?.set_all(start, size, stride)?.output(0)
    })
}

impl Layer<'_, Slice> {
    /// All parameters of a one-dimensional slice at once.
    fn set_all(self, start: i64, size: i64, stride: i64) -> Result<Self, NetworkError> {
        self.change(|p| *p = p.clone().with(start, size, stride))
    }
}

#[test]
fn slices_read_beyond_bounds_as_told() {
    use SampleMode as M;
    let ok = |s, n, d, mode| slice(s, n, d, mode).unwrap().to_f64();
    assert_eq!(ok(1, 2, 1, M::StrictBounds), [11.0, 12.0]);
    assert_eq!(ok(0, 2, 3, M::StrictBounds), [10.0, 13.0]);
    assert_eq!(ok(3, 4, -1, M::StrictBounds), [13.0, 12.0, 11.0, 10.0]);
    assert_eq!(ok(2, 3, 0, M::StrictBounds), [12.0, 12.0, 12.0]);
    assert_eq!(ok(4, 0, 1, M::StrictBounds), [0.0; 0]);
    assert_eq!(ok(-2, 8, 1, M::Wrap), [12.0, 13.0, 10.0, 11.0, 12.0, 13.0, 10.0, 11.0]);
    assert_eq!(ok(-2, 8, 1, M::Clamp), [10.0, 10.0, 10.0, 11.0, 12.0, 13.0, 13.0, 13.0]);
    assert_eq!(ok(-1, 6, 1, M::Fill), [0.0, 10.0, 11.0, 12.0, 13.0, 0.0]);
    assert_eq!(
        ok(-4, 12, 1, M::Reflect),
        [12.0, 13.0, 12.0, 11.0, 10.0, 11.0, 12.0, 13.0, 12.0, 11.0, 10.0, 11.0]
    );
    assert_eq!(ok(5, 3, -2, M::Clamp), [13.0, 13.0, 11.0]);
    refused(slice(2, 3, 1, M::StrictBounds), "2 to 4 along axis 0, wants 0 to 3 with strict bounds");
    refused(slice(1, 3, -1, M::StrictBounds), "-1 to 1 along axis 0");
    refused(slice(0, -1, 1, M::Fill), "0 or more");
}

#[test]
fn slices_of_nothing_and_of_one_element() {
    use SampleMode as M;
    let go = |x: Tensor, mode| {
        through(&[x], |n, x| n.add_slice(x[0], &[], &[], &[])?.set_mode(mode)?.set_all(0, 3, 1)?.output(0))
    };
    for mode in [M::Reflect, M::Wrap, M::Clamp] {
        refused(go(f32s(&[0], &[]), mode), "of an empty axis 0");
        assert_eq!(go(f32s(&[1], &[7.0]), mode).unwrap(), f32s(&[3], &[7.0; 3]));
    }
    assert_eq!(go(f32s(&[0], &[]), M::Fill).unwrap(), f32s(&[3], &[0.0; 3]));
}

#[test]
fn slices_have_values_to_fill_with_and_axes() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[2, 2]);
    let nine = constant(&mut net, f32s(&[], &[9.0]));
    let l = net.add_slice(x, &[], &[], &[]).unwrap();
    refused(l.set_input(4, nine), "wants Fill, as there is a value to fill with");
    let axis = constant(&mut net, ints(DType::I32, &[1], &[1]));
    let l = net.add_slice(x, &[], &[], &[]).unwrap().set_mode(SampleMode::Fill).unwrap();
    let l = l.change(|p| *p = p.clone().along(1, -1, 3)).unwrap();
    let y = l.set_input(4, nine).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let ten = [f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0])];
    assert_eq!(run(&net, &ten), [f32s(&[2, 3], &[9.0, 1.0, 2.0, 9.0, 3.0, 4.0])]);
    let l = net.add_slice(x, &[], &[], &[]).unwrap();
    refused(l.set_axes(&[0, 0]), "without repetition");
    let l = net.add_slice(x, &[], &[], &[]).unwrap().set_input(5, axis).unwrap();
    assert_eq!(
        l.set_start(&[0]).unwrap().set_size(&[1]).unwrap().output(0).map(|y| net.ty(y).to_string()).unwrap(),
        "f32[2,1]"
    );
}

#[test]
fn slices_by_tensors() {
    for (mode, want) in [(SampleMode::StrictBounds, None), (SampleMode::Clamp, Some([3.0, 4.0, 4.0]))] {
        let mut net = Network::new("n");
        let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("n")])).unwrap();
        let start = input(&mut net, "start", DType::I64, &[1]);
        let size = input(&mut net, "size", DType::I64, &[1]);
        let l = net.add_slice(x, &[], &[1], &[]).unwrap().set_mode(mode).unwrap();
        let l = l.set_inputs(&[(1, start), (2, size)]).unwrap();
        let y = l.output(0).unwrap();
        net.mark_output(y, "y").unwrap();
        let one = |n| ints(DType::I64, &[1], &[n]);
        let x = f32s(&[4], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(run(&net, &[x.clone(), one(1), one(2)]), [f32s(&[2], &[2.0, 3.0])]);
        let beyond = net.lower().unwrap().eval(&[x, one(2), one(3)]);
        match want {
            Some(want) => assert_eq!(beyond.unwrap(), [f32s(&[3], &want)]),
            None => refused(beyond, "layer \"slice"),
        }
    }
}

#[test]
fn a_slice_keeps_the_size_it_was_given_for_a_dynamic_tensor() {
    let mut net = Network::new("n");
    let x = net.add_input("x", TensorType::new(DType::F32, [Dim::host("n"), 2.into()])).unwrap();
    let y = net.add_slice(x, &[0, 1], &[2, 1], &[1, 1]).unwrap().output(0).unwrap();
    assert_eq!(net.ty(y).to_string(), "f32[2,1]");
    net.mark_output(y, "y").unwrap();
    let g = net.lower().unwrap();
    let three = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(g.eval(&[three]).unwrap(), [f32s(&[2, 1], &[2.0, 4.0])]);
    refused(g.eval(&[f32s(&[1, 2], &[1.0, 2.0])]), "layer \"slice");
}

#[test]
fn paddings_add_and_cut() {
    let go = |pre: &[i64], post: &[i64]| {
        through(&[f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0])], |n, x| {
            n.add_padding_nd(x[0], pre, post)?.output(0)
        })
    };
    assert_eq!(go(&[0, 1], &[0, 0]).unwrap(), f32s(&[1, 2, 3], &[0.0, 1.0, 2.0, 0.0, 3.0, 4.0]));
    assert_eq!(go(&[-1, 0], &[0, -1]).unwrap(), f32s(&[1, 1, 1], &[3.0]));
    refused(go(&[1], &[1]), "2 numbers; use a slice layer");
    refused(go(&[1, 1, 1], &[1, 1, 1]), "2 numbers; use a slice layer");
}

#[test]
fn squeeze_and_unsqueeze_take_constant_axes() {
    let mut net = Network::new("n");
    let x = input(&mut net, "x", DType::F32, &[1, 3, 1]);
    let axes = |net: &mut Network, v: &[i64]| constant(net, ints(DType::I32, &[v.len()], v));
    let (a, b) = (axes(&mut net, &[-1, 0]), axes(&mut net, &[0, 2]));
    let s = net.add_squeeze(x, a).unwrap().output(0).unwrap();
    let u = net.add_unsqueeze(s, b).unwrap().output(0).unwrap();
    assert_eq!((net.ty(s).to_string(), net.ty(u).to_string()), ("f32[3]".into(), "f32[1,3,1]".into()));
    net.mark_output(u, "u").unwrap();
    let t = f32s(&[1, 3, 1], &[1.0, 2.0, 3.0]);
    assert_eq!(run(&net, &[t.clone()]), [t]);
    let long = axes(&mut net, &[1]);
    refused(net.add_squeeze(x, long), "wants 1 in dimension 1");
    let twice = axes(&mut net, &[0, -3]);
    refused(net.add_squeeze(x, twice), "without repetition");
    let far = axes(&mut net, &[7]);
    refused(net.add_unsqueeze(x, far), "in -4..4");
    let many = axes(&mut net, &[0, 1, 2, 3, 4, 5]);
    refused(net.add_unsqueeze(x, many), "at most 8 dimensions");
    let unknown = input(&mut net, "axes", DType::I32, &[1]);
    refused(net.add_squeeze(x, unknown), "known when the network is built");
}

#[test]
fn fills_are_even_or_random() {
    let fill = |dims: &[i64], op, to, f: Change<Fill>| {
        let mut net = Network::new("n");
        let y = f(net.add_fill(dims, op, to)?)?.output(0)?;
        net.mark_output(y, "y")?;
        Ok::<_, NetworkError>(run(&net, &[]).swap_remove(0))
    };
    use FillOp as F;
    let even = fill(&[3], F::Linspace, DType::F32, |l| l.set_alpha(1.0.into())?.set_beta(0.5.into()));
    assert_eq!(even.unwrap(), f32s(&[3], &[1.0, 1.5, 2.0]));
    let big =
        fill(&[2], F::Linspace, DType::I64, |l| l.set_alpha((1i64 << 60).into())?.set_beta((-1i64).into()));
    assert_eq!(big.unwrap().to_i64(), [1 << 60, (1 << 60) - 1]);
    refused(fill(&[2, 2], F::Linspace, DType::F32, |l| Ok(l)), "one, unless alpha and beta are tensors");
    refused(fill(&[2], F::Linspace, DType::F16, |l| Ok(l)), "i32, i64 or f32");
    refused(fill(&[2], F::RandomUniform, DType::I32, |l| Ok(l)), "a float type for random numbers");
    refused(fill(&[-1], F::Linspace, DType::I32, |l| Ok(l)), "0 or more");
    let u = fill(&[4, 50], F::RandomUniform, DType::F32, |l| l.set_alpha(2.0.into())?.set_beta(3.0.into()))
        .unwrap();
    assert!(u.shape() == [4, 50] && u.to_f64().iter().all(|x| (2.0..=3.0).contains(x)));
    let n = fill(&[2000], F::RandomNormal, DType::F32, |l| l.set_alpha(5.0.into())?.set_seed(3))
        .unwrap()
        .to_f64();
    let mean = n.iter().sum::<f64>() / 2000.0;
    assert!((mean - 5.0).abs() < 0.2, "{mean}");
}

#[test]
fn fills_by_tensors() {
    let mut net = Network::new("n");
    let dims = constant(&mut net, ints(DType::I64, &[2], &[2, 3]));
    let alpha = input(&mut net, "alpha", DType::I32, &[]);
    let beta = constant(&mut net, ints(DType::I32, &[2], &[10, 1]));
    let l = net.add_fill(&[], FillOp::Linspace, DType::I32);
    refused(l, "one, unless alpha and beta are tensors");
    let id = net.add_fill(&[1], FillOp::Linspace, DType::I32).unwrap().id();
    refused(net.set_input(id, 1, alpha), "both numbers or both tensors");
    net.set_inputs(id, &[(0, dims), (1, alpha), (2, beta)]).unwrap();
    let y = net.layer(id).unwrap().output(0).unwrap();
    net.mark_output(y, "y").unwrap();
    let out = run(&net, &[ints(DType::I32, &[], &[5])]);
    assert_eq!(out, [ints(DType::I32, &[2, 3], &[5, 6, 7, 15, 16, 17])]);
    let beta = net.layer(id).unwrap().inputs()[2].unwrap();
    let y = net.add_fill_by(&[1, 2], FillOp::Linspace, DType::I32, alpha, beta).unwrap().output(0).unwrap();
    net.mark_output(y, "z").unwrap();
    assert_eq!(run(&net, &[ints(DType::I32, &[], &[5])])[1], ints(DType::I32, &[1, 2], &[5, 6]));
    let float = constant(&mut net, f32s(&[], &[1.0]));
    refused(net.set_input(id, 1, float), "wants i32, as the output is");
}
