"""Settings of a configuration become options of Kiln's build; those of contexts reach the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kiln.tensorrt as trt
from kiln.tensorrt._config import build_options

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "data" / "digits"
QUIET = trt.Logger(trt.Logger.INTERNAL_ERROR)


def config_and_network() -> tuple[Any, Any, Any]:
    builder = trt.Builder(QUIET)
    return builder, builder.create_builder_config(), builder.create_network(0)


FLAGS = {
    "FP16": {"types": ["f16"]},
    "BF16": {"types": ["bf16"]},
    "INT8": {"types": ["i8"]},
    "FP8": {"types": ["f8e4m3"]},
    "OBEY_PRECISION_CONSTRAINTS": {"constraints": "obey"},
    "PREFER_PRECISION_CONSTRAINTS": {"constraints": "prefer"},
    "SPARSE_WEIGHTS": {"sparsity": "enable"},
    "REFIT": {"refit": "all"},
    "REFIT_IDENTICAL": {"refit": "identical"},
    "REFIT_INDIVIDUAL": {"refit": ["w"]},
    "STRIP_PLAN": {"strip_weights": True},
    "VERSION_COMPATIBLE": {"version_compatible": True},
    "ERROR_ON_TIMING_CACHE_MISS": {"locked": True},
    "DISABLE_TIMING_CACHE": {"share_times": False},
}


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_a_flag_becomes_an_option(flag: str) -> None:
    _, config, network = config_and_network()
    network.mark_weights_refittable("w")
    before = build_options(config, network)
    config.set_flag(trt.BuilderFlag[flag])
    after = build_options(config, network)
    assert {k: v for k, v in after.items() if before.get(k) != v} == FLAGS[flag]
    config.clear_flag(trt.BuilderFlag[flag])
    assert build_options(config, network) == before


ROUTES = {
    "-level=5": {"optimization_level": 5},
    "-fuse=off -fold=off": {"fuse": False, "fold": False},
    "-search=on -estimates=on": {"search": True, "estimates": True},
    "-tf32=off": {"tf32": False},
    "-fp16=on -bf16=on": {"types": ["f16", "bf16"]},
    "-narrowing=everywhere -sparsity=enable": {"narrowing": "everywhere", "sparsity": "enable"},
}


@pytest.mark.parametrize("route", sorted(ROUTES))
def test_a_build_route_becomes_options(route: str) -> None:
    _, config, network = config_and_network()
    before = build_options(config, network)
    config.build_route = route
    after = build_options(config, network)
    assert config.build_route == route and {k: v for k, v in after.items() if before.get(k) != v} == ROUTES[route]
    for wrong in ("-fuse=maybe", "fuse=on", "-speed=9"):
        config.build_route = wrong
        assert config.build_route == route and "wanted" in trt.last_error() or "no setting" in trt.last_error()
    config.reset()
    assert build_options(config, network) == before


def test_every_setting_of_routes_is_that_of_the_command() -> None:
    import subprocess
    import sys

    _, config, _ = config_and_network()
    said = subprocess.run([sys.executable, "-m", "kiln", "trtexec", "--helpBuildRoute"], capture_output=True, text=True)
    assert said.returncode == 0 and len(config.all_build_routes) > 8, said
    listed = [line.strip() for line in said.stdout.splitlines() if line.startswith("  -")]
    assert listed == config.all_build_routes


def test_settings_become_options() -> None:
    builder, config, network = config_and_network()
    assert build_options(config, network)["tf32"] is True
    config.clear_flag(trt.BuilderFlag.TF32)
    config.builder_optimization_level = 5
    config.avg_timing_iterations = 7
    config.max_num_tactics = 9
    config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.plugins_to_serialize = ["/opt/acme.so"]
    config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY, 1 << 14)
    config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_DRAM, 1 << 20)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1,), (2,), (3,))
    config.add_optimization_profile(profile)
    options = build_options(config, network)
    wanted = {
        "tf32": False,
        "optimization_level": 5,
        "samples": 7,
        "max_tactics": 9,
        "hardware_compatibility": "ampere_plus",
        "verbosity": "detailed",
        "embed_plugins": True,
        "pools": {"tactic-shared-memory": 1 << 14, "tactic-dram": 1 << 20},
    }
    assert wanted.items() <= options.items()
    assert options["profiles"][0].shapes["x"].max == (3,)
    config.builder_optimization_level = 6
    assert config.builder_optimization_level == 5 and "0 to 5" in trt.last_error()
    strong = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    assert build_options(config, strong)["strong_types"] is True
    assert trt.OnnxParser(strong, QUIET).parse_from_file(DIGITS / "lenet_a.onnx")
    assert build_options(config, strong)["strong_types"] is True, "a parser keeps the rule for types"


def test_weights_are_taken_at_once_and_by_address() -> None:
    _, _, network = config_and_network()
    x = network.add_input("x", trt.float32, (1, 2))
    values = np.array([[3.0, 4.0]], np.float32)
    by_address = trt.Weights(trt.float32, values.ctypes.data, 2)
    assert by_address.size == 2 and by_address.nbytes == 8 and by_address.numpy().tolist() == [3, 4]
    layer = network.add_constant((1, 2), by_address)
    assert layer.weights.tolist() == [3, 4]
    layer.weights = np.array([[5.0, 6.0]], np.float32)
    assert layer.weights.tolist() == [5, 6]
    conv = network.add_convolution_nd(
        network.add_input("c", trt.float32, (1, 4, 3, 3)), 4, (1, 1), np.ones((4, 2, 1, 1), np.float32), trt.Weights()
    )
    assert conv.num_groups == 1 or conv.num_groups == 2
    conv.num_groups = 2
    assert conv.num_groups == 2 and conv.bias.size == 0 and conv.kernel.size == 8
    assert x.name == "x"


@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_may_come_from_quantized_weights(groups: int) -> None:
    builder, config, network = config_and_network()
    x = network.add_input("x", trt.float32, (1, 4, 3, 3))
    conv = network.add_convolution_nd(x, 4, (1, 1), trt.Weights())
    conv.num_groups = groups
    conv.get_output(0).name = "y"
    network.mark_output(conv.get_output(0))
    assert builder.build_serialized_network(network, config) is None and "kernel" in trt.last_error()
    kernel = np.arange(4 * 4 // groups, dtype=np.float32).reshape(4, 4 // groups, 1, 1)
    weights = network.add_constant(kernel.shape, kernel).get_output(0)
    scale = network.add_constant((), np.array(1, np.float32)).get_output(0)
    codes = network.add_quantize(weights, scale, trt.int8).get_output(0)
    conv.set_input(1, network.add_dequantize(codes, scale, trt.float32).get_output(0))
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, trt.last_error()
    a = np.random.default_rng(0).random((1, 4, 3, 3)).astype(np.float32)
    y = np.empty((1, 4, 3, 3), np.float32)
    assert engine.create_execution_context().execute_v2([a.ctypes.data, y.ctypes.data])
    parts = np.split(a[0].reshape(4, 9), groups)
    wanted = [k @ part for k, part in zip(np.split(kernel.reshape(4, -1), groups), parts)]
    assert np.allclose(y.reshape(4, 9), np.concatenate(wanted), atol=1e-4)


def test_a_moe_and_other_additions(tmp_path: Path) -> None:
    builder, config, network = config_and_network()

    def const(a: np.ndarray) -> Any:
        return network.add_constant(a.shape, np.ascontiguousarray(a)).get_output(0)

    rng = np.random.default_rng(1)
    gate, up = (rng.standard_normal((2, 4, 3)).astype(np.float32) for _ in range(2))
    down = rng.standard_normal((2, 3, 4)).astype(np.float32)
    x = network.add_input("x", trt.float32, (5, 4))
    chosen = np.array([[0], [1], [1], [0], [1]], np.int32)
    layer = network.add_moe(x, const(chosen), const(np.ones((5, 1), np.float32)))
    assert layer.get_output(0) is None and "set_gated_weights" in trt.last_error()
    layer.set_gated_weights(const(gate), const(up), const(down), trt.MoEActType.SILU)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    engine = builder.build_engine_with_config(network, config)
    a = rng.standard_normal((5, 4)).astype(np.float32)
    found = np.empty((5, 4), np.float32)
    assert engine.create_execution_context().execute_v2([a.ctypes.data, found.ctypes.data])
    for row, expert in enumerate(chosen[:, 0]):
        g = a[row] @ gate[expert]
        wanted = (g / (1 + np.exp(-g)) * (a[row] @ up[expert])) @ down[expert]
        assert np.allclose(found[row], wanted, atol=1e-4)


def test_dimensions_have_names_where_they_were_given() -> None:
    _, _, network = config_and_network()
    x = network.add_input("x", trt.float32, (-1, 3, -1))
    assert [x.get_dimension_name(i) for i in range(3)] == [None, None, None]
    x.set_dimension_name(0, "batch")
    assert x.get_dimension_name(0) == "batch" and x.get_dimension_name(2) is None
    assert x.shape == (-1, 3, -1)


def test_settings_of_the_legacy_builder() -> None:
    import kiln.tensorrt.v8 as old

    builder = old.Builder(QUIET)
    builder.fp16_mode = True
    builder.max_workspace_size = 1 << 20
    network = builder.create_network(1)
    x = network.add_input("x", trt.float32, (1, 2, 1, 2))
    fc = network.add_fully_connected(x, 3, np.ones((3, 4), np.float32), np.arange(3, dtype=np.float32))
    fc.get_output(0).name = "y"
    network.mark_output(fc.get_output(0))
    options = build_options(builder._own, network)
    assert options["types"] == ["f16"] and options["pools"]["workspace"] == 1 << 20
    builder.fp16_mode = False
    engine = builder.build_cuda_engine(network)
    assert len(engine) == 2 and engine[0] == "x" and engine["y"] == 1 and engine.binding_is_input(0)
    context = engine.create_execution_context()
    a, b = np.ones((1, 2, 1, 2), np.float32), np.empty((1, 3, 1, 1), np.float32)
    assert context.execute(batch_size=1, bindings=[a.ctypes.data, b.ctypes.data])
    assert b.ravel().tolist() == [4, 5, 6]
    assert context.execute_async(bindings=[a.ctypes.data, b.ctypes.data], stream_handle=0)
    with pytest.raises(IndexError):
        engine.get_binding_shape(5)


def test_batches_are_read_where_the_backend_has_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    from kiln.tensorrt import _calibration

    class Found:
        name, targets = "cuda", ["a device"]

    assert _calibration.takes_device_addresses("cuda") and not _calibration.takes_device_addresses("cpu")
    monkeypatch.setattr(_calibration._kiln, "backends", lambda: [Found])
    assert _calibration.takes_device_addresses(None)
    monkeypatch.setattr(Found, "targets", [])
    assert not _calibration.takes_device_addresses(None)
    read = {}

    class Driver:
        def to_host(self, address: int, size: int) -> bytes:
            read[address] = size
            return bytes(size)

    monkeypatch.setattr(_calibration, "driver", Driver)
    batch = _calibration._tensor(4096, "f16", [2, 3], True)
    assert read == {4096: 12} and (batch.dtype, tuple(batch.shape)) == ("f16", (2, 3))


def test_strict_mode_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILN_TENSORRT_STRICT", "1")
    with pytest.raises(trt.TensorRTError, match="KILNPLAN"):
        trt.Runtime(QUIET).deserialize_cuda_engine(b"no plan")
    monkeypatch.setenv("KILN_TENSORRT_STRICT", "0")
    assert trt.Runtime(QUIET).deserialize_cuda_engine(b"no plan") is None


def test_plug_ins_of_compiled_kernels_are_refused() -> None:
    import kiln.tensorrt.plugin as trtp

    with pytest.raises(NotImplementedError, match="aot_impl"):
        trtp.aot_impl("space::name")
    with pytest.raises(AttributeError, match="'space'"):
        trtp.op.space  # noqa: B018
    with pytest.raises(NotImplementedError, match="SymInt32"):
        trtp.SymInt32()


def test_parameters_that_do_not_fit_wait_for_others() -> None:
    builder = trt.Builder(QUIET)
    network, config = builder.create_network(0), builder.create_builder_config()
    x = network.add_input("x", trt.float32, (1, 1, 4, 4))
    pool = network.add_pooling_nd(x, trt.PoolingType.MAX, (5, 5))
    assert pool.padding_nd == (0, 0) and pool.stride_nd == (1, 1)
    network.mark_output(pool.get_output(0))
    assert builder.build_serialized_network(network, config) is None and "window of 5" in trt.last_error()
    pool.padding_nd = (2, 2)
    assert pool.get_output(0).shape == (1, 1, 4, 4)
    conv = network.add_convolution_nd(x, 1, (3, 3), np.ones((1, 1, 3, 3), np.float32))
    conv.dilation_nd = (6, 6)
    assert conv.dilation_nd == (6, 6), "before its padding the kernel is larger than the input"
    conv.padding_nd = (6, 6)
    assert conv.get_output(0).shape == (1, 1, 4, 4)
    network.mark_output(conv.get_output(0))
    assert builder.build_serialized_network(network, config) is not None
    scale = network.add_constant((4,), np.ones(4, np.float32)).get_output(0)
    quantize = network.add_quantize(x, scale)
    network.mark_output(network.add_dequantize(quantize.get_output(0), scale).get_output(0))
    assert builder.build_serialized_network(network, config) is None and "axis" in trt.last_error()



def test_dynamic_ranges_are_refitted() -> None:
    builder, config, network = config_and_network()
    x = network.add_input("x", trt.float32, (1, 4, 8, 8))
    x.dynamic_range = (-1.0, 1.0)
    weights = np.linspace(-1, 1, 4 * 4, dtype=np.float32).reshape(4, 4, 1, 1)
    layer = network.add_convolution_nd(x, 4, (1, 1), weights, np.zeros(4, np.float32))
    layer.precision = trt.int8
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    for flag in ("INT8", "REFIT", "OBEY_PRECISION_CONSTRAINTS"):
        config.set_flag(trt.BuilderFlag[flag])
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, trt.last_error()
    refitter = trt.Refitter(engine, QUIET)
    assert "x" in refitter.get_tensors_with_dynamic_range()
    assert refitter.get_dynamic_range("x") == (-1.0, 1.0)
    assert refitter.set_dynamic_range("x", (-0.25, 0.25)) and refitter.refit_cuda_engine()
    assert trt.Refitter(engine, QUIET).get_dynamic_range("x") == (-0.25, 0.25)
    assert not refitter.set_dynamic_range("nothing", (0, 1)) and not refitter.set_dynamic_range("x", (1, 0))
    assert refitter.get_dynamic_range("nothing") == (0.0, 0.0)
