"""An exporter with half precision and a header in front of the plan, and a backend that runs it by bindings."""

import json
import os
import sys
import tempfile

import numpy as np
import tensorrt as trt
import torch

model, digits = sys.argv[1], np.load(sys.argv[2])
device = "cuda" if torch.cuda.is_available() else "cpu"
logger = trt.Logger(trt.Logger.WARNING)
file = os.path.join(tempfile.mkdtemp(), "lenet.engine")

builder = trt.Builder(logger)
config = builder.create_builder_config()
config.builder_optimization_level = 1
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
parser = trt.OnnxParser(network, logger)
assert parser.parse_from_file(model)
profile = builder.create_optimization_profile()
profile.set_shape("input", (1, 1, 28, 28), (32, 1, 28, 28), (128, 1, 28, 28))
config.add_optimization_profile(profile)
if builder.platform_has_fast_fp16:
    config.set_flag(trt.BuilderFlag.FP16)
with builder.build_serialized_network(network, config) as plan, open(file, "wb") as out:
    meta = json.dumps({"batch": 128, "names": list(range(10))}).encode()
    out.write(len(meta).to_bytes(4, byteorder="little", signed=True))
    out.write(meta)
    out.write(plan)

with open(file, "rb") as f, trt.Runtime(logger) as runtime:
    metadata = json.loads(f.read(int.from_bytes(f.read(4), byteorder="little")).decode())
    engine = runtime.deserialize_cuda_engine(f.read())
context = engine.create_execution_context()
assert metadata["batch"] == 128
for count in (1, 128):
    x = torch.from_numpy(digits["images"][:count].copy()).to(device)
    assert context.set_input_shape("input", tuple(x.shape))
    y = torch.empty(tuple(context.get_tensor_shape("logits")), device=device)
    bindings = {"input": x, "logits": y}
    order = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    assert context.execute_v2([int(bindings[name].data_ptr()) for name in order])
    assert (y.argmax(1).cpu().numpy() == digits["labels"][:count]).mean() > 0.95
print("OK")
