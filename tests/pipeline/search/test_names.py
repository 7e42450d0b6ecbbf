"""Names, as somebody types."""

import pytest

from visterm.pipeline.search.names import NameIndex, fold


def test_equal_names_come_first_then_beginnings_then_words_then_parts():
    index = NameIndex(["scrab", "old crab", "crabs", "crab", "CRAB apple", "boat"])
    assert index.search("crab", 10) == [3, 2, 4, 1, 0]
    assert index.search("crab", 2) == [3, 2]
    index = NameIndex(["b", "a"])
    assert index.search("  ", 1) == [0]
    assert index.search("x", 5) == []
    assert NameIndex([]).search("x", 5) == NameIndex([]).search("", 5) == []
    assert NameIndex(["folder/" * 600 + "end.jpg"]).search("end.j", 5) == [0]
    names = [f"{a}{b}_{c}" for a in "ab" for b in "cd" for c in ("x", "abc", "dx")]
    index = NameIndex(names)
    for typed in ("a", "c_", "abc", "dx", "ac_x", "zz"):
        assert sorted(index.search(typed, 99)) == [i for i, name in enumerate(names) if fold(typed) in fold(name)]


@pytest.mark.parametrize(
    ("name", "typed"), [("Éclair", "ecl"), ("ÖL", "ol"), ("صورة", "صور"), ("a\nb", "a b"), ("Straße", "strass")]
)
def test_case_accents_and_scripts(name, typed):
    assert NameIndex(["other", name]).search(typed, 5) == [1]
