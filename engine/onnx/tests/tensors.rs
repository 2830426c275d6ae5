//! Tensors from every place that a payload can be in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

mod common;

use std::path::{Path, PathBuf};

use common::{data, graph, info, model, tensor};
use kiln_onnx::error::{ExternalFault, TensorFault};
use kiln_onnx::proto::tensor_proto::{DataLocation, DataType as T};
use kiln_onnx::proto::*;
use kiln_onnx::{Model, ModelFile, OnnxError, TensorData};
use prost::Message;

fn read(proto: &TensorProto) -> Result<TensorData, OnnxError> {
    TensorData::from_encoded(proto.encode_to_vec())
}

fn fault(proto: &TensorProto) -> TensorFault {
    match read(proto) {
        Err(OnnxError::BadTensor { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

fn ints(dtype: T, dims: &[i64], values: &[i32]) -> TensorProto {
    TensorProto { int32_data: values.to_vec(), ..tensor("t", dtype, dims) }
}

#[test]
fn typed_fields_are_packed() {
    let bytes = |proto: TensorProto| read(&proto).unwrap().bytes.to_vec();
    assert_eq!(bytes(ints(T::Int8, &[3], &[-1, 2, 200])), [255, 2, 200]);
    assert_eq!(bytes(ints(T::Bool, &[2], &[1, 0])), [1, 0]);
    assert_eq!(bytes(ints(T::Float16, &[1], &[0x3c00])), [0, 0x3c]);
    assert_eq!(bytes(ints(T::Bfloat16, &[1], &[0x3f80])), [0x80, 0x3f]);
    assert_eq!(bytes(ints(T::Float8e4m3fn, &[2], &[0x38, 0xff])), [0x38, 0xff]);
    assert_eq!(bytes(ints(T::Int4, &[3], &[0x21, 0x03])), [0x21, 0x03]);
    assert_eq!(bytes(ints(T::Uint2, &[5], &[0xe4, 1])), [0xe4, 1]);
    assert_eq!(bytes(ints(T::Float6e2m3, &[5], &[1, 2, 3, 4, 5])), [0x81, 0x30, 0x10, 5]);
    let floats = TensorProto { float_data: vec![1.0, -2.0], ..tensor("t", T::Float, &[2]) };
    assert_eq!(read(&floats).unwrap().to_f32().unwrap(), [1.0, -2.0]);
    let wide = TensorProto { uint64_data: vec![7, 1 << 31], ..tensor("t", T::Uint32, &[2]) };
    assert_eq!(read(&wide).unwrap().to_i64().unwrap(), [7, 1 << 31]);
    let complex = TensorProto { float_data: vec![1.0, 2.0], ..tensor("t", T::Complex64, &[]) };
    assert_eq!(read(&complex).unwrap().bytes.len(), 8);
    assert!(read(&tensor("t", T::Float, &[0, 3])).unwrap().is_empty());
}

#[test]
fn contradictions_are_refused() {
    assert!(matches!(
        fault(&ints(T::Float, &[1], &[1])),
        TensorFault::WrongField { found: "int32_data", .. }
    ));
    assert!(matches!(fault(&ints(T::Uint8, &[1], &[256])), TensorFault::OutOfRange { value: 256, .. }));
    assert!(matches!(fault(&ints(T::Float6e3m2, &[1], &[64])), TensorFault::OutOfRange { .. }));
    assert!(matches!(fault(&ints(T::Int32, &[3], &[1, 2])), TensorFault::Size { wanted: 3, found: 2, .. }));
    let both = TensorProto { raw_data: vec![0; 4].into(), ..ints(T::Int32, &[1], &[1]) };
    assert!(matches!(fault(&both), TensorFault::TwoPayloads { .. }));
    let raw = TensorProto { raw_data: vec![0; 5].into(), ..tensor("t", T::Int4, &[3, 3]) };
    assert_eq!(read(&raw).unwrap().bytes.len(), 5);
    let short = TensorProto { raw_data: vec![0; 4].into(), ..tensor("t", T::Int4, &[3, 3]) };
    assert!(matches!(fault(&short), TensorFault::Size { wanted: 5, found: 4, .. }));
    assert!(matches!(fault(&TensorProto { data_type: 99, ..short }), TensorFault::UnknownType(99)));
    assert!(matches!(fault(&tensor("t", T::String, &[0])), TensorFault::Strings));
    assert!(matches!(fault(&TensorProto { data_location: 7, ..raw }), TensorFault::UnknownLocation(7)));
}

fn external(entries: &[(&str, &str)]) -> ModelProto {
    let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
        key: key.to_string(),
        value: value.to_string(),
    };
    let weight = TensorProto {
        data_location: DataLocation::External as i32,
        external_data: entries.iter().map(entry).collect(),
        ..tensor("w", T::Float, &[2])
    };
    let mut graph = graph(&[], vec![], &[]);
    graph.output = vec![info("w")];
    graph.initializer = vec![weight];
    model(graph)
}

fn open(folder: &Path, entries: &[(&str, &str)]) -> Result<Vec<f32>, OnnxError> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, external(entries).encode_to_vec()).unwrap();
    Model::open(&path)?.graph.initializers["w"].to_f32()
}

fn refusal(folder: &Path, entries: &[(&str, &str)]) -> ExternalFault {
    match open(folder, entries) {
        Err(OnnxError::External { tensor, fault, .. }) if tensor == "w" => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn external_data_is_read_from_the_models_folder_only() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("model");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    let payload: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.join("sub/w.bin"), &payload).unwrap();
    std::fs::write(outside.path().join("secret"), &payload[..8]).unwrap();

    let at = |offset, length| [("location", "sub/w.bin"), ("offset", offset), ("length", length)];
    assert_eq!(open(&folder, &at("4", "8")).unwrap(), [2.0, 3.0]);
    assert_eq!(open(&folder, &at("4", "8")[..2]).unwrap(), [2.0, 3.0]);
    assert!(matches!(open(&folder, &at("0", "4")), Err(OnnxError::BadTensor { .. })));
    assert!(matches!(refusal(&folder, &at("8", "8")), ExternalFault::PastEnd { size: 12, .. }));
    assert!(matches!(refusal(&folder, &at("18446744073709551615", "8")), ExternalFault::PastEnd { .. }));
    assert!(matches!(refusal(&folder, &at("-1", "8")), ExternalFault::BadNumber { key: "offset", .. }));
    assert!(matches!(refusal(&folder, &at("99", "8")[..2]), ExternalFault::PastEnd { .. }));

    let secret = outside.path().join("secret");
    assert!(matches!(refusal(&folder, &[("location", "../secret")]), ExternalFault::Parent));
    assert!(matches!(refusal(&folder, &[("location", "sub/../../secret")]), ExternalFault::Parent));
    assert!(matches!(refusal(&folder, &[("location", secret.to_str().unwrap())]), ExternalFault::Absolute));
    assert!(matches!(refusal(&folder, &[("location", "sub")]), ExternalFault::NotAFile));
    assert!(matches!(refusal(&folder, &[("location", "none")]), ExternalFault::Io(_)));
    assert!(matches!(refusal(&folder, &[]), ExternalFault::NoLocation));
    let memory = ModelFile::from_bytes(external(&[("location", "sub/w.bin")]).encode_to_vec(), None).unwrap();
    assert!(matches!(Model::check(&memory), Err(OnnxError::External { fault: ExternalFault::NoFolder, .. })));
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(outside.path().join("secret"), [0; 8]).unwrap();
    std::fs::write(folder.join("inside"), [0; 8]).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink("..", folder.join("up")).unwrap();
    std::os::unix::fs::symlink("inside", folder.join("fine")).unwrap();
    assert!(matches!(refusal(&folder, &[("location", "link")]), ExternalFault::Escapes));
    assert!(matches!(refusal(&folder, &[("location", "up/secret")]), ExternalFault::Escapes));
    assert_eq!(open(&folder, &[("location", "fine")]).unwrap(), [0.0, 0.0]);
    assert!(matches!(ModelFile::open("/dev/zero"), Err(OnnxError::Io { .. })));
    assert!(matches!(ModelFile::open(data("none.onnx")), Err(OnnxError::Io { .. })));
}

/// Download caches of hubs: a folder of links, for the model and its data alike, into one folder of files.
#[cfg(unix)]
#[test]
fn data_beside_the_target_of_a_linked_model_is_read() {
    use std::os::unix::fs::symlink;
    let cache = tempfile::tempdir().unwrap();
    let (blobs, snapshot) = (cache.path().join("blobs"), cache.path().join("snapshots/main/onnx"));
    let other = cache.path().join("other");
    for folder in [&blobs, &snapshot, &other, &blobs.join("deep")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let numbers: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    for file in [blobs.join("d4ta"), blobs.join("deep/d4ta"), other.join("d4ta")] {
        std::fs::write(file, &numbers).unwrap();
    }
    let up = PathBuf::from("../../..");
    symlink(up.join("blobs/d4ta"), snapshot.join("model.onnx_data")).unwrap();
    symlink(up.join("blobs/deep/d4ta"), snapshot.join("deep")).unwrap();
    symlink(up.join("other/d4ta"), snapshot.join("elsewhere")).unwrap();
    symlink(up.join("blobs"), snapshot.join("folder")).unwrap();
    let write = |path: &Path, location: &str| {
        std::fs::write(path, external(&[("location", location)]).encode_to_vec()).unwrap();
    };
    let read = |location: &str| {
        write(&blobs.join("m0del"), location);
        let file = ModelFile::open(snapshot.join("model.onnx")).unwrap();
        match Model::check(&file) {
            Ok(_) => Ok(()),
            Err(OnnxError::External { fault, .. }) => Err(fault),
            Err(error) => panic!("{error}"),
        }
    };
    symlink(up.join("blobs/m0del"), snapshot.join("model.onnx")).unwrap();
    read("model.onnx_data").unwrap();
    // Only beside the target: neither below its folder, nor elsewhere, nor by '..'.
    assert!(matches!(read("deep"), Err(ExternalFault::Escapes)));
    assert!(matches!(read("elsewhere"), Err(ExternalFault::Escapes)));
    assert!(matches!(read("../../../blobs/d4ta"), Err(ExternalFault::Parent)));
    read("folder/d4ta").unwrap();
    // A model that is itself no link has no other folder, whatever its data's links look like.
    std::fs::remove_file(snapshot.join("model.onnx")).unwrap();
    write(&snapshot.join("model.onnx"), "model.onnx_data");
    let file = ModelFile::open(snapshot.join("model.onnx")).unwrap();
    assert!(matches!(Model::check(&file), Err(OnnxError::External { fault: ExternalFault::Escapes, .. })));
}

#[test]
fn a_model_that_was_read_does_not_depend_on_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, weights) = (dir.path().join("m.onnx"), dir.path().join("w.bin"));
    let entries = [("location", "w.bin"), ("length", "8")];
    std::fs::write(&path, external(&entries).encode_to_vec()).unwrap();
    std::fs::write(&weights, [1.5f32, 2.5].map(f32::to_le_bytes).concat()).unwrap();
    let file = ModelFile::open(&path).unwrap();
    let truncate =
        |p: &Path| std::fs::OpenOptions::new().write(true).truncate(true).open(p).map(drop).unwrap();
    truncate(&path);
    let model = Model::check(&file).unwrap();
    truncate(&weights);
    assert_eq!(model.graph.initializers["w"].to_f32().unwrap(), [1.5, 2.5]);
}
