"""Training steps and passes of whole models by length: ours beside transformers' PyTorch classes.

    python benchmarks/train_step.py --out=train_step.json [--models=locost,bart] \
        [--lengths=1024,4096] [--size=small]
    python benchmarks/train_step.py --program=gradient --out=locost_memory.json --device=h200

--program=step is teacher forcing of a target of --target tokens, the gradient of all parameters,
clipping at norm 1, and AdamW. --program=gradient is the forward and backward pass without an
optimizer; --program=forward is one forward pass of encoder and decoder up to the logits. The last
two are the protocol of LOCOST's figure 4 and table 3. Parameters are float32 and bfloat16 is the
type of the computation, in PyTorch by autocast; a forward pass has parameters of that type.
Tokens are the tokens of source and target. If ours and the peer have the same weights, the first
losses (or logits) must agree, so there is no --dropout by default. LOCOST's peer is LongT5,
LSG-BART's LED. --remat computes activations again in the backward pass, on both sides.

"""

import argparse
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sweep
from common import Program, compiled
from models import PUBLISHED, forward_flops, make_config, make_ids, parameter_shapes

from longsum_jax.ops.losses import count_labels, shift_right
from longsum_jax.summarization.model import Model
from longsum_jax.training.loss import LossOutput
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import TrainState, init_state
from longsum_jax.training.step import make_train_step

RATE = 1e-4
PROGRAMS = ("step", "gradient", "forward")


class TrainStep(sweep.Case):
    """One step, or a pass of the model, over ``--batch`` documents; a turn makes two, as training
    does: memory of the one serves the next."""

    in_a_row = 2

    def __init__(self, name: str, length: int, args: argparse.Namespace) -> None:
        super().__init__(name, length, args)
        self.can_recompute = args.program != "forward" and not args.remat
        passes = 1 if args.program == "forward" else 3
        self.tokens = args.batch * (length + args.target)
        work = forward_flops(self.family, self.config, length, args.target)
        self.flops = passes * args.batch * work
        if args.program == "forward":
            self.param_dtype = args.dtype
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

    def _gradient(self, params: Any, batch: Any) -> tuple[jax.Array, Any]:
        """Mean loss of the tokens, and its gradient."""

        def mean_loss(params: Any) -> jax.Array:
            loss_sum, weight = self._loss(params, batch, jax.random.key(0))[:2]
            return loss_sum / weight

        return jax.value_and_grad(mean_loss)(params)

    def _forward(self, params: Any, batch: Any) -> jax.Array:
        """Teacher-forced logits [batch, target, vocabulary]."""
        c = self.config
        ids = shift_right(batch["labels"], start_id=c.decoder_start_token_id, pad_id=c.pad_token_id)
        module = self.family.module_class(c)
        return module.apply({"params": params}, batch["input_ids"], batch["attention_mask"], ids)

    def _state(self, params: Any) -> TrainState:
        return init_state(params, self.optimizer)

    @cached_property
    def program(self) -> Program:
        params = parameter_shapes(self.family, self.config, self.param_dtype)
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.batch)
        if self.args.program == "step":
            step = make_train_step(self._loss, self.optimizer)
            state = jax.eval_shape(self._state, params)
            return compiled(step, state, batch, device=self.device)
        function = self._gradient if self.args.program == "gradient" else self._forward
        return compiled(function, params, batch, device=self.device)

    def ours(self) -> dict[str, Callable[[], Any]]:
        batch = jax.tree.map(jnp.asarray, self.batch)
        if self.args.program != "step":
            program = self.program._replace(arguments=(self.model.params, batch))
            is_gradient = self.args.program == "gradient"
            return {sweep.OURS: lambda: program()[0] if is_gradient else program()}
        state = self._state(jax.tree.map(jnp.copy, self.model.params))

        def step() -> jax.Array:
            nonlocal state
            state, metrics = self.program.compiled(state, batch)
            return jax.block_until_ready((state, metrics["loss"]))[1]

        return {sweep.OURS: step}

    def peer(self, name: str, options: Collection[str] = ()) -> sweep.Peer | None:
        if name in PUBLISHED:
            return None
        import torch
        import torch_peers

        model, program = self.model, self.args.program
        if name != self.name:
            model = Model(
                *make_config(name, self.args.size, self.length, dropout=self.args.dropout), None
            )
        peer = torch_peers.make_peer(model, same_weights=name == self.name, dtype=self.param_dtype)
        inputs = torch_peers.inputs_of(peer, self.ids)
        inputs["labels"] = torch.tensor(self.labels, dtype=torch.long, device=torch_peers.device())
        held = [*peer.parameters(), *peer.buffers(), *inputs.values()]
        if sweep.COMPILED in options:
            peer.compile()

        def forward() -> torch.Tensor:
            with torch.inference_mode():
                return peer(**inputs, use_cache=False).logits

        if program == "forward":
            call = lambda: torch_peers.synchronized(forward)  # noqa: E731
            return sweep.Peer(call, torch_peers.tensor_bytes(held), torch_peers.attention_of(peer))
        peer.train()
        if self.args.remat or sweep.RECOMPUTING in options:
            peer.gradient_checkpointing_enable()  # all versions of transformers 5 have this name
        is_fused = torch_peers.device() == "cuda"
        optimizer = torch.optim.AdamW(peer.parameters(), RATE, weight_decay=0.0, fused=is_fused)
        autocast = torch.autocast(
            torch_peers.device(), torch.bfloat16, enabled=self.args.dtype == "bfloat16"
        )

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with autocast:
                loss = peer(**inputs, use_cache=False).loss
            loss.backward()
            if program == "step":
                torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
                optimizer.step()
            return loss.detach()

        # As after a first step, so that the memory is the memory of any step.
        for x in peer.parameters() if program == "step" else ():
            moments = {"exp_avg": torch.zeros_like(x), "exp_avg_sq": torch.zeros_like(x)}
            step_device = x.device if is_fused else None
            optimizer.state[x] = {"step": torch.tensor(0.0, device=step_device), **moments}
        held += [x for state in optimizer.state.values() for x in state.values()]
        settings = torch_peers.attention_of(peer) | {"fused_adamw": is_fused}
        call = lambda: torch_peers.synchronized(step)  # noqa: E731
        return sweep.Peer(call, torch_peers.tensor_bytes(held), settings)


def main() -> None:
    description = __doc__ + sweep.__doc__.split("\n\n", 1)[1]
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sweep.add_flags(parser, "1024,4096,16384,65536,131072,262144,524288")
    parser.add_argument("--program", choices=PROGRAMS, default="step", help="default: step")
    parser.add_argument(
        "--target", type=int, default=256, help="tokens of the summary; default: 256"
    )
    parser.add_argument("--dropout", type=float, default=0.0, help="of both; default: 0")
    parser.add_argument("--remat", action="store_true", help="gradient checkpointing")
    sweep.run(parser.parse_args(), TrainStep)


if __name__ == "__main__":
    main()
