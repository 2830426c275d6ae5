"""Layers of Kiln whose functions are those of plug-ins that a program writes in Python.

A layer's fields are the attributes of an ONNX node, or what the plug-in keeps (`_STATE`), or the number of an object of the network
that is being written (`_OBJECT`).
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from kiln import _kiln

from ._plugin_classes import DynamicPluginTensorDesc, IPluginV2DynamicExt, PluginTensorDesc
from ._plugin_forms import V2, V3, form_of, symbols
from ._plugin_shapes import DimsExprs, text_of
from .enums import from_kiln, to_kiln

_STATE, _OBJECT, _SHAPES = "kiln_state", "kiln_object", "kiln_shape_inputs"
_numbers = itertools.count()
_objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_lock = threading.Lock()

Name = tuple[str, str, str]
LAYERS: dict[Name, Layer] = {}
"""The layers by namespace, name and version."""


class Layer:
    """The functions of one layer, as Kiln calls them."""

    def __init__(self, name: Name, creator: Any = None) -> None:
        self.name, self.creator = name, creator
        # Plug-ins of builds that run, by what they keep.
        self.building: dict[bytes, Any] = {}
        self._free: dict[Any, list[V2 | V3]] = {}

    def _creator(self) -> Any:
        if self.creator is None:
            raise ValueError(f"plug-in {self.name[1]!r} has no creator; call get_plugin_registry().register_creator")
        return self.creator

    def _kind(self) -> type[V2] | type[V3]:
        return V2 if hasattr(self._creator(), "deserialize_plugin") else V3

    def form(self, fields: dict[str, Any]) -> V2 | V3:
        """The plug-in of a layer's fields."""
        if _OBJECT in fields:
            plugin = _objects.get(fields[_OBJECT])
            if plugin is None:
                raise ValueError(f"the plug-in object of layer {self.name[1]!r} is gone with its network")
            return _known(plugin)
        if _STATE in fields:
            plugin = self.building.get(fields[_STATE])
            if plugin is not None:
                return _known(plugin)
            return self._kind().of_state(self._creator(), self.name[1], fields[_STATE])
        attributes = {n: v for n, v in fields.items() if n != _SHAPES}
        return self._kind().of_attributes(self._creator(), self.name[1], attributes)

    def complete(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields; attributes that the creator does not name are left out."""
        if _STATE in fields or _OBJECT in fields:
            return fields
        declared = [f.name for f in getattr(self._creator(), "field_names", None) or ()]
        return {n: v for n, v in fields.items() if n in declared}

    def output_types(self, fields: dict[str, Any], inputs: list[tuple[str, tuple[int, ...]]]) -> list[str]:
        plain = inputs[: len(inputs) - fields.get(_SHAPES, 0)]
        return [to_kiln(t) for t in self.form(fields).types([from_kiln(t) for t, _ in plain])]

    def describe(self, fields: dict[str, Any], inputs: list[tuple[str, tuple[int, ...]]]) -> str:
        tensors = [(from_kiln(t), dims) for t, dims in inputs]
        made = self.form(fields).shapes(*symbols(tensors, fields.get(_SHAPES, 0)))
        return "; ".join(text_of(d if isinstance(d, DimsExprs) else DimsExprs(d)) for d in made)

    def run(self, fields: dict[str, Any], inputs: list[Any], outputs: list[tuple[str, list[int]]]) -> list[Any]:
        key = tuple(sorted((n, v if isinstance(v, (bytes, int)) else repr(v)) for n, v in fields.items()))
        with _lock:
            free = self._free.get(key)
            form = free.pop() if free else None
        if form is None:
            form = self.form(fields).attached()
        made = _run(form, inputs[: len(inputs) - fields.get(_SHAPES, 0)], outputs)
        # One whose run failed is not used again.
        with _lock:
            self._free.setdefault(key, []).append(form)
        return made

    def forget(self) -> None:
        """Lets go of plug-ins that contexts had."""
        with _lock:
            self._free.clear()


def _known(plugin: Any) -> V2 | V3:
    form = form_of(plugin)
    assert form is not None
    return form


def _run(form: V2 | V3, inputs: list[Any], outputs: list[tuple[str, list[int]]]) -> list[Any]:
    made = [_kiln.Tensor.zeros(dtype, shape) for dtype, shape in outputs]
    places = [t.address for t in inputs]
    for output, input_ in form.aliases().items():
        made[output] = _kiln.Tensor.from_address(inputs[input_].address, inputs[input_].dtype, list(inputs[input_].shape))
        places[input_] = made[output].address
    ins = [PluginTensorDesc(t.shape, from_kiln(t.dtype)) for t in inputs]
    outs = [PluginTensorDesc(shape, from_kiln(dtype)) for dtype, shape in outputs]
    room: list[Any] = []

    def workspace(size: int) -> int:
        if size:
            room.append(_kiln.Tensor.zeros("u8", [size]))
        return room[-1].address if room else 0

    form.run(ins, outs, (places, [t.address for t in made]), workspace)
    found = form.shapes(*symbols([(d.type, tuple(d.dims)) for d in ins], 0)) if _finds_sizes(form, ins) else []
    for i, dims in enumerate(found):
        if any(d.is_size_tensor() for d in dims):
            made[i] = _cut(made, i, dims)
    return made


def _finds_sizes(form: V2 | V3, ins: list[Any]) -> bool:
    """Whether a run finds sizes, which is asked once."""
    known = form.__dict__.get("_finds")
    if known is None:
        try:
            shapes = form.shapes(*symbols([(d.type, tuple(d.dims)) for d in ins], 0))
            known = any(d.is_size_tensor() for dims in shapes for d in dims)
        except Exception:
            # Shapes that depend on shape inputs are known before a run.
            known = False
        form.__dict__["_finds"] = known
    return known


def _cut(made: list[Any], index: int, dims: Any) -> Any:
    """An output with the sizes that the run wrote into size tensors."""
    tensor, shape = made[index], []
    for bound, d in zip(tensor.shape, dims, strict=True):
        size = bound if d._size_tensor is None else int(made[d._size_tensor].tolist())
        if not 0 <= size <= bound:
            raise ValueError(f"output {index} got the size {size}, wants 0 to {bound}")
        shape.append(size)
    return _kiln.Tensor.from_address(tensor.address, tensor.dtype, shape)


# Networks and builds.


def define(name: Name, creator: Any = None) -> Layer:
    """The layer of this name, made where there is none; a creator replaces one that is not there."""
    with _lock:
        layer = LAYERS.get(name)
        if layer is None:
            layer = Layer(name, creator)
            _kiln.define_layer(name[1], layer, namespace=name[0], version=name[2])
            LAYERS[name] = layer
        elif layer.creator is None:
            layer.creator = creator
    return layer


def take_back(name: Name) -> None:
    """Ends what `define` began."""
    with _lock:
        if LAYERS.pop(name, None) is not None:
            _kiln.undefine_layer(name[1], namespace=name[0], version=name[2])


def add(network: Any, inputs: list[Any], shape_inputs: list[Any], plugin: Any) -> Any:
    """Adds a plug-in of Python to a native network; returns the native layer."""
    form = _known(plugin)
    name = form.name_of(plugin)
    if not name[1]:
        kind = "plugin_type" if isinstance(plugin, IPluginV2DynamicExt) else "plugin_name"
        raise ValueError(f"the plug-in of class {type(plugin).__name__} has no {kind}")
    same = [n for n in LAYERS if n[1:] == name[1:]]
    name = name if name in LAYERS or len(same) != 1 else same[0]
    define(name)
    number = next(_numbers)
    _objects[number] = plugin
    fields = {_OBJECT: number, **({_SHAPES: len(shape_inputs)} if shape_inputs else {})}
    natives = [*inputs, *shape_inputs]
    return network.add_plugin(natives, name[1], namespace=name[0], version=name[2], fields=fields)


class Prepared:
    """The plug-ins of a network while it is built: checked, configured, and with what plans keep of them.

    `objects` has the plug-ins that a program added, by their native layers; those of ONNX nodes are put there.
    """

    def __init__(self, network: Any, objects: dict[Any, Any]) -> None:
        self._all: list[tuple[Layer, bytes]] = []
        try:
            for native in network.layers if LAYERS else ():
                layer = LAYERS.get(native.plugin)
                if layer is not None:
                    self._prepare(layer, native, objects)
        except BaseException:
            self.end()
            raise

    def __bool__(self) -> bool:
        return bool(self._all)

    def _prepare(self, layer: Layer, native: Any, objects: dict[Any, Any]) -> None:
        fields = native.params
        form = _known(objects[native]) if native in objects else layer.form(layer.complete(fields))
        objects[native] = form.plugin
        count = len(native.inputs) - fields.get(_SHAPES, 0)
        tensors = [(tuple(t.shape), from_kiln(t.dtype)) for t in [*native.inputs[:count], *native.outputs]]
        for pos, (_, dtype) in enumerate(tensors):
            if not form.takes(pos, [form.describe(*t) for t in tensors], count):
                what = f"input {pos}" if pos < count else f"output {pos - count}"
                raise ValueError(
                    f"plug-in layer {native.name!r} takes no {dtype} in the linear format for {what}; insert casts"
                )
        described = [DynamicPluginTensorDesc(*t) for t in tensors]
        form.configure(described[:count], described[count:])
        state = form.state()
        layer.building[state] = form.plugin
        self._all.append((layer, state))
        native.set_fields({_STATE: state, **({_SHAPES: fields[_SHAPES]} if _SHAPES in fields else {})})

    def end(self) -> None:
        """Lets runs make plug-ins anew, as in another process."""
        for layer, state in self._all:
            layer.building.pop(state, None)
            layer.forget()
        self._all.clear()
