//! Arrays and archives there and back, real ones, and hostile ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::Path;

use kiln_npz::*;

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend_from_slice(&(header.len() as u16).to_le_bytes());
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

#[test]
fn arrays_come_back_and_are_aligned() {
    for (dtype, shape) in [(NpyType::F64, vec![2, 3]), (NpyType::Bool, vec![]), (NpyType::U16, vec![5, 0])] {
        let size = shape.iter().product::<u64>() * dtype.size();
        let array = Array::new(dtype, shape, (0..size as u8).collect()).unwrap();
        let file = write_npy(&array).unwrap();
        assert_eq!((file.len() - array.data.len()) % 64, 0);
        assert_eq!(read_npy(&file).unwrap(), array);
    }
}

#[test]
fn fortran_order_is_turned() {
    let file = npy(
        "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2)}\n",
        &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11],
    );
    assert_eq!(read_npy(&file).unwrap().data, (0..12).collect::<Vec<u8>>());
}

#[test]
fn archives_come_back_and_are_deterministic() {
    let mut arrays = BTreeMap::new();
    arrays.insert("case/in/x".to_owned(), Array::from_f32(&[2, 2], &[1.0, -2.0, 0.5, 4.0]).unwrap());
    arrays.insert("zeros".to_owned(), Array::from_i64(&[1000], &[0; 1000]).unwrap());
    for compression in [Compression::Stored, Compression::Deflated] {
        let bytes = write_npz_bytes(&arrays, compression).unwrap();
        assert_eq!(bytes, write_npz_bytes(&arrays, compression).unwrap());
        assert_eq!(read_npz_bytes(&bytes).unwrap(), arrays);
    }
    assert_eq!(arrays["case/in/x"].to_f32().unwrap()[3], 4.0);
    assert!(matches!(arrays["zeros"].to_f32(), Err(NpzError::WrongType { .. })));
}

#[test]
fn archives_of_numpy_are_read() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let digits = read_npz(data.join("digits/digits_test.npz")).unwrap();
    assert_eq!(digits["images"].shape, [500, 1, 28, 28]);
    assert_eq!(digits["labels"].to_i64().unwrap().len(), 500);
    let half = read_npz(data.join("nlp/logits_bert_tiny_fp16.npz")).unwrap();
    assert_eq!((half["logits"].dtype, &half["logits"].shape[..]), (NpyType::F16, &[16, 8][..]));
}

#[test]
fn hostile_arrays_are_refused() {
    let header = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n");
    let huge = npy(&header("(1000000000000,)"), &[0; 8]);
    assert!(matches!(read_npy(&huge), Err(NpzError::Size { wanted: 4_000_000_000_000, .. })));
    let overflow = npy(&header("(18446744073709551615, 2, 0)"), &[]);
    assert!(matches!(read_npy(&overflow), Err(NpzError::TooLarge(_))));
    assert!(matches!(read_npy(&npy(&header("(2,)"), &[0; 9])), Err(NpzError::Size { .. })));
    assert!(matches!(read_npy(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), Err(NpzError::Header(_))));
    assert!(matches!(read_npy(b"\x93NUMPY\x07\x00\x00\x00"), Err(NpzError::Header(_))));
    assert!(Array::from_f32(&[3], &[1.0]).is_err());
}

#[test]
fn arrays_that_nobody_wants_are_not_inflated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.npz");
    // The payload that is not wanted is damaged: reading it would fail.
    let bomb = Array::new(NpyType::U8, vec![1 << 24], vec![0; 1 << 24]).unwrap();
    let arrays = BTreeMap::from([
        ("a".to_owned(), bomb),
        ("b".to_owned(), Array::from_f32(&[2], &[1.0, 2.0]).unwrap()),
    ]);
    let mut bytes = write_npz_bytes(&arrays, Compression::Deflated).unwrap();
    bytes[2000] ^= 0xff;
    std::fs::write(&path, &bytes).unwrap();
    assert!(kiln_npz::read_npz(&path).is_err());
    let mut asked = Vec::new();
    let found = kiln_npz::read_npz_where(&path, |name, dtype, shape| {
        asked.push((name.to_owned(), dtype, shape.to_vec()));
        Ok::<_, NpzError>(name == "b")
    });
    assert_eq!(found.unwrap().keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(asked[0], ("a".to_owned(), NpyType::U8, vec![1 << 24]));
    let stop =
        kiln_npz::read_npz_where(&path, |name, _, _| Err(NpzError::Archive(format!("stop at {name}"))));
    assert!(stop.unwrap_err().to_string().contains("stop at a"));
}

#[test]
fn every_truncation_is_refused() {
    let arrays = BTreeMap::from([("x".to_owned(), Array::from_f32(&[4], &[1.0; 4]).unwrap())]);
    let file = write_npy(&arrays["x"]).unwrap();
    assert!((0..file.len()).all(|end| read_npy(&file[..end]).is_err()));
    let archive = write_npz_bytes(&arrays, Compression::Deflated).unwrap();
    assert!((0..archive.len()).all(|end| read_npz_bytes(&archive[..end]).is_err()));
}

#[test]
fn a_damaged_payload_is_noticed() {
    let arrays = BTreeMap::from([("x".to_owned(), Array::from_f32(&[64], &[1.0; 64]).unwrap())]);
    let mut archive = write_npz_bytes(&arrays, Compression::Stored).unwrap();
    archive[200] ^= 1;
    assert!(matches!(read_npz_bytes(&archive), Err(NpzError::Entry { .. })));
}
