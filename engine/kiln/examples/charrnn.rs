//! Writes text with a trained character LSTM, from two models. One is a network written with the API, whose
//! loops run an LSTM cell; the other is the ONNX model that was exported with its loops. Both end where the
//! model writes a newline.
//!
//! `cargo run --release -p kiln --example charrnn -- [BACKEND [PROMPT]]`

use kiln::network::LayerId;
use kiln::network::{
    ActivationKind, ElementwiseOp, LoopId, LoopOutputKind, MatrixOp, NetworkError, TensorId, TopKOp,
    TripLimitKind, UnaryOp,
};
use kiln::{Backends, BuildConfig, DType, Dim, DiscoverOptions, Engine, Network, Tensor, TensorType};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The id of the character that ends a text.
const NEWLINE: i64 = 0;

/// A trained model: its weights by name, and the character of each id.
pub struct Model {
    weights: BTreeMap<String, Tensor>,
    chars: Vec<String>,
}

/// The folder of the trained models.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/charrnn")
}

impl Model {
    /// Reads `NAME_weights.npz` and `vocab.json`.
    pub fn read(folder: &Path, name: &str) -> Result<Model> {
        let arrays = kiln_npz::read_npz(folder.join(format!("{name}_weights.npz")))?;
        let tensor = |(name, a): (String, kiln_npz::Array)| {
            let shape: Vec<usize> = a.shape.iter().map(|&d| d as usize).collect();
            let t = Tensor::from_bytes(DType::F32, &shape, a.data.clone());
            Ok((name.clone(), t.ok_or_else(|| format!("{name} is no array of f32"))?))
        };
        let weights = arrays.into_iter().map(tensor).collect::<Result<_>>()?;
        let vocab: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("vocab.json"))?)?;
        let chars = serde_json::from_value(vocab["chars"].clone())?;
        Ok(Model { weights, chars })
    }

    /// The ids of a text.
    pub fn ids(&self, text: &str) -> Result<Tensor> {
        let id = |c: char| self.chars.iter().position(|x| x.chars().eq([c])).map(|i| i as i64);
        let ids: Option<Vec<i64>> = text.chars().map(id).collect();
        let ids = ids.ok_or("the prompt has a character that the model does not know")?;
        Ok(Tensor::from_slice(&[ids.len()], &ids)?)
    }

    /// The text of ids.
    pub fn text(&self, ids: &Tensor) -> String {
        let char_of =
            |i: i64| usize::try_from(i).ok().and_then(|i| self.chars.get(i)).map_or("?", String::as_str);
        ids.to_i64().into_iter().map(char_of).collect()
    }
}

/// The weights of a model of one layer in a network.
struct Cell {
    embedding: TensorId,
    input: TensorId,
    hidden: TensorId,
    biases: [TensorId; 2],
    head: TensorId,
    head_bias: TensorId,
    units: i64,
}

fn number(n: i64) -> Result<Tensor> {
    Ok(Tensor::from_slice(&[], &[n])?)
}

fn binary(
    net: &mut Network,
    a: TensorId,
    op: ElementwiseOp,
    b: TensorId,
) -> std::result::Result<TensorId, NetworkError> {
    net.add_elementwise(a, b, op)?.output(0)
}

impl Cell {
    fn add(net: &mut Network, model: &Model) -> Result<Cell> {
        let mut weight = |name: &str, row: bool| -> Result<TensorId> {
            let t = model.weights.get(name).ok_or_else(|| format!("the model has no {name}"))?.clone();
            let shape = t.shape().to_vec();
            let id = net.add_weights(Some(name), t)?;
            if !row {
                return Ok(id);
            }
            Ok(net
                .add_shuffle(id)?
                .set_reshape_dimensions(&[1, shape.iter().product::<usize>() as i64])?
                .output(0)?)
        };
        let units = model.weights.get("lstm.weight_hh_l0").map_or(0, |w| w.shape()[1] as i64);
        Ok(Cell {
            embedding: weight("embedding.weight", false)?,
            input: weight("lstm.weight_ih_l0", false)?,
            hidden: weight("lstm.weight_hh_l0", false)?,
            biases: [weight("lstm.bias_ih_l0", true)?, weight("lstm.bias_hh_l0", true)?],
            head: weight("fc.weight", false)?,
            head_bias: weight("fc.bias", true)?,
            units,
        })
    }

    /// x·wᵀ of rows.
    fn product(&self, net: &mut Network, x: TensorId, w: TensorId) -> Result<TensorId> {
        Ok(net.add_matrix_multiply(x, MatrixOp::None, w, MatrixOp::Transpose)?.output(0)?)
    }

    /// One step for the character of an id [1]: the next hidden and cell state, [1, units].
    fn step(&self, net: &mut Network, id: TensorId, [h, c]: [TensorId; 2]) -> Result<[TensorId; 2]> {
        let x = net.add_gather(self.embedding, id, 0)?.output(0)?;
        let (from_x, from_h) = (self.product(net, x, self.input)?, self.product(net, h, self.hidden)?);
        let mut gates = binary(net, from_x, ElementwiseOp::Sum, from_h)?;
        for bias in self.biases {
            gates = binary(net, gates, ElementwiseOp::Sum, bias)?;
        }
        let mut gate = |k: i64, f: ActivationKind| -> Result<TensorId> {
            let part = net.add_slice(gates, &[0, k * self.units], &[1, self.units], &[1, 1])?.output(0)?;
            Ok(net.add_activation(part, f)?.output(0)?)
        };
        let (i, f) = (gate(0, ActivationKind::Sigmoid)?, gate(1, ActivationKind::Sigmoid)?);
        let (g, o) = (gate(2, ActivationKind::Tanh)?, gate(3, ActivationKind::Sigmoid)?);
        let (kept, new) = (binary(net, f, ElementwiseOp::Prod, c)?, binary(net, i, ElementwiseOp::Prod, g)?);
        let c = binary(net, kept, ElementwiseOp::Sum, new)?;
        let squashed = net.add_activation(c, ActivationKind::Tanh)?.output(0)?;
        Ok([binary(net, o, ElementwiseOp::Prod, squashed)?, c])
    }

    /// The id of the likeliest next character, [1].
    fn likeliest(&self, net: &mut Network, h: TensorId) -> Result<TensorId> {
        let logits = self.product(net, h, self.head)?;
        let logits = binary(net, logits, ElementwiseOp::Sum, self.head_bias)?;
        let best = net.add_topk(logits, TopKOp::Max, 1, 0b10)?.output(1)?;
        let best = net.add_shuffle(best)?.set_reshape_dimensions(&[1])?.output(0)?;
        Ok(net.add_cast(best, DType::I64)?.output(0)?)
    }
}

/// Recurrences of a loop: their layers, and what they are inside.
fn recurrences(
    net: &mut Network,
    l: LoopId,
    initial: [TensorId; 2],
) -> std::result::Result<([LayerId; 2], [TensorId; 2]), NetworkError> {
    let mut one = |t| {
        let r = net.add_recurrence(l, t)?;
        Ok::<_, NetworkError>((r.id(), r.output(0)?))
    };
    let ((a, x), (b, y)) = (one(initial[0])?, one(initial[1])?);
    Ok(([a, b], [x, y]))
}

/// Inputs `prompt` i64 [length] and `max_new` i64 []; output `generated` i64 [count, 1]. A counted loop reads the prompt,
/// one with a condition writes.
pub fn network(model: &Model) -> Result<Network> {
    let mut net = Network::new("charrnn");
    let prompt = net.add_input("prompt", TensorType::new(DType::I64, [Dim::host("length")]))?;
    let max_new = net.add_input("max_new", TensorType::new(DType::I64, [0i64; 0]))?;
    let cell = Cell::add(&mut net, model)?;
    let zeros = Tensor::zeros(DType::F32, &[1, cell.units as usize])?;
    let zero = net.add_weights(None, zeros)?;

    let length = net.add_shape(prompt)?.output(0)?;
    let length = net.add_shuffle(length)?.set_reshape_dimensions(&[])?.output(0)?;
    let reading = net.add_loop()?;
    net.set_loop_name(reading, "reading")?;
    net.add_trip_limit(reading, length, TripLimitKind::Count)?;
    let id = net.add_iterator(reading, prompt, 0, false)?.output(0)?;
    let id = net.add_shuffle(id)?.set_reshape_dimensions(&[1])?.output(0)?;
    let (layers, state) = recurrences(&mut net, reading, [zero, zero])?;
    let next = cell.step(&mut net, id, state)?;
    let mut read = Vec::new();
    for ((layer, now), next) in layers.into_iter().zip(state).zip(next) {
        net.set_input(layer, 1, next)?;
        read.push(net.add_loop_output(reading, now, LoopOutputKind::LastValue, 0)?.output(0)?);
    }

    let writing = net.add_loop()?;
    net.set_loop_name(writing, "writing")?;
    net.add_trip_limit(writing, max_new, TripLimitKind::Count)?;
    let yes = Tensor::from_slice(&[], &[true])?;
    let (yes, newline) = (net.add_weights(None, yes)?, net.add_weights(None, number(NEWLINE)?)?);
    let goes_on = net.add_recurrence(writing, yes)?;
    let (goes_on, go) = (goes_on.id(), goes_on.output(0)?);
    net.add_trip_limit(writing, go, TripLimitKind::While)?;
    let (layers, state) = recurrences(&mut net, writing, [read[0], read[1]])?;
    let id = cell.likeliest(&mut net, state[0])?;
    let next = cell.step(&mut net, id, state)?;
    for (layer, next) in layers.into_iter().zip(next) {
        net.set_input(layer, 1, next)?;
    }
    let one = net.add_shuffle(id)?.set_reshape_dimensions(&[])?.output(0)?;
    let ends = binary(&mut net, one, ElementwiseOp::Equal, newline)?;
    let more = net.add_unary(ends, UnaryOp::Not)?.output(0)?;
    net.set_input(goes_on, 1, more)?;
    let written = net.add_loop_output(writing, id, LoopOutputKind::Concatenate, 0)?;
    let written = written.set_exact_length()?.output(0)?;
    net.mark_output(written, "generated")?;
    Ok(net)
}

/// An engine for prompts of 1 to 64 characters.
pub fn engine<M>(model: M, backend: &str, backends: &Backends) -> Result<Engine>
where
    M: TryInto<kiln::Model>,
    kiln::Error: From<M::Error>,
{
    let builder = Engine::builder().backend(backend).backends(backends.clone());
    let builder = builder.config(BuildConfig { max_tactics: 1, ..BuildConfig::default() });
    Ok(builder.shapes("prompt", &[1], &[16], &[64]).build(model)?)
}

/// Returns the text that follows a prompt: up to a newline, or `max_new` characters.
pub fn write(engine: &Engine, model: &Model, prompt: &str, max_new: i64) -> Result<String> {
    let inputs = [("prompt", model.ids(prompt)?), ("max_new", number(max_new)?)];
    Ok(model.text(engine.run(inputs)?.get("generated")?))
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let backend = args.next();
    let prompt = args.next().unwrap_or_else(|| "MERCHANTABILITY or ".to_owned());
    let (backends, _) = kiln::backends(&DiscoverOptions::default());
    let backend = backend.map_or_else(|| kiln::best(&backends), Ok)?;
    println!("on {backend}");
    let model = Model::read(&folder(), "h128")?;
    let by_hand = engine(&network(&model)?, &backend, &backends)?;
    println!("written with the API: {prompt}{}", write(&by_hand, &model, &prompt, 80)?);
    let exported = folder().join("h128_generate.onnx");
    let exported = engine(exported.as_path(), &backend, &backends)?;
    println!("exported to ONNX:     {prompt}{}", write(&exported, &model, &prompt, 80)?);
    Ok(())
}
