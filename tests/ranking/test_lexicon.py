from longsum_jax.ranking.lexicon import is_english


def test_languages_are_told_by_their_stop_words():
    english = "Tables of the standard list ports, and a host that has none of them is left out. "
    german = "Der Minister sagte am Dienstag, die alte Strasse der Stadt werde bald gebaut. "
    chinese = "\u62a5\u544a\u6307\u51fa\u4e94\u5341\u5e74\u3002"
    assert is_english(english * 9)
    assert not is_english(german * 9)
    assert not is_english(chinese * 20)
    assert is_english(german)  # too short to tell
    assert is_english("")
