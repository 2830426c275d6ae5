"""Plug-ins of the third interface: fields in the plan, several outputs, sizes that a run finds, tactics, errors."""

import ctypes
import sys

import numpy as np
import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.INTERNAL_ERROR)


def host_array(address, dims, dtype):
    count = int(np.prod(tuple(dims)))
    if count == 0:
        return np.empty(tuple(dims), dtype)
    return np.frombuffer((ctypes.c_byte * (count * np.dtype(dtype).itemsize)).from_address(address), dtype).reshape(tuple(dims))


class ScaledSplit(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Halves along the last axis, each times its factor; the second one in float16."""

    log = []

    def __init__(self, factors=(1.0, 1.0), label="", phase=None):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.factors, self.label, self.phase = np.array(factors, np.float32), label, phase
        self.num_outputs = 2
        self.plugin_namespace = "acme"
        self.plugin_name = "ScaledSplit"
        self.plugin_version = "2"
        self.tactic, self.shapes = None, None

    def get_capability_interface(self, type):
        assert type in (trt.PluginCapabilityType.CORE, trt.PluginCapabilityType.BUILD, trt.PluginCapabilityType.RUNTIME)
        return self

    def clone(self):
        made = ScaledSplit()
        made.__dict__.update(self.__dict__)
        return made

    def get_output_data_types(self, input_types):
        return [input_types[0], trt.DataType.HALF]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        half = exprBuilder.operation(trt.DimensionOperation.CEIL_DIV, inputs[0][1], exprBuilder.constant(2))
        rest = exprBuilder.operation(trt.DimensionOperation.SUB, inputs[0][1], half)
        return [trt.DimsExprs([inputs[0][0], half]), trt.DimsExprs([inputs[0][0], rest])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == (trt.float16 if pos == 2 else trt.float32)

    def configure_plugin(self, inp, out):
        ScaledSplit.log.append(("configure", tuple(inp[0].desc.dims), tuple(out[1].desc.dims)))

    def get_valid_tactics(self):
        return [7, 9]

    def set_tactic(self, tactic):
        self.tactic = tactic

    def get_workspace_size(self, inp, out):
        return 64

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([
            trt.PluginField("factors", self.factors, trt.PluginFieldType.FLOAT32),
            trt.PluginField("label", self.label.encode(), trt.PluginFieldType.CHAR),
        ])

    def on_shape_change(self, inp, out):
        self.shapes = [tuple(d.dims) for d in (*inp, *out)]

    def attach_to_context(self, resource_context):
        return self.clone()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert workspace and self.tactic == 7 and self.shapes == [tuple(d.dims) for d in (*input_desc, *output_desc)]
        ScaledSplit.log.append(("enqueue", self.label, self.phase))
        x = host_array(inputs[0], input_desc[0].dims, np.float32)
        a = host_array(outputs[0], output_desc[0].dims, np.float32)
        b = host_array(outputs[1], output_desc[1].dims, np.float16)
        a[:] = x[:, : a.shape[1]] * self.factors[0]
        b[:] = x[:, a.shape[1] :] * self.factors[1]


class ScaledSplitCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "ScaledSplit", "acme", "2"
        self.field_names = trt.PluginFieldCollection([
            trt.PluginField("factors", np.array([]), trt.PluginFieldType.FLOAT32),
            trt.PluginField("label", np.array([]), trt.PluginFieldType.CHAR),
        ])

    def create_plugin(self, name, fc, phase):
        given = {f.name: f.data for f in fc}
        return ScaledSplit(given["factors"], bytes(given["label"]).decode(), phase)


class NonZero(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    def __init__(self):
        for base in NonZero.__bases__:
            base.__init__(self)
        self.num_outputs, self.plugin_namespace, self.plugin_name, self.plugin_version = 2, "", "NonZero", "0"

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return NonZero()

    def get_output_data_types(self, input_types):
        return [trt.DataType.INT32, trt.DataType.INT64]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        upper = exprBuilder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        opt = exprBuilder.operation(trt.DimensionOperation.FLOOR_DIV, upper, exprBuilder.constant(2))
        found = exprBuilder.declare_size_tensor(1, opt, upper)
        assert found.is_size_tensor() and not upper.is_size_tensor()
        return [trt.DimsExprs([found, exprBuilder.constant(2)]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.type == (trt.float32, trt.int32, trt.int64)[pos]

    def configure_plugin(self, inp, out):
        pass

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])

    def on_shape_change(self, inp, out):
        pass

    def set_tactic(self, tactic):
        raise AssertionError("there are no tactics")

    def attach_to_context(self, context):
        return self.clone()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = host_array(inputs[0], input_desc[0].dims, np.float32)
        if x[0, 0] == 99:
            raise ValueError("99 is not allowed")
        at = np.argwhere(x).astype(np.int32)
        host_array(outputs[0], (len(at), 2), np.int32)[:] = at
        host_array(outputs[1], (), np.int64)[...] = len(at)


class NonZeroCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "NonZero", "", "0"
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, fc, phase):
        return NonZero()


def engine_of(write, *outputs):
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    tensors = write(network)
    for t, name in zip(tensors, outputs):
        t.name = name
        network.mark_output(t)
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    return None if plan is None else trt.Runtime(LOGGER).deserialize_cuda_engine(plan)


registry = trt.get_plugin_registry()
for creator in (ScaledSplitCreator(), NonZeroCreator()):
    assert registry.register_creator(creator, creator.plugin_namespace)
assert {"ScaledSplit", "NonZero"} <= {c.name for c in registry.all_creators}


def split(network):
    x = network.add_input("x", trt.float32, (3, 5))
    fields = trt.PluginFieldCollection([
        trt.PluginField("factors", np.array([2, 3], np.float32), trt.PluginFieldType.FLOAT32),
        trt.PluginField("label", b"one", trt.PluginFieldType.CHAR),
    ])
    plugin = registry.get_creator("ScaledSplit", "2", "acme").create_plugin("split", fields, trt.TensorRTPhase.BUILD)
    layer = network.add_plugin_v3([x], [], plugin)
    assert layer.type == trt.LayerType.PLUGIN_V3 and layer.plugin is plugin and layer.num_outputs == 2
    assert layer.get_output(0).shape == (3, 3) and layer.get_output(1).dtype == trt.float16
    return layer.get_output(0), layer.get_output(1)


engine = engine_of(split, "a", "b")
assert engine is not None, trt.last_error()
x = np.arange(15, dtype=np.float32).reshape(3, 5)
a, b = np.zeros((3, 3), np.float32), np.zeros((3, 2), np.float16)
context, other = engine.create_execution_context(), engine.create_execution_context()
for c in (context, other, context):
    a[:], b[:] = 0, 0
    assert c.execute_v2([x.ctypes.data, a.ctypes.data, b.ctypes.data])
    assert np.array_equal(a, x[:, :3] * 2) and np.array_equal(b, x[:, 3:] * 3)
assert ("configure", (3, 5), (3, 2)) in ScaledSplit.log
assert ("enqueue", "one", trt.TensorRTPhase.RUNTIME) in ScaledSplit.log


def non_zero(network):
    layer = network.add_plugin_v3([network.add_input("x", trt.float32, (2, 4))], [], NonZero())
    return layer.get_output(0), layer.get_output(1)


engine = engine_of(non_zero, "at", "count")
assert engine is not None, trt.last_error()
context = engine.create_execution_context()
assert tuple(engine.get_tensor_shape("at")) == (-1, 2)
for x in (np.array([[0, 1, 0, 2], [3, 0, 0, 0]], np.float32), np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32)):
    at, count = np.zeros((8, 2), np.int32), np.zeros((), np.int64)
    for name, array in (("x", x), ("at", at), ("count", count)):
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.execute_async_v3(0), trt.last_error()
    assert count == np.count_nonzero(x) and np.array_equal(at[: int(count)], np.argwhere(x))
x[0, 0] = 99
assert not context.execute_async_v3(0) and "99 is not allowed" in trt.last_error()
x[0, 0] = 1
assert context.execute_async_v3(0)

# What can't be built is refused with a reason.
refused = engine_of(lambda n: [n.add_plugin_v3([n.add_cast(n.add_input("x", trt.float32, (2, 4)), trt.float16).get_output(0)], [],
                                               NonZero()).get_output(0)], "at")
assert refused is None and "takes no DataType.HALF" in trt.last_error(), trt.last_error()
try:
    trt.Builder(LOGGER).create_network(0).add_plugin_v3([], [], object())
    raise SystemExit("an object that is no plug-in was taken")
except TypeError as e:
    assert "IPluginV3" in str(e)
print("OK")
