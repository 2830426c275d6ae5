"""Plug-ins: the registry over Kiln's plug-in layers and those that a program writes, and their creators."""

from __future__ import annotations

import os
from typing import Any

from kiln import _kiln

from . import _plugin_python as python
from ._callbacks import IVersionedInterface, _refused
from ._layers import ILayer
from ._log import Severity, call, fail, log
from ._plugin_classes import IPluginV2
from ._values import PluginField, PluginFieldCollection
from .enums import PluginFieldType


class RegistryPlugin(IPluginV2):
    """A plug-in that a creator made: a name, a version and values of fields."""

    def __init__(self, record: Any, fields: dict[str, Any]) -> None:
        super().__init__()
        self._space, self.plugin_type, self.plugin_version = record.namespace, record.name, record.version
        self._fields = fields

    @property
    def plugin_namespace(self) -> str:
        return self._space

    @plugin_namespace.setter
    def plugin_namespace(self, value: str) -> None:
        self._space = value

    @property
    def name(self) -> str:
        return self.plugin_type

    @property
    def num_outputs(self) -> int:
        return 1

    def destroy(self) -> None:
        return None


class IPluginCreatorInterface(IVersionedInterface):
    """Base of creators."""


class IPluginCreator(IPluginCreatorInterface):
    """Creator of the second interface: one that a program writes, or that of a layer of a library."""

    name, plugin_version, plugin_namespace = "", "1", ""
    error_recorder = None
    tensorrt_version = 101600

    @property
    def field_names(self) -> PluginFieldCollection:
        return self.__dict__.get("_fields", PluginFieldCollection())

    @field_names.setter
    def field_names(self, fields: Any) -> None:
        self.__dict__["_fields"] = fields

    def create_plugin(self, name: str, field_collection: Any) -> Any:
        raise NotImplementedError("a creator needs a method create_plugin(name, field_collection)")

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        raise NotImplementedError("a creator needs a method deserialize_plugin(name, serialized_plugin)")


class _LibraryCreator(IPluginCreator):
    """Creator of one layer of a Kiln plug-in."""

    def __init__(self, record: Any) -> None:
        super().__init__()
        self._record = record
        self.name, self.plugin_version, self.plugin_namespace = record.name, record.version, record.namespace
        self.field_names = PluginFieldCollection(
            PluginField(f["name"], None, PluginFieldType.UNKNOWN) for f in record.fields
        )

    def create_plugin(self, name: str, field_collection: Any, phase: Any = None) -> RegistryPlugin:
        given = {f.name: f._value() for f in field_collection or ()}
        return RegistryPlugin(self._record, given)

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        raise NotImplementedError("plans of Kiln hold the fields of plug-in layers; there is nothing to deserialize")


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Creator of the third interface, which a program writes."""

    name, plugin_version, plugin_namespace = "", "1", ""
    field_names: Any = PluginFieldCollection()

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        raise NotImplementedError("a creator needs a method create_plugin(name, field_collection, phase)")


class IPluginCreatorV3Quick(IPluginCreatorInterface):
    """Creator of plug-ins that are written in Python with decorators."""


class IPluginRegistry:
    """The layers of all plug-ins that are loaded."""

    def __init__(self) -> None:
        self.error_recorder = None
        self.parent_search_enabled = True
        self._loaded: list[Any] = []
        self._own: dict[python.Name, Any] = {}
        self._resources: dict[str, tuple[Any, int]] = {}
        self._logger: Any = None

    def _records(self) -> list[Any]:
        found = {(r.namespace, r.name, r.version): r for r in [*_kiln.plugin_layers(), *self._loaded]}
        return list(found.values())

    @property
    def plugin_creator_list(self) -> list[Any]:
        return [c for c in self.all_creators if isinstance(c, IPluginCreator)]

    @property
    def all_creators(self) -> list[Any]:
        own = {n: c for n, c in self._own.items() if n in python.LAYERS}
        libraries = [r for r in self._records() if (r.namespace, r.name, r.version) not in own]
        return [*own.values(), *map(_LibraryCreator, libraries)]

    @property
    def all_creators_recursive(self) -> list[Any]:
        return self.all_creators

    def _find(self, name: str, version: str, space: str) -> Any:
        for creator in self.all_creators:
            if creator.name == name and creator.plugin_version == version and creator.plugin_namespace in (space, ""):
                return creator
        return None

    def get_plugin_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        found = self._find(type, version, plugin_namespace)
        return found if found is not None else self._any(type, version, plugin_namespace)

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        return self.get_plugin_creator(type, version, plugin_namespace)

    def _any(self, name: str, version: str, space: str) -> Any:
        """The only creator of a name, where the script asks for no namespace."""
        same = [c for c in self.all_creators if c.name == name and c.plugin_version == version]
        return same[0] if len(same) == 1 and not space else None

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        name = (plugin_namespace or creator.plugin_namespace, creator.name, str(creator.plugin_version))
        try:
            if name in self._own:
                raise ValueError(f"plug-in creator {name[1]!r}, version {name[2]}, is registered already")
            python.define(name, creator)
        except Exception as e:
            return fail(self, e, False)
        creator.plugin_namespace = name[0]
        self._own[name] = creator
        return True

    register_plugin_creator = register_creator

    def deregister_creator(self, creator: Any) -> bool:
        names = [name for name, own in self._own.items() if own is creator]
        for name in names:
            del self._own[name]
            python.take_back(name)
        return bool(names)

    deregister_plugin_creator = deregister_creator

    def load_library(self, plugin_path: str) -> Any:
        try:
            loaded = _kiln.load_plugin(os.fspath(plugin_path))
        except Exception as e:
            return fail(self, e, None)
        self._loaded += loaded
        return loaded

    def deregister_library(self, handle: Any) -> None:
        log(self._logger, Severity.WARNING, "layers of a library stay registered for the process")

    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:
        """The resource of this key: a clone of the first one that was given."""
        try:
            held, users = self._resources[key] if key in self._resources else (resource.clone(), 0)
        except Exception as e:
            return fail(self, e, None)
        self._resources[key] = (held, users + 1)
        return held

    def release_plugin_resource(self, key: str) -> bool:
        if key not in self._resources:
            return fail(self, f"release_plugin_resource: no resource {key!r} is held", False)
        held, users = self._resources.pop(key)
        if users > 1:
            self._resources[key] = (held, users - 1)
        else:
            call(held.release)
        return True


_REGISTRY = IPluginRegistry()


def get_plugin_registry() -> IPluginRegistry:
    """The registry of the process."""
    return _REGISTRY


def get_builder_plugin_registry(capability: Any = None) -> IPluginRegistry:
    """The registry of the process."""
    return _REGISTRY


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    """Finds the plug-ins of the search path. Kiln's own operators need none."""
    _REGISTRY._logger = logger
    _kiln.plugin_layers()
    return True


class _PluginLayer(ILayer):
    def __init__(self, network: Any, native: Any, plugin: Any) -> None:
        super().__init__(network, native)
        self._plugin = plugin

    @property
    def plugin(self) -> Any:
        return self._plugin


class IPluginV2Layer(_PluginLayer):
    """A layer of a plug-in, added by add_plugin_v2."""


class IPluginV3Layer(_PluginLayer):
    """A layer of a plug-in, added by add_plugin_v3."""


REFUSED = {
    name: _refused(name, "write the plug-in as an IPluginV3, or with tensorrt.plugin.register and impl")
    for name in (
        "IPluginV3QuickCore IPluginV3QuickBuild IPluginV3QuickRuntime IPluginV3QuickAOTBuild ISymExpr ISymExprs "
        "KernelLaunchParams SymIntExpr SymInt32 SymExprImpl"
    ).split()
}
