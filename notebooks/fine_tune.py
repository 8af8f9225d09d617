# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](COLAB)
#
# # Fine-tune a model for long documents
#
# This notebook trains a checkpoint of the Hugging Face Hub on your documents
# and their summaries, in a CSV or JSON lines file. It needs a GPU (Runtime,
# Change runtime type). Training stores checkpoints: if the runtime stops, run
# the cells again, and training resumes.

# %% [install]
# import os
#
# EXTRAS = "[files,hf,torch]"
# HUB = f"longsum_jax{EXTRAS} @ git+REPOSITORY"
# SOURCE = f"..{EXTRAS}" if os.path.exists("../pyproject.toml") else HUB
# %pip install --quiet "JAX" "{SOURCE}"

# %% [markdown]
# ## Settings
#
# `DATA` is your file, with the columns `document` and `summary` (other usual
# names are recognized). A tenth of the documents is held out for evaluation.
# Without a file, generated minutes of meetings are used. LongT5
# (`google/long-t5-tglobal-base`) needs a learning rate of 1e-3.

# %%
MODEL = "allenai/led-base-16384"
DATA = "reports.jsonl"
WORKDIR = "runs/reports"
OPTIONS = {
    "task.max_source_length": 4096,
    "task.max_target_length": 256,
    "data.batch_size": 8,
    "training.accumulation": 8,
    "model.remat": True,
    "optimizer.learning_rate": 5e-5,
    "training.steps": 500,
    "training.eval_every": 250,
    "evaluation.examples": 20,
}

# %%
import json
from itertools import islice
from pathlib import Path

import longsum_jax
from longsum_jax.commands import evaluate, train
from longsum_jax.data import get_task
from longsum_jax.data.minutes import minutes
from longsum_jax.data.sources import documents

if not Path(DATA).exists():
    rows = islice(minutes("train"), 500)
    lines = [json.dumps({"document": row.document, "summary": row.summary}) for row in rows]
    Path(DATA).write_text("\n".join(lines), encoding="utf-8")

FLAGS = [
    f"--config=configs/finetune.py:model={MODEL},data={DATA}",
    f"--workdir={WORKDIR}",
]
FLAGS += [f"--config.{key}={value}" for key, value in OPTIONS.items()]

# %% [markdown]
# ## Plan
#
# The plan compiles the training for this GPU and prints memory and time. If it
# does not fit, it prints the options that do: change `OPTIONS` accordingly.

# %%
train.main([*FLAGS, "--dry_run"])

# %% [markdown]
# ## Train

# %%
train.main(FLAGS)

# %% [markdown]
# ## Evaluate
#
# ROUGE of the held-out documents, next to their first sentences (lead) and
# random ones. They are written to a file, because `evaluate` scores all
# documents of a file.

# %%
HELD_OUT = f"{WORKDIR}/held_out.jsonl"
task = get_task("summaries", source=f"json:{DATA}", held_out=0.1)  # as in training
rows = islice(documents(task, "validation"), 20)
keys = ("id", "document", "summary", "query")
lines = [json.dumps({key: getattr(row, key) or "" for key in keys}) for row in rows]
Path(HELD_OUT).write_text("\n".join(lines), encoding="utf-8")
evaluate.main([f"--model={WORKDIR}", f"--data={HELD_OUT}", f"--out={WORKDIR}/results"])

# %% [markdown]
# ## Summarize
#
# Any document, for example one of
# `longsum_jax.readers.read_documents("report.pdf")`.

# %%
model = longsum_jax.load(WORKDIR)
document = next(minutes("validation")).document
[summary] = model.summaries(document)
print(summary.text)
summary.report()
