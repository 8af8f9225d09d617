import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.inference.abstract import parameter_shapes, summary_programs
from longsum_jax.inference.kernel_cache import MAX_KERNEL_CACHE_BYTES, KernelCache
from longsum_jax.inference.padding import input_length
from longsum_jax.inference.programs import Search
from longsum_jax.summarization.loading import load
from longsum_plan.plan import device_bytes


@pytest.fixture(scope="module")
def model(small_model):
    return load(small_model)


def programs_of(model, length, **sizes):
    """The programs for documents of this length, by name."""
    shapes = parameter_shapes(model.family, model.config)
    retained = {"kernel_bytes": MAX_KERNEL_CACHE_BYTES, "storage": model.decoder_storage}
    sizes |= {"length": input_length(model.config, length)}
    result = summary_programs(model.module, shapes, **sizes, **retained)
    return {program.name: program for program in result}


@pytest.mark.parametrize("storage", ["float32", "int8", "bfloat16"])
def test_programs_over_shapes_are_those_of_a_call(small_model, storage):
    model = load(small_model, decoder_storage=storage)
    ids = np.full((1, 50), 5, np.int32)
    padded = model.padded(ids, ids > 0, {})
    variables = model._runner.variables(padded)
    assert len(variables) == 2  # state-space kernels are among them
    read = model._runner.programs.read.lower(variables, *padded)
    options = model.generation_options(max_new_tokens=3, num_beams=2)
    params = variables["params"]
    weights = model._runner.programs.search.weights(params)
    arguments = params, weights, read.out_info, None
    sizes = {"batch_size": 1, "options": options}
    search = model._runner.programs.search.program.lower(*arguments, **sizes)
    programs = programs_of(model, 50, **sizes)
    assert programs["read"].lower().as_text() == read.as_text()
    assert programs["search"].lower().as_text() == search.as_text()
    assert programs["search"].trips == 3
    # Copies in a storage type take memory in addition to the decoder's parameters.
    own, *_ = programs["search"].arguments
    _, copies = programs["read"].idle
    are_views = storage == "float32"
    assert (device_bytes(own["decoder"]) == 0, copies is None) == (are_views, are_views)


def test_several_documents_are_planned_as_slots(small_model, monkeypatch):
    """The programs that three documents in two slots run, and what a device holds beside them."""
    model = load(small_model)
    texts = ["The cat sat on the mat. " * count for count in (2, 2, 2)]
    (length,) = set(model.read_lengths(texts))
    lowered = {}

    def spy(name, program):
        lower = program.lower

        def lowering(*arguments, **sizes):
            lowered[name] = lower(*arguments, **sizes)
            return lowered[name]

        monkeypatch.setattr(program, "lower", lowering)

    spy("read", model._runner.programs.read)
    spy("search", model._runner.programs.slots.advance)
    model.summarize(texts, batch_size=2, max_new_tokens=3)
    options = model.summary_options(max_new_tokens=3)
    programs = programs_of(model, length, batch_size=2, options=options)
    for name, program in programs.items():
        assert program.lower().as_text() == lowered[name].as_text()
    (source, _), copies = programs["read"].idle
    assert copies is None
    assert {len(x) for x in jax.tree.leaves(source)} == {2}
    # The search has the decoder's parameters twice, once as views that take no memory.
    own, views, *_ = programs["search"].arguments
    assert device_bytes(own["decoder"]) == 0 < device_bytes(views)
    assert device_bytes(own["encoder"]) == device_bytes(model.params["encoder"]) > 0


def test_programs_follow_the_devices_that_they_are_made_for(model):
    """TPUs compute without stored spectra, and take slices of the decoder's parameters."""
    shapes = parameter_shapes(model.family, model.config)
    kernels, search = KernelCache(model.module, MAX_KERNEL_CACHE_BYTES), Search(model.module)
    with jax.default_device("cpu"):
        assert len(search.weight_shapes(shapes)) == 1
        assert kernels.shapes(shapes, 64)
    with jax.default_device("tpu"):
        assert search.weight_shapes(shapes) is None
        assert not kernels.shapes(shapes, 64)


def test_devices_of_a_mesh_have_as_many_documents_each(model):
    mesh = AbstractMesh((4,), ("batch",), axis_types=(AxisType.Auto,))
    with use_abstract_mesh(mesh):
        programs = programs_of(model, 50, batch_size=6, options=model.summary_options())
    _, ids, *_ = programs["read"].arguments
    assert ids.shape[0] == 8
