"""PyTorch: tensors in and out, exported modules, torch.compile, streams of a GPU."""

import subprocess
import sys

import numpy as np
import pytest

import kiln
from conftest import DIGITS

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "uint8", "int32", "int64", "bool"])
def test_tensors_of_every_type_come_back(name):
    dtype = getattr(torch, name)
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).to(dtype)
    for given in (x, x.t(), x[:, ::2], x[:0]):
        t = kiln.Tensor(given)
        back = t.torch()
        assert back.dtype == dtype and back.shape == given.shape
        assert torch.equal(back.to(torch.float32), given.to(torch.float32))
        assert torch.equal(torch.from_dlpack(t).to(torch.float32), given.to(torch.float32))
    assert kiln.Tensor.zeros(dtype, (2,)).torch().dtype == dtype
    readonly = np.ones(16, np.float32)
    readonly.flags.writeable = False
    kiln.Tensor(readonly).torch()[0] = 5
    assert readonly[0] == 1


def test_tensors_are_inputs_and_outputs(lenet, images):
    expected = lenet.run({"input": images[:3]})["logits"].torch()
    x, out = torch.from_numpy(images[:3].copy()), torch.zeros(3, 10)
    result = lenet.run({"input": x}, out={"logits": out})
    assert result["logits"] is out and torch.equal(out, expected)
    with pytest.raises(BufferError):
        lenet.run({"input": x.requires_grad_()})


def module():
    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    torch.manual_seed(1)
    return Small().eval()


def test_modules_are_exported_and_refitted(tmp_path):
    import kiln.torch as kt

    m, x = module(), torch.randn(3, 8)
    exported = kt.export(m, (x,), backend="cpu", refit="all", estimates=True)
    with torch.no_grad():
        torch.testing.assert_close(exported(x), m(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="1 tensors"):
        exported(x, x)
    other = module()
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(0.5)
    assert kt.refit(exported, other.state_dict()).replaced == 4
    with torch.no_grad():
        torch.testing.assert_close(exported(x), other(x), rtol=1e-4, atol=1e-5)
    from safetensors.torch import save_file

    save_file(m.state_dict(), tmp_path / "weights.safetensors")
    kt.refit(exported, tmp_path / "weights.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(exported(x), m(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(kiln.InvalidArgument, match="none of the weights"):
        kt.refit(exported, {"none": torch.zeros(1)})


def test_compile_runs_whole_graphs_and_names_what_it_does_not():
    import kiln.torch as kt

    m, x = module(), torch.randn(3, 8)
    options = {"backend": "cpu", "estimates": True, "strict_graph": True}
    fast = torch.compile(m, backend="kiln", dynamic=False, options=options)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), m(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(fast(x + 1), m(x + 1), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    refused = torch.compile(m, backend="kiln", dynamic=False, options={"backend": "none"})
    with torch.no_grad(), pytest.warns(kt.FellBack, match="no backend"):
        torch.testing.assert_close(refused(x), m(x))
    torch._dynamo.reset()


def strictly(f, **more):
    """Compiled without a fallback."""
    torch._dynamo.reset()
    return torch.compile(f, backend="kiln", options={"backend": "cpu", "estimates": True, "strict_graph": True}, **more)


def test_compile_takes_sizes_that_vary():
    import kiln.torch  # noqa: F401

    m = module()
    with torch.no_grad():
        for dynamic in (None, True):
            fast = strictly(m, dynamic=dynamic)
            for n in (3, 5, 2, 40, 7):
                x = torch.randn(n, 8)
                torch.testing.assert_close(fast(x), m(x), rtol=1e-4, atol=1e-5)
        product = strictly(lambda a, b: ((a @ b.T).relu(), b.reshape(b.shape[0] * 2, -1)), dynamic=True)
        for n, k in ((3, 4), (50, 9)):
            a, b = torch.randn(n, 6), torch.randn(k, 6)
            torch.testing.assert_close(product(a, b), ((a @ b.T).relu(), b.reshape(k * 2, -1)), rtol=1e-4, atol=1e-5)


def test_compile_sees_weights_that_change():
    import kiln.torch  # noqa: F401

    m, x = torch.nn.Linear(4, 3), torch.ones(2, 4)
    fast = strictly(m)
    with torch.no_grad():
        fast(x)
        m.weight.mul_(3)
        torch.testing.assert_close(fast(x), m(x))
        m.load_state_dict(torch.nn.Linear(4, 3).state_dict())
        torch.testing.assert_close(fast(x), m(x))


def counts():
    """A module that writes into its buffer."""

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x):
            self.seen.add_(x)
            return self.seen * 2

    return Counts()


def test_compile_leaves_what_an_engine_is_not_for_to_pytorch():
    import kiln.torch as kt

    torch._dynamo.reset()
    m = counts()
    fast = torch.compile(m, backend="kiln", options={"backend": "cpu"})
    with torch.no_grad(), pytest.warns(kt.FellBack, match="writes into its inputs"):
        fast(torch.ones(3))
        assert fast(torch.ones(3)).tolist() == [4, 4, 4] and m.seen.tolist() == [2, 2, 2]
    torch._dynamo.reset()
    net, x = module(), torch.randn(2, 8, requires_grad=True)
    with pytest.warns(kt.FellBack, match="gradients"):
        torch.compile(net, backend="kiln", options={"backend": "cpu"})(x).sum().backward()
    assert x.grad is not None
    torch._dynamo.reset()
    with torch.no_grad(), pytest.warns(kt.FellBack, match="not a tensor"):
        sizes = torch.compile(lambda x: (x * 2, x.shape[0]), backend="kiln", dynamic=True, options={"backend": "cpu"})
        assert sizes(torch.ones(3, 2))[1] == 3


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_fast_paths_of_attention_are_decomposed(norm_first, activation):
    import kiln.torch as kt
    from kiln.torch._decompose import attention

    layer = torch.nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    x = torch.randn(2, 5, 16)
    hidden = torch.tensor([[False] * 5, [False, False, False, True, True]])
    with torch.no_grad():
        torch.testing.assert_close(strictly(layer)(x), layer(x), rtol=1e-4, atol=1e-5)
        exported = kt.export(layer, (x,), backend="cpu", estimates=True)
        torch.testing.assert_close(exported(x), layer(x), rtol=1e-4, atol=1e-5)
        own = layer.self_attn
        weights = (own.in_proj_weight, own.in_proj_bias, own.out_proj.weight, own.out_proj.bias)
        for average in (True, False):
            found = attention(x, x, x, 16, 4, *weights, hidden, True, average, 1)
            wanted = torch._native_multi_head_attention(x, x, x, 16, 4, *weights, hidden, True, average, 1)
            for a, b in zip(found, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_adaptive_pools_of_any_size():
    import kiln.torch as kt

    with torch.no_grad():
        for pool, shape in (
            (torch.nn.AdaptiveAvgPool1d(3), (1, 2, 7)),
            (torch.nn.AdaptiveAvgPool2d((3, 2)), (1, 2, 7, 5)),
            (torch.nn.AdaptiveAvgPool3d((2, 3, 1)), (1, 2, 5, 7, 4)),
        ):
            x = torch.randn(shape)
            exported = kt.export(pool, (x,), backend="cpu", estimates=True)
            torch.testing.assert_close(exported(x), pool(x), rtol=1e-4, atol=1e-5)


def test_modules_in_bf16_are_exported():
    import kiln.torch as kt

    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5))
    net = net.bfloat16().eval()
    x = torch.randn(2, 3, 8, 8).bfloat16()
    with torch.no_grad():
        wanted = net(x)
    found = kt.export(net, (x,), backend="cpu", estimates=True)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=3e-2, atol=3e-2)


def test_ranges_of_an_export_are_those_of_the_engine():
    import kiln.torch as kt

    m = module()
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = kt.export(m, (torch.randn(3, 8),), dynamic_shapes=({0: batch},), backend="cpu", estimates=True)
    with torch.no_grad():
        for n in (1, 16):
            x = torch.randn(n, 8)
            torch.testing.assert_close(exported(x), m(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(kiln.InvalidArgument, match="profile"):
        exported(torch.randn(17, 8))
    auto = kt.export(m, (torch.randn(3, 8),), dynamic_shapes=({0: torch.export.Dim.AUTO},), backend="cpu", estimates=True)
    (found,) = auto.engine.profiles[0].shapes.values()
    assert [tuple(d) for d in found[1:]] == [(3, 8), (16, 8)]


@pytest.fixture(scope="module")
def on_gpu():
    return kiln.Engine.open(DIGITS / "lenet_a.onnx", backend="cuda", shapes={"input": (4, 1, 28, 28)})


@pytest.mark.gpu
def test_gpu_tensors_are_used_where_they_are(on_gpu, images, tmp_path):
    x, out = torch.from_numpy(images[:4].copy()).cuda(), torch.zeros(4, 10, device="cuda")
    context = on_gpu.create_context()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        doubled = x * 2 / 2
        result = context.run({"input": doubled}, out={"logits": out}, stream=stream.cuda_stream)
    assert result["logits"] is out
    on_gpu.save(tmp_path / "a.kiln")
    np.savez(tmp_path / "in.npz", input=images[:4])
    program = [sys.executable, "-m", "kiln", "run", tmp_path / "a.kiln", "--inputs", tmp_path / "in.npz"]
    subprocess.run([*program, "--save-outputs", tmp_path / "out.npz"], check=True)
    np.testing.assert_array_equal(out.cpu().numpy(), np.load(tmp_path / "out.npz")["logits"])
    t = kiln.Tensor(out)
    assert t.device.startswith("cuda") and t.__cuda_array_interface__["data"][0] == out.data_ptr()
    assert torch.equal(torch.from_dlpack(t), out) and torch.equal(torch.as_tensor(t, device="cuda"), out)
    with pytest.raises(kiln.InvalidArgument, match="contiguous"):
        context.run({"input": x.permute(0, 1, 3, 2)}, out={"logits": out})
    with pytest.raises(kiln.UnsupportedState, match="device memory"):
        kiln.Engine.open(DIGITS / "lenet_a.onnx", backend="cpu").run({"input": x[:1]})


@pytest.mark.gpu
def test_gpu_graphs_capture_runs(on_gpu, images):
    x, out = torch.from_numpy(images[:4].copy()).cuda(), torch.zeros(4, 10, device="cuda")
    context = on_gpu.create_context()
    context.set_input_shape("input", tuple(x.shape))
    context.bind("input", x.data_ptr(), x.nbytes)
    context.bind("logits", out.data_ptr(), out.nbytes)
    stream = torch.cuda.Stream()
    context.set_stream(stream.cuda_stream)
    with torch.cuda.stream(stream):
        context.enqueue()
    stream.synchronize()
    expected, graph = out.clone(), torch.cuda.CUDAGraph()
    out.zero_()
    with torch.cuda.graph(graph, stream=stream):
        context.enqueue()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)
