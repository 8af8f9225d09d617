"""Run by test_tfds.py: builds a small array_record data set, and writes what it reads as JSON."""

import json
import logging
import sys
import unittest.mock
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from longsum_jax.data import tfds_source
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError


class Reports(tfds.core.GeneratorBasedBuilder):
    """Five reports of the kinds of fields that tasks name."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text = tfds.features.Text()
        fields = {
            "number": np.int32,
            "text": text,
            "abstract": text,
            "speaker": tfds.features.Sequence(text),
            "utt": tfds.features.Sequence(text),
            "label": tfds.features.ClassLabel(names=["neg", "pos"]),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(fields))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number in range(5):
            yield (
                number,
                {
                    "number": number,
                    "text": f"Part {number} is né. It is short. It ends.",
                    "abstract": f"Summary {number}.",
                    "speaker": ["A", "B"],
                    "utt": ["hello", f"good day {number}"],
                    "label": number % 2,
                },
            )


class ByHand(Reports):
    """Reports of which a file must be fetched by hand."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = """
    Fetch reports.zip from https://example.org
    and unpack it.
    """

    def _split_generators(self, dl_manager):
        (dl_manager.manual_dir / "reports.json").read_text()
        return {"train": self._generate_examples()}


class NeedsPackage(tfds.core.GeneratorBasedBuilder):
    """A data set that is made with a package that is not there."""

    VERSION = tfds.core.Version("1.0.0")
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Fetch reports.zip."

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        import package_that_is_not_there

        yield package_that_is_not_there.examples()


def refused(task, split="train"):
    """Returns the sentence with which reading a task fails."""
    try:
        next(documents(task, split))
    except InputError as error:
        return str(error)


def by_hand(directory: Path) -> list[str]:
    """Reads ByHand without any file, and with one that is not what it looks for."""
    task = get_task("imdb", source="tfds:by_hand", data_dir=str(directory))
    without = refused(task)
    (directory / "downloads" / "manual").mkdir(parents=True)
    (directory / "downloads" / "manual" / "other").write_text("")
    with unittest.mock.patch.object(tfds_source, "keep_tensorflow_off_accelerators"):
        return [without, refused(task)]


def needs_package(directory: Path) -> str:
    (directory / "downloads" / "manual").mkdir(parents=True)
    (directory / "downloads" / "manual" / "reports.json").write_text("")
    task = get_task("imdb", source="tfds:needs_package", data_dir=str(directory))
    with unittest.mock.patch.object(tfds_source, "keep_tensorflow_off_accelerators"):
        return refused(task)


def main() -> None:
    directory = Path(sys.argv[1])
    Reports(data_dir=directory, file_format="array_record").download_and_prepare()
    messages = []
    logging.getLogger("longsum_jax.data.tfds_source").addHandler(
        type("Collect", (logging.Handler,), {"emit": lambda _, record: messages.append(record)})()
    )
    options = {"source": "tfds:reports", "data_dir": str(directory)}
    fields = {"document_key": "text", "summary_key": "abstract", "id_key": "number"}
    plain = get_task("billsum", **options, **fields)
    nameless = get_task("c4", **options, id_key=None)
    pieces = get_task("c4", **options, id_key="number", piece_words=20)
    joined = get_task("mediasum", **options, summary_key="abstract", id_key=None)
    labeled = get_task("imdb_labels", **options, id_key="number")
    part = get_task("billsum", **options, **fields, splits={"train": "train[1:3]"})
    answers = {
        "plain": [list(documents(plain, "train")) for _ in range(2)],
        "nameless": list(documents(nameless, "train")),
        "pieces": list(documents(pieces, "train")),
        "joined": [document.document for document in documents(joined, "train")],
        "labeled": [list(documents(labeled, split)) for split in ("train", "validation")],
        "usual": list(documents(get_task("summaries", **options), "train")),
        "part": list(documents(part, "train")),
        "messages": len(messages),
    }
    misspelt = get_task("billsum", **options, **fields | {"id_key": "numbr"})
    answers["no_field"] = refused(misspelt)
    answers["by_hand"] = by_hand(directory / "by_hand")
    answers["needs_package"] = needs_package(directory / "needs_package")
    answers["imported"] = sorted({"tensorflow", "seqio"} & sys.modules.keys())
    (directory / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
