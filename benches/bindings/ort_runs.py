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


def main():
    model, library, backend, runs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    onnxruntime.register_execution_provider_library(NAME, library)
    device = next(d for d in onnxruntime.get_ep_devices() if d.ep_name == NAME)
    options = onnxruntime.SessionOptions()
    shapes = {f"trt_profile_{end}_shapes": "input:1x1x28x28" for end in ("min", "opt", "max")}
    options.add_provider_for_devices([device], {"kiln_backend": backend, **shapes})
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    x, out = np.zeros((1, 1, 28, 28), np.float32), np.zeros((1, 10), np.float32)
    session = onnxruntime.InferenceSession(model, options)
    binding = session.io_binding()
    binding.bind_ortvalue_input("input", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("logits", onnxruntime.OrtValue.ortvalue_from_numpy(out))
    single = onnxruntime.SessionOptions()
    single.intra_op_num_threads = 1
    plain = onnxruntime.InferenceSession(model, single, providers=["CPUExecutionProvider"])
    found = {
        "run": median(lambda: session.run(None, {"input": x}), runs),
        "kept": median(lambda: session.run_with_iobinding(binding), runs),
        "plain": median(lambda: plain.run(None, {"input": x}), runs),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
