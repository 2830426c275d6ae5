"""Every name of TensorRT 10.16 is there, with its value; each member works, has no effect, or refuses."""

from __future__ import annotations

import importlib
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

import kiln.tensorrt as trt
from kiln.tensorrt import _config, _table

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parents[2] / "docs" / "tensorrt.md").read_text()
TABLE = _table.members()


def listed() -> list[tuple[str, str]]:
    """The list of the interface: name of the module, and its members (of enumerations with numbers)."""
    lines = (HERE / "names.txt").read_text().splitlines()
    pairs = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return [(name, members.strip()) for name, _, members in pairs]


@pytest.mark.parametrize(("name", "members"), listed(), ids=[name for name, _ in listed()])
def test_a_name_of_the_interface(name: str, members: str) -> None:
    found = getattr(trt, name)
    assert name in trt.__all__
    words = members.split()
    if isinstance(found, type) and issubclass(found, IntEnum):
        assert words, f"{name} has no members in the list"
    for word in words:
        member, equals, number = word.partition("=")
        assert hasattr(found, member) or is_attribute(found, member), f"{name}.{member} is missing"
        if equals:
            assert getattr(found, member) == int(number), f"{name}.{member}"
        elif not (isinstance(found, type) and found.__name__ in REFUSED_CLASSES):
            assert member in TABLE.get(name, {}), f"{name}.{member} is not in the table"


REFUSED_CLASSES = {name for name in trt.__all__ if (getattr(trt, name).__doc__ or "").startswith("Not available")}


def test_the_table_and_the_classes_agree() -> None:
    for owner, members in TABLE.items():
        assert owner in trt.__all__, owner
        cls = getattr(trt, owner)
        for member, letter in members.items():
            assert letter in ("A", "B", "C")
            held = member in getattr(cls, "__annotations__", {}) or hasattr(cls, member) or is_attribute(cls, member)
            assert held, f"{owner}.{member} is in the table only"


def is_attribute(cls: type, name: str) -> bool:
    """Whether instances of a value class have it."""
    makers = {
        "PluginField": lambda: trt.PluginField("n"),
        "Weights": lambda: trt.Weights(),
        "TimingCacheValue": lambda: trt.TimingCacheValue(),
        "Logger": lambda: trt.Logger(),
        "IPluginRegistry": trt.get_plugin_registry,
        "IHostMemory": lambda: trt.IHostMemory(b""),
    }
    if cls.__name__ in ("IPluginCreator", "IPluginCreatorV3One"):
        return name in ("name", "plugin_version", "plugin_namespace")
    return cls.__name__ in makers and hasattr(makers[cls.__name__](), name)


def test_public_members_are_in_the_table() -> None:
    """A new method needs a class, too."""
    interfaces = ["Builder", "IBuilderConfig", "INetworkDefinition", "ICudaEngine", "IExecutionContext", "Runtime"]
    more = {"INetworkDefinition": set(), "ICudaEngine": set()}
    for name in interfaces:
        public = {m for m in dir(getattr(trt, name)) if not m.startswith("_")}
        assert public - set(TABLE[name]) - more.get(name, set()) == set(), name


@pytest.mark.parametrize("name", sorted(REFUSED_CLASSES))
def test_a_refused_class_says_why(name: str) -> None:
    with pytest.raises(NotImplementedError, match=name):
        getattr(trt, name)()


def test_refused_members_say_why() -> None:
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    network, config = builder.create_network(0), builder.create_builder_config()
    x = network.add_input("x", trt.float32, (1, 2))
    one = network.add_constant((1, 2), np.ones((1, 2), np.float32)).get_output(0)
    network.mark_output(network.add_elementwise(x, one, trt.ElementWiseOperation.SUM).get_output(0))
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    registry = trt.get_plugin_registry()
    parser = trt.OnnxParser(network, logger)
    calls = {
        "IBuilderConfig.DLA_core": lambda: setattr(config, "DLA_core", 0),
        "INetworkDefinition.add_dist_collective": network.add_dist_collective,
        "OnnxParser.load_initializer": lambda: parser.load_initializer("w", 0, 0),
        "OnnxParserRefitter.load_initializer": lambda: trt.OnnxParserRefitter(None, logger).load_initializer("w", 0, 0),
        "Runtime.load_runtime": lambda: trt.Runtime(logger).load_runtime("x"),
        "IExecutionContext.set_communicator": lambda: engine.create_execution_context().set_communicator(None),
        "IPluginRegistry.deregister_library": lambda: registry.deregister_library(None),
        "BuilderFlag.SAFETY_SCOPE": lambda: config.set_flag(trt.BuilderFlag.SAFETY_SCOPE),
    }
    refused = {f"{owner}.{m}" for owner, members in TABLE.items() for m, letter in members.items() if letter == "C"}
    assert refused == set(calls)
    for name, action in calls.items():
        try:
            result = action()
        except NotImplementedError as e:
            assert str(e), name
            continue
        assert not result or result == (0.0, 0.0), name
        assert result is not None or trt.last_error() or name.endswith("deregister_library"), name


def test_the_page_names_what_has_no_effect_and_what_is_refused() -> None:
    for owner, members in TABLE.items():
        for member, letter in members.items():
            if letter != "A" and not owner.startswith("IGpu"):
                assert f"`{member}`" in PAGE, f"docs/tensorrt.md does not name {owner}.{member} ({letter})"
    for name in REFUSED_CLASSES:
        assert f"`{name}`" in PAGE, f"docs/tensorrt.md does not name {name}"


def test_flags_without_effect_are_those_of_the_table() -> None:
    assert set(_config._NO_EFFECT_FLAGS) == {m for m, letter in TABLE["BuilderFlag"].items() if letter == "B"}


def test_the_legacy_module_has_what_the_default_one_lacks() -> None:
    v8 = importlib.import_module("kiln.tensorrt.v8")
    legacy = {
        "ICudaEngine": "num_bindings get_binding_name get_binding_index get_binding_shape get_binding_dtype "
        "binding_is_input get_profile_shape max_batch_size get_location is_shape_binding",
        "IExecutionContext": "set_binding_shape get_binding_shape execute execute_async execute_async_v2",
        "Builder": "build_engine build_cuda_engine max_batch_size max_workspace_size fp16_mode int8_mode",
        "IBuilderConfig": "max_workspace_size",
        "INetworkDefinition": "add_fully_connected add_convolution add_pooling",
    }
    for owner, members in legacy.items():
        for member in members.split():
            assert hasattr(getattr(v8, owner), member) and not hasattr(getattr(trt, owner), member), member
    assert v8.BuilderFlag.TF32 == 7 and v8.BuilderFlag.STRICT_TYPES == 4 and trt.BuilderFlag.TF32 == 6
