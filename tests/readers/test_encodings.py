"""Texts without a mark and without a declaration are read in their own encoding."""

# ruff: noqa: RUF001
import pytest

from longsum_jax.readers.encodings import decode

# A sentence or two in the languages that each group of encodings serves.
WEST = "cp1252 iso8859-15 mac-roman cp850"
EAST = "cp1250 iso8859-2 cp852"
TEXTS = {
    "german": (WEST, "Die Brücke über den Fluß wird größer, als man dachte; schön ist sie nicht."),
    "french": (
        WEST,
        "L'été dernier, le conseil a décidé où construire l'école; ça coûtera très cher.",
    ),
    "spanish": (
        WEST,
        "El año pasado la comisión decidió que el camión pasaría por la montaña, ¿o no?",
    ),
    "portuguese": (WEST, "A decisão da câmara não é má, mas a construção já começou há três anos."),
    "swedish": (WEST, "Bron över ån blir större än vi trodde, och nästa år börjar vi på allvar."),
    "polish": (
        EAST,
        "Zarząd miasta zdecydował, że most będzie dłuższy, niż myśleliśmy; są też głosy.",
    ),
    "czech": (EAST, "Nový most přes řeku bude delší, než jsme čekali, a příští rok začne stavba."),
    "hungarian": (
        EAST,
        "Az új híd hosszabb lesz, mint vártuk, és jövőre kezdődik az építés a városnál.",
    ),
    "slovene": (
        EAST,
        "Občina je odločila, da bo novi most čez reko daljši, kot smo mislili; že leta čakamo.",
    ),
    "latvian": (
        "cp1257 iso8859-13",
        "Jaunais tilts pār upi būs garāks, nekā mēs domājām, un sāksies nākamgad.",
    ),
    "lithuanian": (
        "cp1257 iso8859-13",
        "Naujasis tiltas per upę bus ilgesnis, nei manėme, ir kitąmet bus pradėtas.",
    ),
    "turkish": (
        "cp1254 iso8859-9",
        "Yeni köprü düşündüğümüzden daha uzun olacak ve inşaat gelecek yıl başlayacak.",
    ),
    "russian": (
        "cp1251 koi8-r cp866 iso8859-5 mac-cyrillic utf-16-le utf-16-be",
        "Новый мост через реку будет длиннее, чем мы думали, и строить начнут через год.",
    ),
    "ukrainian": (
        "cp1251 koi8-u",
        "Новий міст через річку буде довший, ніж ми думали, і його почнуть наступного року.",
    ),
    "greek": (
        "cp1253 iso8859-7",
        "Η νέα γέφυρα θα είναι μακρύτερη από όσο νομίζαμε και θα αρχίσει του χρόνου.",
    ),
    "hebrew": ("cp1255 iso8859-8", "הגשר החדש יהיה ארוך יותר ממה שחשבנו, והבנייה תתחיל בשנה הבאה."),
    "arabic": (
        "cp1256 iso8859-6",
        "سيكون الجسر الجديد أطول مما كنا نظن، وسيبدأ البناء في العام المقبل.",
    ),
    "thai": ("cp874", "สะพานใหม่จะยาวกว่าที่เราคิดไว้ และจะเริ่มก่อสร้างในปีหน้า"),
    "japanese": (
        "cp932 euc-jp iso2022_jp utf-16-le utf-16-be",
        "新しい橋は思っていたより長くなり、工事は来年始まる予定です。市長はそう話した。",
    ),
    "korean": (
        "cp949 euc-kr iso2022_kr",
        "새 다리는 우리가 생각한 것보다 길어질 것이며 공사는 내년에 시작된다.",
    ),
    "chinese": (
        "gb18030 big5 utf-16-le",
        "新的橋比我們想像的更長，工程將於明年開始。市長是這樣說的。",
    ),
}
CASES = [
    (name, encoding) for name, (encodings, _) in TEXTS.items() for encoding in encodings.split()
]


@pytest.mark.parametrize(("name", "encoding"), CASES)
def test_guessed_encodings(name, encoding):
    text = (TEXTS[name][1] + "\n") * 6
    result = decode(text.encode(encoding), "a.txt")
    assert result.text == text
    assert result.guess is not None


def test_quotation_marks_of_both_systems():
    text = (
        "“We waited too long,” the mayor said. The engineer’s warning – a clear one – wasn’t read. "
        * 8
    )
    for encoding in ("cp1252", "mac-roman"):
        assert decode(text.encode(encoding), "a.txt").text == text


def test_few_letters_are_read_as_windows_1252():
    for text in ("A café.", "“Naïve” café", "Señor Muñoz", "Größe und Maß"):
        result = decode(text.encode("cp1252"), "a.txt")
        assert (result.text, result.guess) == (text, "cp1252")


def test_rivals_give_another_text():
    text = "El señor Muñoz compró el camión. "
    result = decode(text.encode("mac-roman"), "a.txt")
    assert result.rival is None or text.encode("mac-roman").decode(result.rival) != result.text


def test_escape_sequences_of_terminals_are_not_an_encoding():
    text = "\x1b[1mBold\x1b[0m and \x1b(B plain."
    assert decode(text.encode(), "a.txt") == (text, None, 0, None)
