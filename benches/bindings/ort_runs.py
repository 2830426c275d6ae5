#!/usr/bin/env python3
"""Times runs of a model by ONNX Runtime with Kiln's provider: ort_runs.py MODEL LIBRARY BACKEND RUNS, medians in nanoseconds.

`run` is a run from arrays to arrays, `kept` one with inputs and outputs that IOBinding holds, `plain` a run on the provider that
ONNX Runtime has for the processor.
"""

import json
import statistics
import sys
import time

import numpy as np
import onnxruntime

NAME = "KilnExecutionProvider"


def median(run, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def single():
    """Options of a session in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def main():
    model, library, backend, runs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    onnxruntime.register_execution_provider_library(NAME, library)
    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME)
    options = onnxruntime.SessionOptions()
    plain = onnxruntime.InferenceSession(model, single(), providers=["CPUExecutionProvider"])
    port, result = plain.get_inputs()[0], plain.get_outputs()[0]
    sizes = [n if isinstance(n, int) else 1 for n in port.shape]
    text = f"{port.name}:{'x'.join(map(str, sizes))}"
    shapes = {f"trt_profile_{end}_shapes": text for end in ("min", "opt", "max")}
    options.add_provider_for_devices([device], {"kiln_backend": backend, **shapes})
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    x = np.zeros(sizes, np.float32)
    out = np.zeros_like(plain.run(None, {port.name: x})[0])
    session = onnxruntime.InferenceSession(model, options)
    binding = session.io_binding()
    binding.bind_ortvalue_input(port.name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output(result.name, onnxruntime.OrtValue.ortvalue_from_numpy(out))
    found = {
        "run": median(lambda: session.run(None, {port.name: x}), runs),
        "kept": median(lambda: session.run_with_iobinding(binding), runs),
        "plain": median(lambda: plain.run(None, {port.name: x}), runs),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
