"""Values in the memory of a device of CUDA: bound inputs and outputs stay there. `scripts/emulate.sh` lends a device."""

import os

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from provider import ROOT, device, session
from test_provider import images, model, predictions, value

NAME = "KilnCudaExecutionProvider"
NVIDIA = 0x10DE
LENET = ROOT / "tests/data/digits/lenet_a.onnx"

pytestmark = pytest.mark.skipif(not os.environ.get("KILN_REQUIRE_CUDA"), reason="there is no device of CUDA")


def on_device(made, **options):
    """A session whose values are on the device."""
    device()
    found = [d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME]
    assert found, "the driver has a device"
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level = 3
    library = ROOT / "target/debug/libkiln_backend_cuda.so"
    options = {"builder_optimization_level": 0, "kiln_plugin_path": library, **options}
    chosen.add_provider_for_devices(found[:1], {k: str(v) for k, v in options.items()})
    return onnxruntime.InferenceSession(made if isinstance(made, bytes) else str(made), chosen, enable_fallback=0)


def moved(array):
    """An array in the memory of the device."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, "gpu", 0, NVIDIA)


def room(shape, dtype=numpy.float32):
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype, "gpu", 0, NVIDIA)


def bound(made, inputs, outputs):
    """Runs with bound values; outputs that are None are allocated by ONNX Runtime, on the device."""
    binding = made.io_binding()
    for name, given in inputs.items():
        binding.bind_ortvalue_input(name, given)
    for name, wanted in outputs.items():
        if wanted is None:
            info = onnxruntime.OrtDevice.make("gpu", 0, NVIDIA)._get_c_device()
            binding._iobinding.bind_output(name, info)
        else:
            binding.bind_ortvalue_output(name, wanted)
    made.run_with_iobinding(binding)
    return binding.get_outputs()


def test_bound_values_stay_on_the_device():
    """Digits are read from, and answers are written to, memory of the device, for several sizes of a batch."""
    made = on_device(LENET)
    host = session(LENET, whole=True)
    for count in [1, 3, 2]:
        x, y = moved(images(count)), room((count, 10))
        at = x.data_ptr(), y.data_ptr()
        (found,) = bound(made, {"input": x}, {"logits": y})
        assert (x.data_ptr(), y.data_ptr()) == at and found.data_ptr() == at[1]
        answer = y.numpy()
        assert (answer.argmax(axis=1) == predictions()[:count]).all()
        assert numpy.allclose(answer, host.run(None, {"input": images(count)})[0], atol=2e-3)
        x.update_inplace(images(count)[::-1].copy())
        bound(made, {"input": x}, {"logits": y})
        assert numpy.allclose(y.numpy(), answer[::-1], atol=2e-3)
    (own,) = bound(made, {"input": moved(images(2))}, {"logits": None})
    assert own.device_name() == "cuda" and (own.numpy().argmax(axis=1) == predictions()[:2]).all()
    # Arrays of the host are copied by ONNX Runtime.
    assert (made.run(None, {"input": images(2)})[0].argmax(axis=1) == predictions()[:2]).all()


def test_values_are_copied_between_host_and_device():
    """Copies of every size come back, those that take several parts as well, and copies within the device."""
    device()
    for shape in [(), (0, 4), (3,), (1 << 20, 3)]:
        given = numpy.arange(numpy.prod(shape, dtype=int), dtype=numpy.float32).reshape(shape)
        there = moved(given)
        assert (there.numpy() == given).all() and there.numpy().shape == given.shape
        if given.size:
            other = room(shape)
            onnxruntime.capi.onnxruntime_pybind11_state.copy_tensors(
                [there._get_c_value()], [other._get_c_value()], None
            )
            assert (other.numpy() == given).all()


def test_what_the_host_must_know_is_read_from_the_device():
    """Shapes by values, types that Kiln has in others, sizes that the run finds, and empty tensors."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    made = on_device(model(nodes, [value("x", ["n"]), value("s", [2], TensorProto.INT64)], [value("y", ["a", "b"])]))
    x = numpy.arange(12, dtype=numpy.float32)
    for shape in [[3, 4], [2, 6]]:
        y = room(shape)
        bound(made, {"x": moved(x), "s": moved(numpy.array(shape))}, {"y": y})
        assert (y.numpy() == -x.reshape(shape)).all()
    double = TensorProto.DOUBLE
    wide = on_device(model([helper.make_node("Sqrt", ["x"], ["y"])], [value("x", [4], double)], [value("y", [4], double)]))
    y = room((4,), numpy.float64)
    bound(wide, {"x": moved(numpy.array([1.0, 4.0, 9.0, 16.0]))}, {"y": y})
    assert (y.numpy() == [1, 2, 3, 4]).all()
    int64 = TensorProto.INT64
    places = on_device(model([helper.make_node("NonZero", ["x"], ["y"])], [value("x", [5])], [value("y", [1, "n"], int64)]))
    (found,) = bound(places, {"x": moved(numpy.array([0, 3, 0, 0, 5], numpy.float32))}, {"y": None})
    assert found.device_name() == "cuda" and (found.numpy() == [[1, 4]]).all()
    add = on_device(model([helper.make_node("Add", ["x", "x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])]))
    (found,) = bound(add, {"x": moved(numpy.zeros(0, numpy.float32))}, {"y": None})
    assert found.shape() == [0]


def test_options_of_other_devices_are_refused():
    """The provider has its device from the start."""
    with pytest.raises(Exception, match="take KilnExecutionProvider for others"):
        on_device(LENET, kiln_backend="wgpu")
    with pytest.raises(Exception, match="take KilnExecutionProvider for others"):
        on_device(LENET, device_id=1)


def test_nodes_of_others_run_on_the_host():
    """ONNX Runtime copies values between the device and nodes of its own provider."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Cast", ["a"], ["t"], to=TensorProto.STRING),
        helper.make_node("Cast", ["t"], ["b"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["b", "a"], ["y"]),
    ]
    made = on_device(model(nodes, [value("x", [3])], [value("y", [3])]))
    x = numpy.array([1.0, 2.0, 3.0], numpy.float32)
    assert (made.run(None, {"x": x})[0] == 4 * x * x).all()
