//! The text form of graphs.

use kiln_ir::dim::Dim;
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::wire::{MAX_NESTING, WeightList};
use kiln_ir::{Attrs, DType, Fact, Graph, IrError, Op, Tensor, TensorType};

const SMALL: &str = r#"graph "small" {
  device ?k <= 4*n + 1
  input %x: f32[n,3]
  input %s: i64[2] = (n,@s.1)
  weight %c: f32[3] = [1.0, -0.5, 1e-9]
  %y: f32[n,3] = mul(%x, %c)
  %"a b": f32[?k,floordiv(n, 2)] = neg(%y) @"layer 2" meta {precision=f16, outputs=[_, f32], text="a\n\"b\""}
  %z: i64[2] is (n,3) = shape(%y)
  output %"a b", %z, %x
}
"#;

/// The text of a graph parses back to it, and then prints the same.
#[track_caller]
fn round_trip(g: &Graph) {
    let text = g.to_text();
    let tensors = g.referred_tensors();
    let back = Graph::from_text_with(&text, &|r| tensors.get(&r.hash).cloned());
    let back = back.unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert_eq!(back.to_text(), text);
    assert_eq!(back, *g, "{text}");
    // Equality of symbols ignores origins and bounds; the binary form has them.
    let bytes = |g: &Graph| g.to_cbor(&mut WeightList::default()).unwrap();
    assert_eq!(bytes(&back), bytes(g), "{text}");
}

#[track_caller]
fn refused(text: &str, line: usize, what: &str) {
    match Graph::from_text(text) {
        Err(IrError::Parse { line: found, message }) => {
            assert!(message.contains(what), "\"{message}\" does not say \"{what}\"");
            assert_eq!(found, line, "{message}");
        }
        other => panic!("{other:?}"),
    }
}

fn with(line: &str) -> String {
    format!("graph \"g\" {{\n  input %x: f32[4,3]\n  {line}\n}}")
}

#[test]
fn formats_of_inputs_and_outputs_are_part_of_the_text() {
    let text = with("formats \"x\" [linear, hwc8]\n  packed \"y\" chw32 35");
    let g = Graph::from_text(&text).unwrap();
    assert_eq!(g.allowed_formats["x"].iter().map(|f| f.name()).collect::<Vec<_>>(), ["linear", "hwc8"]);
    assert_eq!((g.packings["y"].format.name(), g.packings["y"].channels()), ("chw32", Some(35)));
    round_trip(&g);
    refused(&with("formats \"x\" [hwc9]"), 3, "is not a format");
}

#[test]
fn a_text_says_what_the_graph_is() {
    let g = Graph::from_text(SMALL).unwrap();
    assert_eq!(g.to_text(), SMALL);
    let a = g.find("a b").unwrap();
    assert_eq!(g.ty(a).dims[0].upper_bound(), Some(Dim::host("n") * 4.into() + 1.into()));
    let (_, node) = g.producer(a).unwrap();
    assert_eq!(
        (node.name.as_str(), node.op.name(), node.meta.precision),
        ("layer 2", "neg", Some(DType::F16))
    );
    assert_eq!(node.meta.metadata, "a\n\"b\"");
    assert_eq!(g.weight(g.find("c").unwrap()).unwrap().tensor.to_f64()[..2], [1.0, -0.5]);
    let s = g.value(g.inputs[1]).fact.as_dims().unwrap();
    assert!(s[1].has_content() && !s[0].has_content());
    round_trip(&g);
}

#[test]
fn types_are_inferred_where_none_is_written() {
    let text = "graph \"g\" { # short\n input %x: f16[b,8] weight %w: f16[8,300] = seed 7\n %y = matmul(%x, %w) output %y }";
    let g = Graph::from_text(text).unwrap();
    assert_eq!(g.ty(g.outputs[0]).to_string(), "f16[b,300]");
    assert_eq!(g.weight(g.find("w").unwrap()).unwrap().tensor, Rng::new(7).tensor(DType::F16, &[8, 300]));
    g.verify().unwrap();
    round_trip(&g);
}

#[test]
fn graphs_of_random_problems_survive() {
    let mut rng = Rng::new(11);
    let problems: Vec<Problem> = kiln_ops::all().flat_map(|d| (d.problems)(&mut Rng::new(5))).collect();
    for (n, some) in problems.chunks(7).enumerate() {
        let mut g = Graph::new(&format!("problems {n}"));
        for (i, p) in some.iter().enumerate() {
            let layer = format!("{}.{i}", p.label);
            let inputs = p.inputs.iter().enumerate().map(|(k, t)| {
                let (t, name) = (t.clone()?, format!("{layer}/{k}"));
                let host = p.op.port(k).is_some_and(|p| p.host);
                Some(match host || rng.int(0, 1) == 1 {
                    true => g.add_constant(&name, t),
                    false => g.add_input(&name, Fact::of(t.ty())),
                })
            });
            let inputs: Vec<_> = inputs.collect();
            let outs = g.add_node(&layer, p.op.clone(), &inputs).unwrap();
            g.outputs.extend(outs);
        }
        round_trip(&g);
    }
}

#[test]
fn recipes_regions_and_odd_contents_survive() {
    let mut g = Graph::from_text(SMALL).unwrap();
    let inner = Graph::from_text(SMALL).unwrap();
    let nan = Tensor::from_bytes(DType::F32, &[2], vec![1, 0, 0xc0, 0x7f, 0, 0, 0, 0x80]).unwrap();
    let floats = [f32::NAN, f32::INFINITY, -0.0, 0.1, f32::MIN_POSITIVE, 16_777_216.0, 1e-45, f32::MAX];
    g.add_constant("nan", nan);
    g.add_constant("floats", Tensor::f32(&[8], &floats).unwrap());
    g.add_constant("empty", Tensor::f32(&[0, 2], &[]).unwrap());
    g.add_constant("scalar", Tensor::i64(&[], &[i64::MIN]).unwrap());
    let mut fold = Graph::new("fold \\ \"\u{1F980}\"");
    let b = fold.add_input("b", Fact::of(TensorType::new(DType::F32, [40])));
    fold.outputs = vec![fold.add("y", Op::new("neg", Attrs::new()).unwrap(), &[b]).unwrap()];
    let recipe = Some(std::sync::Arc::new(kiln_ir::Recipe { graph: fold, sources: vec!["b\n".into()] }));
    let tensor = Rng::new(1).tensor(DType::BF16, &[40]);
    g.add_weight("", kiln_ir::Weight { tensor, name: Some("w:0".into()), recipe });
    let id = g.order()[0];
    g.get_mut(id).unwrap().regions = vec![inner.clone(), inner];
    let attrs = Attrs::new().with("equation", "ij->ji");
    let y = g.find("y").unwrap();
    g.add("einsum", Op::new("einsum", attrs).unwrap(), &[y]).unwrap();
    round_trip(&g);
}

#[test]
fn errors_name_the_line_and_what_is_wrong() {
    refused(&with("%y = nag(%x)"), 3, "\"nag\"");
    refused(&with("%y = neg(%z)"), 3, "%z is read before");
    refused(&with("%x = neg(%x)"), 3, "%x is defined twice");
    refused(&with("%y = neg(%x) {axis=1}"), 3, "axis");
    refused(&with("%y = neg()"), 3, "missing");
    refused(&with("%y = matmul(%x, %x)"), 3, "columns");
    refused(&with("%y: f33[2] = neg(%x)"), 3, "element type");
    refused(&with("%y, %z = neg(%x)"), 3, "2 are written");
    refused(&with("weight %w: f32[2] = [1.0]"), 3, "not the elements of f32[2]");
    refused(&with("weight %w: u8[1] = [256]\n"), 3, "256 is no u8");
    refused(&with("weight %w: f32[99] = ref 0xff\n"), 3, "0x00000000000000ff");
    refused(&with("weight %w: f32[99999999999] = seed 1\n"), 3, "the most for a seed");
    refused(&with("weight %w: f32[1] = 0x000\n"), 3, "half a byte");
    refused(&with("input %z: f32[foo(n, 2)]"), 3, "`foo`");
    refused(&with("input %z: f32[2,-3]"), 3, "f32[2,-3] has size -3 along axis 1");
    refused(&with("%y: f32[-1] = neg(%x)"), 3, "size -1 along axis 0");
    refused(&with("output %y"), 3, "%y is read before");
    refused(&with("do neg(%x)"), 3, "needs `@`");
    refused(&with("%y = neg(%x) @\"a"), 3, "ends with its line");
    refused("graph \"g", 1, "does not end");
    refused(&with("%y = neg(%x) @\"\\q\""), 3, "escape");
    refused(&with("$"), 3, "'$'");
    refused("graph \"g\" {\n", 2, "found the end");
    refused("graph \"g\" {}\n\n{", 3, "the graph is complete");
}

#[test]
fn nesting_is_bounded() {
    let open = "graph \"g\" { weight %w: f32[0] = [] recipe [] ";
    refused(&open.repeat(100_000), 1, &format!("deeper than {MAX_NESTING}"));
    refused(&with(&format!("input %y: f32[{}", "max(".repeat(100_000))), 3, "nests deeper");
}

#[test]
fn damaged_texts_never_panic() {
    let text = SMALL.to_owned() + &with("%y = topk(%x, %x) {axis=-1, largest=true} graph \"r\" {}");
    for n in 0..text.len() {
        if text.is_char_boundary(n) {
            let _ = Graph::from_text(&text[..n]);
            for c in ["\"", "%", "0x", "(", "}", "-", "\\", "é", "9999999999999999999999", "\n"] {
                let _ = Graph::from_text(&format!("{}{c}{}", &text[..n], &text[n..]));
                let _ = Graph::from_text(&format!("{}{c}{}", &text[..n], text.get(n + 1..).unwrap_or("")));
            }
        }
    }
}
