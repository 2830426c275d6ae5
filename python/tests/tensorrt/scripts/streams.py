"""Reads a plan through a stream reader and writes one through a stream writer."""

import os
import sys

import tensorrt as trt


class FileReader(trt.IStreamReader):
    def __init__(self, path):
        trt.IStreamReader.__init__(self)
        self.file = open(path, "rb")

    def read(self, size):
        return self.file.read(size)


class FileReaderV2(trt.IStreamReaderV2):
    def __init__(self, path):
        trt.IStreamReaderV2.__init__(self)
        self.file = open(path, "rb")
        self.reads = 0

    def read(self, num_bytes, stream):
        self.reads += 1
        return self.file.read(min(num_bytes, 100_000))

    def seek(self, offset, where):
        self.file.seek(offset, {trt.SeekPosition.SET: 0, trt.SeekPosition.CUR: 1, trt.SeekPosition.END: 2}[where])
        return True


class FileWriter(trt.IStreamWriter):
    def __init__(self, path):
        trt.IStreamWriter.__init__(self)
        self.file = open(path, "wb")
        self.pieces = 0

    def write(self, data):
        self.pieces += 1
        return self.file.write(data[:200_000])


class Full(trt.IStreamWriter):
    def write(self, data):
        return 0


logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
path = os.path.join(sys.argv[2], "lenet.plan")
builder = trt.Builder(logger)
network = builder.create_network(0)
assert trt.OnnxParser(network, logger).parse_from_file(os.path.join(sys.argv[1], "lenet_a.onnx"))
network.get_input(0).shape = (1, 1, 28, 28)
config = builder.create_builder_config()
writer = FileWriter(path)
assert builder.build_serialized_network_to_stream(network, config, writer)
writer.file.close()
assert writer.pieces > 1
assert not builder.build_serialized_network_to_stream(network, config, Full())
runtime = trt.Runtime(logger)
engine = runtime.deserialize_cuda_engine(FileReader(path))
assert engine is not None and engine.num_io_tensors == 2
reader = FileReaderV2(path)
again = runtime.deserialize_cuda_engine(reader)
assert again is not None and reader.reads > 2
with open(path, "rb") as f:
    data = f.read()
for form in (data, bytearray(data), memoryview(data), engine.serialize()):
    assert runtime.deserialize_cuda_engine(form) is not None, type(form)
assert runtime.deserialize_cuda_engine(data[:-1000]) is None
print("OK")
