"""Run by test_tfds.py: builds a small array_record data set, and writes what it reads as JSON."""

import json
import logging
import sys
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

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
        "labeled": list(documents(labeled, "train")),
        "part": list(documents(part, "train")),
        "messages": len(messages),
    }
    try:
        next(documents(get_task("billsum", **options, **fields | {"id_key": "numbr"}), "train"))
    except InputError as error:
        answers["no_field"] = str(error)
    answers["imported"] = sorted({"tensorflow", "seqio"} & sys.modules.keys())
    (directory / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
