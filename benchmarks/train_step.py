"""Training steps by length: ours beside transformers' PyTorch classes under torch.optim.AdamW.

    python benchmarks/train_step.py --out=train_step.json [--models=locost,bart] \
        [--lengths=1024,4096] [--size=small]

A step is teacher forcing of a target of --target tokens, the gradient of all parameters, clipping
at norm 1, and AdamW. Parameters are float32; bfloat16 is the computation's type, in PyTorch by
autocast. Tokens are those of source and target. Where ours and the peer have the same weights, the
first losses must agree, for which there is no --dropout by default. LOCOST's peer is LongT5,
LSG-BART's LED. --remat computes activations again in the backward pass, on both sides.

"""

import argparse
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sweep
from common import Program, compiled
from models import PUBLISHED, forward_flops, make_config, make_ids, parameter_shapes

from longsum_jax.inference.model import Model
from longsum_jax.ops.losses import count_labels
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import TrainState, init_state
from longsum_jax.training.step import LossOutput, make_train_step

RATE = 1e-4


class TrainStep(sweep.Case):
    """One step over ``--batch`` documents; a turn makes two, as training does: memory of the one
    serves the next."""

    in_a_row = 2

    def __init__(self, name: str, length: int, args: argparse.Namespace) -> None:
        super().__init__(name, length, args)
        self.tokens = args.batch * (length + args.target)
        self.flops = 3 * args.batch * forward_flops(self.family, self.config, length, args.target)
        self.ids = make_ids(self.config, args.batch, length)
        self.labels = make_ids(self.config, args.batch, args.target, seed=1)
        self.optimizer = make_optimizer(OptimizerOptions("adamw", RATE, clip_norm=1.0))
        self.batch = {
            "input_ids": self.ids,
            "attention_mask": np.ones(self.ids.shape, bool),
            "labels": self.labels,
        }

    def _loss(self, params: Any, batch: Any, rng: Any) -> LossOutput:
        module = self.family.module_class(self.config)
        scores = module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            batch["labels"],
            deterministic=False,
            rngs={"dropout": rng},
            method="score_targets",
        )
        return LossOutput(scores.losses.sum(), count_labels(batch["labels"]))

    def _state(self, params: Any) -> TrainState:
        return init_state(params, self.optimizer)

    @cached_property
    def program(self) -> Program:
        state = jax.eval_shape(self._state, parameter_shapes(self.family, self.config))
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.batch)
        step = make_train_step(self._loss, self.optimizer)
        return compiled(step, state, batch, device=self.device)

    def ours(self) -> dict[str, Callable[[], Any]]:
        state = self._state(jax.tree.map(jnp.copy, self.model.params))
        batch = jax.tree.map(jnp.asarray, self.batch)

        def step() -> jax.Array:
            nonlocal state
            state, metrics = self.program.compiled(state, batch)
            return jax.block_until_ready((state, metrics["loss"]))[1]

        return {sweep.OURS: step}

    def peer(self, name: str) -> sweep.Peer | None:
        if name in PUBLISHED:
            return None
        import torch
        import torch_peers

        model = self.model
        if name != self.name:
            model = Model(
                *make_config(name, self.args.size, self.length, dropout=self.args.dropout), None
            )
        peer = torch_peers.make_peer(model, same_weights=name == self.name).train()
        if self.args.remat:
            peer.activation_checkpointing_enable()
        optimizer = torch.optim.AdamW(peer.parameters(), RATE, weight_decay=0.0)
        inputs = torch_peers.inputs_of(peer, self.ids)
        inputs["labels"] = torch.tensor(self.labels, dtype=torch.long, device=torch_peers.device())
        autocast = torch.autocast(
            torch_peers.device(), torch.bfloat16, enabled=self.args.dtype == "bfloat16"
        )

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with autocast:
                loss = peer(**inputs, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        for x in peer.parameters():  # as after a first step, so that the memory of any step is told
            moments = {"exp_avg": torch.zeros_like(x), "exp_avg_sq": torch.zeros_like(x)}
            optimizer.state[x] = {"step": torch.tensor(0.0), **moments}
        moments = [x for state in optimizer.state.values() for x in state.values()]
        held = torch_peers.tensor_bytes(
            [*peer.parameters(), *peer.buffers(), *moments, *inputs.values()]
        )
        return sweep.Peer(lambda: torch_peers.synchronized(step), held)


def main() -> None:
    description = __doc__ + sweep.__doc__.split("\n\n", 1)[1]
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sweep.add_flags(parser, "1024,4096,16384,65536,131072,262144,524288")
    parser.add_argument(
        "--target", type=int, default=256, help="tokens of the summary; default: 256"
    )
    parser.add_argument("--dropout", type=float, default=0.0, help="of both; default: 0")
    parser.add_argument("--remat", action="store_true", help="gradient checkpointing")
    sweep.run(parser.parse_args(), TrainStep)


if __name__ == "__main__":
    main()
