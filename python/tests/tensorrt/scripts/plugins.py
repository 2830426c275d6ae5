"""Takes a plug-in from the registry: creator, fields, plug-in, layer."""

import os

import numpy as np
import tensorrt as trt

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)
assert trt.init_libnvinfer_plugins(TRT_LOGGER, "")
registry = trt.get_plugin_registry()
handle = registry.load_library(os.environ["KILN_TEST_LAYERS"])
assert handle is not None
for creator in registry.plugin_creator_list:
    print(creator.name, creator.plugin_version, creator.plugin_namespace, [f.name for f in creator.field_names])
names = [c.name for c in registry.plugin_creator_list]
assert "Swish" in names, names


def get_plugin(beta):
    for creator in trt.get_plugin_registry().plugin_creator_list:
        if creator.name == "Swish":
            field = trt.PluginField("beta", np.array([beta], dtype=np.float32), trt.PluginFieldType.FLOAT32)
            return creator.create_plugin(name="swish_layer", field_collection=trt.PluginFieldCollection([field]))
    return None


def run(add, beta):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (2, 5))
    layer = add(network, x, get_plugin(beta))
    layer.name = "my_swish"
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert plan is not None, trt.last_error()
    engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(plan)
    a = np.linspace(-3, 3, 10, dtype=np.float32).reshape(2, 5)
    y = np.empty_like(a)
    assert engine.create_execution_context().execute_v2([a.ctypes.data, y.ctypes.data])
    return layer, a, y


layer, a, y = run(lambda n, x, p: n.add_plugin_v2(inputs=[x], plugin=p), 2.0)
assert layer.type in (trt.LayerType.PLUGIN_V2, trt.LayerType.PLUGIN_V3) and layer.plugin.plugin_type == "Swish"
assert np.allclose(y, a / (1 + np.exp(-2 * a)), atol=1e-5)
layer, a, y = run(lambda n, x, p: n.add_plugin_v3([x], [], p), 1.0)
assert np.allclose(y, a / (1 + np.exp(-a)), atol=1e-5)
creator = registry.get_creator("Swish", "1", "example")
assert creator is not None and registry.get_plugin_creator("Swish", "1", "") is not None
assert registry.get_plugin_creator("NoSuch", "1", "") is None
assert registry.load_library("/no/such/library.so") is None and trt.last_error()



class Resource(trt.IPluginResource):
    def __init__(self):
        trt.IPluginResource.__init__(self)
        self.released = 0

    def clone(self):
        self.copy = Resource()
        return self.copy

    def release(self):
        self.released += 1


resource = Resource()
held = registry.acquire_plugin_resource("tables", resource)
assert held is resource.copy and registry.acquire_plugin_resource("tables", Resource()) is held
assert registry.release_plugin_resource("tables") and not held.released
assert registry.release_plugin_resource("tables") and held.released == 1
assert not registry.release_plugin_resource("tables")
print("OK")
