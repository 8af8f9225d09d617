"""Entry point ``python -m longsum_jax.train``; the command is ``longsum_jax.commands.train``."""

from longsum_jax.commands import console
from longsum_jax.commands.train import main

if __name__ == "__main__":
    console.run_process(main)
