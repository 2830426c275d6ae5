"""Selects algorithms, records those of a build, and lets another build take the same ones."""

import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.WARNING)


class Recorder(trt.IAlgorithmSelector):
    def __init__(self):
        trt.IAlgorithmSelector.__init__(self)
        self.asked, self.chosen, self.contexts = [], {}, 0

    def select_algorithms(self, context, choices):
        assert len(choices) > 0 and context.num_outputs > 0
        for algorithm in choices:
            for i in range(context.num_inputs + context.num_outputs):
                info = algorithm.get_algorithm_io_info(i)
                assert info.dtype == trt.float32 and len(info.strides) == len(context.get_shape(i)[0])
        self.asked.append((context.name, len(choices)))
        return list(range(len(choices)))

    def report_algorithms(self, contexts, choices):
        assert len(contexts) == len(choices) > 0
        for context, choice in zip(contexts, choices):
            variant = choice.algorithm_variant
            self.chosen[context.name] = (variant.implementation, variant.tactic, choice.workspace_size)
            assert choice.timing_msec >= 0


class Replayer(trt.IAlgorithmSelector):
    def __init__(self, chosen, other=None):
        super().__init__()
        self.wanted, self.other, self.found = chosen, other, {}

    def select_algorithms(self, context, choices):
        found = [i for i, c in enumerate(choices) if self.take(context.name, c.algorithm_variant)]
        return found[:1] if found else [0]

    def take(self, name, variant):
        known = self.wanted.get(name)
        same = known is not None and (variant.implementation, variant.tactic) == known[:2]
        return same != (name == self.other)

    def report_algorithms(self, contexts, choices):
        for context, choice in zip(contexts, choices):
            self.found[context.name] = choice.algorithm_variant.tactic


def build(selector, reject=False):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (16, 64))
    w = network.add_constant((64, 64), np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096)
    product = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, w.get_output(0), trt.MatrixOperation.NONE)
    product.name = "product"
    softmax = network.add_softmax(product.get_output(0))
    softmax.axes = 2
    network.mark_output(softmax.get_output(0))
    config = builder.create_builder_config()
    config.algorithm_selector = selector
    assert config.algorithm_selector is selector
    if reject:
        config.set_flag(trt.BuilderFlag.REJECT_EMPTY_ALGORITHMS)
    return builder.build_serialized_network(network, config)


recorder = Recorder()
assert build(recorder) is not None
assert recorder.asked and recorder.chosen
replayer = Replayer(recorder.chosen)
assert build(replayer) is not None
assert replayer.found == {name: tactic for name, (_, tactic, _) in recorder.chosen.items()}
name = next(n for n in recorder.chosen if "product" in n)
if max(count for asked, count in recorder.asked if asked == name) > 1:
    other = Replayer(recorder.chosen, name)
    assert build(other) is not None
    assert other.found[name] != replayer.found[name], "another algorithm of the product"


class Shapes(Recorder):
    def select_algorithms(self, context, choices):
        for i in range(context.num_inputs + context.num_outputs):
            self.asked.append(tuple(tuple(d) for d in context.get_shape(i)))
        return []


def build_of_rows(selector):
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (-1, 8))
    w = network.add_constant((8, 6), np.ones((8, 6), np.float32))
    product = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, w.get_output(0), trt.MatrixOperation.NONE)
    network.mark_output(product.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 8), (4, 8), (16, 8))
    config.add_optimization_profile(profile)
    config.algorithm_selector = selector
    return builder.build_serialized_network(network, config)


shapes = Shapes()
assert build_of_rows(shapes) is not None
for columns in (8, 6):
    assert ((1, columns), (4, columns), (16, columns)) in shapes.asked, shapes.asked


class Nothing(Recorder):
    def select_algorithms(self, context, choices):
        return []


assert build(Nothing()) is not None
assert build(Nothing(), reject=True) is None
print("OK", len(recorder.chosen))
