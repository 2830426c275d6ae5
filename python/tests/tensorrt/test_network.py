"""The native form of the network definition: kinds, parameters by name, errors."""

from __future__ import annotations

import numpy as np
import pytest

import kiln

ONES = np.ones((2, 3, 1, 1), np.float32)


def network() -> tuple[kiln.Network, object]:
    net = kiln.Network("net")
    return net, net.add_input("x", "f32", [1, 3, 8, 8])


def run(net: kiln.Network, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    outputs = kiln.Engine.open(net, backend="cpu").run(inputs)
    return {name: np.asarray(t) for name, t in outputs.items()}


# Kind, further shapes of inputs, parameters to set: each is read back.
PARAMS = {
    "activation": ([], {"type": "leaky_relu", "alpha": 0.25, "beta": 0.0}),
    "concatenation": ([[1, 3, 8, 8]], {"axis": 2}),
    "convolution": (
        [],
        {
            "maps": 2, "kernel_size": [1, 1], "stride": [2, 1], "pre_padding": [1, 0], "post_padding": [0, 1],
            "dilation": [1, 2], "padding_mode": "explicit_round_up",
        },
    ),
    "elementwise": ([[1, 3, 8, 8]], {"op": "sub"}),
    "grid_sample": ([[1, 4, 4, 2]], {"mode": "nearest", "align_corners": True, "outside": "clamp"}),
    "lrn": ([], {"window": 3, "alpha": 0.5, "beta": 0.75, "k": 2.0}),
    "matrix_multiply": ([[1, 3, 8, 8]], {"ops": ("transpose", "none")}),
    "padding": ([], {"pre_padding": [1, 2], "post_padding": [0, 1]}),
    "pooling": (
        [],
        {
            "type": "average", "window_size": [2, 2], "stride": [2, 2], "pre_padding": [1, 1], "post_padding": [1, 1],
            "padding_mode": "explicit_round_down", "excludes_padding": False,
        },
    ),
    "reduce": ([], {"op": "max", "axes": 0b100, "keep_dims": True}),
    "resize": (
        [],
        {
            "size": ("dims", [1, 3, 4, 4]), "mode": "linear", "coordinates": "half_pixel", "rounding": "ceil",
            "selector": "upper",
        },
    ),
    "scale": ([], {"mode": "channel", "channel_axis": 1}),
    "shuffle": ([], {"first_transpose": [0, 2, 3, 1], "reshape_dims": [1, -1], "second_transpose": [1, 0]}),
    "slice": ([], {"start": [0, 0, 1, 0], "size": [1, 3, 4, 4], "stride": [1, 1, 2, 1], "mode": "strict_bounds"}),
    "softmax": ([], {"axes": 0b10}),
    "topk": ([], {"op": "min", "k": 2, "axes": 0b1000, "indices_type": "i64"}),
    "unary": ([], {"op": "abs"}),
    "cast": ([], {"to": "f16"}),
}


@pytest.mark.parametrize("kind", sorted(PARAMS))
def test_parameters_are_read_back_and_change_the_layer(kind: str) -> None:
    shapes, params = PARAMS[kind]
    net, x = network()
    more = [net.add_input(f"m{i}", "f32", s) for i, s in enumerate(shapes)]
    given = dict(params)
    if kind == "convolution":
        given["kernel"] = ONES
    layer = getattr(net, f"add_{kind}")(x, *more, **given)
    assert layer.kind == kind and layer.output().producer == layer
    for name, value in params.items():
        assert layer.params[name] == value, name
    before = layer.output().shape
    with pytest.raises(ValueError, match="no_such_parameter"):
        layer.set(no_such_parameter=1)
    assert layer.output().shape == before


def test_layers_compute_what_their_parameters_say() -> None:
    net, x = network()
    conv = net.add_convolution(x, maps=2, kernel_size=[1, 1], kernel=ONES, bias=np.array([1, 2], np.float32))
    relu = net.add_activation(conv.output(), type="relu")
    net.mark_output(relu.output(), "y")
    a = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    wanted = np.maximum(a.sum(1, keepdims=True) + np.array([1, 2], np.float32).reshape(1, 2, 1, 1), 0)
    assert np.allclose(run(net, x=a)["y"], wanted, atol=1e-5)
    conv.set(stride=[2, 2])
    assert relu.output().shape == [1, 2, 4, 4]
    assert np.allclose(run(net, x=a)["y"], wanted[:, :, ::2, ::2], atol=1e-5)


def test_a_change_that_does_not_fit_changes_nothing() -> None:
    net, x = network()
    pool = net.add_pooling(x, type="max", window_size=[2, 2])
    with pytest.raises(kiln.Error, match="pooling"):
        pool.set(window_size=[2, 2, 2, 2])
    assert pool.params["window_size"] == [2, 2]
    with pytest.raises(ValueError, match="round_down"):
        pool.set(padding_mode="sideways")
    with pytest.raises(ValueError, match="activation"):
        net.add("no_such_kind", x)
    with pytest.raises(AttributeError, match="add_no_such_kind"):
        net.add_no_such_kind(x)
    other, y = network()
    with pytest.raises(ValueError, match="another network"):
        net.add_elementwise(x, y, op="sum")
    with pytest.raises(kiln.Error, match="can't become a constant"):
        shuffle = net.add_shuffle(x)
        shape = net.add_input("shape", "i64", [2])
        shuffle.set_inputs({1: shape})
        shuffle.set(reshape_dims=[1, -1])


def test_constants_come_from_arrays_and_from_bytes() -> None:
    net, x = network()
    one = net.add_constant(weights=("f32", [1, 1, 1, 1], np.float32(3).tobytes()))
    two = net.add_constant(weights=np.full((1, 3, 1, 1), 2, np.float32))
    total = net.add_elementwise(one.output(), two.output(), op="sum")
    net.mark_output(net.add_elementwise(x, total.output(), op="prod").output(), "y")
    a = np.ones((1, 3, 8, 8), np.float32)
    assert (run(net, x=a)["y"] == 5).all()
    assert two.params["weights"][:2] == ("f32", [1, 3, 1, 1])
    with pytest.raises(ValueError, match="do not fill"):
        net.add_constant(weights=("f32", [2], b"\0\0\0\0"))
    with pytest.raises((ValueError, TypeError, kiln.Error)):
        net.add_constant(weights="text")


def test_loops_conditionals_names_and_marks() -> None:
    net = kiln.Network("flow", strongly_typed=False)
    x = net.add_input("x", "f32", [2])
    loop = net.add_loop()
    loop.name = "twice"
    count = net.add_constant(weights=("i32", [], np.int32(2).tobytes())).output()
    loop.add_trip_limit(count, "count")
    rec = loop.add_recurrence(x)
    rec.set_inputs({1: net.add_elementwise(rec.output(), rec.output(), op="sum").output()})
    out = loop.add_output(rec.output(), "last_value")
    assert out.params["kind"] == "last_value" and loop.name == "twice"
    net.mark_output(out.output(), "y")
    assert np.array_equal(run(net, x=np.array([1, 2], np.float32))["y"], [4, 8])
    with pytest.raises(kiln.Error, match="count"):
        loop.add_trip_limit(count, "count")
    assert [t.name for t in net.outputs] == ["y"] and net.find_tensor("y") == net.outputs[0]
    net.unmark_output(net.outputs[0])
    assert net.outputs == [] and len(net) == len(net.layers) and net[0] == net.layers[0]
    with pytest.raises(IndexError):
        net[99]


def test_a_parsed_model_has_the_names_of_its_values(lenet_path: object) -> None:
    net = kiln.Network()
    net.parse_onnx(open(str(lenet_path), "rb").read())
    assert net.find_tensor("/conv1/Conv_output_0").producer.kind in ("convolution", "conv")
    with pytest.raises(ValueError):
        net.parse_onnx(b"no model")
    assert len(net) > 5, "a failed parse leaves the network alone"
