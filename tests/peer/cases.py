"""What cases of the peer are made of: a model of one node, its inputs, and ONNX Runtime's answer."""
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

MS = "com.microsoft"
TYPES = {np.dtype(d): t for d, t in [
    (np.float32, TensorProto.FLOAT), (np.float16, TensorProto.FLOAT16), (np.float64, TensorProto.DOUBLE),
    (np.int8, TensorProto.INT8), (np.uint8, TensorProto.UINT8), (np.int16, TensorProto.INT16),
    (np.uint16, TensorProto.UINT16), (np.int32, TensorProto.INT32), (np.uint32, TensorProto.UINT32),
    (np.int64, TensorProto.INT64), (np.uint64, TensorProto.UINT64), (np.bool_, TensorProto.BOOL)]}


class Cases:
    """Collects cases. A value is an array: `const` marks it as an initializer, else it is an input of the model."""

    def __init__(self, seed):
        self.seed, self.all, self.given, self.failed = seed, {}, None, []

    def rng(self, name):
        return np.random.default_rng((self.seed << 32) + zlib.crc32(name.encode()))

    def one(self, name, op, values, outputs=1, domain=MS, version=21, dynamic=(), slack=0, **attributes):
        """A model of one node. `values` are arrays, (array, "const"), or None for an absent input; `outputs` a number, or
        a list with "" for absent ones; `dynamic` are places (input, axis) of symbolic dimensions."""
        names = ["" if v is None else f"x{i}" for i, v in enumerate(values)]
        made = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        attributes = {k: v for k, v in attributes.items() if v is not None}
        node = helper.make_node(op, names, made, name=op, domain=domain, **attributes)
        self.graph(name, [node], {n: v for n, v in zip(names, values) if n}, [m for m in made if m], version, dynamic, slack)

    def formula(self, name, op, values, answers, **attributes):
        """As `one`, for an operator without a kernel on the CPU: the answers are given."""
        self.given = answers
        self.one(name, op, values, len(answers), **attributes)

    def refused(self, name, op, values, says, outputs=1, **attributes):
        """A node that the importer has to refuse, with these words in the reason."""
        self.given = [np.frombuffer(says.encode(), np.uint8)] * (outputs if isinstance(outputs, int) else len(outputs))
        self.one(f"refused_{name}", op, values, outputs, **attributes)

    def answers(self, op, values, outputs=1, **attributes):
        """What a node gives that the peer has, for a form of the same that it lacks."""
        other = Cases(self.seed)
        other.one("other", op, values, outputs, **attributes)
        return list(other.all["other"][2].values())

    def graph(self, name, nodes, values, outputs, opset=21, dynamic=(), slack=0):
        """A model of these nodes. `dynamic` holds symbolic axes of inputs, by name or place. Codes may differ by `slack`
        where ONNX Runtime computes in integers of few bits."""
        inputs, weights, feeds = [], [], {}
        symbolic = {(f"x{i}" if isinstance(i, int) else i, axis) for i, axis in dynamic}
        for n, v in values.items():
            if isinstance(v, tuple):
                v = v[0] if isinstance(v[0], onnx.TensorProto) else numpy_helper.from_array(np.asarray(v[0]), n)
                v.name = n
                weights.append(v)
                continue
            shape = [f"{n}_{a}" if (n, a) in symbolic else d for a, d in enumerate(v.shape)]
            inputs.append(helper.make_tensor_value_info(n, TYPES[v.dtype], shape))
            feeds[n] = v
        made = [onnx.ValueInfoProto(name=n) for n in outputs]
        graph = helper.make_graph(nodes, "case", inputs, made, weights)
        sets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        data = model.SerializeToString()
        answers, self.given = self.given, None
        try:
            if answers is None:
                session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
                answers = session.run(outputs, feeds)
        except Exception as error:
            # ONNX Runtime lacks some types that the specification has: then the specification's own evaluator answers.
            if "NOT_IMPLEMENTED" not in str(error) or any(n.domain for n in nodes):
                self.failed.append(f"{name}: {error}")
                return
            with np.errstate(over="ignore"):
                answers = ReferenceEvaluator(model).run(outputs, feeds)
        assert name not in self.all, name
        self.all[name] = (data, feeds, dict(zip(outputs, answers)), slack)

    def save(self, path):
        """One archive: NAME/model as bytes, NAME/in/INPUT and NAME/out/OUTPUT."""
        if self.failed:
            raise SystemExit("\n".join(self.failed))
        arrays = {}
        for name, (data, feeds, answers, slack) in self.all.items():
            arrays[f"{name}/model"] = np.frombuffer(data, np.uint8)
            if slack:
                arrays[f"{name}/slack"] = np.asarray(slack)
            arrays.update({f"{name}/in/{n}": a for n, a in feeds.items()})
            if name.startswith("refused_"):
                arrays[f"{name}/says"] = next(iter(answers.values()))
                continue
            arrays.update({f"{name}/out/{n}": np.asarray(a) for n, a in answers.items()})
        np.savez_compressed(path, **arrays)
        print(f"{path}: {len(self.all)} cases, {path.stat().st_size / 1024:.0f} KiB")


def const(array):
    """An initializer."""
    return (np.asarray(array), "const")


def floats(rng, *shape, dtype=np.float32, low=-2.0, high=2.0):
    """Uniform numbers."""
    return rng.uniform(low, high, shape).astype(dtype)


def codes(rng, dtype, *shape):
    """Integers over a type's whole range."""
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
