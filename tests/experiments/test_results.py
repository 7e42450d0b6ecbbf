"""The pages in docs/results: every claim has one row and a verdict, and what readers see is what the records hold."""

import importlib
import json
import re
from collections import Counter

import pytest

from experiments import seeds
from experiments.__main__ import NAMES
from experiments.claims import CLAIMS
from experiments.coverage import ROWS
from experiments.jobs import ROOT, code_of
from experiments.pages import FEWEST, VERDICTS, count_text, findings_text, notes_for, read_records

FOLDER = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def records():
    if not (FOLDER / "README.md").is_file():
        pytest.skip("docs/results lies in the repository only")  # not in an sdist
    return read_records(FOLDER, NAMES)


def test_every_claim_has_one_row_and_is_in_the_headline_and_summary(records):
    rows = Counter()
    where = {(row.paper, row.item): row.where for row in ROWS}
    for page, record in records.items():
        for one in record["findings"]:
            assert one.verdict in VERDICTS
            assert bool(one.name) == one.of_paper
            if one.of_paper and not one.repeat:
                claim = CLAIMS[one.name]
                assert where[claim.paper, claim.item] == page, one.name
                rows[one.name] += 1
    assert rows == Counter(list(CLAIMS))
    counted = [one for record in records.values() for one in record["findings"] if one.stated]
    assert {one.name for one in counted} == set(CLAIMS)
    text = count_text(counted)
    assert text.startswith(f"Of {len(CLAIMS)} claims of the papers, ")
    total, *verdicts = map(int, re.findall(r"\d+", text.partition(". ")[0]))
    assert total == sum(verdicts)
    rows = (FOLDER / "README.md").read_text().partition("## Appendix")[0]
    for one in counted:
        claim = CLAIMS[one.name]
        assert rows.count(f"| {claim.words} |") == 1, one.name
        assert bool(claim.size) == bool(one.size), one.name
        assert one.size != "not measured", one.name
        low, high = (one.difference or (0, None, None, 0))[1:3]
        assert low is None or high > low, one.name  # an interval has a width
    text = (FOLDER / "README.md").read_text()
    assert len(text.partition("## Appendix")[0].encode()) <= 16_384  # of 80 claims, each with its size
    count = count_text(one for record in records.values() for one in record["findings"])
    assert count in text
    for page in (ROOT / "README.md", ROOT / "docs" / "README.md"):
        assert count in " ".join(page.read_text().split()), page
    assert max(len(claim.words.split()) for claim in CLAIMS.values()) <= 11


def test_results_of_the_present_code_can_hold_and_open_ones_say_why(records):
    """A difference needs as many repeats as the test; earlier results wait for `make reproduce`."""
    text = (FOLDER / "README.md").read_text().partition("**What may settle")[2]
    for name, record in records.items():
        if record["code"] != code_of(importlib.import_module(f"experiments.{name}").measure):
            continue
        assert record["vectors"]
        for one in record["findings"]:
            assert one.difference is None or one.difference[3] >= FEWEST, one.paper
    for record in records.values():
        for one in filter(lambda one: one.stated, record["findings"]):
            few = one.verdict in ("open", "same direction") and (one.difference or (0, 0, 0, FEWEST))[3] <= FEWEST
            if one.edges or few:
                claim = CLAIMS[one.name]
                line = next(line for line in text.splitlines() if claim.needs and line.startswith(f"- {claim.needs}: "))
                assert claim.words in line, one.name
    assert set(records["seeds"]["notes"]) == set(seeds.PAGES)


def test_pages_show_what_their_records_hold(records):
    for name, record in records.items():
        assert findings_text(record["findings"], notes_for(name, FOLDER)) in (FOLDER / f"{name}.md").read_text()
        assert json.loads((FOLDER / f"{name}.json").read_text())["title"] == record["title"]
