"""Transcripts and chats: turns of speakers without times, and texts that only look like them."""

import pytest

from longsum_jax.readers.document import Block
from longsum_jax.readers.speakers import plain_name, split_turn
from longsum_jax.readers.transcripts import find_transcript

ONE, TWO, THREE = "The pump in the cellar is broken.", "Then we need a new one.", "I will order it"


def read_turns(text):
    """Returns the parts of a transcript, None for another text."""
    transcript = find_transcript(Block(paragraph) for paragraph in text.split("\n\n"))
    return None if transcript is None else [part.block.text for part in transcript.parts]


def turns_of(*names):
    return [f"{name}: {text}" for name, text in zip(names, (ONE, TWO, THREE, ONE), strict=False)]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("{name}: {text}\n", "Eva Roth,Jan Vos,Eva Roth,Jan Vos"),
        ("{name}: {text}\n", "Speaker 1,Speaker 2,Speaker 1,Speaker 2"),
        ("{name}: {text}\n", "SPEAKER_00,SPEAKER_01,SPEAKER_00,SPEAKER_01"),
        ("{name}: {text}\n", "moderator,p07,moderator,p07"),
        ("{name}: {text}\n", "+49 151 2345678,iPhone of Eva,+49 151 2345678,iPhone of Eva"),
        ("{name}: {text}\n", "Eva Roth | Pumps Ltd,Jan Vos,Eva Roth | Pumps Ltd,Jan Vos"),
        ("[{name}]: {text}\n", "Eva,Jan,Eva,Jan"),
        ("[{name}] {text}\n", "doctor,patient,doctor,patient"),
        ("**{name}:** {text}\n", "Eva,Jan,Eva,Jan"),
        ("{name}\uff1a{text}\n", "\u5f20\u4e09,\u674e\u56db,\u5f20\u4e09,\u674e\u56db"),
        ("{name}:\n{text}\n\n", "Eva,Jan,Eva,Jan"),
        ("{name} (she/her): {text}\n", "Eva,Jan,Eva,Jan"),
        ("00:0{i}:07 {name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("[0:0{i}] {name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("{name} (00:0{i}): {text}\n", "Eva,Jan,Eva,Jan"),
        ("{name}  0:0{i}\n{text}\n\n", "Eva,Jan,Eva,Jan"),
        ("{name} (00:0{i}):\n{text}\n\n", "Eva,Speaker 2,Eva,Speaker 2"),
        ("[9:0{i} AM] {name}\n{text}\n\n", "Eva,Jan Vos (Guest),Eva,Jan Vos (Guest)"),
        ("{name}\n  9:0{i} AM\n{text}\n", "Eva,Jan,Eva,Jan"),
        ("[{name}] 10:0{i}:09\n{text}\n\n", "Eva,Jan,Eva,Jan"),
        ("{name} \u2014 Today at 9:0{i} AM\n{text}\n", "Eva,Jan,Eva,Jan"),
        ("[Yesterday 09:0{i}] {name}\n{text}\n", "Eva,Jan,Eva,Jan"),
        ("{name}: {text}\n", "Eva de la Roth (Pumps and Wells Ltd.),Jan," * 2),
        ("0:{i}:3.420 --> 0:{i}:41.90\n\n{name}\n{text}\n\n", "Eva,Jan,Eva,Jan"),
        ("09:0{i}:15\t From {name} to Everyone:\n\t{text}\n", "Eva,Jan,Eva,Jan"),
        ("09:0{i}:15 From {name} : {text}\n", "Eva,Jan,Eva,Jan"),
        ("3/5/24, 9:0{i} AM - {name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("03/05/2024, 09:0{i} - \u202a{name}\u202c: {text}\n", "+49 151 2345678,Jan,Eva,Jan"),
        ("[03.05.24, 9:0{i}:07\u202fPM] ~\u202f{name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("3/5/24, 9:0{i} a. m. - {name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("\u0665/\u0663/24, 9:0{i} - {name}: {text}\n", "Eva,Jan,Eva,Jan"),
        ("2024/5/3 \u4e0a\u53489:0{i} - {name}: {text}\n", "Eva,Jan,Eva,Jan"),
    ],
)
def test_forms_of_transcripts(form, names):
    names = names.rstrip(",").split(",")
    said = zip(names, (ONE, TWO, THREE, ONE), strict=True)
    text = "".join(form.format(i=i, name=name, text=text) for i, (name, text) in enumerate(said))
    assert read_turns(text) == turns_of(*names)


def test_a_time_at_the_end_begins_no_turn():
    names = "Eva", "Jan", "Eva", "Jan"
    said = zip(names, (ONE, TWO, THREE, ONE), strict=True)
    lines = [f"9:0{i}\n{name}\n{text}" for i, (name, text) in enumerate(said)]
    assert read_turns("\n".join([*lines, "9:05"])) == turns_of(*names)


def test_what_a_speaker_says_in_several_lines_is_a_turn():
    text = (
        f"Eva: {ONE}\nEva: {TWO}\nJan: {THREE}\nand pay it.\n\nA pause.\n\nEva: {ONE}\nJan: {TWO}"
    )
    expected = [f"Eva: {ONE} {TWO}", f"Jan: {THREE} and pay it.", "A pause."]
    assert read_turns(text) == [*expected, *turns_of("Eva", "Jan")]


def test_examinations_have_questions_and_answers():
    examined = "Q. Where were you\non Monday evening?\n\nA. I was at home."
    text = f"THE COURT: Go on, please.\n\n{examined}\n\nMR. VOS: I object.\n\n{examined}"
    pair = ["Q: Where were you on Monday evening?", "A: I was at home."]
    expected = ["THE COURT: Go on, please.", *pair, "MR. VOS: I object.", *pair]
    assert read_turns(text) == expected


def test_notices_and_media_of_chats_are_left_out():
    lines = [
        "3/5/24, 9:00 AM - Messages and calls are end-to-end encrypted. Learn more.",
        '3/5/24, 9:00 AM - Eva created group "Cellar"',
        f"3/5/24, 9:01 AM - Eva: {ONE}",
        "3/5/24, 9:02 AM - Eva: <Media omitted>",
        "3/5/24, 9:02 AM - Jan: <Medien ausgeschlossen>",
        "3/5/24, 9:02 AM - Jan: This message was deleted",
        '3/5/24, 9:02 AM - Jan changed the subject to "Cellar: the pump": new',
        f"3/5/24, 9:03 AM - Jan: {TWO} \u200e<This message was edited>",
        "3/5/24, 9:04 AM - Jan joined using this group's invite link",
        "3/5/24, 9:05 AM - Eva: IMG-1.jpg (file attached)",
        "the old one",
        f"3/5/24, 9:06 AM - Eva: {THREE}",
        f"3/5/24, 9:07 AM - Jan: {ONE}",
    ]
    eva = f"Eva: the old one\n\n{THREE}"
    assert read_turns("\n".join(lines)) == [*turns_of("Eva", "Jan"), eva, f"Jan: {ONE}"]
    ios = [
        "\u200e[03.05.24, 09:00:00] Cellar: \u200eMessages and calls are end-to-end encrypted.",
        f"[03.05.24, 09:00:07] Eva: {ONE}",
        "\u200e[03.05.24, 09:01:07] Eva: \u200eBild weggelassen",
        f"[03.05.24, 09:02:07] Jan: {TWO}",
    ]
    assert read_turns("\n".join(ios)) == turns_of("Eva", "Jan")


def test_what_programs_write_into_transcripts_is_left_out():
    meet = (
        "Weekly\n\nThis editable transcript was computer generated.\n\n00:00:00\n\n"
        f"Eva: {ONE}\nJan: {TWO}\n\n00:05:00\n\nEva: {THREE}\nJan: {ONE}\n"
        "Meeting ended after 00:30:00"
    )
    assert read_turns(meet) == ["Weekly", *turns_of("Eva", "Jan", "Eva", "Jan")]
    teams = f"Eva started transcription\n\nEva   0:03\n{ONE}\n\nJan   0:14\n{TWO}\n\n"
    assert read_turns(f"{teams}Eva   0:20\n{THREE}\n\nJan   0:30\n{ONE}") == turns_of(
        "Eva", "Jan", "Eva", "Jan"
    )


@pytest.mark.parametrize("form", ["[00:0{i}:07] {text}", "(0:0{i}) {text}", "0:0{i}\n{text}"])
def test_recordings_without_names(form):
    said = "we talk about the pump", "it is broken again", "so we buy another"
    text = "\n".join(form.format(i=i, text=text) for i, text in enumerate(said))
    assert read_turns(text) == [" ".join(said)]


@pytest.mark.parametrize(
    "text",
    [
        '"Who is it?" said Jan: it was late.\n\n"Me," said Eva.\n\nShe said: "Open."\n\n'
        'He asked: "Why?"\n\nShe said: "It rains."\n\nHe asked: "And then?"',
        "Note: stop the pump first.\nRun it.\nNote: keep a copy of the log.\nWarning: it takes "
        "long.\nNote: ask Jan if it fails.\nWarning: do not stop it again.",
        "Decision: we buy the new pump in May.\nAction: Eva to ask the bank.\nAction: Jan to ask "
        "the shop.\nDecision: the cellar is cleaned.\nAction: Jan to do it.",
        "Soup\nTime: 30 minutes\nServes: 4\nOven: cold\n\nCake\nTime: 1 hour\nServes: 6\nOven: hot"
        "\n\nPie\nTime: 40 minutes\nServes: 6\nOven: hot",
        "Name: Eva\nAge: 30\nCity: Ghent\n\nName: Jan\nAge: 31\nCity: Bruges",
        "9:00 Coffee\n9:30 Opening: the mayor speaks\n10:00 Talk by Eva\n11:00 Coffee",
        "9:00\nCoffee is served\n\n9:30\nThe mayor speaks\n\n10:00\nA talk by Eva",
        "2024-05-03 09:00:00 INFO: the server starts\n2024-05-03 09:00:04 INFO: it reads\n"
        "2024-05-03 09:00:09 ERROR: it fails\n2024-05-03 09:00:11 INFO: it stops",
        "[09:00:00] INFO: the server starts\n[09:00:04] INFO: it reads\n[09:00:09] ERROR: it fails",
        "(a) Eva pays the rent in May.\n(b) Jan mends the pump.\n(a) Eva may keep a dog.\n"
        "(b) Jan may visit the house.",
        "Lemma 1: the pump is a map.\nProof: this is clear from its form.\nLemma 2: it is "
        "onto.\nProof: take any cellar and fill it.",
        "John 3:16\nFor God so loved the world.\nLuke 1:10\nThey prayed.\nJohn 1:12\nHe came.",
        "Eva 10:23\nGhent\nJan 10:25\nBruges\nAnn 10:31\nLier",
        "0:00 Intro\n1:30 The pump\n3:45 The cellar\n9:00 End",
        "[1] A. Roth. On pumps, 2001.\n[2] B. Vos. On cellars, 2002.\n[1] A. Roth. On pumps, 2001."
        "\n[2] B. Vos. On cellars, 2002.",
        "fix: read the last line too\nfeat: read chats and mail\nfix: names in brackets\n"
        "feat: read exports of chats",
    ],
)
def test_other_texts_are_no_transcripts(text):
    assert read_turns(text) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Eva (she/her)", "Eva"),
        ("Eva (they, them)", "Eva"),
        ("Eva (Guest)", "Eva (Guest)"),
        ("~\u202fEva", "Eva"),
        ("\u202a+49 151\u202c", "+49 151"),
        ("[Eva]", "Eva"),
        ("From Eva to Everyone", "Eva"),
    ],
)
def test_names_without_additions(name, expected):
    assert plain_name(name) == expected


@pytest.mark.parametrize("line", ["She: no", "Note: no", "Step 2: no", "https://a.b", "12:30 no"])
def test_labels_are_no_names(line):
    assert split_turn(line) is None
