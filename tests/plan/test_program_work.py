import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_plan.program_text import parse, replica_groups
from longsum_plan.program_work import Traffic, instruction_works, program_work

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("collectives_worker.py")

# Four devices; a loop of 6 steps, whose bound XLA names, around one whose bound only the condition
# tells. The fusion takes one layer of a stack; values in S(1) lie on the chip.
LOOPS = """\
HloModule jit_f, is_scheduled=true, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%take_layer (stack: bf16[6,8,8], at: s32[]) -> bf16[8,8] {
  %stack = bf16[6,8,8]{2,1,0:T(8,128)(2,1)} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = bf16[1,8,8]{2,1,0} dynamic-slice(%stack, %at, %zero, %zero), dynamic_slice_sizes={1,8,8}
  ROOT %layer = bf16[8,8]{1,0} bitcast(%slice)
}

%inner_body (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[4,8]{1,0} get-tuple-element(%p), index=1
  %reduced = f32[4,8]{1,0} all-reduce(%x), replica_groups=[2,2]<=[4], to_apply=%add
  ROOT %out = (s32[], f32[4,8]{1,0}) tuple(%i, %reduced)
}

%inner_condition (p.1: (s32[], f32[4,8])) -> pred[] {
  %p.1 = (s32[], f32[4,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %limit = s32[]{:T(128)} constant(3)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

%body (q: (s32[], bf16[6,8,8], f32[4,8])) -> (s32[], bf16[6,8,8], f32[4,8]) {
  %q = (s32[], bf16[6,8,8]{2,1,0}, f32[4,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %weights = bf16[6,8,8]{2,1,0} get-tuple-element(%q), index=1
  %y = f32[4,8]{1,0} get-tuple-element(%q), index=2
  %w = bf16[8,8]{1,0:T(8,128)(2,1)S(1)} fusion(%weights, %j), kind=kLoop, calls=%take_layer
  %gathered = bf16[32,8]{1,0} all-gather(%w), replica_groups={{0,1,2,3}}, dimensions={0}
  %product = f32[4,8]{1,0:S(1)} dot(%y, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %start = (s32[], f32[4,8]{1,0}) tuple(%j, %product)
  %loop = (s32[], f32[4,8]{1,0}) while(%start), condition=%inner_condition, body=%inner_body
  %z = f32[4,8]{1,0} get-tuple-element(%loop), index=1
  ROOT %out.1 = (s32[], bf16[6,8,8]{2,1,0}, f32[4,8]{1,0}) tuple(%j, %weights, %z)
}

%condition (q.1: (s32[], bf16[6,8,8], f32[4,8])) -> pred[] {
  %q.1 = (s32[], bf16[6,8,8]{2,1,0}, f32[4,8]{1,0}) parameter(0)
  %j.1 = s32[] get-tuple-element(%q.1), index=0
  ROOT %more = pred[] custom-call(%j.1), custom_call_target="SomethingElse"
}

ENTRY %main (stack.1: bf16[6,8,8], x.1: f32[4,8]) -> f32[4,8] {
  %stack.1 = bf16[6,8,8]{2,1,0} parameter(0), metadata={op_name="stack"}
  %x.1 = f32[4,8]{1,0} parameter(1)
  %first = s32[] constant(0)
  %all = (s32[], bf16[6,8,8]{2,1,0}, /*index=2*/f32[4,8]{1,0}) tuple(%first, %stack.1, %x.1)
  %layers = (s32[], bf16[6,8,8]{2,1,0}, f32[4,8]{1,0}) while(%all), condition=%condition, \
body=%body, backend_config={"known_trip_count":{"n":"6"}}
  ROOT %result = f32[4,8]{1,0} get-tuple-element(%layers), index=2
}
"""


def test_bodies_of_loops_count_as_often_as_they_run():
    work = program_work(LOOPS)
    assert work.open_loops == 0
    assert work.products == {"float32": 6 * 2 * 4 * 8 * 8}
    layer = 8 * 8 * 2
    gathered = Traffic(6, 6 * 4 * layer, 6 * 3 * layer, 0)
    reduced = Traffic(18, 18 * 128, 18 * 128.0, 0)  # twice half of the operand
    assert work.collectives == {"all-gather": gathered, "all-reduce": reduced}
    # The fusion reads one layer and keeps it on the chip; the product reads y; collectives read
    # and write. Conditions read a counter, the inner one also a limit, and write one byte.
    inner = 128 + 128 + (4 + 4 + 1)
    assert work.num_bytes == 6 * ((layer + 4) + 4 * layer + 128 + 3 * inner + (4 + 1))


def test_loops_that_end_by_their_data_take_the_callers_number():
    text = LOOPS.replace(', backend_config={"known_trip_count":{"n":"6"}}', "")
    work = program_work(text, trips=2)
    assert work.open_loops == 1
    assert work.products == {"float32": 2 * 2 * 4 * 8 * 8}
    assert work.collectives["all-reduce"].count == 6


def test_a_number_that_a_condition_computes_does_not_count_iterations():
    # number of finished rows on all devices < number of rows
    limit = "compare(%i.1, %limit)"
    finished = """%i.2 = s32[] all-reduce(%i.1), replica_groups={}, to_apply=%add
  ROOT %less = pred[] compare(%i.2, %limit), direction=LT"""
    text = LOOPS.replace(f"ROOT %less = pred[] {limit}, direction=LT", finished)
    assert text != LOOPS
    work = program_work(text, trips=5)
    assert work.open_loops == 1
    # one all-reduce in the body and one in the condition
    assert work.collectives["all-reduce"].count == 6 * (5 + 5)


def test_groups_that_reach_over_hosts():
    text = LOOPS.replace("replica_groups=[2,2]<=[4]", "replica_groups=[2,2]<=[2,2]T(1,0)")
    for per_host, between in ((2, 18 * 128.0), (4, 0.0)):
        traffic = program_work(text, devices_per_host=per_host).collectives["all-reduce"]
        assert traffic.sent_between_hosts == between
    beside = program_work(LOOPS, devices_per_host=2)
    assert beside.collectives["all-reduce"].sent_between_hosts == 0
    assert beside.collectives["all-gather"].sent_between_hosts > 0


def test_collectives_without_groups_are_those_of_all_devices():
    everyone = LOOPS.replace("replica_groups=[2,2]<=[4]", "replica_groups={}")
    assert program_work(everyone).collectives["all-reduce"].sent == 18 * 1.5 * 128.0
    single = everyone.replace(", num_partitions=4", "")
    assert program_work(single).collectives["all-reduce"].sent == 0


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,2},{1,3}}, dimensions={0}", [[0, 2], [1, 3]]),
        ("replica_groups=[2,2]<=[4], dimensions={0}", [[0, 1], [2, 3]]),
        ("replica_groups=[2,3]<=[3,2]T(1,0)", [[0, 2, 4], [1, 3, 5]]),
        ("replica_groups=mesh['x'=2,'y'=2] {'x'}, use_global_device_ids=true", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['x'=2,'y'=2] {'x','y'}", [[0, 1, 2, 3]]),
        ("replica_groups=mesh['x'=4,'y'=1] {'x':(2)2}", [[0, 1], [2, 3]]),
        ("replica_groups=mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}", [[0, 1], [2, 3]]),
        ("replica_groups=mesh['x'=1,'y'=4], device_ids=([4]) {'y'}, a=(b)", [[0, 1, 2, 3]]),
        ("replica_groups=mesh['x'=2,'y'=2], device_ids=(3,1,2,0) {'y'}", [[3, 1], [2, 0]]),
        ("replica_groups={}, to_apply=%add", []),
    ],
)
def test_replica_groups(text, groups):
    assert replica_groups(text) == groups


def convolution(line):
    return f"""\
HloModule jit_f

ENTRY %main (x: f32[9], k: f32[9]) -> f32[9] {{
{line}
}}
"""


def test_windows_of_a_convolution_that_is_a_product_over_a_batch():
    """TPUs write products of h matrices so: the window goes over h."""
    text = convolution(
        """\
  %x = bf16[64,2,8]{2,1,0} parameter(0)
  %k = bf16[64,16,8]{2,1,0} parameter(1)
  ROOT %y = f32[64,2,16]{2,1,0} convolution(%x, %k), window={size=64 stride=63 lhs_dilate=64}, \
dim_labels=0bf_0oi->0bf
"""
    )
    # Of 64 x 64 pairs of an output and a tap, the 64 on the diagonal meet an input.
    assert program_work(text).products == {"bfloat16": 2 * 64 * 2 * 16 * 8}


def test_operations_of_a_convolution_with_padding_and_strides():
    text = convolution(
        """\
  %x = f32[3,10,5]{2,1,0} parameter(0)
  %k = f32[4,5,7]{2,1,0} parameter(1)
  ROOT %y = f32[3,5,7]{2,1,0} convolution(%x, %k), window={size=4 stride=2 pad=3_0}, \
dim_labels=b0f_0io->b0f, operand_precision={highest,highest}
"""
    )
    ones = jnp.ones
    taps = jax.lax.conv_general_dilated(
        ones((1, 10, 1)),
        ones((4, 1, 1)),
        (2,),
        [(3, 0)],
        dimension_numbers=("NWC", "WIO", "NWC"),
    ).sum()
    assert program_work(text).products == {"float32, highest": 2 * 3 * 5 * 7 * float(taps)}


@pytest.mark.parametrize("factors", ["bf16 f32", "f32 bf16", "f32 pred"])
@pytest.mark.parametrize(
    ("precision", "name"),
    [("", "float32"), ("high", "mixed, high"), ("highest", "mixed, highest")],
)
def test_the_precision_of_products_of_two_dtypes(factors, precision, name):
    """Compiled for a v5e they take two and three passes, whichever factor is first."""
    first, second = factors.split()
    text = convolution(
        f"""\
  %x = {first}[16,32]{{1,0}} parameter(0)
  %w = {second}[32,8]{{1,0}} parameter(1)
  ROOT %y = f32[16,8]{{1,0}} convolution(%x, %w), dim_labels=bf_io->bf, \
operand_precision={{{precision},{precision}}}
"""
    )
    assert program_work(text).products == {name: 2 * 16 * 32 * 8}


CUBLAS_CALL = """\
  %x = bf16[16,32]{1,0} parameter(0)
  %w = bf16[32,8]{1,0} parameter(1)
  ROOT %y = (bf16[16,8]{1,0}, s8[33554432]{0}) custom-call(%x, %w), \
custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/highest_score/dot_general"}, \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{\
"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],\
"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},\
"precision_config":{"operand_precision":["DEFAULT","DEFAULT"]}}}
"""


def test_products_of_libraries_and_what_they_work_in():
    work = program_work(convolution(CUBLAS_CALL))
    assert work.products == {"bfloat16": 2 * 16 * 32 * 8}
    assert work.num_bytes == 2 * (16 * 32 + 32 * 8 + 16 * 8)


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        ("DEFAULT", "float32"),
        ("HIGH", "float32, high"),
        ("HIGHEST", "float32, highest"),
    ],
)
def test_the_precision_of_products_of_libraries(precision, name):
    """It stands behind the metadata, whose names are the program's."""
    call = CUBLAS_CALL.replace("bf16", "f32").replace("DEFAULT", precision)
    assert program_work(convolution(call)).products == {name: 2 * 16 * 32 * 8}


CUDNN_CALL = """\
  %q = bf16[3,16,2,8]{3,2,1,0} parameter(0)
  %k = bf16[3,32,2,8]{3,2,1,0} parameter(1)
  %v = bf16[3,32,2,8]{3,2,1,0} parameter(2)
  %n = s32[3]{0} parameter(3)
  ROOT %y = (bf16[3,2,16,8]{3,1,2,0}, f32[3,2,16]{2,1,0}, u8[1024]{0}) \
custom-call(%q, %k, %v, %n, %n), custom_call_target="__cudnn$fmhaSoftmax", \
backend_config={"cudnn_fmha_backend_config": {"mask_type": "MASK", \
"bmm1_dot_dimension_numbers": {"lhs_contracting_dimensions": ["3"]}}}
"""
SPLASH_CALL = """\
  %next = s8[1,2,4]{2,1,0} parameter(0)
  %q = bf16[3,2,16,8]{3,2,1,0} parameter(1)
  %k = bf16[3,2,32,8]{3,2,1,0} parameter(2)
  %v = bf16[3,2,32,8]{3,2,1,0} parameter(3)
  %of_q = s32[3,8,16]{2,1,0} parameter(4)
  %of_k = s32[3,32,128]{2,1,0} parameter(5)
  ROOT %splash_mha_dkv_segmented_no_residuals.1 = (bf16[3,2,32,8]{3,2,1,0}, \
bf16[3,2,32,8]{3,2,1,0:T(8,128)(2,1)S(1)}) custom-call(%next, %q, %k, %v, %of_q, %of_k), \
custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="jit(f)/pairs_192/vmap(g)"}
"""


@pytest.mark.parametrize(("mask", "share"), [("PADDING", 1), ("CAUSAL", 0.5)])
def test_attention_of_cudnn_is_two_products_and_writes_no_scores(mask, share):
    work = program_work(convolution(CUDNN_CALL.replace("MASK", mask)))
    product = 2 * 3 * 2 * 16 * 32 * 8
    assert work.products == {"bfloat16": 2 * product * share}
    arrays = [3 * 16 * 2 * 8] * 2 + [3 * 32 * 2 * 8] * 2  # the queries, the result, keys, values
    assert work.num_bytes == 2 * sum(arrays) + 4 * 3 * 2 * 16 + 2 * 4 * 3


@pytest.mark.parametrize(("scope", "pairs"), [("/pairs_192/", 192), ("/", 16 * 32)])
def test_attention_of_pallas_is_counted_by_its_name(scope, pairs):
    work = program_work(convolution(SPLASH_CALL.replace("/pairs_192/", scope)))
    assert work.products == {"bfloat16": 4 * 2 * 3 * 2 * 8 * pairs}


@pytest.mark.parametrize(("name", "count"), [("forward", 2), ("backward", 5), ("other", 0)])
def test_attention_of_mosaic_has_lengths_last(name, count):
    call = """\
  %table = s32[4]{0} parameter(0)
  %q = bf16[3,2,8,16]{3,2,1,0} parameter(1)
  %k = bf16[3,2,8,32]{3,2,1,0} parameter(2)
  %bias = f32[2,1,31]{2,1,0} parameter(3)
  ROOT %mosaic_attention_NAME.1 = bf16[3,2,8,16]{3,2,1,0} custom-call(%table, %q, %k, %bias), \
custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/SCOPE/jit(wrapped)"}
""".replace("NAME", name)
    for scope, pairs in (("transpose(jvp(pairs_192))", 192), ("jvp()", 16 * 32)):
        work = program_work(convolution(call.replace("SCOPE", scope)))
        assert sum(work.products.values()) == count * 2 * 3 * 2 * 8 * pairs
        assert set(work.products) <= {"bfloat16"}


@pytest.mark.parametrize(
    ("name", "count"), [("forward", 2), ("queries", 3), ("keys", 4), ("other", 0)]
)
def test_attention_of_triton_is_counted_by_the_name_of_the_kernel(name, count):
    call = """\
  %table = s32[2,2]{1,0} parameter(0)
  %q = bf16[3,16,2,8]{3,2,1,0} parameter(1)
  %k = bf16[3,32,2,8]{3,2,1,0} parameter(2)
  ROOT %pallas_call.3 = bf16[3,16,2,8]{3,2,1,0} custom-call(%table, %q, %k), \
custom_call_target="__gpu$xla.gpu.triton", api_version=API_VERSION_TYPED_FFI, \
metadata={op_name="jit(loss)/jvp(pairs_192)/f/pallas_call"}, backend_config={debug = false, \
ir = "ML\\EFR", name = "triton_attention_NAME", num_warps = 4 : i32}
"""
    work = program_work(convolution(call.replace("NAME", name)))
    assert work.operations == count * 2 * 3 * 2 * 8 * 192
    assert work.num_bytes == 4 * 4 + 2 * 2 * 3 * 16 * 16 + 2 * 3 * 32 * 16


def test_scatters_in_fusions_update_in_place_and_slices_of_slices_are_read_alone():
    """As XLA writes them for GPUs; an array that the fusion computes is written as a whole."""
    text = """\
HloModule jit_f

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%write (buffer: f32[100,8], at: s32[1,1], rows: f32[50,8]) -> f32[100,8] {
  %buffer = f32[100,8]{1,0} parameter(0)
  %at = s32[1,1]{1,0} parameter(1)
  %rows = f32[50,8]{1,0} parameter(2)
  %half = f32[25,8]{1,0} slice(%rows), slice={[0:25], [0:8]}
  %view = f32[25,8]{1,0} bitcast(%half)
  %row = f32[1,8]{1,0} slice(%view), slice={[0:1], [0:8]}
  OPERAND
  ROOT %new = f32[100,8]{1,0} scatter(%old, %at, %row), to_apply=%add
}

ENTRY %main (b: f32[100,8], i: s32[1,1], r: f32[50,8]) -> f32[100,8] {
  %b = f32[100,8]{1,0} parameter(0)
  %i = s32[1,1]{1,0} parameter(1)
  %r = f32[50,8]{1,0} parameter(2)
  ROOT %out = f32[100,8]{1,0} fusion(%b, %i, %r), kind=kInput, calls=%write
}
"""
    row, whole = 8 * 4, 100 * 8 * 4
    in_place = text.replace("OPERAND", "%old = f32[100,8]{1,0} bitcast(%buffer)")
    assert program_work(in_place).num_bytes == 3 * row + 4
    computed = text.replace("OPERAND", "%old = f32[100,8]{1,0} negate(%buffer)")
    assert program_work(computed).num_bytes == 2 * whole + row + 4


def test_asynchronous_collectives_and_updates_in_place():
    text = """\
HloModule jit_f, num_partitions=2

%write (buffer: f32[100,8], row: f32[1,8], at: s32[]) -> f32[100,8] {
  %buffer = f32[100,8]{1,0} parameter(0)
  %row = f32[1,8]{1,0} parameter(1)
  %at = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %updated = f32[100,8]{1,0} dynamic-update-slice(%buffer, %row, %at, %zero)
}

ENTRY %main (x: f32[4,8], b: f32[100,8], r: f32[1,8], i: s32[]) -> f32[100,8] {
  %x = f32[4,8]{1,0} parameter(0)
  %b = f32[100,8]{1,0} parameter(1)
  %r = f32[1,8]{1,0} parameter(2)
  %i = s32[] parameter(3)
  %begun = (f32[4,8]{1,0}, f32[8,8]{1,0}) all-gather-start(%x), replica_groups={{0,1}}
  %ended = f32[8,8]{1,0} all-gather-done(%begun)
  %moved = (f32[4,8]{1,0}, f32[4,8]{1,0}, u32[], u32[]) collective-permute-start(%x), \
source_target_pairs={{0,1},{1,0}}
  %there = f32[4,8]{1,0} collective-permute-done(%moved)
  ROOT %new = f32[100,8]{1,0} fusion(%b, %r, %i), kind=kLoop, calls=%write
}
"""
    work = program_work(text, devices_per_host=1)
    assert work.collectives == {
        "all-gather": Traffic(1, 256, 128, 128),
        "collective-permute": Traffic(1, 128, 128, 128),
    }
    row = 8 * 4
    moved = {}
    for instruction, own in instruction_works(text):
        moved[instruction.name] = own.num_bytes
    assert moved["begun"] == 128 + 256
    assert moved["moved"] == 128 + 128
    assert moved["new"] == (row + 4) + row
    assert work.num_bytes == sum(moved.values())


# As XLA writes the gradients of weights that devices share for TPUs: summed together, and cut.
CUT = """\
HloModule cut, num_partitions=4

%cut (a: f32[8,4], b: f32[8,4]) -> (f32[2,4], f32[2,4]) {
  %a = f32[8,4]{1,0} parameter(0)
  %b = f32[8,4]{1,0} parameter(1)
  %sums = (f32[8,4]{1,0}, f32[8,4]{1,0}) all-reduce(%a, %b), replica_groups={{0,1,2,3}}, \
to_apply=%add
  %first = f32[8,4]{1,0} get-tuple-element(%sums), index=0
  %second = f32[8,4]{1,0} get-tuple-element(%sums), index=1
  %zero = s32[] constant(0)
  %own.1 = f32[2,4]{1,0} dynamic-slice(%first, %zero, %zero), dynamic_slice_sizes={2,4}
  %own.2 = f32[2,4]{1,0} dynamic-slice(%second, %zero, %zero), dynamic_slice_sizes={2,4}
  ROOT %own = (f32[2,4]{1,0}, f32[2,4]{1,0}) tuple(%own.1, %own.2)
}

ENTRY %main (x: f32[8,4], y: f32[8,4]) -> (f32[2,4], f32[2,4]) {
  %x = f32[8,4]{1,0} parameter(0)
  %y = f32[8,4]{1,0} parameter(1)
  ROOT %out = (f32[2,4]{1,0}, f32[2,4]{1,0}) fusion(%x, %y), kind=kCustom, calls=%cut
}
"""


def test_sums_of_several_arrays_of_which_devices_keep_slices_are_scattered():
    num_bytes = 2 * 8 * 4 * 4
    [(kind, scattered)] = program_work(CUT).collectives.items()
    assert (kind, scattered.num_bytes, scattered.sent) == (
        "reduce-scatter",
        num_bytes,
        0.75 * num_bytes,
    )
    # Every device needs the whole of the second sum.
    whole = CUT.replace("tuple(%own.1, %own.2)", "tuple(%own.1, %second)")
    [(kind, reduced)] = program_work(whole).collectives.items()
    assert (kind, reduced.sent) == ("all-reduce", 1.5 * num_bytes)


# As XLA writes an asynchronous all-gather for TPUs: the fusion that begins it names it, one that
# computes something beside it, and the one that ends it.
CONTINUED = """\
HloModule jit_f, num_partitions=4

%begin (a: f32[4,8]) -> (f32[4,8], f32[8,8], s32[2]) {
  %a = f32[4,8]{1,0} parameter(0)
  %gather.1 = f32[8,8]{1,0} all-gather(%a), channel_id=7, replica_groups=[2,2]<=[4], dimensions={0}
  ROOT %start = (f32[4,8]{1,0}, f32[8,8]{1,0}, s32[2]{0:S(4)}) custom-call(%gather.1), \
custom_call_target="AsyncCollectiveStart"
}

%beside (b: f32[4,8], c: f32[8,8], d: s32[2], x.1: f32[16,8]) \
-> (f32[16,8], f32[4,8], f32[8,8], f32[8,8], s32[2]) {
  %x.1 = f32[16,8]{1,0} parameter(3)
  %square = f32[16,8]{1,0} multiply(%x.1, %x.1)
  %b = f32[4,8]{1,0} parameter(0)
  %c = f32[8,8]{1,0} parameter(1)
  %gather.2 = f32[8,8]{1,0} all-gather(%b), channel_id=7, replica_groups=[2,2]<=[4], dimensions={0}
  %d = s32[2]{0:S(4)} parameter(2)
  ROOT %both = (f32[16,8]{1,0}, f32[4,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}, s32[2]{0:S(4)}) \
tuple(%square, %b, %c, %gather.2, %d)
}

%end (e: f32[4,8], f: f32[8,8], g: s32[2]) -> f32[8,8] {
  %e = f32[4,8]{1,0} parameter(0)
  %f = f32[8,8]{1,0} parameter(1)
  %gather.3 = f32[8,8]{1,0} all-gather(%e), channel_id=7, replica_groups=[2,2]<=[4], dimensions={0}
  %g = s32[2]{0:S(4)} parameter(2)
  ROOT %done = f32[8,8]{1,0} custom-call(%e, %f, %gather.3, %g), \
custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (w: f32[4,8], x: f32[16,8]) -> (f32[8,8], f32[16,8]) {
  %w = f32[4,8]{1,0} parameter(0)
  %x = f32[16,8]{1,0} parameter(1)
  %begun = (f32[4,8]{1,0}, f32[8,8]{1,0}, s32[2]{0:S(4)}) fusion(%w), kind=kCustom, calls=%begin
  %own = f32[4,8]{1,0} get-tuple-element(%begun), index=0
  %whole = f32[8,8]{1,0} get-tuple-element(%begun), index=1
  %flags = s32[2]{0:S(4)} get-tuple-element(%begun), index=2
  %computed = (f32[16,8]{1,0}, f32[4,8]{1,0}, f32[8,8]{1,0}, f32[8,8]{1,0}, s32[2]{0:S(4)}) \
fusion(%own, %whole, %flags, %x), kind=kCustom, calls=%beside
  %y = f32[16,8]{1,0} get-tuple-element(%computed), index=0
  %own.1 = f32[4,8]{1,0} get-tuple-element(%computed), index=1
  %whole.1 = f32[8,8]{1,0} get-tuple-element(%computed), index=3
  %flags.1 = s32[2]{0:S(4)} get-tuple-element(%computed), index=4
  %ended = f32[8,8]{1,0} fusion(%own.1, %whole.1, %flags.1), kind=kCustom, calls=%end
  ROOT %all = (f32[8,8]{1,0}, f32[16,8]{1,0}) tuple(%ended, %y)
}
"""


def test_a_collective_that_several_fusions_name_counts_once():
    work = program_work(CONTINUED)
    assert work.collectives == {"all-gather": Traffic(1, 256, 128, 0)}
    gather, square = 128 + 256, 512 + 512
    assert work.num_bytes == gather + square


def test_asynchronous_slices_read_what_they_take():
    text = """\
HloModule jit_f

ENTRY %main (x: f32[100,8]) -> f32[4,8] {
  %x = f32[100,8]{1,0} parameter(0)
  %begun = ((f32[100,8]{1,0}), f32[4,8]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%x), \
slice={[0:4], [0:8]}
  ROOT %taken = f32[4,8]{1,0:S(1)} slice-done(%begun)
}
"""
    assert program_work(text).num_bytes == 4 * 8 * 4
    assert program_work(text.replace("f32[4,8]{1,0:S(1)}", "f32[4,8]{1,0}")).num_bytes == 2 * 128


def test_a_kernel_has_the_number_of_its_operations_in_its_name():
    text = """HloModule kernel

ENTRY %main (x: bf16[4,8], s: f32[4]) -> bf16[4,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  %s = f32[4]{0} parameter(1)
  ROOT %y = bf16[4,8]{1,0} custom-call(%x, %s), custom_call_target="__gpu$xla.gpu.triton", \
backend_config={name = "convolution_operations_1234", num_warps = 8}
}
"""
    work = program_work(text)
    assert work.products == {"bfloat16": 1234.0}
    assert work.num_bytes == 2 * 64 + 16
    assert not program_work(text.replace("_operations_", "_of_")).operations
    for name in ("x_operations_1234", "x_operations_1234.remat.5"):  # as XLA for TPUs numbers it
        on_tpu = text.replace("%y", f"%{name}").replace("__gpu$xla.gpu.triton", "tpu_custom_call")
        assert program_work(on_tpu).products == {"bfloat16": 1234.0}


def test_of_a_converted_value_the_slices_that_are_read_count():
    """As XLA writes the cut of an inverse FFT for GPUs: converted first, then sliced."""
    text = """HloModule cut

%cut (y: f32[4,100], x: f32[4,40]) -> bf16[4,40] {
  %y = f32[4,100]{1,0} parameter(0)
  %x = f32[4,40]{1,0} parameter(1)
  %half = bf16[4,100]{1,0} convert(%y)
  %kept = bf16[4,40]{1,0} slice(%half), slice={[0:4], [0:40]}
  %gate = bf16[4,40]{1,0} convert(%x)
  ROOT %gated = bf16[4,40]{1,0} multiply(%kept, %gate)
}

ENTRY %main (a: f32[4,100], b: f32[4,40]) -> bf16[4,40] {
  %a = f32[4,100]{1,0} parameter(0)
  %b = f32[4,40]{1,0} parameter(1)
  ROOT %out = bf16[4,40]{1,0} fusion(%a, %b), kind=kLoop, calls=%cut
}
"""
    assert program_work(text).num_bytes == 4 * 40 * (4 + 4 + 2)
    # The whole value is read if something else needs it.
    whole = text.replace("convert(%x)", "convert(%x), control-predecessors={%sum}").replace(
        "  %gate", "  %sum = bf16[4]{0} reduce(%half, %half), dimensions={1}\n  %gate"
    )
    assert program_work(whole).num_bytes == 4 * (100 * 4 + 40 * (4 + 2))


def test_a_slice_of_a_power_is_read_once():
    """A squared value has one user, whatever the number of paths to the result."""
    squares = "\n".join(
        f"  %x{n + 1} = f32[100,8]{{1,0}} multiply(%x{n}, %x{n})" for n in range(64)
    )
    text = f"""HloModule power

%power (x0: f32[100,8]) -> f32[4,8] {{
  %x0 = f32[100,8]{{1,0}} parameter(0)
{squares}
  ROOT %rows = f32[4,8]{{1,0}} slice(%x64), slice={{[0:4], [0:8]}}
}}

ENTRY %main (x: f32[100,8]) -> f32[4,8] {{
  %x = f32[100,8]{{1,0}} parameter(0)
  ROOT %out = f32[4,8]{{1,0}} fusion(%x), kind=kLoop, calls=%power
}}
"""
    assert program_work(text).num_bytes == 2 * 4 * (4 * 8)


def test_slices_that_a_fusion_inside_of_a_fusion_takes_are_what_counts():
    """As XLA writes them for TPUs: a row of a stack is read, squared, and written into another."""
    text = """HloModule rows

%take (stack: f32[100,8], i: s32[]) -> f32[1,8] {
  %stack = f32[100,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,8]{1,0} dynamic-slice(%stack, %i, %zero), dynamic_slice_sizes={1,8}
}

%put (buffer: f32[100,8], new: f32[1,8], j: s32[]) -> f32[100,8] {
  %buffer = f32[100,8]{1,0} parameter(0)
  %new = f32[1,8]{1,0} parameter(1)
  %j = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %updated = f32[100,8]{1,0} dynamic-update-slice(%buffer, %new, %j, %zero)
}

%step (a: f32[100,8], b: f32[100,8], k: s32[]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[100,8]{1,0} parameter(1)
  %k = s32[] parameter(2)
  %taken = f32[1,8]{1,0} fusion(%a, %k), kind=kLoop, calls=%take
  %square = f32[1,8]{1,0} multiply(%taken, %taken)
  ROOT %written = f32[100,8]{1,0} fusion(%b, %square, %k), kind=kLoop, calls=%put
}

ENTRY %main (x: f32[100,8], y: f32[100,8], n: s32[]) -> f32[100,8] {
  %x = f32[100,8]{1,0} parameter(0)
  %y = f32[100,8]{1,0} parameter(1)
  %n = s32[] parameter(2)
  ROOT %new = f32[100,8]{1,0} fusion(%x, %y, %n), kind=kLoop, calls=%step
}
"""
    row, index = 8 * 4, 4
    assert program_work(text).num_bytes == row + index + row


def test_a_branch_counts_once_the_one_with_more_work():
    def step(flag, x, w):
        return jax.lax.cond(flag, lambda: jnp.tanh(x @ w @ w), lambda: x)

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 64), (64, 64))]
    compiled = jax.jit(step).lower(jax.ShapeDtypeStruct((), bool), *shapes).compile()
    assert program_work(compiled.as_text()).operations == 2 * 2 * 64**3


def test_operations_of_a_real_program_are_those_of_its_products(optimized_compilation):
    """A gradient through a loop over layers: three products for each, and FFTs."""
    layers, rows, width = 5, 16, 32

    def loss(w, x):
        def layer(x, w):
            return jnp.tanh(x @ w), None

        x, _ = jax.lax.scan(layer, x, w)
        return jnp.abs(jnp.fft.rfft(x, axis=0)).sum()

    shapes = ((layers, width, width), (rows, width))
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    compiled = jax.jit(jax.grad(loss)).lower(*arguments).compile()
    work = program_work(compiled.as_text())
    assert work.open_loops == 0
    products = 3 * layers * 2 * rows * width * width
    # The gradient of the first layer's input is not needed.
    least = products - 2 * rows * width * width
    transforms = 2 * width * 5 * rows * math.log2(rows)
    assert least <= work.operations <= products + transforms
    assert work.num_bytes > 2 * np.prod(shapes[0]) * 4


def test_every_line_of_a_compiled_program_is_read(optimized_compilation):
    compiled = jax.jit(lambda x: jnp.sort(x @ x, axis=0)).lower(jnp.ones((8, 8))).compile()
    computations, entry = parse(compiled.as_text())
    lines = [line for line in compiled.as_text().splitlines() if line.startswith("  ")]
    read = [x for each in computations.values() for x in each.instructions.values()]
    assert len(read) == sum(" = " in line for line in lines)
    assert computations[entry].root in computations[entry].instructions


@pytest.mark.slow
def test_collectives_of_programs_for_eight_devices(run_worker):
    """What a shard_map says by hand is what is counted: groups of four, and a loop of five."""
    result = run_worker(WORKER, strict=False)
    piece = 4 * 32 * 4  # bytes of what one device holds
    assert result["one host"] == {
        "all-gather": [5, 5 * 4 * piece, 5 * 3 * piece, 0],
        "all-reduce": [5, 5 * piece, 5 * piece, 0],  # over two devices
        "collective-permute": [5, 5 * piece, 5 * piece, 0],
        "reduce-scatter": [1, piece, 0.75 * piece, 0],
        "all-to-all": [1, piece, 0.75 * piece, 0],
    }
    # Rows of four devices stand in one host each; sums go from host to host.
    between = {kind: values[3] for kind, values in result["two hosts"].items() if values[3]}
    assert between == {"all-reduce": 5 * piece}
    assert result["operations"] == 5 * 2 * 16 * 32 * 32
