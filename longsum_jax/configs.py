"""The package ``longsum_jax.configs`` of a checkout: the directory configs/ beside this package.

A wheel has the files in a directory longsum_jax/configs, which Python prefers to this file.
"""

from pathlib import Path

__path__ = [str(Path(__file__).parents[1] / "configs")]
