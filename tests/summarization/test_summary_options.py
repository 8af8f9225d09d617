"""The options of summaries: one object for the API, the flags and evaluations."""

import argparse
import dataclasses
import typing

import pytest

from longsum_jax.commands import flags
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.summarization.registry import STRATEGIES
from longsum_jax.summarization.summary_options import (
    READING_OPTIONS,
    OptionChanges,
    SummaryOptions,
    make_options,
)


def test_changes_keep_the_other_options():
    options = make_options(length="short", num_beams=4, max_length=9)
    assert options == SummaryOptions(length=75, generation={"num_beams": 4, "max_length": 9})
    changed = make_options(options, seed=3, max_new_tokens=5)
    assert changed.generation == {"num_beams": 4, "max_new_tokens": 5}  # the length's other name
    assert (changed.seed, changed.length) == (3, options.length)
    assert make_options() == SummaryOptions()


@pytest.mark.parametrize(
    ("name", "hint"), [("generation", "known: "), ("lenght", "length"), ("quries", "queries")]
)
def test_unknown_names_are_refused(name, hint):
    with pytest.raises(InputError, match=f'generate: unknown option "{name}"; .*{hint}'):
        make_options(**{name: 1})


def test_arguments_that_are_no_options_are_not_suggested():
    with pytest.raises(InputError, match='"queries" is not an option of generation; leave it out'):
        make_options(queries=["a"])


def test_keywords_of_type_checkers_are_the_options():
    keywords = typing.get_type_hints(OptionChanges)
    reading = typing.get_type_hints(SummaryOptions)
    assert {name: keywords[name] for name in READING_OPTIONS} == {
        name: reading[name] for name in READING_OPTIONS
    }
    generation = {field.name for field in dataclasses.fields(GenerationOptions)}
    assert keywords.keys() == {*READING_OPTIONS, *generation, "max_length", "min_length"}


def test_every_option_has_a_flag_with_its_default():
    parser = argparse.ArgumentParser()
    flags.add_summary_flags(parser)
    assert flags.summary_options(parser.parse_args([])) == SummaryOptions()
    words = ["-l=short", "--strategy=refine", "--batch_size=auto", "--num_beams=4", "--do_sample"]
    words += ["--seed=3", "--early_stopping=false", "--top_p=0.5", "--on_overflow=error"]
    assert flags.summary_options(parser.parse_args(words), strategy="direct") == make_options(
        length="short",
        strategy="refine",
        batch_size="auto",
        num_beams=4,
        do_sample=True,
        seed=3,
        early_stopping=False,
        top_p=0.5,
        on_overflow="error",
    )


def test_the_flag_selects_strategies_of_other_packages(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "both_ends", STRATEGIES["segments"])
    parser = argparse.ArgumentParser()
    flags.add_summary_flags(parser)
    args = parser.parse_args(["--strategy=both_ends"])
    assert flags.summary_options(args) == SummaryOptions(strategy="both_ends")
