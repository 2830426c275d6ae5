"""Collects errors of builder, runtime and context in a recorder of the program, and reads the log of one."""

import numpy as np
import tensorrt as trt


class Recorder(trt.IErrorRecorder):
    def __init__(self):
        trt.IErrorRecorder.__init__(self)
        self.errors = []

    def get_error_code(self, index):
        return self.errors[index][0]

    def get_error_desc(self, index):
        return self.errors[index][1]

    def get_num_errors(self):
        return len(self.errors)

    def has_overflowed(self):
        return False

    def clear(self):
        self.errors = []

    def report_error(self, code, desc):
        self.errors.append((code, desc))
        return True


class MyLogger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines = []

    def log(self, severity, msg):
        if severity <= trt.ILogger.Severity.ERROR:
            self.lines.append(msg)


logger, recorder = MyLogger(), Recorder()
runtime = trt.Runtime(logger)
runtime.error_recorder = recorder
assert runtime.deserialize_cuda_engine(b"no plan at all") is None
assert recorder.get_num_errors() == 1 and isinstance(recorder.get_error_code(0), trt.ErrorCodeTRT)
assert recorder.get_error_code(0) != trt.ErrorCodeTRT.SUCCESS
assert len(recorder.get_error_desc(0)) <= recorder.MAX_DESC_LENGTH and logger.lines

builder = trt.Builder(logger)
builder.error_recorder = recorder
network = builder.create_network(0)
network.error_recorder = recorder
recorder.clear()
x = network.add_input("x", trt.float32, (-1, 4))
y = network.add_identity(x).get_output(0)
network.mark_output(y)
assert network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.VECTOR) is None
assert recorder.get_num_errors() == 1, recorder.errors
assert builder.build_serialized_network(network, builder.create_builder_config()) is None
assert recorder.get_num_errors() == 2 and "profile" in recorder.get_error_desc(1)

config = builder.create_builder_config()
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 4), (2, 4), (3, 4))
config.add_optimization_profile(profile)
engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
context = engine.create_execution_context()
recorder.clear()
context.error_recorder = recorder
assert not context.set_input_shape("x", (9, 4)) and not context.set_input_shape("z", (1, 4))
assert context.set_input_shape("x", (2, 4)) and not context.execute_async_v3(0)
assert recorder.get_num_errors() >= 2 and "address" in recorder.errors[-1][1]
a = np.ones((2, 4), np.float32)
assert not context.execute_v2([a.ctypes.data])


class Bad(trt.ILogger):
    def log(self, severity, msg):
        raise RuntimeError("a fault of the logger")


assert trt.Runtime(Bad()).deserialize_cuda_engine(b"no plan") is None
print("OK")
