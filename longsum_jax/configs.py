"""The package ``longsum_jax.configs`` of a checkout: the directory configs/ next to this package.

A wheel contains a directory longsum_jax/configs, which Python prefers to this
file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).parents[1] / "configs")]
