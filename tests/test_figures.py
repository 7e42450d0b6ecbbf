"""Figures that pages quote are those that the benchmarks wrote.

A comment that a reader does not see names, in a row of a table or in a paragraph, the records its figures come from:

    | A triplet of OASIS | 1.7 us at 1,000 visterms | <!-- bench: oasis-1000 -->

Names are those of benchmarks/results.json, or of a table docs/results/NAME.csv. Every figure of the row or paragraph
must be a value of one of them, rounded as it is quoted. A figure is a number with a unit, or with a decimal point.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

MARKER = re.compile(r"<!-- bench: ([^>]+?) -->")
TIMES = ("ns", "us", "ms", "s", "min", "h")
FIGURE = re.compile(
    r"(?<![\w.,/-])(\d[\d,]*(?:\.\d+)?)"  # 2,470 or 0.142, not the 1 of d-1 nor a version
    rf"(?: ?({'|'.join(TIMES)}|[kMG]i?B(?:/s)?|Gflop/s|times|%)(?![\w²]))?"
)
COVERED = ("README.md", "docs/performance.md")  # pages whose every figure needs a record


@pytest.fixture(scope="module")
def records(repository) -> dict[str, dict]:
    return {record["name"]: record for record in json.loads((repository / "benchmarks" / "results.json").read_text())}


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, and rows of tables one by one; neither examples nor headings."""
    text = re.sub(r"^```.*?^```|^#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from paragraph.splitlines() if paragraph.lstrip().startswith("|") else [paragraph]


def figures(block: str) -> Iterator[tuple[str, str]]:
    """Number and unit of each figure, outside of code and links' targets."""
    for number, unit in FIGURE.findall(re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", block, flags=re.DOTALL)):
        if unit or "." in number:
            yield number.rstrip(","), unit


def numbers(value) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif isinstance(value, float):  # whole numbers are settings and counts
        yield value


def values(name: str, unit: str, records: dict, repository: Path) -> list[float]:
    """Those that a figure with this unit may quote."""
    if name.endswith(".csv"):
        with (repository / "docs" / "results" / name).open() as file:
            return [float(cell) for row in csv.reader(file) for cell in row if re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)]
    if name not in records:
        return []
    record = records[name]
    own_unit = record["unit"].split()[0]
    if unit in TIMES and own_unit in TIMES and unit != own_unit:
        return []
    return list(numbers(record))


def quotes(number: str, value: float) -> bool:
    """Whether the value, rounded to as many decimals, is the number."""
    decimals = len(number.partition(".")[2])
    return abs(float(number.replace(",", "")) - value) <= 0.5001 * 10**-decimals


def wrong_figures(text: str, records: dict, repository: Path) -> list[str]:
    """Figures of marked blocks that no record of their marker holds."""
    wrong = []
    for block in blocks(text):
        names = " ".join(MARKER.findall(block)).split()
        for number, unit in figures(block) if names else ():
            candidates = [value for name in names for value in values(name, unit, records, repository)]
            if not any(quotes(number, value) for value in candidates):
                wrong.append(f"{number} {unit} is no figure of {', '.join(names)}: {block.strip()}")
    return wrong


def pages(repository: Path) -> list[Path]:
    return [repository / "README.md", *sorted((repository / "docs").glob("*.md")), *repository.glob("plugins/*/*.md")]


def test_figures_and_the_page_are_those_of_the_benchmarks(repository, records):
    wrong = [
        f"{page.name}: {line}"
        for page in pages(repository)
        for line in wrong_figures(page.read_text(), records, repository)
    ]
    assert not wrong, "\n".join(wrong)
    projection = pytest.importorskip("benchmarks.projection", reason="benchmarks lie in the repository")
    for table in (projection.table(records), projection.deep_table(records)):
        assert table in (repository / "docs" / "scale.md").read_text()
    page = pytest.importorskip("benchmarks.page", reason="benchmarks lie in the repository")
    assert page.text(list(records.values())) == (repository / "docs" / "benchmarks.md").read_text()


@pytest.mark.parametrize("page", COVERED)
def test_every_figure_has_a_record(repository, page):
    text = (repository / page).read_text()
    bare = [block for block in blocks(text) if not MARKER.search(block) and list(figures(block))]
    assert not bare, f"no marker <!-- bench: NAME --> beside\n{bare}"


def test_a_command_replaces_its_own_records_alone(tmp_path):
    command = pytest.importorskip("benchmarks.__main__", reason="benchmarks lie in the repository")
    oasis, musl, search = (f"python -m benchmarks {name}" for name in ("oasis", "musl", "search"))
    study, new_study = (f"python -m experiments.studies {name}" for name in ("musl", "open"))
    names = {"a": oasis, "b": musl, "c": study, "d": search, "gone": "python -m benchmarks deleted"}
    old = [{"name": name, "command": of} for name, of in names.items()]
    results = tmp_path / "results.json"
    results.write_text(json.dumps(old))
    expected = {musl: "a new c d", study: "a b new d", search: "a b c new", new_study: "a b c d new"}
    for of, names_after in expected.items():
        merged = command.merge(results, [{"name": "new", "command": of}], of)
        assert " ".join(record["name"] for record in merged) == names_after


def test_records_say_how_they_were_measured(records):
    for name, record in records.items():
        for key in ("what", "ours", "peer", "peer_name", "ratio", "limit", "unit", "n", "measured", "command"):
            assert key in record, f"{name} has no {key}"


def test_a_changed_figure_is_found(repository):
    records = {"a": {"unit": "us per triplet", "ours": 1.69, "peer": 4.91, "ratio": 2.9, "command": "python -m x"}}
    for right in ("1.7 us", "1.69 us, 2.9 times", "`9.9 ms`", "5 us", "10,000 visterms"):
        assert not wrong_figures(f"| {right} <!-- bench: a --> |", records, repository), right
    for wrong in ("1.8 us", "1.6 us", "1.7 ms", "1.70 us", "3.0 times", "2,470 s"):
        assert wrong_figures(f"A row\nof {wrong} <!-- bench: a -->", records, repository), wrong
