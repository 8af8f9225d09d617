"""Packaging of longsum_jax: a light core, and extras for what only some users need."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "longsum_jax/__init__.py").read_text()).group(
    1
)

CORE = [
    "flax>=0.12",
    "jax>=0.10",
    "jaxtyping>=0.3",
    "ml_collections>=1.0",
    "numpy>=2.0",
    "optax>=0.2.6",
    "orbax-checkpoint>=0.11.30",
    "rouge-score>=0.1.2",
    "sentencepiece>=0.2.1",
    "sentencex>=1.0.30",
    "tqdm>=4.66",
]
EXTRAS = {
    # SegmentInputs TensorFlow Datasets and seqio tasks, and preparing shards from them.
    "data": [
        "grain>=0.2.12",
        "importlib_resources>=6.0",  # tensorflow-datasets imports it without declaring it
        "seqio>=0.0.20",
        "tensorflow>=2.18",
        "tensorflow-datasets>=4.9.9",
    ],
    # SegmentInputs prepared shards, without TensorFlow.
    "shards": ["grain>=0.2.12"],
    "hf": ["huggingface_hub>=0.30", "tokenizers>=0.21"],
    "plots": ["matplotlib>=3.9"],
    # The pinned two are what every family is compared with.
    "test": [
        "beartype>=0.21",
        "pytest>=8.0",
        "pytest-xdist>=3.6",
        "ruff>=0.9",
        "safetensors>=0.5",
        "torch==2.13.0",
        "transformers==5.23.0",
    ],
}
EXTRAS["all"] = sorted({package for name in ("data", "hf", "plots") for package in EXTRAS[name]})

setup(
    name="longsum_jax",
    version=VERSION,
    description="Long-document summarisation in JAX and Flax: LOCOST, LongT5, LED, PEGASUS-X and their relatives",
    long_description=(ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["longsum_jax", "longsum_jax.*"]),
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["longsum = longsum_jax.__main__:main"]},
)
