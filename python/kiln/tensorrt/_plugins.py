"""Plug-ins: the registry over Kiln's plug-in layers, creators, and the classes that are refused."""

from __future__ import annotations

import os
from typing import Any

from kiln import _kiln

from ._callbacks import IVersionedInterface, _refused
from ._layers import ILayer
from ._log import Severity, fail, log, refuse
from ._values import PluginField, PluginFieldCollection
from .enums import PluginFieldType

_WRITE = "write the layer as a Kiln plug-in (docs/tensorrt.md) and load its library"


class RegistryPlugin:
    """A plug-in that a creator made: a name, a version and values of fields."""

    def __init__(self, record: Any, fields: dict[str, Any]) -> None:
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


class _Creator(IPluginCreatorInterface):
    """Creator of one layer of a Kiln plug-in."""

    def __init__(self, record: Any = None) -> None:
        self._record = record
        if record is not None:
            self.name, self.plugin_version, self.plugin_namespace = record.name, record.version, record.namespace
        self.error_recorder = None

    @property
    def tensorrt_version(self) -> int:
        return 101600

    @property
    def field_names(self) -> PluginFieldCollection:
        return PluginFieldCollection(
            PluginField(f["name"], None, PluginFieldType.UNKNOWN) for f in self._record.fields
        )

    def create_plugin(self, name: str, field_collection: Any, phase: Any = None) -> RegistryPlugin:
        given = {f.name: f._value() for f in field_collection or ()}
        return RegistryPlugin(self._record, given)

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        raise NotImplementedError("plans of Kiln hold the fields of plug-in layers; there is nothing to deserialize")


class IPluginCreator(_Creator):
    """Creator that scripts find in the registry."""


class IPluginCreatorV3One(_Creator):
    """Creator of the third interface."""


class IPluginCreatorV3Quick(IPluginCreatorInterface):
    """Creator of plug-ins that are written in Python with decorators."""


class IPluginRegistry:
    """The layers of all plug-ins that are loaded."""

    def __init__(self) -> None:
        self.error_recorder = None
        self.parent_search_enabled = True
        self._loaded: list[Any] = []
        self._logger: Any = None

    def _records(self) -> list[Any]:
        found = {(r.namespace, r.name, r.version): r for r in [*_kiln.plugin_layers(), *self._loaded]}
        return list(found.values())

    @property
    def plugin_creator_list(self) -> list[Any]:
        return [IPluginCreator(r) for r in self._records()]

    @property
    def all_creators(self) -> list[Any]:
        return self.plugin_creator_list

    @property
    def all_creators_recursive(self) -> list[Any]:
        return self.plugin_creator_list

    def _find(self, name: str, version: str, space: str) -> Any:
        for creator in self.plugin_creator_list:
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
        same = [c for c in self.plugin_creator_list if c.name == name and c.plugin_version == version]
        return same[0] if len(same) == 1 and not space else None

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        return self._register(creator)

    def register_plugin_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        return self._register(creator)

    def _register(self, creator: Any) -> bool:
        name = getattr(creator, "name", type(creator).__name__)
        raise refuse(f"plug-in creator {name!r}", f"it is written in Python; {_WRITE}")

    def deregister_creator(self, creator: Any) -> bool:
        return False

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
        return fail(self, "plug-in resources are not available in Kiln", None)

    def release_plugin_resource(self, key: str) -> bool:
        return False


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
    name: _refused(name, _WRITE)
    for name in (
        "IPluginV2 IPluginV2Ext IPluginV2DynamicExt IPluginV2DynamicExtBase IPluginV3 IPluginV3OneCore "
        "IPluginV3OneBuild IPluginV3OneBuildV2 IPluginV3OneRuntime IPluginV3QuickCore IPluginV3QuickBuild "
        "IPluginV3QuickRuntime IPluginV3QuickAOTBuild IPluginResource IPluginResourceContext IPluginCapability "
        "DynamicPluginTensorDesc PluginTensorDesc IDimensionExpr IExprBuilder ISymExpr ISymExprs KernelLaunchParams "
        "SymIntExpr SymInt32 SymExprImpl"
    ).split()
}
