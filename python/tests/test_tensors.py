"""Exchange of tensors with NumPy: types, strides, ownership."""

import array
import gc
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import kiln

PLAIN = {
    "f32": np.float32,
    "f16": np.float16,
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


@st.composite
def strided(draw):
    """An array of any type, rank and stride."""
    dtype = draw(st.sampled_from(list(PLAIN.values())))
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    base = draw(npst.arrays(dtype, tuple(3 * d + 1 for d in shape)))
    steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
    cut = tuple(slice(None, None, s) for s in steps)
    return np.asarray(base[cut]).transpose(draw(st.permutations(range(base.ndim))))


class Dlpack:
    """A producer of DLPack and nothing else."""

    def __init__(self, x, legacy):
        self.x, self.legacy = x, legacy

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        if self.legacy and kwargs.pop("max_version", None):
            raise TypeError("an old producer")
        return self.x.__dlpack__(**kwargs)


class Interface:
    """A producer of the array interface and nothing else."""

    def __init__(self, x):
        self.x, self.__array_interface__ = x, x.__array_interface__


@settings(max_examples=150, deadline=None)
@given(strided(), st.sampled_from(["buffer", "dlpack", "legacy", "interface"]))
def test_arrays_come_back_as_they_were(x, way):
    given_ = {
        "buffer": lambda: x,
        "dlpack": lambda: Dlpack(x, False),
        "legacy": lambda: Dlpack(x, True),
        "interface": lambda: Interface(x),
    }[way]()
    t = kiln.Tensor(given_)
    assert t.shape == x.shape and PLAIN[t.dtype] == x.dtype and t.nbytes == x.nbytes and t.ndim == x.ndim and t.size == x.size
    back = [t.numpy(), np.from_dlpack(t), np.asarray(t), np.array(memoryview(t))]
    for y in back:
        np.testing.assert_array_equal(y, x)
        assert y.dtype == x.dtype
    assert t.tobytes() == x.tobytes()
    np.testing.assert_array_equal(np.array(t.tolist(), x.dtype).reshape(x.shape), x)


def test_dense_and_aligned_memory_is_shared():
    base = np.zeros(64, np.float32)
    offset = (-base.ctypes.data % 64) // 4
    x = base[offset : offset + 16]
    t = kiln.Tensor(x)
    x[3] = 7
    assert t.address == x.ctypes.data and t.tolist()[3] == 7.0
    y = t.numpy()
    y[4] = 8
    assert x[4] == 8
    # Memory that is not aligned is copied.
    odd = np.frombuffer(bytearray(65), np.uint8)[1:]
    u = kiln.Tensor(odd[: 16 * 4].view(np.uint8))
    assert u.address % 16 == 0


def test_readonly_memory_stays_so():
    x = np.ones(16, np.float32)
    x.flags.writeable = False
    t = kiln.Tensor(x)
    assert memoryview(t).readonly and not t.numpy().flags.writeable
    assert not np.from_dlpack(t).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    np.from_dlpack(t, copy=True)[0] = 2
    assert x[0] == 1


def test_outputs_are_the_callers(lenet, images):
    first = lenet.run({"input": images[:1]})["logits"]
    kept = first.numpy().copy()
    first.numpy()[:] = 5
    again = lenet.run({"input": images[:1]})["logits"].numpy()
    np.testing.assert_array_equal(again, kept)
    assert first.address % 64 == 0


def test_dlpack_obeys_its_rules():
    t = kiln.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert t.__dlpack_device__() == (1, 0) and t.device == "cpu"
    assert "dltensor_versioned" in repr(t.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(t.__dlpack__()) and '"dltensor"' in repr(t.__dlpack__(max_version=(0, 8)))
    with pytest.raises(BufferError, match="stream"):
        t.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="device"):
        t.__dlpack__(dl_device=(2, 0))
    assert not hasattr(t, "__cuda_array_interface__")
    capsule = t.__dlpack__(max_version=(1, 1))

    class Once:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return capsule

    assert kiln.Tensor(Once()).tolist() == t.tolist()
    with pytest.raises(kiln.InvalidArgument, match="somebody took it"):
        kiln.Tensor(Once())


def test_narrow_types_have_their_bytes():
    ml_dtypes = pytest.importorskip("ml_dtypes") if "ml_dtypes" in sys.modules else None
    x = np.array([1.0, -2.5, 0.15625], np.float32)
    for dtype in ("bf16", "f8e4m3"):
        t = kiln.Tensor(x).to(dtype)
        assert t.dtype == dtype and t.tolist() == [1.0, -2.5, 0.15625]
        assert t.raw().dtype == "u8" and t.raw().nbytes == t.nbytes == 3 * (2 if dtype == "bf16" else 1)
        again = kiln.Tensor.from_bytes(t.tobytes(), dtype, (3,))
        assert again.to("float32").tolist() == [1.0, -2.5, 0.15625]
        capsule = t.__dlpack__(max_version=(1, 0))

        class Once:
            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **_):
                return capsule

        assert kiln.Tensor(Once()).dtype == dtype
        with pytest.raises(BufferError, match="DLPack"):
            memoryview(t)
        if ml_dtypes is None:
            with pytest.raises(TypeError, match="ml_dtypes"):
                t.numpy()
    i4 = kiln.Tensor(np.array([1, -8, 7], np.int8)).to("i4")
    assert i4.nbytes == 2 and i4.tolist() == [1, -8, 7]


def test_tensors_are_made_of_anything():
    assert kiln.Tensor(array.array("i", [1, 2])).dtype == "i32"
    assert kiln.Tensor(b"abc").tolist() == [97, 98, 99]
    assert kiln.Tensor.zeros("half", (2, 2)).tolist() == [[0, 0], [0, 0]]
    assert kiln.Tensor.zeros(np.dtype("int64"), ()).tolist() == 0
    x = np.arange(4, dtype=np.int32)
    t = kiln.Tensor.from_address(x.ctypes.data, "i32", (2, 2))
    x[:] = 0
    assert t.tolist() == [[0, 1], [2, 3]] and len(t) == 2
    with pytest.raises(kiln.InvalidArgument, match="is 0"):
        kiln.Tensor.from_address(0, "i32", (2,))
    with pytest.raises(kiln.InvalidArgument, match="3 bytes"):
        kiln.Tensor.from_bytes(b"abc", "i32", (1,))
    with pytest.raises(kiln.InvalidArgument, match="negative"):
        kiln.Tensor.zeros("f32", (-1,))
    with pytest.raises(kiln.InvalidArgument, match="complex64|no element type"):
        kiln.Tensor(np.zeros(2, np.complex64))
    with pytest.raises((kiln.InvalidArgument, BufferError), match="element type|byte order"):
        kiln.Tensor(np.zeros(2, ">f4"))
    with pytest.raises(kiln.Error):
        kiln.Tensor.zeros("f32", (1 << 40, 1 << 40))
    with pytest.raises(TypeError):
        len(kiln.Tensor.zeros("f32", ()))


def test_arrays_are_let_go_of(lenet, images):
    """No reference to an input, an output or a capsule is left behind."""
    x, out = np.array(images[:1]), np.zeros((1, 10), np.float32)
    context = lenet.create_context()

    def use():
        context.run({"input": x}, out={"logits": out})
        lenet.run({"input": Dlpack(x, False)})
        t = kiln.Tensor(x)
        views = [t.numpy(), np.from_dlpack(t), memoryview(t), t.__dlpack__(), t.__dlpack__(max_version=(1, 0)), t.raw()]
        with pytest.raises(kiln.Error):
            context.run({"input": x, "none": x})
        with pytest.raises(kiln.Error):
            context.run({"input": x}, out={"logits": x})
        del views, t

    use()
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(out)
    for _ in range(50):
        use()
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(out)) == before
