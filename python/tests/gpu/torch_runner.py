"""A runner with buffers of PyTorch: sizes of a profile, addresses by name, the stream of the moment."""

import sys

import numpy as np
import tensorrt as trt
import torch

model, digits = sys.argv[1], np.load(sys.argv[2])
device = "cuda" if torch.cuda.is_available() else "cpu"
logger = trt.Logger(trt.Logger.WARNING)


def build():
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    with open(model, "rb") as f:
        assert parser.parse(f.read()), [parser.get_error(i) for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    config.builder_optimization_level = 1
    profile = builder.create_optimization_profile()
    profile.set_shape("input", min=(1, 1, 28, 28), opt=(16, 1, 28, 28), max=(64, 1, 28, 28))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None
    return bytes(plan)


class Runner:
    def __init__(self, plan):
        self.engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        self.context = self.engine.create_execution_context()
        self.names = [self.engine.get_tensor_name(i) for i in range(self.engine.num_io_tensors)]
        self.buffers = {}
        for name in self.names:
            shape = list(self.engine.get_tensor_shape(name))
            shape[0] = self.engine.get_tensor_profile_shape("input", 0)[2][0]
            kind = torch.from_numpy(np.empty(0, trt.nptype(self.engine.get_tensor_dtype(name)))).dtype
            self.buffers[name] = torch.empty(shape, dtype=kind, device=device)

    def __call__(self, x):
        stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
        assert self.context.set_input_shape("input", tuple(x.shape))
        for name in self.names:
            memory = x if name == "input" else self.buffers[name]
            assert self.context.set_tensor_address(name, memory.data_ptr())
        assert self.context.execute_async_v3(stream)
        return self.buffers["logits"][: x.shape[0]]


runner = Runner(build())
for count in (1, 64, 7):
    images = torch.from_numpy(digits["images"][:count].copy()).to(device)
    found = runner(images * 2 / 2).argmax(1).cpu().numpy()
    assert (found == digits["labels"][:count]).mean() > 0.95, count
assert not runner.context.set_input_shape("input", (65, 1, 28, 28))
# Views of a larger tensor begin anywhere.
odd = torch.zeros(1 + 784, device=device)
odd[1:] = torch.from_numpy(digits["images"][0].reshape(-1).copy()).to(device)
view = odd[1:].view(1, 1, 28, 28)
assert runner(view).argmax(1).item() == digits["labels"][0]
print("OK")
