# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](COLAB)
#
# # Summaries of long documents in JAX: first steps
#
# The first two cells install the package and summarize a report; neither needs
# an accelerator. Then a small LOCOST is trained from scratch on generated
# minutes of meetings, in which it learns to find the decisions. Training takes
# about three minutes on two CPU cores and a minute on an accelerator (Runtime,
# Change runtime type).

# %% [install]
# import os
#
# SOURCE = ".." if os.path.exists("../pyproject.toml") else "git+REPOSITORY"
# %pip install --quiet {SOURCE}

# %% [markdown]
# ## A summary without a model
#
# The bundled ranker selects sentences. It downloads nothing, and a book takes
# about a second. The report comes with the package: read your own with
# `longsum_jax.readers.read_documents("report.pdf")`.

# %%
from importlib.resources import files

import longsum_jax

report = files("longsum_jax").joinpath("example.md").read_text(encoding="utf-8")
longsum_jax.summarize(report, length="60 words")

# %% [markdown]
# ## JAX for the accelerator
#
# The following cells use JAX. On a CPU, skip the installation. If JAX was
# imported before it, restart the runtime afterwards.

# %% [install]
# %pip install --quiet "JAX"

# %%
import jax
import jax.numpy as jnp
import numpy as np

RUN = "configs/quickstart.py"
WORKDIR = "runs/notebook"
jax.devices()

# %% [markdown]
# ## Modules
#
# Modules are ordinary Flax Linen modules. The gated state-space layer of LOCOST reads 65,536 tokens
# in one pass:

# %%
from longsum_jax.layers.s4d import S4D

layer = S4D(d_model=32, d_state=16)
x = jax.random.normal(jax.random.key(0), (1, 65536, 32))
mask = jnp.ones((1, 65536), bool)
variables = jax.jit(layer.init)(jax.random.key(1), x[:, :8], mask[:, :8])
jax.jit(layer.apply)(variables, x, mask).shape

# %% [markdown]
# With LSG attention, a token attends to its neighborhood, to selected tokens further away, and to
# global tokens. It is a function of arrays, like every operation in `longsum_jax.ops`; every
# encoder of the library can use it.

# %%
from longsum_jax.models.bart import BartConfig
from longsum_jax.models.registry import get_family

config = BartConfig.of(
    vocab_size=1000,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_position_embeddings=1024,
    encoder_attention="lsg",
    block_size=64,
    sparse_block_size=64,
    num_global_tokens=1,
    cross_attention="hepos",
    hepos_stride=4,
)
shapes = get_family("bart").parameter_shapes(config)
print(len(shapes), "parameters, for example")
for name in list(shapes)[:5]:
    print(" ", name, shapes[name])

# %% [markdown]
# ## Training
#
# A tokenizer is built, a small LOCOST is trained on generated minutes of meetings, and its
# summaries are compared with the first sentences and with random ones. The same command in a
# terminal: `python -m longsum_jax.train --config=... --workdir=...`.

# %%
from longsum_jax.commands import train

train.main([f"--config={RUN}", f"--workdir={WORKDIR}"])

# %%
import json
from pathlib import Path

lines = [json.loads(line) for line in Path(WORKDIR, "metrics.jsonl").read_text().splitlines()]
losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
print("\n".join(f"step {step:>4}: loss {loss:.2f}" for step, loss in losses.items()))

# %% [markdown]
# ## Summaries
#
# `load` takes a training run, a directory in Hugging Face layout, or a name on the Hub.

# %%
from longsum_jax.data.minutes import minutes

model = longsum_jax.load(WORKDIR)
document = next(minutes("validation")).document  # the model has not seen it
[summary] = model.summaries(document, max_source_length=320, num_beams=4)
print(summary.text)
summary.report()

# %%
ids = np.array([model.tokenizer.encode(document)[:64]])
states = model.encode(ids)
logits = model.logits(ids, decoder_input_ids=ids[:, :4])
states.shape, logits.shape

# %% [markdown]
# Next: the notebook `fine_tune` trains a checkpoint of the Hugging Face Hub on
# your own documents, and `longsum convert` extends a checkpoint to longer inputs.
# Every command describes its flags with `--help`.
