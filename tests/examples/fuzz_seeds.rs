//! Writes the seed corpus: `fuzz_seeds MODELS CORPUS` makes of every ONNX file under MODELS the inputs that each target
//! wants, as files under CORPUS. Weights are cut down to a few elements' worth where a form keeps their bytes.

#![allow(clippy::print_stdout, reason = "a command line tool")]

use kiln_backend::wire::BlobList;
use kiln_backend::{Backend, Region};
use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{Graph, TensorType};
use kiln_network::Network;
use kiln_onnx::proto::ModelProto;
use kiln_onnx::{Model, ModelFile};
use kiln_plan::Plan;
use kiln_tests::mutants::{BySize, cuts};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Seeds larger than this mutate slowly.
const LARGEST: usize = 24 << 10;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, models, corpus] = &args[..] else { return Err("usage: fuzz_seeds MODELS CORPUS".into()) };
    let corpus = Path::new(corpus);
    let mut made = 0;
    for path in files_under(Path::new(models), "onnx")? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path)?;
        for (name, bytes) in model_seeds(&name, &bytes)? {
            if bytes.len() > LARGEST {
                continue;
            }
            write(corpus, "onnx_model", &name, &bytes)?;
            let file = ModelFile::from_bytes(bytes, None)?;
            let Ok(done) = Model::check(&file).and_then(|m| kiln_onnx::import(&m, &Default::default()))
            else {
                continue;
            };
            let Ok(g) = done.network.lower() else { continue };
            graph_seeds(corpus, &name, &g)?;
            plan_seed(corpus, &name, g)?;
            made += 1;
        }
    }
    for path in files_under(Path::new(models), "npz")? {
        let bytes = std::fs::read(&path)?;
        if bytes.len() <= LARGEST {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            write(corpus, "npz", &name, &bytes)?;
        }
    }
    network_seeds(corpus)?;
    file_seeds(corpus)?;
    println!("seeds of {made} models");
    Ok(())
}

/// A model as it is, without its weights, and cut to its first nodes.
fn model_seeds(name: &str, bytes: &[u8]) -> Outcome<Vec<(String, Vec<u8>)>> {
    let mut all = vec![(name.to_owned(), bytes.to_vec())];
    let Some(light) = ModelProto::decode(bytes).ok().and_then(|m| cuts::without_weights(&m)) else {
        return Ok(all);
    };
    let nodes = light.graph.as_ref().map_or(0, |g| g.node.len());
    all.push((format!("{name}-light"), light.encode_to_vec()));
    for eighths in (1..8).filter(|_| nodes >= 16) {
        if let Some(part) = cuts::first_nodes(&light, nodes * eighths / 8) {
            all.push((format!("{name}-{eighths}"), part.encode_to_vec()));
        }
    }
    Ok(all)
}

/// The plan of a graph whose inputs have one size a dimension, if it is small.
fn plan_seed(corpus: &Path, name: &str, graph: Graph) -> Outcome<()> {
    let mut b = Builder::new(Arc::new(Cpu::new()), Cpu::target());
    b.config = BuildConfig { estimates: true, max_tactics: 1, ..BuildConfig::default() };
    let Ok(built) = b.build_graph(graph.clone(), &mut |_, _, _| true) else { return Ok(()) };
    let program = built.program.to_cbor(&mut BySize, &mut BlobList::default())?;
    if program.len() <= LARGEST {
        write(corpus, "payloads", &format!("program-{name}"), &[&[1], &program[..]].concat())?;
    }
    let bytes = Plan::new(built.program, Vec::new(), Cpu::target()).with_network(graph).write()?;
    if bytes.len() <= LARGEST {
        write(corpus, "plan_file", name, &bytes)?;
    }
    Ok(())
}

fn files_under(folder: &Path, extension: &str) -> Outcome<Vec<PathBuf>> {
    let (mut out, mut todo) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(f) = todo.pop() {
        for entry in std::fs::read_dir(f)? {
            let path = entry?.path();
            match path.is_dir() {
                true => todo.push(path),
                false if path.extension().is_some_and(|e| e == extension) => out.push(path),
                false => {}
            }
        }
    }
    out.sort();
    Ok(out)
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> Outcome<()> {
    let folder = corpus.join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)?;
    Ok(())
}

fn graph_seeds(corpus: &Path, name: &str, g: &Graph) -> Outcome<()> {
    let text = g.to_text();
    if text.len() <= 16384 {
        write(corpus, "graph_text", name, text.as_bytes())?;
    }
    let cbor = g.to_cbor(&mut BySize)?;
    if cbor.len() <= 16384 {
        write(corpus, "graph_cbor", name, &cbor)?;
    }
    for (id, node) in g.nodes().take(40) {
        if let Ok(cbor) = Region::extract(g, &[id])?.to_cbor(&mut BySize) {
            write(corpus, "payloads", &format!("region-{}", node.op.name()), &[&[0], &cbor[..]].concat())?;
        }
    }
    Ok(())
}

/// Plans of networks that no model has, and targets and tactics as payloads.
fn network_seeds(corpus: &Path) -> Outcome<()> {
    for (name, network) in [("chain", chain()?), ("cache", cache()?)] {
        plan_seed(corpus, name, network.lower()?)?;
    }
    let targets = Cpu::new().targets()?;
    write(corpus, "payloads", "target", &[&[2], &targets[0].to_cbor()?[..]].concat())?;
    let tactics = kiln_backend::wire::tactics_to_cbor(&[kiln_backend::Tactic::plain("oracle")])?;
    write(corpus, "payloads", "tactics", &[&[3], &tactics[..]].concat())
}

/// Archives, timing caches and manifests.
fn file_seeds(corpus: &Path) -> Outcome<()> {
    let array = kiln_npz::Array::from_f32(&[2, 3], &[1.0, -2.0, 0.5, f32::NAN, 0.0, 7.0])?;
    write(corpus, "npz", "array", &kiln_npz::write_npy(&array)?)?;
    let arrays = [("a", array.clone()), ("b", kiln_npz::Array::from_i64(&[0], &[])?), ("c/0", array)];
    let arrays = arrays.map(|(n, a)| (n.to_owned(), a)).into();
    for compression in [kiln_npz::Compression::Stored, kiln_npz::Compression::Deflated] {
        let bytes = kiln_npz::write_npz_bytes(&arrays, compression)?;
        write(corpus, "npz", &format!("{compression:?}"), &bytes)?;
    }
    let mut b = Builder::new(Arc::new(Cpu::new()), Cpu::target());
    b.config.samples = 2;
    b.build(&chain()?)?;
    write(corpus, "timing_cache", "chain", b.cache.to_text().as_bytes())?;
    let hash = blake3::hash(b"no library").to_hex();
    for (name, file, kind, hash) in [
        ("whole", "libkiln_backend_fuzz.so", "backend", hash.as_str()),
        ("layers", "libkiln_backend_fuzz.so", "layers", "00"),
        ("other", "../other.so", "backend", ""),
    ] {
        let manifest = format!(
            "file = \"{file}\"\nkind = \"{kind}\"\nabi = \"1.6\"\nblake3 = \"{hash}\"\nunknown = [1, {{ a = 2.5 }}]\n"
        );
        write(corpus, "manifest", name, manifest.as_bytes())?;
    }
    Ok(())
}

fn f32_input(n: &mut Network, name: &str, dims: &[i64]) -> Outcome<kiln_network::TensorId> {
    let dims = dims.iter().map(|&d| kiln_ir::Dim::new(d));
    Ok(n.add_input(name, TensorType::new(kiln_ir::DType::F32, dims))?)
}

fn chain() -> Outcome<Network> {
    let mut n = Network::new("chain");
    let x = f32_input(&mut n, "x", &[2, 6])?;
    let mut rng = kiln_ir::problem::Rng::new(1);
    let w = n.add_weights(Some("w"), rng.tensor(kiln_ir::DType::F32, &[6, 5]))?;
    let e = n.add_layer("", "exp", Default::default(), &[Some(w)])?[0];
    let y = n.add_layer("", "matmul", Default::default(), &[Some(x), Some(e)])?[0];
    let y = n.add_layer("", "tanh", Default::default(), &[Some(y)])?[0];
    let y = n.add_layer("", "softmax", Default::default(), &[Some(y)])?[0];
    n.mark_output(y, "y")?;
    Ok(n)
}

fn cache() -> Outcome<Network> {
    let mut n = Network::new("cache");
    let x = f32_input(&mut n, "x", &[1, 4, 3])?;
    let c = n.add_layer("", "neg", Default::default(), &[Some(x)])?[0];
    let u = f32_input(&mut n, "u", &[1, 2, 3])?;
    let y = n.add_layer("", "kv_cache_update", Default::default(), &[Some(c), Some(u)])?[0];
    n.mark_output(y, "y")?;
    Ok(n)
}
