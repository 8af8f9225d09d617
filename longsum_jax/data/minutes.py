"""Minutes of invented council meetings: generated documents that a small model learns to summarize.

Members talk about plans; the summary repeats the decisions, which may be
anywhere in the document.
"""

import random
from collections.abc import Iterator

from longsum_jax.text.documents import DataRow

SIZES = {"train": 6000, "validation": 100}  # documents

_MEMBERS = [
    "Anna Weber",
    "Tom Hale",
    "Rosa Lind",
    "Peter Moss",
    "Clara Stone",
    "Ivan Petrov",
    "Mary Field",
    "Oscar Grant",
    "Lena Frost",
    "David Marsh",
    "Nora Bell",
    "Samuel Price",
]
_PLANS = [
    "repair the bridge",
    "paint the school",
    "plant trees along the river",
    "open a second library",
    "light the market square",
    "buy a fire engine",
    "clean the harbour",
    "extend the bus line",
    "mend the swimming pool",
    "build a playground",
    "move the archive",
    "close the old mill",
    "widen the cycle path",
    "lease the boat house",
    "insulate the town hall",
    "fence the football field",
]
_COSTS = [
    f"{amount},000 euros"
    for amount in (12, 15, 18, 20, 24, 30, 36, 40, 45, 52, 60, 75, 80)
]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_TALK = (
    "{member} asked how long it would take to {plan}.",
    "{member} reminded the others that it would cost {cost} to {plan}.",
    "Nobody could say whether to {plan} before {month}.",
    "{member} and {other} could not agree whether to {plan}.",
    "{member} had read a letter from {other} about the idea to {plan}.",
    "There was no money to {plan} in {month}, {member} said.",
    "{member} thanked {other} for the report.",
    "The council welcomed {member}, who had been away since {month}.",
    "{member} wanted to wait until {month}.",
)
_DECISION = "It was decided to {plan} by {month} for {cost}."


def minutes(split: str) -> Iterator[DataRow]:
    """Yields the documents of ``split``, a key of ``SIZES``; the same ones every time."""
    for number in range(SIZES[split]):
        name = f"{split}-{number}"
        rng = random.Random(name)
        sentences = [
            _sentence(rng, rng.choice(_TALK))
            for _ in range(rng.randint(10, 14))
        ]
        positions = sorted(
            rng.sample(range(1, len(sentences)), rng.randint(1, 2))
        )
        for position in positions:
            sentences[position] = _sentence(rng, _DECISION)
        summary = " ".join(sentences[position] for position in positions)
        yield DataRow(f"minutes:{name}", " ".join(sentences), summary, None)


def _sentence(rng: random.Random, template: str) -> str:
    member, other = rng.sample(_MEMBERS, 2)
    return template.format(
        member=member,
        other=other,
        plan=rng.choice(_PLANS),
        cost=rng.choice(_COSTS),
        month=rng.choice(_MONTHS),
    )
