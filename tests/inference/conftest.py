"""What tests of loaded models share."""

import pytest


@pytest.fixture(scope="session")
def with_programs_of():
    """with_programs_of(compiled, model): the model with what was compiled for another of the same
    config, which would be compiled once more for it."""

    def share(compiled, model):
        assert model.config == compiled.config
        model._runner.share_programs(compiled._runner)
        model._runner.kernels._make = compiled._runner.kernels._make
        if model.config.has_memory:
            for name in ("_start", "_read_segment", "_search", "_write_segment", "_keep"):
                own = getattr(compiled.segment_summarizer, name)
                setattr(model.segment_summarizer, name, own)
        return model

    return share
