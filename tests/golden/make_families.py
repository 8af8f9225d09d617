"""Writes families/*.npz: small random models of transformers with their inputs and outputs.

    python tests/golden/make_families.py

Each file holds config.json as text, the state dict, ids with padding of unequal lengths, states and
logits, and for encoder-decoders the ids that greedy and beam search give. Made with transformers
5.23.0 and torch 2.13.0.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "parity"))

import reference  # noqa: E402

SMALLER = {
    "d_model": 16,
    "vocab_size": 60,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 24,
    "d_kv": 4,
    "d_ff": 20,
}
SMALLER |= {
    "hidden_size": 16,
    "intermediate_size": 20,
    "dim": 16,
    "hidden_dim": 20,
    "max_position_embeddings": 64,
}
SMALLER |= {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 32}
# As others but for names or a head: tests/parity alone has them.
LEFT_OUT = {"xlm_roberta", "camembert_labels", "electra_labels", "albert_labels", "albert_states"}
LEFT_OUT |= {"longformer_labels", "big_bird_labels", "big_bird_states", "t5gemma_wide"}
LEFT_OUT |= {"t5gemma2", "t5gemma2_wide"}
BEAM = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3}


def arrays_of(name: str) -> dict[str, np.ndarray]:
    """Weights, inputs and outputs of the reference ``name``, at a smaller size."""
    models = reference.ENCODER_DECODERS | reference.ENCODERS
    model_class, config_class, values = models[name]
    values = {key: SMALLER.get(key, value) for key, value in values.items()}
    for table in (reference.ENCODER_DECODERS, reference.ENCODERS):
        if name in table:
            table[name] = model_class, config_class, values
    model = reference.make_reference(name)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        config = (Path(directory) / "config.json").read_text()
        from safetensors.numpy import load_file

        state = load_file(Path(directory) / "model.safetensors")
        for key in reference.unused_keys(name):
            del state[key]
    rng = np.random.default_rng(0)
    mask = np.arange(47) < np.array([47, 20])[:, None]
    ids = np.where(mask, rng.integers(5, 60, mask.shape), json.loads(config)["pad_token_id"])
    arrays = {"input_ids": ids, "attention_mask": mask} | outputs_of(model, name, ids, mask, rng)
    return {
        "config": np.array(config),
        **arrays,
        **{f"state/{key}": value for key, value in state.items()},
    }


def outputs_of(model, name, ids, mask, rng) -> dict[str, np.ndarray]:
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask).long()}
    inputs |= reference.further_inputs(name, ids)
    with torch.no_grad():
        if name in reference.ENCODERS:
            out = model(**inputs)
            return {
                "output": (out.logits if hasattr(out, "logits") else out.last_hidden_state).numpy()
            }
        decoder_ids = rng.integers(5, 60, (len(ids), 7))
        out = model(**inputs, decoder_input_ids=torch.tensor(decoder_ids))
        generated = {
            key: model.generate(**inputs, max_new_tokens=12, **o)
            for key, o in (("greedy", {}), ("beam", BEAM))
        }
    result = {"decoder_input_ids": decoder_ids, "states": out.encoder_last_hidden_state.numpy()}
    return result | {
        "logits": out.logits.numpy(),
        **{key: value.numpy() for key, value in generated.items()},
    }


if __name__ == "__main__":
    (HERE / "families").mkdir(exist_ok=True)
    for name in (reference.ENCODER_DECODERS | reference.ENCODERS).keys() - LEFT_OUT:
        np.savez_compressed(HERE / "families" / f"{name}.npz", **arrays_of(name))
