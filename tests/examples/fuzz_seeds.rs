//! Writes the seed corpus: `fuzz_seeds MODELS CORPUS` makes of every ONNX file under MODELS the inputs that each target
//! wants, as files under CORPUS. Weights are cut down to a few elements' worth where a form keeps their bytes.

#![allow(clippy::print_stdout, reason = "a command line tool")]

use kiln_backend::wire::BlobList;
use kiln_backend::{Backend, Region};
use kiln_builder::Builder;
use kiln_ir::{Graph, Network, TensorType};
use kiln_reference::Reference;
use kiln_runtime::plan::Plan;
use kiln_tests::mutants::BySize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, models, corpus] = &args[..] else { return Err("usage: fuzz_seeds MODELS CORPUS".into()) };
    let corpus = Path::new(corpus);
    let mut made = 0;
    for path in models_under(Path::new(models))? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path)?;
        if bytes.len() <= 8192 {
            write(corpus, "onnx_model", &name, &bytes)?;
        }
        let Ok(done) = kiln_onnx::parse_file(&path, &Default::default()) else { continue };
        if let Ok(g) = done.network.lower() {
            graph_seeds(corpus, &name, &g)?;
            made += 1;
        }
    }
    plan_seeds(corpus)?;
    file_seeds(corpus)?;
    println!("seeds of {made} models");
    Ok(())
}

fn models_under(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let (mut out, mut todo) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(f) = todo.pop() {
        for entry in std::fs::read_dir(f)? {
            let path = entry?.path();
            match path.is_dir() {
                true => todo.push(path),
                false if path.extension().is_some_and(|e| e == "onnx") => out.push(path),
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

/// Plans of small networks, and their programs and targets as payloads.
fn plan_seeds(corpus: &Path) -> Outcome<()> {
    for (name, network) in [("chain", chain()?), ("cache", cache()?)] {
        let mut b = Builder::new(Arc::new(Reference::new()), Reference::target());
        b.config.max_tactics = 1;
        let program = b.build(&network)?.program;
        let cbor = program.to_cbor(&mut BySize, &mut BlobList::default())?;
        write(corpus, "payloads", &format!("program-{name}"), &[&[1], &cbor[..]].concat())?;
        let plan = Plan::new(program, Vec::new(), Reference::target()).with_network(network.lower()?);
        write(corpus, "plan_file", name, &plan.write()?)?;
    }
    let targets = Reference::new().targets()?;
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
    let mut b = Builder::new(Arc::new(Reference::new()), Reference::target());
    b.config.samples = 2;
    b.build(&chain()?)?;
    write(corpus, "timing_cache", "chain", b.cache.to_text().as_bytes())?;
    let hash = blake3::hash(b"no library").to_hex();
    let manifest = format!(
        "file = \"libkiln_backend_fuzz.so\"\nkind = \"backend\"\nabi = \"1.0\"\nblake3 = \"{hash}\"\n"
    );
    write(corpus, "manifest", "whole", manifest.as_bytes())
}

fn f32_input(n: &mut Network, name: &str, dims: &[i64]) -> Outcome<kiln_ir::TensorId> {
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
