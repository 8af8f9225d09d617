"""Registers every TFDS-backed task with seqio on import, under the name ``longsum_jax_<task>``.

On a cluster, Beam runs the gap-sentence selection for a whole data set once:

    seqio_cache_tasks --module_import=longsum_jax.data.seqio_tasks --tasks=longsum_jax_c4 \\
        --output_cache_dir=gs://bucket/cache --pipeline_options=--runner=DataflowRunner,...

and ``prepare --task=c4 --cache_dir=gs://bucket/cache`` makes training shards from the cache.
"""

from longsum_jax.data.seqio_source import register
from longsum_jax.data.tasks import TASKS

for _task in TASKS.values():
    # Caches contain texts, not labels.
    if _task.source.startswith("tfds:") and _task.objective != "classify":
        register(_task)
