"""The transformer encoder: one layer, and the stack of layers.

    embeddings -> dropout -> projection -> context.prepare -> layers ->
    context.finish -> norm -> dropout

The attention's context computes the inputs that all layers share (masks,
position biases) once, and may prepend global tokens. Embeddings of a different
size than the states (ELECTRA, ALBERT) are projected to it. Equal layers are
scanned: their parameters are stacked, and the layer is compiled once.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.layers.attention.multi_head import (
    ExtraKeyValues,
    RelativePositionBias,
)
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import Dropout, Linear
from longsum_jax.layers.layer import Layer, StackMemory, empty_memory, stack_of
from longsum_jax.layers.layer_groups import (
    LayerGroup,
    LayerSpec,
    layer_attentions,
    layer_groups,
)
from longsum_jax.layers.memory import LOSSES, MemoryState, memory_layers
from longsum_jax.layers.partitioning import constrain
from longsum_jax.layers.s4d import KERNELS
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.random_masks import RowWords, row_words
from longsum_jax.typing import AnyArray

# States of important tokens elsewhere in a document [batch, num_salient,
# d_model], and a bool mask of the filled ones [batch, num_salient].
SalientVectors = tuple[AnyArray, AnyArray]


class Identity(nn.Module):
    """Returns its input, in place of a norm."""

    def __call__(
        self, x: Float[AnyArray, "*batch d_model"]
    ) -> Float[AnyArray, "*batch d_model"]:
        """Returns the input."""
        return x


class EncoderLayer(Layer):
    """Self-attention (any encoder attention) and feed-forward, each with a residual."""

    def setup(self) -> None:
        stack = self.stack
        attention = get_encoder_attention(stack.encoder_attention)
        if stack.normalizes_first:
            self.self_norm = stack.make_sublayer_norm(
                partial(attention.make_norm, stack)
            )
        else:
            self.self_norm = Identity()
        self.self_attention = attention.from_stack(stack)
        self.ff_norm = stack.make_sublayer_norm()
        self.feed_forward = stack.make_feed_forward()
        self.dropout = Dropout(stack.dropout_rate)
        self.make_memory()
        if stack.memory.salient_vectors:
            num_maps = {"shared": 1, "separate": 2}[
                stack.memory.salient_projection
            ]
            self.salient_maps = [self._salient_map() for _ in range(num_maps)]

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        layer_input: Any,
        context: Any,
        deterministic: bool,
        state: MemoryState | tuple[()],
        mask: Bool[AnyArray, "batch text_length"],
        salient: SalientVectors | None,
    ) -> tuple[
        Float[AnyArray, "batch length d_model"], MemoryState | tuple[()]
    ]:
        """Applies the layer to one segment.

        Args:
            x: states, with global tokens first.
            layer_input: this layer's slice of the per-layer output of the
                attention's context.
            context: output of the attention's context that all layers share.
            deterministic: False in training.
            state: state of the memory, () without a memory.
            mask: True on real tokens.
            salient: see ``Encoder.with_memory``.

        Returns:
            The states after the layer; the memory's state after the segment.
        """
        # Self-attention, which may read extra keys: a compressive memory,
        # important tokens.
        inputs = self.sublayer_input(self.self_norm, x)
        memories, memory_keys = self.replay_memory(state)
        extra = _join_extra(memory_keys, self._salient_keys(salient))
        if extra is None:
            extra_input = {}
        else:
            extra_input = {"extra": extra}
        attended = self.self_attention(
            inputs, context, layer_input, deterministic, **extra_input
        )
        x = self.add_residual(self.self_norm, x, attended, deterministic)
        x, state = self.advance_memory(
            x, inputs, attended, state, memories, mask, deterministic
        )

        # Feed-forward, in chunks along the length. Dropout depends on words of
        # the positions, so that the same entries drop in chunks of any length.
        def feed_forward(
            layer: EncoderLayer, x: AnyArray, *words: Array
        ) -> AnyArray:
            of_rows = RowWords(*words) if words else None
            inputs = layer.sublayer_input(layer.ff_norm, x)
            outputs = layer.feed_forward(inputs, deterministic, of_rows)
            return layer.add_residual(
                layer.ff_norm, x, outputs, deterministic, of_rows
            )

        words: tuple[Array, ...] = ()
        is_dropping = not deterministic and (
            self.dropout.rate or self.feed_forward.dropout_rate
        )
        if is_dropping:
            words = row_words(self.make_rng("dropout"), x.shape[:2])
        x = map_over_length(
            self,
            feed_forward,
            self.stack.length_chunk,
            x,
            *words,
            is_trained=not deterministic,
            recompute=self.stack.recomputes_hidden,
        )
        return constrain(x, "batch", "length", "act_embed"), state

    def text_states(
        self, x: Float[AnyArray, "batch length d_model"], length: int
    ) -> Float[AnyArray, "batch text_length d_model"]:
        return self.self_attention.text_states(x, length)

    def _salient_map(self) -> Linear:
        d_model = self.stack.d_model
        names = ("embed", "act_embed")
        return Linear(
            (d_model, d_model), names, _identity, dtype=self.stack.dtype
        )

    def _salient_keys(
        self, salient: SalientVectors | None
    ) -> ExtraKeyValues | None:
        if salient is None:
            return None
        states, valid = salient
        # Keys use the first map, values the last one, which is the same map if
        # shared.
        mapped = [linear(states) for linear in self.salient_maps]
        return ExtraKeyValues(mapped[0], mapped[-1], valid)


def _identity(
    key: Array, shape: tuple[int, int], dtype: Any = jnp.float32
) -> Array:
    # At the start of training, important tokens are read unchanged.
    return jnp.eye(*shape, dtype=dtype)


def _first_rows(tree: Any, size: int) -> Any:
    """Returns the arrays of the first ``size`` layers of a stacked group."""
    return jax.tree.map(lambda x: x[:size], tree)


def _join_extra(
    first: ExtraKeyValues | None, second: ExtraKeyValues | None
) -> ExtraKeyValues | None:
    """Concatenates extra keys and values, either of which may be missing."""
    if first is None:
        return second
    if second is None:
        return first
    arrays = [
        jnp.concatenate(pair, 1) for pair in zip(first, second, strict=True)
    ]
    return ExtraKeyValues(*arrays)


class Encoder(nn.Module):
    """A stack of encoder layers, from token embeddings to states.

    Parameters of consecutive equal layers (``groups``) are stacked, and a scan
    applies them. The attention's context (``layers.attention.base``) is
    computed once, before the first layer.

    Attributes:
        stack: sizes and options of the layers.
    """

    stack: StackConfig

    def setup(self) -> None:
        stack = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        self.attention = get_encoder_attention(
            stack.encoder_attention
        ).make_context(stack)
        if stack.relative_attention:
            self.relative_attention_bias = RelativePositionBias(
                stack.num_heads,
                *stack.relative_attention,
                bidirectional=True,
                num_layers=stack.num_biases,
            )
        self.embedding_map = stack.make_embedding_map()
        if stack.final_norm:
            self.final_norm = stack.make_norm()
        self.dropout = Dropout(stack.dropout_rate)
        self.output_dropout = Dropout(stack.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Groups of consecutive equal layers: same attention, rotary positions and
        norms, and all or none with a memory.
        """
        stack = self.stack
        attentions = layer_attentions(stack.encoder_attention, stack.num_layers)
        with_memory = memory_layers(stack.memory, stack.num_layers)
        specs = [
            LayerSpec(
                name,
                i in with_memory,
                rotary=stack.rotary_of(i),
                normalizes=stack.normalizes_first or i > 0,
            )
            for i, name in enumerate(attentions)
        ]
        return layer_groups(specs, stack.shares_layers)

    def _make_layers(self, group: LayerGroup, **module: Any) -> nn.Module:
        """Makes the layers of a group as one scanned layer; ``module`` is passed to Flax."""
        layer = nn.remat(
            EncoderLayer,
            static_argnums=(4,),  # deterministic
            # The scan already keeps XLA from merging a layer with its
            # recomputation.
            prevent_cse=False,
            policy=self.stack.remat_policy,
        )
        is_shared = self.stack.shares_layers
        axes: dict[Any, Any] = {KERNELS: 0, LOSSES: 0}
        if not is_shared:
            axes["params"] = 0
        scanned = nn.scan(
            layer,
            variable_axes=axes,
            variable_broadcast="params" if is_shared else False,
            split_rngs={"params": not is_shared, "dropout": True},
            # ``layer_input`` and ``state`` are scanned over, the other
            # arguments are broadcast.
            in_axes=(
                0,
                nn.broadcast,
                nn.broadcast,
                0,
                nn.broadcast,
                nn.broadcast,
            ),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
            # The check traces the layer a second time; only shared parameters
            # need it to be created.
            check_constancy_invariants=is_shared and self.is_initializing(),
        )
        return scanned(stack_of(self.stack, group.spec), **module)

    def _apply_first_layers(
        self,
        group: LayerGroup,
        x: AnyArray,
        layer_inputs: Any,
        context: Any,
        deterministic: bool,
        state: Any,
        *arguments: Any,
    ) -> tuple[Any, Any]:
        """Applies the first ``group.size`` layers of a group; arguments as for the whole group.

        The length of a Flax scan is fixed, so this applies another module to
        the variables of the first layers, without random numbers.
        """
        variables = {}
        for name, tree in self.variables.items():
            if group.name in tree:
                is_shared = name == "params" and self.stack.shares_layers
                rows = tree[group.name]
                if is_shared:
                    variables[name] = rows
                else:
                    variables[name] = _first_rows(rows, group.size)
        layers = self._make_layers(group, parent=None)
        state = _first_rows(state, group.size)
        return layers.apply(
            variables,
            x,
            layer_inputs,
            context,
            deterministic,
            state,
            *arguments,
        )

    def empty_memory(
        self, batch: int, length: int, pending: int = 0
    ) -> StackMemory:
        """Returns the memories before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, batch, length, pending)

    def __call__(
        self,
        x: Float[AnyArray, "batch length embedding_size"],
        mask: Bool[AnyArray, "batch length"],
        deterministic: bool = True,
        **inputs: Any,
    ) -> Float[AnyArray, "batch output_length d_model"]:
        """Encodes an input of a single segment.

        Args:
            x: token embeddings.
            mask: True on real tokens.
            deterministic: False in training.
            **inputs: keyword arguments of ``with_memory``.

        Returns:
            States of the tokens; with ``pass_global_tokens_to_decoder``
            preceded by the states of the global tokens.
        """
        memory = self.empty_memory(*x.shape[:2])
        states, _ = self.with_memory(x, mask, memory, deterministic, **inputs)
        return states

    def with_memory(
        self,
        x: Float[AnyArray, "batch length embedding_size"],
        mask: Bool[AnyArray, "batch length"],
        memory: StackMemory,
        deterministic: bool = True,
        *,
        salient: SalientVectors | None = None,
        embedding_norm: nn.Module | None = None,
        layer: int | None = None,
        **inputs: Any,
    ) -> tuple[Float[AnyArray, "batch output_length d_model"], StackMemory]:
        """Encodes one segment of a document.

        Args:
            x: token embeddings.
            mask: True on real tokens.
            memory: memories after the previous segment.
            deterministic: False in training.
            salient: vectors that all layers read as extra keys, for encoders
                with ``salient_vectors``.
            embedding_norm: norm of the token embeddings, which is also applied
                to global tokens that the attention prepends.
            layer: number of layers after which the states are returned, 0 for
                the embeddings; None for all. Fewer are allowed only outside of
                training, and the returned memories are then invalid.
            **inputs: additional arguments of the attention's context
                (``EncoderAttention.inputs``).

        Returns:
            The states, as returned by ``__call__``; the memories after this
            segment.
        """
        stack = self.stack
        if (
            "embedding_norm"
            in get_encoder_attention(stack.encoder_attention).inputs
        ):
            inputs["embedding_norm"] = embedding_norm
            inputs["embedding_map"] = self.embedding_map
        length = x.shape[1]
        x = self.dropout(x, deterministic=deterministic)
        if self.embedding_map is not None:
            x = self.embedding_map(x)
        if self.is_initializing() and stack.memory.salient_vectors:
            salient = x, mask  # any values will do to create the parameters
        bias = None
        if stack.relative_attention:
            bias = self.relative_attention_bias
        x, context, layer_inputs = self.attention.prepare(
            x, mask, bias, deterministic, **inputs
        )
        # ``layer_inputs`` have a row for each layer, such as window sizes or
        # random keys; ``context`` is the same for all.
        next_memory = []
        for group, state in zip(self.groups, memory, strict=True):
            # Groups above ``layer`` are skipped; the group that contains it is
            # cut.
            if layer is None:
                used = group
            else:
                used = group.below(layer)
            apply = getattr(self, group.name)
            if used != group:
                apply = partial(self._apply_first_layers, used)
            if used.size:
                shared, rows = self.attention.for_group(
                    context, layer_inputs, used
                )
                x, state = apply(
                    x, rows, shared, deterministic, state, mask, salient
                )
                # XLA for TPUs would keep the outputs of all layers until the
                # final norm, and add them up there.
                if stack.sandwich_norm and target_platform() == "tpu":
                    x = jax.lax.optimization_barrier(x)
            next_memory.append(state)
        # Removes global tokens and padding to whole blocks.
        x = self.attention.finish(x, length)
        if stack.final_norm:
            x = self.final_norm(x)
        return self.output_dropout(x, deterministic=deterministic), tuple(
            next_memory
        )
