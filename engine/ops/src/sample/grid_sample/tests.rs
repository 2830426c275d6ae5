use super::*;
use crate::testing::{assert_near, f32s, infer, ints, run, run_all};
use kiln_ir::dim::Dim;

fn attrs(mode: &str, padding: &str, align: bool) -> Attrs {
    Attrs::new().with("mode", mode).with("padding", padding).with("align_corners", align)
}

/// A row 10, 20, 30, 40 sampled at normalized places.
fn row(mode: &str, padding: &str, align: bool, at: &[f64]) -> Vec<f64> {
    let x = f32s(&[1, 1, 4], &[10.0, 20.0, 30.0, 40.0]);
    run("grid_sample", attrs(mode, padding, align), &[x, f32s(&[1, at.len(), 1], at)]).to_f64()
}

#[test]
fn linear_between_centres_and_edges() {
    // Aligned: −1 and 1 are elements 0 and 3. Not aligned: they are −0.5 and 3.5, half of which is zero.
    assert_eq!(row("linear", "zeros", true, &[-1.0, 0.0, 1.0, 3.0]), [10.0, 25.0, 40.0, 0.0]);
    assert_eq!(row("linear", "zeros", false, &[-1.0, 0.0, 1.0, 1.25]), [5.0, 25.0, 20.0, 0.0]);
    assert_eq!(row("linear", "border", false, &[-1.0, -9.0, 1.0, 9.0]), [10.0, 10.0, 40.0, 40.0]);
    // 1.5 is element 4.5 (not aligned): mirrored at 3.5 it is 2.5.
    assert_eq!(row("linear", "reflection", false, &[1.5, -1.5]), [35.0, 15.0]);
    // 2 is element 4.5 (aligned): mirrored at 3 it is 1.5.
    assert_eq!(row("linear", "reflection", true, &[2.0]), [25.0]);
}

#[test]
fn nearest_takes_the_even_one_of_two() {
    // Not aligned, four elements: x = 2n + 1.5.
    assert_eq!(row("nearest", "zeros", false, &[0.0, 0.5, -0.5, -1.0, 1.1]), [30.0, 30.0, 10.0, 10.0, 0.0]);
    assert_eq!(row("nearest", "border", false, &[-3.0, 3.0]), [10.0, 40.0]);
    assert_eq!(row("nearest", "reflection", false, &[1.75]), [30.0], "element 5 mirrors to 2");
}

#[test]
fn cubic_weights_of_four_neighbours() {
    let want = -0.09375 * (10.0 + 40.0) + 0.59375 * (20.0 + 30.0);
    assert_eq!(row("cubic", "zeros", true, &[0.0]), [want]);
    assert_eq!(row("cubic", "border", true, &[-1.0]), [10.0]);
}

#[test]
fn coordinates_that_are_no_numbers_stay_inside() {
    for padding in ["zeros", "border", "reflection"] {
        for mode in ["linear", "nearest", "cubic"] {
            let y = row(mode, padding, true, &[f64::NAN, 1e30, -1e30]);
            assert_eq!(y[0], 10.0, "{mode} {padding}");
            assert!(y.iter().all(|y| y.is_finite()), "{mode} {padding} {y:?}");
        }
    }
}

#[test]
fn the_first_coordinate_is_the_innermost_dimension() {
    let x = f32s(&[1, 1, 2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let grid = f32s(&[1, 1, 2, 2], &[1.0, -1.0, -1.0, 1.0]);
    let y = run("grid_sample", attrs("nearest", "zeros", true), &[x, grid]);
    assert_near(&y, &[1, 1, 1, 2], &[2.0, 3.0], 0.0);
    let x = f32s(&[1, 1, 2, 1, 2], &[0.0, 1.0, 2.0, 3.0]);
    let y =
        run("grid_sample", attrs("linear", "zeros", true), &[x, f32s(&[1, 1, 1, 1, 3], &[1.0, 0.0, 0.5])]);
    assert_near(&y, &[1, 1, 1, 1, 1], &[2.5], 0.0);
}

#[test]
fn shapes_of_grids() {
    let (n, m) = (Dim::host("n"), Dim::host("m"));
    let x = (DType::F16, vec![n.clone(), 3.into(), 5.into(), 5.into()]);
    let grid = |last: i64| (DType::F32, vec![n.clone(), m.clone(), 7.into(), last.into()]);
    let y = infer("grid_sample", Attrs::new(), &[x.clone(), grid(2)]).unwrap();
    assert_eq!(y[0].ty.to_string(), "f16[n,3,m,7]");
    assert!(infer("grid_sample", Attrs::new(), &[x, grid(3)]).is_err());
}

#[test]
fn an_affine_grid_is_theta_times_points() {
    let theta = f32s(&[1, 2, 3], &[2.0, 0.0, 0.5, 0.0, 1.0, 0.0]);
    let size = |v: &[i64]| ints(DType::I64, &[v.len()], v);
    let align = |a: bool| Attrs::new().with("align_corners", a);
    let y = run("affine_grid", align(true), &[theta.clone(), size(&[1, 1, 2, 3])]);
    let want = [-1.5, -1.0, 0.5, -1.0, 2.5, -1.0, -1.5, 1.0, 0.5, 1.0, 2.5, 1.0];
    assert_near(&y, &[1, 2, 3, 2], &want, 0.0);
    let y = run("affine_grid", align(false), &[theta.clone(), size(&[1, 1, 1, 2])]);
    assert_near(&y, &[1, 1, 2, 2], &[-0.5, 0.0, 1.5, 0.0], 0.0);
    let bad = |v: &[i64]| run_all("affine_grid", align(true), &[Some(theta.clone()), Some(size(v))]).is_err();
    assert!(bad(&[2, 1, 2, 3]) && bad(&[1, 1, 2, 3, 4]) && bad(&[1, 1, -2, 3]) && bad(&[]));
}
