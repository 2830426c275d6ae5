"""Kiln compiles neural networks into engines and runs them."""

from kiln._kiln import Network, __version__

__all__ = ["Network", "__version__"]
