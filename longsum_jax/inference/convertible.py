"""A loaded model that can be converted: longer positions, LSG, cross-attention, a decoder."""

from typing import TYPE_CHECKING, Any, Self

from longsum_jax.errors import InputError
from longsum_jax.inference.model import LoadedModel
from longsum_jax.models.registry import get_family
from longsum_jax.typing import Params

if TYPE_CHECKING:
    from longsum_jax.conversion.positions import Extension


class ConvertibleModel(LoadedModel):
    """A loaded model with methods that return it in another form."""

    def extended(
        self,
        max_source_length: int,
        extension: "Extension" = "tiled",
    ) -> Self:
        """Returns this model with positions for ``max_source_length`` tokens.

        Args:
            max_source_length: maximum input length in tokens, more than the
                current one.
            extension: kind of the added rows, see
                ``conversion.positions.extend_positions``.

        Raises:
            InputError: as ``extend_positions``.
        """
        # Conversions are imported here, because few models are converted.
        from longsum_jax.conversion.positions import extend_positions

        config, params = extend_positions(
            self.family, self.config, self.params, max_source_length, extension
        )
        return self._with_positions(config, params)

    def to_lsg(
        self, max_source_length: int | None = None, **options: Any
    ) -> Self:
        """Returns this model with LSG attention in place of full attention.

        Global tokens are initialized from the tokenizer's first and mask tokens
        unless ``first_id`` and ``mask_id`` are passed.

        Args:
            max_source_length: maximum input length in tokens, a multiple of
                ``block_size``; None to keep the current one.
            **options: other arguments of ``conversion.lsg.to_lsg``, such as
                ``block_size``.

        Raises:
            InputError: as ``conversion.lsg.to_lsg``, or the model has no
                tokenizer and an id is not passed.
        """
        from longsum_jax.conversion.lsg import to_lsg

        # Explicit ids override the tokenizer's.
        ids: dict[str, Any] = {
            name: options.pop(name)
            for name in ("first_id", "mask_id")
            if name in options
        }
        if not self.has_tokenizer and len(ids) < 2:
            raise InputError(
                "the model directory holds no tokenizer, which defines the first and the mask "
                "token for LSG's global tokens; load it with tokenizer=PATH"
            )
        if self.has_tokenizer:
            ids = {
                "first_id": self.first_id,
                "mask_id": self.tokenizer.mask_id,
            } | ids
        config, params = to_lsg(
            self.family,
            self.config,
            self.params,
            **ids,
            max_source_length=max_source_length,
            **options,
        )
        return self._with_positions(config, params)

    def _with_positions(self, config: Any, params: Params) -> Self:
        """Returns a converted model; its sentences may be as long as its inputs."""
        model = self._replace(config, params)
        modules, limit = self.sentence_modules, config.max_source_length
        if modules is not None and limit != self.config.max_source_length:
            model.sentence_modules = modules._replace(max_length=limit)
        return model

    def with_decoder(
        self,
        decoder: LoadedModel,
        *,
        start_id: int | None = None,
        end_id: int | None = None,
        seed: int = 0,
    ) -> Self:
        """Returns an encoder-decoder of this encoder and a second one, to be fine-tuned.

        The second model becomes the decoder, with random cross-attentions; see
        ``conversion.warm_start``. A summary begins and ends with the special
        tokens of this model's tokenizer unless ``start_id`` and ``end_id`` are
        given.

        Args:
            decoder: encoder with the same vocabulary, possibly this model.
            start_id, end_id: ids of the tokens that begin and end a summary.
            seed: random seed of the new parameters.

        Raises:
            InputError: see ``conversion.warm_start``.
        """
        # Imported here, because it imports every family that can be a part.
        from longsum_jax.conversion.warm_start import warm_start

        if self.has_tokenizer:
            special = self.tokenizer.add_special_tokens([])
        else:
            special = []
        if len(special) > 1:
            if start_id is None:
                start_id = special[0]
            if end_id is None:
                end_id = special[-1]
        encoder, other = (
            (m.family, m.config, m.params) for m in (self, decoder)
        )
        config, params = warm_start(
            encoder, other, start_id=start_id, end_id=end_id, seed=seed
        )
        return type(self)(
            get_family("encoder-decoder"), config, params, self._tokenizer
        )

    def with_lsg_options(self, **options: Any) -> Self:
        """Returns this model with other options of its LSG attention.

        Args:
            **options: fields of ``layers.attention.options.LsgOptions``, such
                as ``num_global_tokens``.

        Raises:
            InputError: the model has another attention, or an invalid option.
        """
        from longsum_jax.conversion.lsg import with_lsg_options

        return self._replace(
            with_lsg_options(self.config, **options), self.params
        )

    def with_cross_attention(
        self, cross_attention: str, **options: Any
    ) -> Self:
        """Returns this model with another cross-attention over the same parameters.

        Args:
            cross_attention: name in
                ``layers.attention.registry.CROSS_ATTENTIONS`` of a
                cross-attention without additional parameters.
            **options: options of the cross-attention, such as ``hepos_stride``.

        Raises:
            InputError: the model has no decoder, the cross-attention is unknown
                or has additional parameters, or an option is out of range.
        """
        from longsum_jax.conversion.cross_attention import with_cross_attention

        config = with_cross_attention(
            self.family, self.config, cross_attention, **options
        )
        return self._replace(config, self.params)
