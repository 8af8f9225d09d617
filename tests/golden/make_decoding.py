"""Writes tests/golden/decoding/generate.npz: what transformers' generate gives for a model of two
tables.

The next-token logits of document d after the ids (..., a, b) are ``near[d, b] + far[d, a]``,
``far`` only from the second token on, so that the golden file can be replayed without torch. Needs
torch and transformers; run as ``python tests/golden/make_decoding.py``. Last written by
transformers 5.23.0, torch 2.13.0+cpu, numpy 2.4.6.
"""

import json
import pathlib

import numpy as np
import torch
import transformers
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

DOCUMENTS, VOCABULARY = 6, 30
START, EOS, PAD = 0, 1, 2
SPECIAL = {"decoder_start_token_id": START, "eos_token_id": EOS, "pad_token_id": PAD}
PATH = pathlib.Path(__file__).parent / "decoding" / "generate.npz"


class TableConfig(transformers.PreTrainedConfig):
    model_type = "two_tables"

    def __init__(self, **kwargs):
        super().__init__(is_encoder_decoder=True, **kwargs)
        self.vocab_size = VOCABULARY


class NumberEncoder(torch.nn.Module):
    """Hands the number of the document, its only input id, on to the decoder."""

    main_input_name = "input_ids"

    def forward(self, input_ids, **kwargs):
        return BaseModelOutput(last_hidden_state=input_ids[:, :, None].float())


class TableModel(transformers.PreTrainedModel, transformers.GenerationMixin):
    config_class = TableConfig
    main_input_name = "input_ids"

    def __init__(self, near, far):
        super().__init__(TableConfig())
        self.encoder = NumberEncoder()
        self.near, self.far = torch.from_numpy(near), torch.from_numpy(far)
        self.anything = torch.nn.Parameter(
            torch.zeros(1)
        )  # generate asks a parameter for the device

    def get_encoder(self, *args, **kwargs):
        return self.encoder

    def prepare_inputs_for_generation(self, ids, encoder_outputs=None, **kwargs):
        return {"decoder_input_ids": ids, "encoder_outputs": encoder_outputs}

    def forward(self, decoder_input_ids=None, encoder_outputs=None, **kwargs):
        documents = encoder_outputs.last_hidden_state[:, 0, 0].long()
        logits = self.near[documents, decoder_input_ids[:, -1]]
        if decoder_input_ids.shape[1] > 1:
            logits = logits + self.far[documents, decoder_input_ids[:, -2]]
        return Seq2SeqLMOutput(logits=logits[:, None])


def tables() -> tuple[np.ndarray, np.ndarray]:
    """Three documents that end early, three that seldom do; one float32 sum is the same on every
    machine."""
    draw = np.random.default_rng(20).standard_normal
    shape = (DOCUMENTS, VOCABULARY, VOCABULARY)
    near, far = 2.0 * draw(shape).astype(np.float32), 1.5 * draw(shape).astype(np.float32)
    near[:, :, EOS] += np.float32([3.0, 1.0, 4.0, 0.0, 2.0, -2.0])[:, None]
    near[:, :, [START, PAD]] -= 8.0
    near[:, range(VOCABULARY), range(VOCABULARY)] -= (
        4.0  # else some rows repeat one token to the end
    )
    return near, far


def cases() -> list[dict]:
    """Option sets, each on top of SPECIAL and 24 new tokens."""
    greedy = [
        {},
        {"max_new_tokens": 1},
        {"min_new_tokens": 10},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 3, "repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "no_repeat_ngram_size": 4},
        {"forced_bos_token_id": 7, "forced_eos_token_id": EOS, "max_new_tokens": 9},
        {"suppress_tokens": [4, 5, 6, 11, 17], "bad_words_ids": [[8], [9, 10], [12, 3, 3], [EOS]]},
        {"eos_token_id": [EOS, 13, 21], "min_new_tokens": 3},
        {"eos_token_id": None, "max_new_tokens": 13},
        {"pad_token_id": 0},
    ]
    beam = [
        {"num_beams": 2},
        {"num_beams": 5, "max_new_tokens": 1},
        {"num_beams": 4, "num_return_sequences": 4},
        {"num_beams": 4, "eos_token_id": None, "max_new_tokens": 8},
        {"num_beams": 3, "eos_token_id": [EOS, 13, 21, 4], "num_return_sequences": 3},
        {"num_beams": 4, "forced_bos_token_id": 7, "forced_eos_token_id": EOS, "max_new_tokens": 7},
        {"num_beams": 4, "forced_eos_token_id": EOS, "min_new_tokens": 9, "max_new_tokens": 9},
        {"num_beams": 3, "suppress_tokens": [4, 5, 6], "bad_words_ids": [[8], [9, 10], [12, 3, 3]]},
        {"num_beams": 4, "min_new_tokens": 24, "no_repeat_ngram_size": 1},
        {
            "num_beams": 3,
            "early_stopping": "never",
            "length_penalty": 0.0,
            "num_return_sequences": 2,
        },
        {"num_beams": 3, "pad_token_id": 0},
    ]
    # What configurations of published summarisers combine.
    bart = {
        "num_beams": 4,
        "length_penalty": 2.0,
        "early_stopping": True,
        "no_repeat_ngram_size": 3,
    }
    beam += [{**bart, "min_new_tokens": 6, "forced_bos_token_id": 7, "forced_eos_token_id": EOS}]
    for early_stopping in (True, False, "never"):
        for length_penalty in (-0.5, 0.0, 0.6, 1.0, 2.0):
            beam.append(
                {"num_beams": 4, "early_stopping": early_stopping, "length_penalty": length_penalty}
            )
    choose = np.random.default_rng(21)
    menu = {
        "num_beams": [2, 3, 4, 6],
        "length_penalty": [-1.0, 0.5, 1.0, 1.5, 3.0],
        "early_stopping": [True, False, "never"],
        "no_repeat_ngram_size": [0, 1, 2, 3],
        "repetition_penalty": [1.0, 1.2, 2.0],
        "min_new_tokens": [0, 4, 8],
        "max_new_tokens": [8, 16, 24],
        "num_return_sequences": [1, 2],
    }
    for _ in range(12):
        beam.append({name: values[choose.integers(len(values))] for name, values in menu.items()})
    return [{"max_new_tokens": 24} | SPECIAL | options for options in greedy + beam]


def run(model: TableModel, options: dict) -> dict:
    """Returns ids and scores that transformers gives for ``options``."""
    expected = {"use_cache": False, "return_dict_in_generate": True, "output_scores": True}
    output = model.generate(
        torch.arange(DOCUMENTS)[:, None], do_sample=False, **options, **expected
    )
    ids = output.sequences
    if "num_beams" in options:
        return {"ids": ids.numpy(), "scores": output.sequences_scores.numpy()}
    eos = torch.tensor(options["eos_token_id"] or [], dtype=torch.long).reshape(-1)
    log_probs = (
        torch.stack(output.scores, dim=1).log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    )
    ended = torch.isin(ids[:, 1:], eos).long()
    before_end = ended.cumsum(1) - ended == 0
    return {"ids": ids.numpy(), "scores": torch.where(before_end, log_probs, 0.0).sum(1).numpy()}


def main() -> None:
    near, far = tables()
    model = TableModel(near, far).eval()
    arrays = {"near": near, "far": far}
    all_cases = cases()
    for index, options in enumerate(all_cases):
        for name, value in run(model, options).items():
            arrays[f"{name}_{index}"] = value
    versions = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    arrays["cases"] = np.array(json.dumps(all_cases))
    arrays["versions"] = np.array(json.dumps(versions))
    PATH.parent.mkdir(exist_ok=True)
    np.savez_compressed(PATH, **arrays)
    print(f"{len(all_cases)} cases, {PATH.stat().st_size} bytes in {PATH}")


if __name__ == "__main__":
    main()
