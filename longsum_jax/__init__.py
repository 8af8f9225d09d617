"""Long-document summarisation in JAX and Flax."""

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str):
    # Lazily, so that a command's --help does not wait for jax.
    if name == "load":
        from longsum_jax.inference.loading import load

        return load
    raise AttributeError(f'module "longsum_jax" has no attribute "{name}"')
