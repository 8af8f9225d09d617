"""Encoders by length, forward: ours beside transformers' PyTorch classes and LOCOST's published
computation.

    python benchmarks/encode.py --out=encode.json [--models=locost,led] [--lengths=1024,4096] \
        [--size=small]

Ours is the module's encoder, compiled for the length; "longsum_jax, Model.encode" is what a user of
``load`` calls. Peers have the same weights where they are the same model, and the states must agree
in float32. LOCOST's published computation (torch_encoder.py, on a CPU in float32) comes with the
fastest kernel in plain PyTorch ("published") and with the sum over all powers ("published_plain");
LSG-BART's peer is LED.

"""

import argparse
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import sweep
from common import Program, compiled
from models import PUBLISHED, forward_flops, make_config, make_ids, parameter_shapes

from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.summarization.model import Model


class Encode(sweep.Case):
    """The encoder over ``--batch`` documents."""

    def __init__(self, name: str, length: int, args: argparse.Namespace) -> None:
        super().__init__(name, length, args)
        self.param_dtype = args.dtype
        self.tokens = args.batch * length
        self.flops = args.batch * forward_flops(self.family, self.config, length)
        self.ids = make_ids(self.config, args.batch, length)

    @cached_property
    def program(self) -> Program:
        module = self.family.module_class(self.config)
        shape = self.ids.shape
        return compiled(
            lambda params, ids, mask: module.apply({"params": params}, ids, mask, method="encode"),
            parameter_shapes(self.family, self.config, self.param_dtype),
            jax.ShapeDtypeStruct(shape, jnp.int32),
            jax.ShapeDtypeStruct(shape, jnp.bool_),
            device=self.device,
        )

    def ours(self) -> dict[str, Callable[[], Any]]:
        arguments = self.model.params, jnp.asarray(self.ids), jnp.ones(self.ids.shape, bool)
        program = self.program._replace(arguments=arguments)
        mask = np.ones(self.ids.shape, bool)
        return {
            sweep.OURS: program,
            sweep.PUBLIC: lambda: self.model.encode(self.ids, mask).block_until_ready(),
        }

    def peer(self, name: str, options: Collection[str] = ()) -> sweep.Peer | None:
        import torch_peers

        if name in PUBLISHED:
            return self._published(plain=name != PUBLISHED[0])
        model = self.model if name == self.name else self._other(name)
        peer = torch_peers.make_peer(model, same_weights=name == self.name, dtype=self.args.dtype)
        encoder = peer.get_encoder() if peer.config.is_encoder_decoder else peer.base_model
        if sweep.COMPILED in options:
            encoder.compile()
        inputs = torch_peers.inputs_of(peer, self.ids)
        held = torch_peers.tensor_bytes(
            [*encoder.parameters(), *encoder.buffers(), *inputs.values()]
        )
        call = lambda: torch_peers.encode(peer, inputs)  # noqa: E731
        return sweep.Peer(call, held, torch_peers.attention_of(peer))

    def _other(self, name: str) -> Model:
        """Ours of the peer's kind, whose config the peer takes; its weights are not made."""
        return Model(*make_config(name, self.args.size, self.length), None)

    def _published(self, *, plain: bool) -> sweep.Peer | None:
        from torch_encoder import TorchEncoder

        if self.args.dtype != "float32" or jax.default_backend() != "cpu":
            return None
        paths = flax.traverse_util.flatten_dict(self.model.params, sep="/")
        table = self.family.weight_map(self.config)
        rows = [
            row
            for row in table.rows
            if row.path in paths and not row.path.startswith(("decoder/", "lm_head"))
        ]
        state = to_state_dict(self.model.params, table._replace(rows=rows))
        peer = TorchEncoder(
            state, self.config.num_layers, self.config.layer_norm_epsilon, plain=plain
        )
        return sweep.Peer(
            lambda: peer(self.ids), sum(x.nbytes for x in state.values()) + 8 * self.ids.size
        )


def main() -> None:
    description = __doc__ + sweep.__doc__.split("\n\n", 1)[1]
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sweep.add_flags(parser, "1024,4096,16384,65536,131072,262144,524288")
    sweep.run(parser.parse_args(), Encode)


if __name__ == "__main__":
    main()
