import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.models.locost import weight_map
from longsum_jax.models.t5 import T5
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.training.optimizers import OptimizerOptions, global_norm, make_optimizer

TRAJECTORY = 1e-4  # relative; float32 against the float64 of torch


def batch_of(arrays):
    return {name: arrays[name] for name in ("input_ids", "attention_mask", "labels")}


def loss_and_logits(config, params, batch):
    decoder_ids = shift_right(
        batch["labels"], start_id=config.decoder_start_token_id, pad_id=config.pad_token_id
    )
    inputs = (batch["input_ids"], batch["attention_mask"], decoder_ids)
    logits = T5(config).apply({"params": params}, *inputs)
    loss, weight = token_cross_entropy(logits, batch["labels"])
    return loss / weight, logits


def flat_array(tree):
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


# Compiled once for all tests that ask for the same.
compiled_loss_and_logits = jax.jit(loss_and_logits, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def losses_and_gradients(config, params, batch):
    return jax.value_and_grad(loss_and_logits, argnums=1, has_aux=True)(config, params, batch)


@functools.partial(jax.jit, static_argnums=0)
def encode(config, params, ids, mask):
    return T5(config).apply({"params": params}, ids, mask, method="encode")


def test_golden_decoder_inputs(published):
    _, arrays = published
    ids = shift_right(jnp.asarray(arrays["labels"]), start_id=0, pad_id=0)
    np.testing.assert_array_equal(ids, arrays["decoder_input_ids"])


def test_golden_encoder_states(config, published):
    params, arrays = published
    states = encode(config, params, arrays["input_ids"], arrays["attention_mask"])
    real = arrays["attention_mask"].astype(bool)
    np.testing.assert_allclose(
        states[real], arrays["f64.encoder_last_hidden_state"][real], rtol=0, atol=1e-5
    )


@pytest.mark.slow
def test_golden_logits_loss_and_every_gradient(config, published, golden):
    params, arrays = published
    (loss, logits), gradients = losses_and_gradients(config, params, batch_of(arrays))
    np.testing.assert_allclose(logits, arrays["f64.logits"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(loss, arrays["f64.loss"], rtol=0, atol=1e-5)
    expected = {
        k.removeprefix("f64."): v for k, v in golden("c_full_grads").items() if k.startswith("f64.")
    }
    gradients = to_state_dict(gradients, weight_map(config))
    assert set(gradients) == set(expected)
    for key, gradient in gradients.items():
        limit = 1e-5 * max(1.0, np.abs(expected[key]).max())
        np.testing.assert_allclose(gradient, expected[key], rtol=0, atol=limit, err_msg=key)


def test_golden_logits_of_the_overfitted_model(config, overfitted):
    params, arrays = overfitted
    (_, logits), _ = losses_and_gradients(config, params, batch_of(arrays))
    np.testing.assert_allclose(logits, arrays["logits"], rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "eps", "key"),
    [("adamw", 1e-8, "traj.torch_adamw_eps1e-8"), ("adamw_hf", 1e-6, "traj.hf_adamw_eps1e-6")],
)
def test_golden_trajectory_of_twenty_steps(config, published, golden, name, eps, key):
    params, arrays = published
    batch, expected = batch_of(arrays), golden("d_misc")
    optimizer = make_optimizer(OptimizerOptions(name, 5e-4, eps=eps, clip_norm=1.0))

    @jax.jit
    def update(params, state, gradients):
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, global_norm(gradients)

    state, losses, norms = jax.jit(optimizer.init)(params), [], []
    for _ in range(20):
        (loss, _), gradients = losses_and_gradients(config, params, batch)
        params, state, norm = update(params, state, gradients)
        losses.append(float(loss))
        norms.append(float(norm))
    np.testing.assert_allclose(losses, expected[f"{key}.loss"], rtol=TRAJECTORY)
    np.testing.assert_allclose(norms, expected[f"{key}.grad_norm"], rtol=TRAJECTORY)


@pytest.mark.slow
def test_real_states_do_not_depend_on_padding(config, published):
    params, arrays = published
    ids, mask = arrays["input_ids"], arrays["attention_mask"].astype(bool)
    rng = np.random.default_rng(0)
    longer = rng.integers(0, 100, (3, 100))
    longer[:, :70] = np.where(mask, ids, longer[:, :70])
    states = encode(config, params, ids, mask)
    again = encode(config, params, longer, np.pad(mask, ((0, 0), (0, 30))))[:, :70]
    np.testing.assert_allclose(again[mask], states[mask], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_logits_do_not_depend_on_batch_mates_and_padding(config, published):
    params, arrays = published
    batch = batch_of(arrays)
    (_, logits), _ = losses_and_gradients(config, params, batch)
    length = int(batch["attention_mask"][1].sum())
    alone = {k: v[1:2] if k == "labels" else v[1:2, :length] for k, v in batch.items()}
    assert length < 70
    _, again = compiled_loss_and_logits(config, params, alone)
    np.testing.assert_allclose(again[0], logits[1], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"remat": True}, {"length_chunk": 16}])
def test_how_it_is_computed_changes_nothing(config, published, options):
    params, arrays = published
    plain = losses_and_gradients(config, params, batch_of(arrays))
    other = losses_and_gradients(dataclasses.replace(config, **options), params, batch_of(arrays))
    for x, y in zip(jax.tree.leaves(other), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2e-6 * max(1.0, np.abs(y).max()))


@pytest.mark.slow
def test_bfloat16_is_close(config, published):
    params, arrays = published
    narrow = dataclasses.replace(config, dtype="bfloat16")
    result = losses_and_gradients(narrow, params, batch_of(arrays))
    exact = losses_and_gradients(config, params, batch_of(arrays))
    (loss, logits), gradients = jax.device_get(result)
    (exact_loss, exact), exact_gradients = jax.device_get(exact)
    assert logits.dtype == np.float32
    assert abs(loss - exact_loss) < 0.02 * exact_loss
    assert np.linalg.norm(logits - exact) < 0.05 * np.linalg.norm(exact)
    flat, exact_flat = (flat_array(tree) for tree in (gradients, exact_gradients))
    assert np.linalg.norm(flat - exact_flat) < 0.1 * np.linalg.norm(exact_flat)


@pytest.mark.slow
def test_dropout_is_drawn_for_every_layer_piece_and_key(config, published):
    params, arrays = published
    model = T5(dataclasses.replace(config, dropout_rate=0.5, length_chunk=35))
    inputs = (arrays["input_ids"], arrays["attention_mask"], arrays["decoder_input_ids"])

    @jax.jit
    def run(seed):
        return model.apply(
            {"params": params}, *inputs, False, rngs={"dropout": jax.random.key(seed)}
        )

    np.testing.assert_array_equal(run(0), run(0))
    assert not np.allclose(run(0), run(1))
    assert np.isfinite(run(0)).all()


@pytest.mark.slow
def test_untied_head(config, published):
    params, arrays = published
    untied = dataclasses.replace(config, tie_word_embeddings=False)
    batch = batch_of(arrays)
    head = params["shared"] * config.d_model**-0.5
    _, logits = compiled_loss_and_logits(untied, params | {"lm_head": head}, batch)
    np.testing.assert_allclose(logits, arrays["f64.logits"], rtol=0, atol=1e-5)
