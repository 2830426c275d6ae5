"""PyTorch modules on Kiln: exported to ONNX as a whole, built to an engine, refitted from state dictionaries.

    engine = kiln.torch.export(module, (example,))
    outputs = engine(example)

    fast = torch.compile(module, backend="kiln")        # after `import kiln.torch`
"""

from kiln.torch._compile import FellBack, backend
from kiln.torch._export import Exported, export, refit

__all__ = ["Exported", "FellBack", "backend", "export", "refit"]
