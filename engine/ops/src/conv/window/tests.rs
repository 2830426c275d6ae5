use super::*;

fn attrs(stride: i64, dilation: i64, pads: [i64; 2], mode: &str) -> Attrs {
    Attrs::new()
        .with("strides", vec![stride])
        .with("dilations", vec![dilation])
        .with("pads", pads.to_vec())
        .with("pad_mode", mode)
}

fn one(a: &Attrs, input: i64, kernel: i64) -> Axis<i64> {
    numbers(&windows(a, &[input.into()], &[kernel.into()]).unwrap()).unwrap().remove(0)
}

/// The elements that a sliding loop, written as in a textbook, touches with window `o`.
fn slow_taps(a: &Axis<i64>, o: i64) -> Vec<(i64, i64)> {
    (0..a.kernel)
        .map(|k| (k, o * a.stride + k * a.dilation - a.begin))
        .filter(|&(_, p)| p >= 0 && p < a.input)
        .collect()
}

#[test]
fn output_sizes_by_mode() {
    // (input, kernel, stride, dilation, pads, mode) → (output, begin, end)
    let rows: &[(i64, i64, i64, i64, [i64; 2], &str, [i64; 3])] = &[
        (5, 3, 1, 1, [1, 1], "explicit", [5, 1, 1]),
        (7, 3, 2, 1, [0, 0], "explicit", [3, 0, 0]),
        (8, 3, 2, 1, [0, 0], "explicit", [3, 0, 0]),
        (8, 3, 2, 1, [0, 0], "explicit_round_up", [4, 0, 0]),
        (10, 3, 1, 2, [1, 0], "explicit", [7, 1, 0]),
        (6, 3, 2, 1, [0, 0], "same_upper", [3, 0, 1]),
        (6, 3, 2, 1, [0, 0], "same_lower", [3, 1, 0]),
        (5, 2, 1, 1, [9, 9], "same_upper", [5, 0, 1]),
        (5, 2, 1, 1, [9, 9], "same_lower", [5, 1, 0]),
        (7, 1, 3, 1, [0, 0], "same_upper", [3, 0, 0]),
        (7, 3, 2, 1, [9, 9], "valid", [3, 0, 0]),
        (0, 3, 1, 1, [0, 0], "explicit", [0, 0, 0]),
        (0, 3, 1, 1, [1, 2], "explicit", [1, 1, 2]),
        (0, 3, 2, 1, [0, 0], "same_lower", [0, 1, 0]),
    ];
    for &(input, k, s, d, pads, mode, [o, b, e]) in rows {
        let a = one(&attrs(s, d, pads, mode), input, k);
        assert_eq!((a.output, a.begin, a.end), (o, b, e), "{input} {k} {s} {d} {pads:?} {mode}");
    }
}

#[test]
fn ceil_mode_drops_windows_that_start_in_the_padding_after() {
    let ceil = |s: i64, pads: [i64; 2]| attrs(s, 1, pads, "explicit").with("ceil_mode", true);
    assert_eq!(one(&ceil(2, [0, 0]), 4, 3).output, 2);
    // ⌈(2 + 1 − 1)/2⌉ + 1 = 2, but the second window would start at 2, behind the input.
    assert_eq!(one(&ceil(2, [0, 1]), 2, 1).output, 1);
    assert_eq!(one(&ceil(3, [1, 1]), 4, 2).output, 2);
    assert_eq!(one(&ceil(2, [0, 0]), 2, 3).output, 1, "a window may hang over the end");
    assert_eq!(one(&attrs(2, 1, [0, 1], "explicit_round_up"), 2, 1).output, 2);
}

#[test]
fn sizes_follow_symbols() {
    let n = Dim::host("n");
    let same = attrs(1, 1, [0, 0], "same_upper");
    let a = windows(&same, std::slice::from_ref(&n), &[4.into()]).unwrap().remove(0);
    assert_eq!((a.output, a.begin, a.end), (n.clone(), 1.into(), 2.into()));
    let ceil = attrs(2, 1, [1, 1], "explicit").with("ceil_mode", true);
    let a = windows(&ceil, std::slice::from_ref(&n), &[3.into()]).unwrap().remove(0);
    assert_eq!(a.output, (n - 1.into()).ceil_div(&2.into()) + 1.into());
}

#[test]
fn taps_are_those_of_the_textbook_loop() {
    for (input, k, s, d) in [(7, 3, 2, 1), (9, 3, 1, 3), (5, 4, 3, 2), (1, 5, 1, 1), (12, 2, 5, 4)] {
        for pads in [[0, 0], [2, 1], [4, 4]] {
            for mode in ["explicit", "explicit_round_up", "same_lower"] {
                let Ok(w) = windows(&attrs(s, d, pads, mode), &[input.into()], &[k.into()]) else { continue };
                let a = numbers(&w).unwrap().remove(0);
                for o in 0..a.output {
                    assert_eq!(a.taps(o).collect::<Vec<_>>(), slow_taps(&a, o), "{a:?} {o}");
                    let all = (0..a.kernel)
                        .filter(|k| o * a.stride + k * a.dilation < a.begin + a.input + a.end)
                        .count();
                    assert_eq!(a.padded_taps(o), all as i64, "{a:?} {o}");
                }
            }
        }
    }
}

#[test]
fn a_huge_kernel_over_huge_padding_costs_only_its_real_taps() {
    let huge = i64::from(i32::MAX);
    let a = one(&attrs(1, 1, [huge, 0], "explicit"), 3, huge);
    assert_eq!((a.output, a.taps(0).count(), a.taps(3).count()), (4, 0, 3));
}

#[test]
fn taps_in_two_dimensions_are_row_major() {
    let a = Attrs::new().with("pads", vec![1i64, 0, 0, 0]);
    let w = known(&windows(&a, &dims(&[2, 3]), &dims(&[2, 2])).unwrap()).unwrap();
    let mut seen = Vec::new();
    for_each_tap(&w, &[0, 1], |tap, position| seen.push((tap, position)));
    assert_eq!(seen, [(2, 1), (3, 2)], "row −1 is padding; row 0 from column 1");
}

#[test]
fn transposed_sizes() {
    let go = |a: &Attrs, operand: i64, k: i64| {
        let a = numbers(&transposed::windows(a, &[operand.into()], &[k.into()]).unwrap()).unwrap().remove(0);
        [a.input, a.begin, a.end]
    };
    assert_eq!(go(&attrs(1, 1, [0, 0], "explicit"), 3, 3), [5, 0, 0]);
    assert_eq!(go(&attrs(3, 1, [1, 2], "explicit"), 3, 3), [6, 1, 2]);
    assert_eq!(go(&attrs(2, 2, [5, 5], "valid"), 3, 3), [9, 0, 0]);
    assert_eq!(go(&attrs(2, 1, [0, 0], "same_upper"), 3, 3), [6, 0, 1]);
    assert_eq!(go(&attrs(2, 1, [0, 0], "same_lower"), 3, 3), [6, 1, 0]);
    assert_eq!(go(&attrs(3, 1, [0, 0], "same_upper"), 3, 1), [9, 0, 0], "longer than the taps reach");
    let given = attrs(3, 1, [9, 9], "explicit").with("output_padding", vec![1i64]);
    assert_eq!(go(&given.clone().with("output_shape", vec![10i64]), 3, 3), [10, 0, 0]);
    assert_eq!(go(&given.with("output_shape", vec![7i64]), 3, 3), [7, 2, 1]);
    assert_eq!(go(&attrs(2, 1, [0, 0], "explicit"), 0, 3), [1, 0, 0]);
    assert_eq!(go(&attrs(9, 1, [0, 0], "explicit"), 0, 3), [0, 0, 0]);
}

#[test]
fn mistakes_are_named() {
    let fails = |a: Attrs, k: i64| windows(&a, &[4.into()], &[k.into()]).unwrap_err().to_string();
    assert_eq!(
        fails(attrs(0, 1, [0, 0], "explicit"), 1),
        "attribute \"strides\" is [0], wants numbers of 1 or more, below 2³¹"
    );
    assert_eq!(
        fails(Attrs::new().with("pads", vec![1i64]), 1),
        "attribute \"pads\" is [1], wants 2 numbers, or none"
    );
    assert_eq!(
        fails(attrs(1, 2, [0, 0], "explicit"), 3),
        "a window of 5 elements (kernel 3, dilation 2) is larger than the padded input of 4 on spatial axis 0"
    );
    assert!(fails(attrs(1, 1, [0, -1], "explicit"), 1).contains("0 or more"));
    assert!(fails(Attrs::new(), 0).contains("kernel has size 0"));
    let e = transposed::windows(&attrs(1, 1, [3, 3], "explicit"), &[2.into()], &[1.into()]).unwrap_err();
    assert_eq!(e.to_string(), "padding of 3 and 3 leaves a size of -4 on spatial axis 0");
}
