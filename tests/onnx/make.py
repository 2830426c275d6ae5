"""Writes the ONNX backend test suite as folders of files: `make.py TARGET`.

Newer wheels of onnx ship the generators of most cases instead of their files. A case is a folder
`KIND/NAME` with `model.onnx` and `test_data_set_N/{input,output}_M.pb`, as older wheels had it.
The generators draw from seeded random numbers: the files depend on the versions in requirements.txt alone.
Cases of kind "real" are networks that the wheel ships with constant weights; their input counts from 0 to 1.
"""

import json
import pathlib
import shutil
import sys
import warnings

import numpy
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import model as model_cases
from onnx.backend.test.loader import DATA_DIR, load_node_model_tests

# Kinds of cases that the wheel ships as files.
SHIPPED = ["pytorch-converted", "pytorch-operator"]


def proto(value, info):
    """Converts the value of an input or output to the message of its declared type."""
    kind = info.type.WhichOneof("value")
    if kind == "map_type":
        return numpy_helper.from_dict(value, info.name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    if isinstance(value, TensorProto):
        return value
    return numpy_helper.from_array(numpy.asarray(value), info.name)


def write(case, target):
    folder = target / case.kind / case.name
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString(deterministic=True))
    graph = case.model.graph
    for i, data in enumerate(case.data_sets):
        where = folder / f"test_data_set_{i}"
        where.mkdir()
        for name, values, infos in zip(("input", "output"), data, (graph.input, graph.output)):
            for j, (value, info) in enumerate(zip(values, infos)):
                (where / f"{name}_{j}.pb").write_bytes(proto(value, info).SerializeToString(deterministic=True))


def write_real(case, target):
    """Writes a network that the wheel ships, with the suite's input, its output, and its tolerances."""
    model = pathlib.Path(DATA_DIR) / "light" / f"light_{case.model_name}.onnx"
    folder = target / case.kind / case.name
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    shutil.copy(model, folder / "model.onnx")
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    graph = onnx.load(model).graph
    weights = {tensor.name for tensor in graph.initializer}
    (info,) = [info for info in graph.input if info.name not in weights]
    shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    count = int(numpy.prod(shape))
    value = (numpy.arange(count).reshape(shape) / count).astype(numpy.float32)
    (data / "input_0.pb").write_bytes(proto(value, info).SerializeToString(deterministic=True))
    shutil.copy(model.with_name(f"{model.stem}_output_0.pb"), data / "output_0.pb")


def main():
    target = pathlib.Path(sys.argv[1])
    with warnings.catch_warnings():
        # Casts that overflow and divisions by zero are what some cases test.
        warnings.simplefilter("ignore", RuntimeWarning)
        cases = list(load_node_model_tests())
        cases += model_cases.collect_testcases()
    for case in cases:
        (write_real if case.kind == "real" else write)(case, target)
    for kind in SHIPPED:
        shutil.copytree(pathlib.Path(DATA_DIR) / kind, target / kind)
    print(f"setup: {len(cases)} cases of onnx {onnx.__version__} written")


if __name__ == "__main__":
    main()
