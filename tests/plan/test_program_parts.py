import flax.linen as nn
import jax
import pytest

from longsum_plan.program_parts import origin, program_parts
from longsum_plan.program_text import Instruction
from longsum_plan.program_work import program_work

STEP = "jit(step)/jit(loss_gradient)"


@pytest.mark.parametrize(
    ("op_name", "module", "stage"),
    [
        (f"{STEP}/jvp(T5.score)/T5.encode/encoder/encoder.read/while/body/closed_call/layers/"
         "layers.sublayer/cross_attention.project_kv/k/dot_general",
         "encoder/layers/cross_attention", "forward"),
        (f"{STEP}/transpose(jvp(T5.score))/encoder/while/body/checkpoint/rematted_computation/"
         "layers/feed_forward/wi/dot_general", "encoder/layers/feed_forward", "again"),
        (f"{STEP}/transpose(jvp(T5.score))/encoder/while/body/checkpoint/layers/feed_forward/mul",
         "encoder/layers/feed_forward", "gradient"),
        (f"{STEP}/transpose(jvp(T5.score))/T5.logits/bthk,blhk->bhtl/dot_general",
         "logits", "gradient"),
        ("jit(step)/cond/branch_1_fun/add", "", "forward"),
        ("", "", "forward"),
    ],
)  # fmt: skip
def test_modules_and_passes_by_what_jax_writes_into_a_program(op_name, module, stage):
    attributes = f'kind=kLoop, metadata={{op_name="{op_name}" source_line=3}}' if op_name else ""
    assert origin(Instruction("x", (), "fusion", (), attributes)) == (module, stage)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(64, use_bias=False, name="wi")(x)
        return nn.Dense(32, use_bias=False, name="wo")(nn.tanh(x)), None


class Stack(nn.Module):
    @nn.compact
    def __call__(self, x):
        layers = nn.scan(
            nn.remat(Layer),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=3,
        )
        x, _ = layers(name="layers")(x)
        return nn.Dense(8, use_bias=False, name="head")(x)


def test_products_of_a_step_by_module_and_pass(optimized_compilation):
    """A map takes one product forward, one more where it is computed again, two for gradients."""
    module, rows = Stack(), 16
    x = jax.ShapeDtypeStruct((rows, 32), "float32")
    variables = jax.eval_shape(module.init, jax.random.key(0), x)

    def loss(variables, x):
        return (module.apply(variables, x) ** 2).sum()

    text = jax.jit(jax.grad(loss)).lower(variables, x).compile().as_text()
    parts = program_parts(text)
    products = {
        (part.module, part.stage): part.work.operations for part in parts if part.work.operations
    }
    layer = 3 * 2 * rows * 32 * 64
    head = 2 * rows * 32 * 8
    assert products == {
        ("layers/wi", "forward"): layer,
        ("layers/wo", "forward"): layer,
        ("head", "forward"): head,
        ("layers/wi", "again"): layer,
        ("layers/wi", "gradient"): 2 * layer,
        ("layers/wo", "gradient"): 2 * layer,
        ("head", "gradient"): 2 * head,
    }
    work = program_work(text)
    assert sum(part.work.num_bytes for part in parts) == work.num_bytes
    assert sum(part.work.operations for part in parts) == work.operations
    (head_gradient,) = (x for x in parts if (x.module, x.stage) == ("head", "gradient"))
    assert head_gradient.largest.shape == (rows, 32)


def test_copies_that_the_compiler_inserts_belong_to_the_module_that_uses_them():
    text = """\
HloModule step

ENTRY %main (w: f32[64]) -> (f32[64], f32[64]) {
  %w = f32[64]{0} parameter(0)
  %copy-start.1 = (f32[64]{0:S(1)}, f32[64]{0}, u32[]{:S(2)}) copy-start(%w)
  %copy-done.1 = f32[64]{0:S(1)} copy-done(%copy-start.1)
  %y = f32[64]{0} tanh(%copy-done.1), metadata={op_name="jit(f)/encoder/layers/maps/tanh" id=1}
  %copy.1 = f32[64]{0} copy(%y)
  %copy.2 = f32[64]{0} copy(%w)
  ROOT %t = (f32[64]{0}, f32[64]{0}) tuple(%copy.1, %copy.2)
}
"""
    num_bytes = {part.module: part.work.num_bytes for part in program_parts(text)}
    # The copies into the chip and of the result; the copy of an argument has no module.
    assert num_bytes == {"encoder/layers/maps": 256 + 256 + 2 * 256, "": 2 * 256}
