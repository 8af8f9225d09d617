"""The transformer decoder: the stack of layers.

Training and scoring process all target positions at once
(``Decoder.__call__``), with scanned layers. Generation processes one token at a
time, layer by layer: every array belongs to one layer, parameters included,
because slices of stacked arrays would be copied in every step.

    source = read_source(encoder states)        once: keys and values of the document
    cache = init_cache(source)                  empty: keys and values of decoded tokens
    states, cache = step(newest tokens, cache, source)      for every token
"""

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.layers.attention.cross import CrossAttention
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.registry import get_cross_attention
from longsum_jax.layers.decoder_cache import (
    DecoderCache,
    DecoderSource,
    DraftCache,
    KeyValueCache,
    max_cross_cache_bytes,
)
from longsum_jax.layers.decoder_layer import DecoderLayer
from longsum_jax.layers.dense import Dropout
from longsum_jax.layers.layer import StackMemory, empty_memory, stack_of
from longsum_jax.layers.layer_groups import (
    LayerGroup,
    LayerSpec,
    layer_groups,
    unstacked_layers,
)
from longsum_jax.layers.memory import LOSSES, MemoryState, memory_layers
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.typing import AnyArray


class Decoder(nn.Module):
    """A stack of decoder layers, with T5's relative position bias and a final norm if
    the stack has them.

    ``__call__`` and ``with_memory`` decode all target positions at once, for
    training and scoring. ``read_source``, ``init_cache`` and ``step`` decode
    token by token, see the module's docstring.

    Attributes:
        stack: sizes and options of the layers.
    """

    stack: StackConfig

    def setup(self) -> None:
        stack = self.stack
        for group in self.groups:
            setattr(self, group.name, self._make_layers(group))
        if stack.relative_attention:
            self.relative_attention_bias = RelativePositionBias(
                stack.num_heads,
                *stack.relative_attention,
                bidirectional=False,
                num_layers=stack.num_biases,
            )
        self.embedding_map = stack.make_embedding_map()
        self.source_map = stack.make_source_map()
        if stack.final_norm:
            self.final_norm = stack.make_norm()
        self.dropout = Dropout(stack.dropout_rate)
        self.output_dropout = Dropout(stack.output_dropout_rate)

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Groups of consecutive equal layers: same window and rotary positions, and all
        or none with a memory.
        """
        stack = self.stack
        with_memory = memory_layers(stack.memory, stack.num_layers)
        windows = stack.windows or (0,) * stack.num_layers
        return layer_groups(
            [
                LayerSpec("", i in with_memory, window, stack.rotary_of(i))
                for i, window in enumerate(windows)
            ]
        )

    @property
    def cross(self) -> type[CrossAttention]:
        """Class of the cross-attention."""
        return get_cross_attention(self.stack.cross_attention)

    def _make_layers(self, group: LayerGroup) -> nn.Module:
        """Makes the layers of a group as one scanned layer."""
        layer = nn.remat(
            DecoderLayer,
            static_argnums=(5,),  # deterministic
            # The scan already keeps XLA from merging a layer with its
            # recomputation.
            prevent_cse=False,
            policy=self.stack.remat_policy,
        )
        of_bias = 0 if self.stack.bias_per_layer else nn.broadcast
        scanned = nn.scan(
            layer,
            variable_axes={"params": 0, LOSSES: 0, "intermediates": 0},
            split_rngs={"params": True, "dropout": True},
            # ``state`` has a row for each layer, and ``bias`` and ``steps`` may;
            # the other arguments are shared.
            in_axes=(
                nn.broadcast,
                of_bias,
                nn.broadcast,
                nn.broadcast,
                0,
                nn.broadcast,
                nn.broadcast,
                of_bias,
            ),
            length=group.size,
            metadata_params={nn.PARTITION_NAME: "layers"},
            # otherwise the layer is traced twice
            check_constancy_invariants=False,
        )
        return scanned(stack_of(self.stack, group.spec))

    @property
    def _single_layers(self) -> list[DecoderLayer]:
        """Every layer as a separate module, without its parameters."""
        layers = []
        for group in self.groups:
            stack = stack_of(self.stack, group.spec)
            layers += [
                DecoderLayer(stack, parent=None) for _ in range(group.size)
            ]
        return layers

    def empty_memory(
        self, batch: int, length: int, pending: int = 0
    ) -> StackMemory:
        """Returns the memories before the first segment; see ``layers.memory.empty_state``."""
        return empty_memory(self.stack, self.groups, batch, length, pending)

    def __call__(
        self,
        x: Float[AnyArray, "batch target_length embedding_size"],
        encoder_states: Float[AnyArray, "batch length source_size"],
        encoder_mask: Bool[AnyArray, "batch length"],
        deterministic: bool = True,
        segment_ids: SegmentIds | None = None,
    ) -> Float[AnyArray, "batch target_length d_model"]:
        """Decodes all target positions at once.

        Args:
            x: embeddings of the target.
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            deterministic: False in training.
            segment_ids: segment ids of packed rows, None for one segment.
        """
        batch, length = x.shape[:2]
        memory = self.empty_memory(batch, length)
        valid = jnp.ones((batch, length), bool)
        states, _ = self.with_memory(
            x,
            valid,
            encoder_states,
            encoder_mask,
            memory,
            deterministic,
            segment_ids,
        )
        return states

    def with_memory(
        self,
        x: Float[AnyArray, "batch target_length embedding_size"],
        valid: Bool[AnyArray, "batch target_length"],
        encoder_states: Float[AnyArray, "batch length source_size"],
        encoder_mask: Bool[AnyArray, "batch length"],
        memory: StackMemory,
        deterministic: bool = True,
        segment_ids: SegmentIds | None = None,
    ) -> tuple[Float[AnyArray, "batch target_length d_model"], StackMemory]:
        """Decodes the target of one segment of a document.

        Args:
            x: embeddings of the target.
            valid: mask of the positions that the memories may store.
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            memory: memories after the previous segment.
            deterministic: False in training.
            segment_ids: segment ids of packed rows, None for one segment.

        Returns:
            The states, as returned by ``__call__``; the memories after this
            segment.
        """
        positions = jnp.arange(x.shape[1])
        x = self._map_embeddings(self.dropout(x, deterministic=deterministic))
        biases: Any = None, None
        if self.stack.relative_attention:
            # The same bias twice: dense for the reference, steps for kernels.
            relative = self.relative_attention_bias
            biases = relative(positions, positions), relative.steps()
        cross_mask: Any
        encoder_states, cross_mask = self._prepare_source(
            encoder_states, encoder_mask
        )
        # ``arrange`` expects training, and its result has no segments.
        if not deterministic and segment_ids is None:
            encoder_states, cross_mask = self.cross.arrange(
                self.stack, encoder_states, cross_mask, x.shape[1]
            )
        next_memory = []
        for group, state in zip(self.groups, memory, strict=True):
            layers = getattr(self, group.name)
            if self.stack.bias_per_layer:
                # umT5: each layer has a bias, stacked like the parameters.
                bias, steps = group.rows(biases)
            else:
                bias, steps = biases
            x, state = layers(
                x,
                encoder_states,
                bias,
                cross_mask,
                deterministic,
                state,
                valid,
                segment_ids,
                steps,
            )
            next_memory.append(state)
        x = self.output_dropout(self._normalize(x), deterministic=deterministic)
        return x, tuple(next_memory)

    def _unstacked(self) -> tuple[Any, ...]:
        """Returns the parameters of every layer separately."""
        return unstacked_layers(nn.meta.unbox(self.variables["params"]))

    def read_source(
        self,
        encoder_states: Float[AnyArray, "batch length source_size"],
        encoder_mask: Bool[AnyArray, "batch length"],
        memory: StackMemory | None = None,
        stores_states: bool | None = None,
    ) -> DecoderSource:
        """Returns the decoder's cached inputs from a document.

        Args:
            encoder_states: states of the source.
            encoder_mask: True on real tokens of the source.
            memory: memories after the previous segment, shared by all beams.
            stores_states: True to store the states instead of keys and values;
                None to do so if the latter would be too large.
        """
        stack = self.stack
        batch, source_length = encoder_states.shape[:2]
        num_keys = self.cross.num_keys(stack, source_length)
        # Numbers in the keys of a layer.
        size = batch * num_keys * self.cross.stored_heads(stack) * stack.d_kv
        if stores_states is None:
            itemsize = jnp.dtype(stack.dtype).itemsize
            num_bytes = 2 * stack.num_layers * size * itemsize
            # A step reads the states twice for each layer if it cannot read
            # keys and values.
            is_slower = encoder_states.size > size or not stack.absorbs_keys
            stores_states = num_bytes > max_cross_cache_bytes(is_slower)
        encoder_states, mask = self._prepare_source(
            encoder_states, encoder_mask
        )
        if stores_states:
            # Steps absorb the projections into the queries
            # (``attend_absorbed``), or apply them again if they cannot.
            to_project, to_store = (None, encoder_states)
        else:
            to_project, to_store = (encoder_states, None)
        if memory is None:
            memory = self.empty_memory(batch, 0)
        rows = zip(
            self._single_layers,
            self._unstacked(),
            self._by_layer(memory),
            strict=True,
        )
        layers = []
        for layer, params, state in rows:
            # Layers are applied one by one, because a scan would return stacked
            # arrays, which every step would slice.
            read = nn.apply(DecoderLayer.read_source, layer)
            layers.append(read({"params": params}, to_project, state))
        return DecoderSource(tuple(layers), to_store, mask)

    def _by_layer(
        self, memory: StackMemory
    ) -> Iterator[MemoryState | tuple[()]]:
        """Yields the memory of every layer."""
        for group, state in zip(self.groups, memory, strict=True):
            for i in range(group.size):
                # [layers, batch, ...] -> [batch, ...]
                yield jax.tree.map(lambda x: x[i], state)  # noqa: B023

    def init_cache(
        self, source: DecoderSource, beams: int, length: int, drafted: int = 0
    ) -> DecoderCache | DraftCache:
        """Returns an empty cache.

        Args:
            source: encoded documents to decode.
            beams: number of beams per row.
            length: capacity in tokens.
            drafted: number of draft tokens that a step of a single beam reads
                after a confirmed token; 0 for steps that read one token of
                every beam.
        """
        batch = len(source.mask)
        positions = jnp.zeros(batch, jnp.int32)
        if drafted:
            # Columns for the sequence, followed by a confirmed token and its
            # draft.
            offsets = jnp.broadcast_to(
                jnp.arange(1 + drafted), (batch, 1 + drafted)
            )
            return DraftCache(
                positions,
                offsets,
                self._empty_columns(batch, length + 1 + drafted),
            )
        sources = jnp.zeros((batch, beams, length), jnp.int32)
        # Each beam has a column at every slot; ``sources`` records which of
        # them a beam reads.
        layers = self._empty_columns(batch, length * beams)
        return DecoderCache(
            jnp.zeros((), jnp.int32), positions, layers, sources
        )

    def _empty_columns(
        self, batch: int, count: int
    ) -> tuple[KeyValueCache, ...]:
        """Returns empty arrays for keys and values of every layer."""
        stack = self.stack
        # A batch of one has no batch axis, see ``DecoderCache``.
        leading = (batch,) if batch > 1 else ()
        empty = jnp.zeros(
            (*leading, count, stack.kv_heads, stack.d_kv), stack.dtype
        )
        return (KeyValueCache.of(empty, empty),) * stack.num_layers

    def step(
        self,
        x: Float[AnyArray, "batch beams embedding_size"],
        cache: DecoderCache | DraftCache,
        source: DecoderSource,
        layers: tuple[Any, ...] | None = None,
    ) -> tuple[
        Float[AnyArray, "batch beams d_model"], DecoderCache | DraftCache
    ]:
        """Decodes one token of every beam, or several of one sequence.

        Args:
            x: embeddings of the newest tokens; with a ``DraftCache``, several
                tokens of one sequence.
            cache: the cache before these tokens.
            source: the encoded documents, see ``read_source``.
            layers: parameters of every layer
                (``layer_groups.unstacked_layers``), for programs that run steps
                in a loop; by default slices of this module's parameters.

        Returns:
            The states of the tokens; the cache including them.
        """
        x = self._map_embeddings(x)
        cache = cache.started()
        mask, column = cache.mask(), cache.column
        biases = self._next_token_biases(cache)
        positions, distances = cache.query_positions, cache.distances()
        if layers is None:
            layers = self._unstacked()
        modules = self._single_layers
        rows = zip(
            modules, layers, cache.layers, source.layers, biases, strict=True
        )
        layer_caches = []
        for layer, params, self_kv, layer_source, bias in rows:
            # A Python loop over layers: every weight is a separate array, which
            # XLA reads in place.
            step = nn.apply(DecoderLayer.step, layer)
            x, self_kv = step(
                {"params": params},
                x,
                self_kv,
                layer_source,
                source.states,
                bias,
                mask,
                source.mask,
                column,
                positions,
                distances,
            )
            layer_caches.append(self_kv)
        return self._normalize(x), cache.advanced(tuple(layer_caches))

    def _next_token_biases(
        self, cache: DecoderCache | DraftCache
    ) -> list[Array | None]:
        """Returns the bias of the next tokens for all columns of a cache, for every layer."""
        stack = self.stack
        if not stack.relative_attention:
            return [None] * stack.num_layers
        bias = self.relative_attention_bias.of_distances(cache.distances())
        # [heads, rows, queries, columns] -> [rows, heads, queries, columns]
        bias = jnp.moveaxis(bias, -4, -3)
        if stack.bias_per_layer:
            return list(bias)
        # All layers of T5 share the first layer's bias.
        return [bias] * stack.num_layers

    def _map_embeddings(self, x: AnyArray) -> AnyArray:
        if self.embedding_map is None:
            return x
        return self.embedding_map(x)

    def _prepare_source(
        self, states: AnyArray, mask: AnyArray
    ) -> tuple[AnyArray, AnyArray]:
        """Returns the states and the mask that all layers read, computed once per document."""
        if self.source_map is not None:
            states = self.source_map(states)
        # A cross-attention may shorten the source here, or split its mask by
        # head (Hepos).
        return self.cross.prepare(self.stack, states, mask)

    def _normalize(self, x: AnyArray) -> AnyArray:
        if self.stack.final_norm:
            return self.final_norm(x)
        return x
