"""Networks."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from kiln._kiln import Network

from ._adds import Adds
from ._callbacks import IErrorRecorder
from ._layers import ILayer
from ._log import Scoped, fail
from ._members import Recorder
from ._plugin_forms import form_of
from ._plugin_python import add as add_python
from ._plugins import IPluginV2Layer, IPluginV3Layer, RegistryPlugin
from ._strict import Strict
from ._tensor import ITensor, tensor
from .enums import NetworkDefinitionCreationFlag

_ROLES = {"kernel": "kernel", "bias": "bias", "shift": "shift", "scale": "scale", "weights": "constant"}


class INetworkDefinition(Strict, Adds, Scoped):
    """A network that is written layer by layer, or that a parser writes."""

    def __init__(self, builder: Any, flags: int = 0) -> None:
        self._builder, self._flags = builder, operator.index(flags)
        self._native = Network("", strongly_typed=bool(self.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED)))
        self._recorder: IErrorRecorder | None = None
        self._weights: dict[int, tuple[Any, Any, str]] = {}
        self._refittable: list[str] = []
        # Convolutions whose kernel an input has to bring yet, by the position of the layer.
        self._kernels: dict[int, ILayer] = {}
        # Outputs of layers that are to have eight bits: native layer and index.
        self._eight_bits: set[tuple[Any, int]] = set()
        # Types that inputs have for the caller, where those of the network differ: by native tensors.
        self._boundary_types: dict[Any, str] = {}
        # Names of layers that tensors have, too: by native layers. Tensors that the program named.
        self._shown_names: dict[Any, str] = {}
        self._named: set[Any] = set()
        # Parameters that do not fit yet, by native layers.
        self._waiting: dict[Any, dict[str, Any]] = {}
        self._unfused_debug = False
        # Plug-ins that are written in Python, by their native layers.
        self._python: dict[Any, Any] = {}

    @property
    def _logger(self) -> Any:
        return self._builder._logger

    @property
    def name(self) -> str:
        return self._native.name

    @name.setter
    def name(self, name: str) -> None:
        self._native.name = name

    @property
    def builder(self) -> Any:
        return self._builder

    @property
    def flags(self) -> int:
        return self._flags

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        return bool(self._flags >> int(flag) & 1)

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return False

    error_recorder = Recorder()

    @property
    def num_layers(self) -> int:
        return len(self._native)

    @property
    def num_inputs(self) -> int:
        return len(self._native.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs())

    def _outputs(self) -> list[Any]:
        marked = self._native.outputs
        return marked + [t for t in self._native.outputs_for_shapes if t not in marked]

    def get_layer(self, index: int) -> ILayer | None:
        return self[index] if 0 <= index < len(self) else None

    def get_input(self, index: int) -> ITensor | None:
        inputs = self._native.inputs
        return ITensor(self, inputs[index]) if 0 <= index < len(inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        outputs = self._outputs()
        return ITensor(self, outputs[index]) if 0 <= index < len(outputs) else None

    def __len__(self) -> int:
        return len(self._native)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> ILayer:
        count = len(self._native)
        place = index + count if index < 0 else index
        if not 0 <= place < count:
            raise IndexError(f"there is no layer {index}; the network has {count}")
        return ILayer(self, self._native[place])

    def _do(self, result: Any, action: Any) -> Any:
        try:
            return action()
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, result)

    def mark_output(self, tensor: ITensor) -> None:
        value = _t(tensor)
        self._do(None, lambda: self._native.mark_output(value._native))

    def unmark_output(self, tensor: ITensor) -> None:
        value = _t(tensor)
        self._do(None, lambda: self._native.unmark_output(value._native))

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        value = _t(tensor)
        return self._do(False, lambda: self._native.mark_output_for_shapes(value._native) or True)

    def unmark_output_for_shapes(self, tensor: ITensor) -> bool:
        return self._native.unmark_output_for_shapes(_t(tensor)._native)

    def mark_debug(self, tensor: ITensor) -> bool:
        value = _t(tensor)
        return self._do(False, lambda: self._native.mark_debug(value._native) or True)

    def unmark_debug(self, tensor: ITensor) -> bool:
        return self._native.unmark_debug(_t(tensor)._native)

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        return _t(tensor)._native in self._native.debug_tensors

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        self._unfused_debug = True
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        self._unfused_debug = False
        return True

    def remove_tensor(self, tensor: ITensor) -> None:
        value = _t(tensor)
        self._do(None, lambda: self._native.remove_tensor(value._native))

    def _layer_named(self, name: str) -> Any:
        """The native layer of this name, if there is one."""
        shown = next((layer for layer, own in self._shown_names.items() if own == name), None)
        return shown if shown is not None else self._native.find_layer(name)

    def _beside(self, name: str) -> str:
        """A free name for a layer whose own name a tensor has."""
        count = 1
        while self._native.find_layer(f"{name} (layer {count})") is not None:
            count += 1
        return f"{name} (layer {count})"

    def _give_way(self, name: str, tensor: Any) -> bool:
        """Renames the layer of a name that a tensor is to have; False where a tensor has it, by the program's will."""
        layer = self._native.find_layer(name)
        if layer is None or any(t.name == name and t in self._named for t in layer.outputs):
            return False
        layer.name = self._beside(name)
        self._shown_names[layer] = name
        return True

    def _hold(self, layer: ILayer, param: str, value: Any) -> None:
        self._weights[_key(value)] = (value, layer, param)

    def set_weights_name(self, weights: Any, name: str) -> bool:
        found = self._weights.get(_key(weights))
        if found is None or found[2] not in _ROLES:
            return fail(self, f"set_weights_name({name!r}): no layer of this network holds these weights", False)
        _, layer, param = found
        return self._do(False, lambda: layer._native.set_weights_name(_ROLES[param], name) or True)

    def mark_weights_refittable(self, name: str) -> bool:
        if name not in self._refittable:
            self._refittable.append(name)
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        if name not in self._refittable:
            return False
        self._refittable.remove(name)
        return True

    def are_weights_marked_refittable(self, name: str) -> bool:
        return name in self._refittable

    def add_plugin_v2(self, inputs: Iterable[ITensor], plugin: Any) -> IPluginV2Layer | None:
        return self._plugin(IPluginV2Layer, list(inputs), [], plugin)

    def add_plugin_v3(self, inputs: Iterable[ITensor], shape_inputs: Iterable[ITensor], plugin: Any) -> Any:
        return self._plugin(IPluginV3Layer, list(inputs), list(shape_inputs or ()), plugin)

    def add_plugin(self, tuple: Any) -> Any:
        """Adds a plug-in that `tensorrt.plugin.op` made: its inputs, shape inputs and object."""
        inputs, shape_inputs, plugin = tuple
        return self.add_plugin_v3(inputs, shape_inputs, plugin)

    def _plugin(self, cls: type, inputs: list[ITensor], shape_inputs: list[ITensor], plugin: Any) -> Any:
        plain = [tensor(t, "inputs")._native for t in inputs]
        shapes = [tensor(t, "shape_inputs")._native for t in shape_inputs]
        if isinstance(plugin, RegistryPlugin):

            def add() -> Any:
                return self._native.add_plugin(
                    [*plain, *shapes], plugin.plugin_type, namespace=plugin._space, version=plugin.plugin_version,
                    fields=plugin._fields,
                )

        elif form_of(plugin) is not None:

            def add() -> Any:
                native = add_python(self._native, plain, shapes, plugin)
                self._python[native] = plugin
                return native

        else:
            raise TypeError(f"plugin: wants an IPluginV3 or an IPluginV2DynamicExt, found {type(plugin).__name__}")
        return self._do(None, lambda: cls(self, add(), plugin))


def check_waiting(network: INetworkDefinition) -> None:
    """Sets parameters that waited for others; refuses those that still do not fit, and types that outputs cannot have."""
    for native, index in network._eight_bits:
        if native.outputs[index].is_output:
            raise ValueError(
                f"output {index} of layer {native.name!r} is to be of eight bits, and is an output of the network: add a "
                "quantize layer"
            )
    for native, wanted in list(network._waiting.items()):
        native.set(**wanted)
        del network._waiting[native]


def _t(value: Any) -> ITensor:
    return tensor(value, "tensor")


def _key(value: Any) -> int:
    """Identity of weights: where their elements are."""
    array = getattr(value, "_array", value)
    interface = getattr(array, "__array_interface__", None)
    return interface["data"][0] if interface is not None else id(value)
