"""Modules as engines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import kiln
from kiln.torch._decompose import STAND_INS
from kiln.torch._sizes import ranges

if TYPE_CHECKING:
    from typing import Unpack

    from kiln._options import OptionNames


class Exported:
    """A module as an engine: called with tensors in the order of the module's arguments."""

    def __init__(self, engine: kiln.Engine, single: bool) -> None:
        self.engine = engine
        self._context = engine.create_context()
        self._inputs = [t.name for t in engine.inputs]
        self._outputs = [t.name for t in engine.outputs]
        self._single = single

    def __call__(self, *args: torch.Tensor) -> Any:
        if len(args) != len(self._inputs):
            raise TypeError(f"the module takes {len(self._inputs)} tensors ({', '.join(self._inputs)}), not {len(args)}")
        given = {name: as_input(tensor) for name, tensor in zip(self._inputs, args, strict=True)}
        stream = None
        if any(t.is_cuda for t in given.values()):
            # The default stream of PyTorch has the handle 0, which CUDA calls 1.
            stream = torch.cuda.current_stream().cuda_stream or 1
        results = self._context.run(given, stream=stream)
        outputs = tuple(results[name].torch() for name in self._outputs)
        device = next((t.device for t in given.values() if t.is_cuda), None)
        if device is not None:
            outputs = tuple(t.to(device) for t in outputs)
        return outputs[0] if self._single else outputs

    def __repr__(self) -> str:
        return f"kiln.torch.Exported({self.engine!r})"


def as_input(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without history, dense, at an address that devices take."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor.clone() if tensor.is_cuda and tensor.data_ptr() % 16 else tensor


def onnx_program(module: torch.nn.Module, args: Sequence[Any], dynamic_shapes: Any = None) -> Any:
    """The module as PyTorch exports it to ONNX; where that fails, with operators that it does not know as others."""
    more = newer(module, args)
    try:
        return torch.onnx.export(module, tuple(args), dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False, **more)
    except torch.onnx.errors.OnnxExporterError as e:
        try:
            program = torch.export.export(module, tuple(args), dynamic_shapes=dynamic_shapes, strict=False)
            table = torch.export.default_decompositions()
            table.update(STAND_INS)
            return torch.onnx.export(program.run_decompositions(table), dynamo=True, verbose=False, **more)
        except Exception:
            raise e from None


def newer(module: torch.nn.Module, args: Sequence[Any]) -> dict[str, int]:
    """The version of ONNX's operators that has bf16 for convolutions and pools, if that is what the module computes in."""
    tensors = [*module.parameters(), *module.buffers(), *(a for a in args if isinstance(a, torch.Tensor))]
    return {"opset_version": 22} if any(t.dtype == torch.bfloat16 for t in tensors) else {}


def onnx_bytes(program: Any) -> bytes:
    """An ONNX model, with its weights under the names of the state dictionary."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.onnx"
        program.save(str(path), external_data=False)
        return path.read_bytes()


def export(
    module: torch.nn.Module,
    args: Sequence[Any],
    *,
    dynamic_shapes: Any = None,
    **options: Unpack[OptionNames],
) -> Exported:
    """Builds an engine of a module that is called with `args`. `dynamic_shapes` is as of `torch.onnx.export`, and its ranges are those of
    the engine; a dimension without a bound has room for four times its size in `args`. `options` are those of `kiln.BuildOptions`, of
    which `shapes` and `profiles` replace the ranges. With `refit="all"` the engine takes other weights later: `kiln.torch.refit`."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            program = onnx_program(module, args, dynamic_shapes)
            single = isinstance(module(*args), torch.Tensor)
    finally:
        module.train(was_training)
    if "shapes" not in options and "profiles" not in options:
        options["shapes"] = ranges(program)
    return Exported(kiln.Engine.open(onnx_bytes(program), **options), single)


def refit(exported: Exported, weights: Mapping[str, torch.Tensor] | str | Path) -> kiln.RefitReport:
    """Replaces weights by those of a state dictionary, or of a file (safetensors, NPZ)."""
    refitter = exported.engine.refitter()
    if not isinstance(weights, Mapping):
        refitter.set_from_file(weights)
        return refitter.refit()
    known = set(refitter.get_all())
    found = {name: tensor for name, tensor in weights.items() if name in known}
    if not found:
        raise kiln.InvalidArgument(
            f"none of the weights has a name of the engine's: it has {', '.join(sorted(known)[:10])}, "
            f"the dictionary {', '.join(sorted(weights)[:10])}"
        )
    for name, tensor in found.items():
        refitter.set(name, tensor.detach().cpu().contiguous())
    return refitter.refit()
