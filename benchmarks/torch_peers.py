"""PyTorch's side of the comparisons: transformers' classes with our weights, memory, and
synchronised calls."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.summarization.model import Model


def device() -> str:
    """Where PyTorch works: on a GPU if its build sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def has_device_of(platform: str) -> bool:
    """Returns True if PyTorch uses the kind of device that JAX calls ``platform``."""
    return {"cuda": "gpu"}.get(device(), device()) == platform


def synchronized(call: Callable[[], Any]) -> Any:
    """What ``call`` returns, once the device is done with it."""
    result = call()
    if device() == "cuda":
        torch.cuda.synchronize()
    return result


def make_peer(model: Model, *, same_weights: bool, dtype: str = "float32") -> torch.nn.Module:
    """transformers' class of the model's family, of the same sizes; with its weights, or random
    ones of its own."""
    family, config = model.family, model.config
    kind = getattr(transformers, family.architecture)
    settings = kind.config_class(**family.config_json(config))
    if same_weights:
        state = to_state_dict(model.params, family.weight_map(config))
        tensors = {
            key: torch.from_numpy(np.array(value, np.float32)) for key, value in state.items()
        }
        # Names of files may differ from the module's; image parts are missing.
        transformers.logging.set_verbosity_error()
        retained = {"config": settings, "state_dict": tensors, "dtype": torch.float32}
        peer = kind.from_pretrained(None, **retained)  # results that agree are the check
        return peer.to(device(), getattr(torch, dtype)).eval()
    torch.manual_seed(0)
    peer = kind(settings)
    peer.set_input_embeddings(
        peer.get_input_embeddings()
    )  # one table for both stacks, as in checkpoints
    if not getattr(
        config, "tie_word_embeddings", True
    ):  # the class ties the output weights whatever its config says
        peer.lm_head.weight = torch.nn.Parameter(peer.lm_head.weight.detach().clone())
    return peer.to(device(), getattr(torch, dtype)).eval()


def inputs_of(peer: torch.nn.Module, ids: np.ndarray) -> dict[str, torch.Tensor]:
    """Ids int [B, L], none of them padding, as the class takes them: the first token of LED is
    global."""
    ids = torch.tensor(ids, dtype=torch.long, device=device())
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if peer.config.model_type == "led":
        inputs["global_attention_mask"] = torch.zeros_like(ids).index_fill_(
            1, torch.tensor([0], device=ids.device), 1
        )
    return inputs


def attention_of(peer: torch.nn.Module) -> dict[str, str]:
    """Returns a column with the attention that transformers selects for the class."""
    return {"attention": peer.config._attn_implementation}


def encode(peer: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Encoder states [B, L, D]."""
    encoder = peer.get_encoder() if peer.config.is_encoder_decoder else peer.base_model
    with torch.inference_mode():
        return synchronized(lambda: encoder(**inputs).last_hidden_state)


def tensor_bytes(tensors: Any) -> int:
    """Of tensors, those that share their memory counted once."""
    return sum({x.data_ptr(): x.numel() * x.element_size() for x in tensors}.values())


def work_bytes(call: Callable[[], Any]) -> int:
    """The most memory that ``call`` takes at a time besides what was there before, as PyTorch's
    allocators count it."""
    if device() == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        synchronized(call)
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return int(max(np.cumsum(changes), default=0))
