//! The rules of optimization profiles.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{linear, program, rows};
use kiln_runtime::{Profile, RuntimeInput, io_tensors, select};

#[test]
fn illegal_ranges_are_refused_when_set() {
    let mut p = Profile::new();
    let said = |r: Result<(), kiln_runtime::ProfileError>| r.unwrap_err().to_string();
    assert!(said(p.set_shape("a", &[1, 2], &[1], &[1, 2])).contains("differ in rank"));
    assert!(said(p.set_shape("a", &[2, 2], &[1, 2], &[3, 2])).contains("min [2, 2] ≤ opt"));
    assert!(said(p.set_shape("a", &[-1], &[1], &[3])).contains("negative"));
    assert!(said(p.set_values("s", &[0; 65], &[0; 65], &[0; 65])).contains("at most 64"));
}

#[test]
fn profiles_are_checked_against_the_network() {
    let io = io_tensors(&program(&linear()));
    rows(3).check(&io).unwrap();
    assert!(Profile::fixed(&io).is_none());
    let broken = |name: &str, min: &[i64], opt: &[i64], max: &[i64]| {
        let mut p = rows(3);
        p.set_shape(name, min, opt, max).unwrap();
        p.check(&io).unwrap_err().to_string()
    };
    assert!(broken("q", &[1], &[1], &[1]).contains("\"q\" is no input"));
    assert!(broken("a", &[1, 1], &[1, 2], &[1, 2]).contains("dimension 1 of \"a\" is 2"));
    assert!(broken("a", &[1], &[1], &[1]).contains("1 dimensions"));
    assert!(broken("a", &[2, 2], &[2, 2], &[2, 2]).contains("dimension \"n\""));
    assert!(broken("b", &[0, 2], &[2, 2], &[3, 2]).contains("opt must be equal"));
    let endless = broken("a", &[1, 2], &[2, 2], &[i64::MAX, 2]);
    assert!(endless.contains("more than 140737488355328 bytes"), "{endless}");
    let mut p = Profile::new();
    p.set_shape("a", &[1, 2], &[1, 2], &[1, 2]).unwrap();
    assert!(p.check(&io).unwrap_err().to_string().contains("input \"b\" has shape [n,2]"));
    let mut p = rows(3);
    p.set_values("a", &[1], &[1], &[1]).unwrap();
    assert!(p.check(&io).unwrap_err().to_string().contains("values are for shape inputs"));
}

#[test]
fn the_tightest_of_several_is_selected() {
    let io = io_tensors(&program(&linear()));
    let given = |n: usize| vec![RuntimeInput { shape: vec![n, 2], content: None }; 2];
    let profiles = [rows(8), rows(2), rows(4)];
    assert_eq!(select(&profiles, &io, &given(1)).unwrap(), 1);
    assert_eq!(select(&profiles, &io, &given(3)).unwrap(), 2);
    assert_eq!(select(&profiles, &io, &given(5)).unwrap(), 0);
    assert!(select(&profiles, &io, &given(9)).is_err());
    let [min, opt, max] = rows(8).points(&io).unwrap();
    let rows_of = |p: &[kiln_ir::Fact]| p[0].ty.static_dims().unwrap()[0];
    assert_eq!((rows_of(&min), rows_of(&opt), rows_of(&max)), (0, 1, 8));
}
