"""Packages of the wheel; everything else is in pyproject.toml.

The directory configs/ is the package longsum_jax.configs, so that a wheel has it, too.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["longsum_jax", "longsum_jax.*", "longsum_plan"]),
        "longsum_jax.configs",
    ],
    package_dir={"longsum_jax.configs": "configs"},
)
