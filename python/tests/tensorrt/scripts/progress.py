"""Follows a build, and cancels one."""

import os
import sys

import tensorrt as trt


class Monitor(trt.IProgressMonitor):
    def __init__(self, cancel_at=None):
        trt.IProgressMonitor.__init__(self)
        self._active_phases = {}
        self.steps = 0
        self.started = []
        self.finished = []
        self.cancel_at = cancel_at

    def phase_start(self, phase_name, parent_phase, num_steps):
        assert parent_phase is None or parent_phase in self._active_phases
        self._active_phases[phase_name] = {"title": phase_name, "steps": 0, "num_steps": num_steps}
        self.started.append(phase_name)

    def phase_finish(self, phase_name):
        del self._active_phases[phase_name]
        self.finished.append(phase_name)

    def step_complete(self, phase_name, step):
        self._active_phases[phase_name]["steps"] = step
        self.steps += 1
        return self.cancel_at is None or self.steps < self.cancel_at


class Broken(Monitor):
    def step_complete(self, phase_name, step):
        raise RuntimeError("a fault of the program")


logger = trt.Logger(trt.Logger.INTERNAL_ERROR)


def build(monitor):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
    network.get_input(0).shape = (8, 1, 28, 28)
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    assert config.progress_monitor is monitor
    return builder.build_serialized_network(network, config)


follows = Monitor()
assert build(follows) is not None
assert follows.steps > 0 and follows.started and sorted(follows.started) == sorted(follows.finished)
assert not follows._active_phases
ends = Monitor(cancel_at=1)
assert build(ends) is None, "the build was not cancelled"
assert ends.steps < follows.steps + 1
assert build(Broken()) is None, "an exception in step_complete ends the build"
try:
    trt.Builder(logger).create_builder_config().progress_monitor = object()
    raise SystemExit("anything was taken for a monitor")
except TypeError:
    pass
print("OK")
