"""Pages of results: what was measured, what the paper found, whether the two agree, and with which command."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import save

# Kinds of findings, and how the summary counts them.
KINDS = {
    "paper": "figures or orderings that the papers state",
    "threshold": "findings of a paper for which the threshold is ours",
    "construction": "findings that hold by construction",
}


@dataclass
class Table:
    """Rows of text or numbers under a caption."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Plot:
    """A figure, written as `<stem>.png`, and the numbers in it, written as `<stem>.csv`."""

    stem: str
    caption: str
    figure: Figure
    data: Sequence[dict[str, Any]]
    photos: bool = False  # it has some, so that 256 colours are enough to keep the file small


# On every page: how systems are told apart.
TEST = (
    "One-sided t tests over folds or repeats are corrected resampled ones (p < 0.025), since these share images: C. "
    "Nadeau, Y. Bengio, *Inference for the Generalization Error*, Machine Learning 52, 2003. Standard errors of means "
    "are not corrected: they describe the folds."
)


@dataclass
class Finding:
    """A finding of a paper, and the corresponding result here.

    Parameters
    ----------
    paper : str
        What the paper found, with its figure where it gives one.
    here : str
        The same in figures of this run.
    agrees : bool
        By a rule over the results, never by hand.
    kind : {"paper", "threshold", "construction"}
        "paper": the paper states the figure or the ordering that the rule looks at. "threshold": the paper states a
        finding, and how much of it is enough is ours. "construction": it holds by the way the figures are made.
    must : bool
        A broken learner would break it: the command fails where it does not hold.
    why : str
        Why not, as far as it was found out; printed only where it does not agree.
    of_paper : bool
        False for a check of our own, which is not counted with the papers' findings.
    edges : str
        Settings at the edge of what was tried in most folds: the best may lie beyond, so that the verdict is open.
    """

    paper: str
    here: str
    agrees: bool
    must: bool = False
    why: str = ""
    of_paper: bool = True
    kind: str = "paper"
    edges: str = ""

    def __post_init__(self) -> None:
        self.agrees = bool(self.agrees)  # of NumPy, as rules over arrays give it, is not JSON
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")

    @property
    def verdict(self) -> str:
        """Word of the page: yes, no, or open where settings at the edge of the grid may decide it."""
        return "open" if self.edges else "yes" if self.agrees else "**no**"


@dataclass
class Page:
    """One experiment: its parts are paragraphs (text), tables and plots, in order."""

    title: str
    source: str
    protocol: str
    findings: list[Finding]
    parts: list[str | Table | Plot] = field(default_factory=list)


def write_page(folder: Path, name: str, page: Page, *, command: str, code: str, quick: bool, seconds: float) -> None:
    """Write `<name>.md`, its PNG and CSV files, and `<name>.json` with the findings and the `code` they come from."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {page.title}", ""]
    if quick:
        lines += ["**Quick run: fewer folds and settings than the full experiment.**", ""]
    lines += [
        page.source,
        "",
        page.protocol,
        "",
        TEST,
        "",
        f"Written by `{command}`; {seconds / 60:.0f} minutes of one core.",
        "",
    ]
    lines += ["## What the paper found", "", *_findings(page.findings), "## Figures", ""]
    for part in page.parts:
        if isinstance(part, Table):
            lines += [f"**{part.caption}**", "", *markdown_table(part.columns, part.rows), ""]
        elif isinstance(part, Plot):
            save(part.figure, folder / f"{part.stem}.png", few_colours=part.photos)
            write_csv(folder / f"{part.stem}.csv", part.data)
            lines += [f"![{part.caption}]({part.stem}.png)", "", f"{part.caption} ([numbers]({part.stem}.csv))", ""]
        else:
            lines += [part, ""]
    (folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    record = {
        "title": page.title,
        "command": command,
        "code": code,
        "quick": quick,
        "core_seconds": round(seconds),
        "findings": [asdict(finding) for finding in page.findings],
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def write_summary(folder: Path, codes: Mapping[str, str]) -> list[str]:
    """Write `README.md` from the records of the pages in the folder; the findings that must hold and do not.

    `codes` has what each experiment's results would come from now: a page that comes from other code is said to.
    """
    records = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in codes
        if (folder / f"{name}.json").exists()
    }
    findings = [Finding(**finding) for record in records.values() for finding in record["findings"]]
    of_kind = {kind: [found for found in findings if found.of_paper and found.kind == kind] for kind in KINDS}
    own = [found for found in findings if not found.of_paper]
    lines = [
        "# The papers, reproduced",
        "",
        f"{holding(of_kind['paper'])} {KINDS['paper']} hold on the data at hand too. "
        f"Counted apart: {holding(of_kind['threshold'])} {KINDS['threshold']}, {holding(of_kind['construction'])} "
        f"{KINDS['construction']}, and {holding(own)} checks of our own. A verdict is open where the settings chosen "
        "lie at the edge of those tried in most folds. Each page says what was done, gives tables and "
        "figures with the numbers beneath them, and says why a finding is not repeated, where that was found out. "
        "`make reproduce` writes all of it, `make reproduce QUICK=1` a smaller version; these pages "
        f"took {sum(record['core_seconds'] for record in records.values()) / 60:.0f} minutes of one core in all.",
        "",
    ]
    for name, record in records.items():
        lines += [f"## [{record['title']}]({name}.md)", "", f"`{record['command']}`", ""]
        if record.get("code") != codes[name]:
            lines += ["**These are results of earlier code: run the command again.**", ""]
        lines += _findings([Finding(**finding) for finding in record["findings"]])
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return [
        f"{name}: {finding['paper']} Here: {finding['here']}"
        for name, record in records.items()
        for finding in record["findings"]
        if finding["must"] and not finding["agrees"]
    ]


def holding(findings: Sequence[Finding]) -> str:
    """How many of them hold, and how many are open."""
    n_open = sum(bool(found.edges) for found in findings)
    holding = f"{sum(found.agrees and not found.edges for found in findings)} of {len(findings)}"
    return f"{holding} ({n_open} open)" if n_open else holding


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Markdown lines of a table."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows under the keys of the first; numbers with six significant digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.6g}" if isinstance(cell, float) else cell for key, cell in row.items()})


_SHORT = {
    **{("paper", True): "the paper", ("threshold", True): "the paper, threshold ours"},
    **{("construction", True): "by construction"},
    **{(kind, False): "our own check" for kind in KINDS},
}


def _findings(findings: Sequence[Finding]) -> list[str]:
    rows = [
        [finding.paper, finding.here, _SHORT[finding.kind, finding.of_paper], finding.verdict] for finding in findings
    ]
    lines = [*markdown_table(["The paper", "Here", "Stated by", "Agrees"], rows), ""]
    lines += [line for found in findings if found.edges for line in (f"*{found.paper}* {found.edges}", "")]
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if not finding.agrees and not finding.edges and finding.why:
            reasons.setdefault(finding.why, []).append(f"*{finding.paper}*")
    for why, papers in reasons.items():
        lines += [f"{' '.join(papers)} {why}", ""]
    return lines
