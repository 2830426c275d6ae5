"""Execution contexts."""

from __future__ import annotations

from typing import Any

from kiln import _kiln

from ._callbacks import IDebugListener, IOutputAllocator, IProfiler
from ._cuda_driver import ALIGNMENT, Stand, driver
from ._host_memory import do, is_captured
from ._log import Scoped, call, fail, no_effect, refuse
from ._members import Recorder
from ._strict import Strict
from ._values import Dims, dims
from .enums import TensorLocation, from_kiln


class _Allocator:
    """An output allocator of the program as Kiln calls it."""

    def __init__(self, allocator: Any, stream: int) -> None:
        self._allocator, self._stream = allocator, stream

    def allocate(self, output: str, current: int, nbytes: int, alignment: int) -> int:
        own = getattr(self._allocator, "reallocate_output_async", None)
        if own is not None:
            return int(call(own, output, current, nbytes, alignment, self._stream, default=0) or 0)
        return int(call(self._allocator.reallocate_output, output, current, nbytes, alignment, default=0) or 0)

    def shape(self, output: str, shape: tuple[int, ...]) -> None:
        call(self._allocator.notify_shape, output, Dims(shape))


class IExecutionContext(Strict, Scoped):
    """Memory of one run at a time."""

    def __init__(self, engine: Any, native: Any, config: Any, own_memory: bool = True) -> None:
        self._engine, self._native, self._config, self._own = engine, native, config, own_memory
        self._recorder = engine._recorder
        self._name = ""
        self._addresses: dict[str, int] = {}
        self._bound: dict[str, tuple[int, int]] = {}
        # On CUDA: aligned buffers by tensor, and those of this run with the addresses that they stand for.
        self._stands: dict[str, Stand] = {}
        self._odd: list[tuple[int, int, int, bool]] = []
        self._allocators: dict[str, IOutputAllocator] = {}
        self._profile = 0
        self._stream = 0
        self._event = 0
        self._profiler: IProfiler | None = None
        self._emits = True
        self._listener: IDebugListener | None = None
        self._unfused = False
        self._kept: dict[str, Any] = {}
        if engine._native.profiles:
            native.set_profile(0)
            self._take_only_shapes()

    @property
    def _logger(self) -> Any:
        return self._engine._logger

    @property
    def engine(self) -> Any:
        return self._engine

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = str(name)

    # Shapes and profiles.

    @property
    def active_optimization_profile(self) -> int:
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if not self._engine._profile_exists(profile_index):
            return False
        try:
            if self._engine._native.profiles:
                self._native.set_profile(profile_index)
        except Exception as e:
            return fail(self, e, False)
        if profile_index != self._profile:
            self._native.clear_inputs()
            self._bound.clear()
        self._profile = profile_index
        self._take_only_shapes()
        return True

    def _take_only_shapes(self) -> None:
        """Sets the shapes of inputs for which the profile has one only."""
        for t in self._engine._native.inputs:
            known = self._engine._range(self._profile, "shapes", t.name)
            if known is not None and known[0] == known[2] and -1 in (self._native.input_shape(t.name) or t.shape):
                self._native.set_input_shape(t.name, list(known[0]))

    def set_input_shape(self, name: str, shape: Any) -> bool:
        extents = dims(shape)
        found = self._engine._find(name)
        if found is None:
            return False
        if not found.is_input:
            return fail(self, f"set_input_shape({name!r}): it is an output", False)
        try:
            self._in_profile(name, extents)
            self._native.set_input_shape(name, extents)
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def _in_profile(self, name: str, extents: list[int]) -> None:
        known = self._engine._range(self._profile, "shapes", name)
        if known is None:
            return
        low, _, high = known
        if len(low) != len(extents) or any(not a <= n <= b for a, n, b in zip(low, extents, high)):
            raise ValueError(
                f"set_input_shape({name!r}, {tuple(extents)}): optimization profile {self._profile} allows "
                f"{tuple(low)} to {tuple(high)}"
            )

    def get_tensor_shape(self, name: str) -> Dims:
        found = self._engine._find(name)
        if found is None:
            return Dims()
        if found.is_input:
            return Dims(self._native.input_shape(name) or found.shape)
        try:
            self._shape_inputs()
            if self._native.underspecified():
                return Dims(found.shape)
            return Dims(self._native.infer_shapes()[name][0])
        except Exception as e:
            return fail(self, e, Dims(found.shape))

    def get_tensor_strides(self, name: str) -> Dims:
        found = self._engine._find(name)
        return Dims() if found is None else Dims(found.strides(list(self.get_tensor_shape(name))) or ())

    def infer_shapes(self) -> list[str]:
        try:
            self._shape_inputs()
            missing = list(self._native.underspecified())
            if not missing:
                self._native.infer_shapes()
            return missing
        except Exception as e:
            fail(self, e, None)
            raise RuntimeError(str(e)) from e

    def _shape_inputs(self) -> None:
        """Reads the elements of inputs that the host must know, where an address was set."""
        for t in self._engine._native.inputs:
            address = self._addresses.get(t.name)
            if t.is_shape_input and address:
                shape = self._native.input_shape(t.name) or t.shape
                if -1 not in shape:
                    self._native.set_input(t.name, _kiln.Tensor.from_address(address, t.dtype, list(shape)))

    @property
    def all_binding_shapes_specified(self) -> bool:
        shapes = (self._native.input_shape(t.name) or t.shape for t in self._engine._native.inputs)
        return all(-1 not in shape for shape in shapes)

    @property
    def all_shape_inputs_specified(self) -> bool:
        self._shape_inputs()
        missing = set(self._native.underspecified())
        return not any(t.is_shape_input and t.name in missing for t in self._engine._native.inputs)

    # Memory of the program.

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if self._engine._find(name) is None:
            return False
        self._addresses[name] = int(memory)
        return True

    def get_tensor_address(self, name: str) -> int:
        return self._addresses.get(name, 0) if self._engine._find(name) is not None else 0

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        found = self._engine._find(name)
        if found is None or found.is_input:
            return found is not None and fail(self, f"set_output_allocator({name!r}): it is an input", False)
        try:
            native = None if output_allocator is None else _Allocator(output_allocator, self._stream)
            self._native.set_output_allocator(name, native)
        except Exception as e:
            return fail(self, e, False)
        if output_allocator is None:
            self._allocators.pop(name, None)
        else:
            self._allocators[name] = output_allocator
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        return self._allocators.get(name)

    def get_max_output_size(self, name: str) -> int:
        if self._engine._find(name) is None:
            return -1
        try:
            self._shape_inputs()
            return self._native.max_output_size(name)
        except Exception as e:
            return fail(self, e, -1)

    def _bind(self) -> None:
        """Hands the addresses on, with the sizes that they have at the shapes of this run."""
        self._shape_inputs()
        missing = self._native.underspecified()
        if missing:
            raise ValueError(f"the shape of input {', '.join(missing)} is not set; call set_input_shape")
        shapes, device = None, self._engine._native.takes_device_addresses
        self._odd.clear()
        for t in self._engine._native.io:
            if t.is_input and t.is_shape_input:
                continue
            address = self._addresses.get(t.name, 0)
            if not address:
                if t.name in self._allocators:
                    continue
                raise ValueError(f"the address of {t.name!r} is not set; call set_tensor_address")
            if t.is_input:
                shape = self._native.input_shape(t.name) or t.shape
            else:
                shapes = self._native.infer_shapes() if shapes is None else shapes
                shape = shapes[t.name][1]
            size = None if -1 in shape else t.nbytes(list(shape))
            if size is None:
                raise ValueError(f"nothing bounds the size of {t.name!r} {tuple(shape)}; call set_output_allocator")
            if device and address % ALIGNMENT:
                address = self._stand(t.name, address, int(size), t.is_input)
            wanted = (address, int(size))
            if self._bound.get(t.name) != wanted:
                if device and size and not driver().knows(address):
                    raise ValueError(
                        f"the address of {t.name!r}, {address:#x}, is none of CUDA's: it wants memory of the device, and this "
                        "looks like a pointer of the host"
                    )
                self._native.bind(t.name, *wanted)
                self._bound[t.name] = wanted

    def _stand(self, name: str, address: int, size: int, is_input: bool) -> int:
        """The address of an aligned buffer in place of one that is not; what is in it is copied around the run."""
        stand = self._stands.get(name)
        if stand is None or stand.size < size:
            self._stands[name] = stand = Stand(size)
        self._odd.append((address, stand.address, size, is_input))
        return stand.address

    def _copy_odd(self, stream: int, inputs: bool) -> None:
        for address, stand, size, is_input in self._odd:
            if is_input == inputs:
                target, source = (stand, address) if is_input else (address, stand)
                driver().copy(target, source, size, stream)

    # Runs.

    def execute_v2(self, bindings: Any) -> bool:
        names = self._engine._names
        given = [int(b) for b in bindings]
        if len(given) != len(names):
            return fail(self, f"execute_v2: {len(given)} addresses for {len(names)} inputs and outputs", False)
        for name, address in zip(names, given):
            self._addresses[name] = address
        return self._run(0, True)

    def execute_async_v3(self, stream_handle: int) -> bool:
        stream, device = int(stream_handle), self._engine._native.takes_device_addresses
        if not device and is_captured(stream):
            return self._keep_run(stream)
        return self._run(stream, not device)

    def _keep_run(self, stream: int) -> bool:
        """Keeps a run for the graph of a stand-in's stream, with the addresses and shapes of now."""
        try:
            self._bind()
        except Exception as e:
            return fail(self, e, False)
        addresses = dict(self._addresses)
        shapes = {t.name: self._native.input_shape(t.name) or t.shape for t in self._engine._native.inputs}

        def run() -> None:
            others = self._addresses
            self._addresses = addresses
            for name, shape in shapes.items():
                self._native.set_input_shape(name, list(shape))
            self._run(0, True)
            self._addresses = others

        do(stream, run)
        return True

    def _run(self, stream: int, wait: bool) -> bool:
        device = self._engine._native.takes_device_addresses
        # The default stream of CUDA is no stream of a context: its work ends before the run, and the run before more of it.
        ordered = device and stream == 0
        try:
            self._bind()
            if device and stream != self._stream:
                self._native.set_stream(stream)
            self._stream = stream
            self._copy_odd(stream, True)
            if ordered:
                driver().synchronize()
            # Allocators hear of sizes that the run finds before this call returns, as programs read them then.
            wait = wait or self._finds_sizes()
            self._native.enqueue()
            if wait or ordered or (self._profiler is not None and self._emits):
                self._native.wait()
            self._copy_odd(stream, False)
            if ordered and self._odd:
                driver().synchronize()
            if self._profiler is not None and self._emits:
                self._report()
        except TypeError:
            raise
        except Exception as e:
            return fail(self, e, False)
        return True

    def _finds_sizes(self) -> bool:
        """Whether an output with an allocator has a size that only the run finds."""
        if not self._allocators:
            return False
        shapes = self._native.infer_shapes()
        return any(-1 in shapes[name][0] for name in self._allocators)

    # Following runs.

    @property
    def profiler(self) -> IProfiler | None:
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        if profiler is not None and not isinstance(profiler, IProfiler):
            raise TypeError(f"profiler: wants an IProfiler, found {type(profiler).__name__}")
        self._profiler = profiler
        if profiler is not None:
            self._take_times()

    @property
    def enqueue_emits_profile(self) -> bool:
        return self._emits

    @enqueue_emits_profile.setter
    def enqueue_emits_profile(self, on: bool) -> None:
        self._emits = bool(on)

    def report_to_profiler(self) -> bool:
        if self._profiler is None:
            return fail(self, "report_to_profiler: no profiler is set", False)
        try:
            self._native.wait()
            self._report()
        except Exception as e:
            return fail(self, e, False)
        return True

    def _take_times(self) -> list[dict[str, Any]]:
        """Times of the last run; they are taken from the first question on."""
        try:
            return list(self._native.layer_times())
        except Exception:
            # There was no run yet.
            return []

    def _report(self) -> None:
        for layer in self._native.layer_times():
            call(self._profiler.report_layer_time, layer["name"], layer["ns"] / 1e6)

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        def report(name: str, t: Any) -> bool:
            device = t.device != "cpu"
            where = TensorLocation.DEVICE if device else TensorLocation.HOST
            kept = call(
                listener.process_debug_tensor, t.address, where, from_kiln(t.dtype), Dims(t.shape), name, self._stream,
                default=False,
            )
            return kept is not False

        try:
            self._native.set_debug_listener(None if listener is None else report)
        except Exception as e:
            return fail(self, e, False)
        self._listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        return self._listener

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        try:
            self._native.set_debug_state(name, bool(flag))
        except Exception as e:
            return fail(self, e, False)
        return True

    def get_debug_state(self, name: str) -> bool:
        try:
            return self._native.debug_state(name)
        except Exception as e:
            return fail(self, e, False)

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        self._native.set_all_debug_states(bool(flag))
        return True

    @property
    def unfused_tensors_debug_state(self) -> bool:
        return self._unfused

    @unfused_tensors_debug_state.setter
    def unfused_tensors_debug_state(self, on: bool) -> None:
        self._native.set_unfused_debug_state(bool(on))
        self._unfused = bool(on)

    def set_input_consumed_event(self, event: int) -> bool:
        try:
            self._native.set_consumed_event(int(event))
        except Exception as e:
            return fail(self, e, False)
        self._event = int(event)
        return True

    def get_input_consumed_event(self) -> int:
        return self._event

    error_recorder = Recorder()

    def get_runtime_config(self) -> Any:
        return self._config

    # Memory of the run, and what is accepted without effect.

    def _keep(self, name: str, value: Any, why: str) -> None:
        no_effect(self, f"IExecutionContext.{name}", why)
        self._kept[name] = value

    @property
    def device_memory(self) -> int:
        raise AttributeError("device_memory can only be set")

    @device_memory.setter
    def device_memory(self, memory: int) -> None:
        self.set_device_memory(memory, self._engine._native.context_memory)

    def set_device_memory(self, memory: int, size: int) -> None:
        if self._own:
            self._keep("device_memory", memory, "this context has memory of its own")
            return
        try:
            self._native.set_memory(int(memory), int(size))
        except Exception as e:
            fail(self, e, None)

    def update_device_memory_size_for_shapes(self) -> int:
        return self._engine._native.context_memory

    @property
    def debug_sync(self) -> bool:
        return self._kept.get("debug_sync", False)

    @debug_sync.setter
    def debug_sync(self, on: bool) -> None:
        self._keep("debug_sync", bool(on), "errors of a layer name it in any case")

    @property
    def persistent_cache_limit(self) -> int:
        return self._kept.get("persistent_cache_limit", 0)

    @persistent_cache_limit.setter
    def persistent_cache_limit(self, size: int) -> None:
        self._keep("persistent_cache_limit", int(size), "the device manages its cache")

    @property
    def nvtx_verbosity(self) -> Any:
        return self._kept.get("nvtx_verbosity", self._engine.profiling_verbosity)

    @nvtx_verbosity.setter
    def nvtx_verbosity(self, verbosity: Any) -> None:
        self._keep("nvtx_verbosity", verbosity, "runs have no NVTX ranges")

    @property
    def temporary_allocator(self) -> Any:
        return self._kept.get("temporary_allocator")

    @temporary_allocator.setter
    def temporary_allocator(self, allocator: Any) -> None:
        self._keep("temporary_allocator", allocator, "memory is planned and allocated once a context")

    def set_aux_streams(self, aux_streams: Any) -> None:
        streams = [int(s) for s in aux_streams]
        if not self._engine._native.takes_device_addresses:
            self._keep("aux_streams", streams, "this backend has no streams")
            return
        try:
            self._native.set_aux_streams(streams)
        except Exception as e:
            fail(self, e, None)

    def set_communicator(self, communicator: Any) -> bool:
        raise refuse("IExecutionContext.set_communicator", "an engine runs on one device")


__all__ = ["IExecutionContext"]
