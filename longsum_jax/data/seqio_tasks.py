"""Registers every TFDS-backed task with seqio when imported, under the name ``longsum_jax_<task>``.

On a cluster, Beam runs the gap-sentence selection of a whole data set once:

    seqio_cache_tasks --module_import=longsum_jax.data.seqio_tasks --tasks=longsum_jax_c4 \\
        --output_cache_dir=gs://bucket/cache --pipeline_options=--runner=DataflowRunner,...

and ``prepare --task=c4 --cache_dir=gs://bucket/cache`` makes the training shards from it.
"""

from longsum_jax.data.seqio_source import register
from longsum_jax.data.tasks import TASKS

for _task in TASKS.values():
    # Caches hold texts, not labels.
    if _task.source.startswith("tfds:") and _task.objective != "classify":
        register(_task)
