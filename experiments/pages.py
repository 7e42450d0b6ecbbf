"""Pages of results: a template per experiment, with its prose, its claims and their rules, filled with its figures.

A template of experiments/templates extends `page.md.jinja`. Its lines are joined to paragraphs; a blank line begins the
next. In it, `claim` states what a paper found, what was found here, and the rule that judges it; `table` and `plot` set
rows and drawings. Other names in it are those of the module that measures, those of the experiment's own module, and
what this one's `facts` returns.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from matplotlib.figure import Figure

from benchmarks.plots import PLACES, mean_series, new_figure, save
from benchmarks.statistics import clearly_above, difference, plus_minus, ratio_text
from visterm.pipeline.console import count

from .measured.grids import MOST_DOUBLINGS

# Kinds of findings, and how the summary counts them.
KINDS = {
    "paper": "figures or orderings that the papers state",
    "threshold": "findings of a paper for which the threshold is ours",
    "construction": "findings that hold by construction",
}
STATED_BY = {"paper": "the paper", "threshold": "the paper, threshold ours", "construction": "by construction"}

Results = list[dict[str, Any]]


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

    @property
    def stated_by(self) -> str:
        return STATED_BY[self.kind] if self.of_paper else "our own check"


class Plot(NamedTuple):
    """A figure, written as `<stem>.png`, and the numbers in it, written as `<stem>.csv`."""

    stem: str
    figure: Figure
    data: Sequence[dict[str, Any]]
    photos: bool = False  # it has some, so that 256 colours are enough to keep the file small


@dataclass
class Page:
    """One experiment: its text as Markdown, and the findings and plots that its template stated."""

    text: str = ""
    findings: list[Finding] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def claim(
        self,
        agrees: Any,
        *,
        kind: str = "paper",
        must: bool = False,
        of_paper: bool = True,
        edges: str = "",
        caller: Callable[[], str],
    ) -> str:
        """Add a finding; its text holds what the paper found, what was found here and, perhaps, why not, after `==`."""
        paper, here, *why = (joined(part) for part in re.split(r"^==", caller(), flags=re.MULTILINE))
        self.findings.append(Finding(paper, here, agrees, must, "".join(why), of_paper, kind, edges))
        return ""

    def plot(self, plot: Plot, *, caller: Callable[[], str]) -> str:
        """Add a plot, and show it over its caption."""
        self.plots.append(plot)
        stem, caption = plot.stem, joined(caller())
        return f"![{caption}]({stem}.png)\n\n{caption} ([numbers]({stem}.csv))\n\n"


def joined(text: str) -> str:
    """A paragraph's lines as one; those of a table and items of a list stay."""
    lines = "\n".join(line.strip() for line in text.splitlines() if line.strip())
    return re.sub(r"\n(?!\||- )", " ", lines)


def render(experiment: Any, results: Results, quick: bool = False, *, command: str = "", seconds: float = 0.0) -> Page:
    """The page of an experiment's module."""
    page = Page()
    names = vars(sys.modules[experiment.measure.__module__]) | vars(experiment) | experiment.facts(results)
    given = {"claim": page.claim, "plot": page.plot, "findings": page.findings}
    page.text = _fill(name_of(experiment), names | given, quick=quick, command=command, minutes=seconds / 60)
    return page


def name_of(experiment: Any) -> str:
    return experiment.__name__.rpartition(".")[2]


def _fill(template: str, names: Mapping[str, Any], **more: Any) -> str:
    text = _TEMPLATES.get_template(f"{template}.md.jinja").render(names, **more)
    return "\n\n".join(filter(None, map(joined, re.split(r"\n\s*\n", text)))) + "\n"


def write_page(folder: Path, experiment: Any, results: Results, *, command: str, code: str, quick: bool) -> None:
    """Write `<name>.md`, its PNG and CSV files, and `<name>.json` with the findings and the `code` they come from."""
    folder.mkdir(parents=True, exist_ok=True)
    name, seconds = name_of(experiment), sum(result["seconds"] for result in results)
    page = render(experiment, results, quick=quick, command=command, seconds=seconds)
    for plot in page.plots:
        save(plot.figure, folder / f"{plot.stem}.png", few_colours=plot.photos)
        write_csv(folder / f"{plot.stem}.csv", plot.data)
    (folder / f"{name}.md").write_text(page.text, encoding="utf-8")
    record = {
        "title": page.text.splitlines()[0].removeprefix("# "),
        "command": command,
        "code": code,
        "quick": quick,
        "core_seconds": round(seconds),
        "vectors": checksums(results),
        "findings": [asdict(finding) for finding in page.findings],
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def checksums(results: Results) -> dict[str, list[str]]:
    """Checksums of the vectors that the results come from, by the set of images."""
    found: dict[str, set[str]] = {}
    for result in results:
        for name, some in result.get("checksums", {}).items():
            found.setdefault(name, set()).update(some)
    return {name: sorted(some) for name, some in sorted(found.items())}


def write_summary(folder: Path, codes: Mapping[str, str]) -> list[str]:
    """Write `README.md` from the records of the pages in the folder; the findings that must hold and do not.

    `codes` has what each experiment's results would come from now: a page that comes from other code is said to.
    """
    records = read_records(folder, codes)
    groups = by_kind([finding for record in records.values() for finding in record["findings"]])
    minutes = sum(record["core_seconds"] for record in records.values()) / 60
    text = _fill("README", {"records": records, "codes": codes, "groups": groups, "kinds": KINDS, "minutes": minutes})
    (folder / "README.md").write_text(text, encoding="utf-8")
    return [
        f"{name}: {finding.paper} Here: {finding.here}"
        for name, record in records.items()
        for finding in record["findings"]
        if finding.must and not finding.agrees
    ]


def read_records(folder: Path, names: Sequence[str] | Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What `write_page` recorded of each page in the folder."""
    files = {name: folder / f"{name}.json" for name in names}
    records = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    return {
        name: record | {"findings": [Finding(**finding) for finding in record["findings"]]}
        for name, record in records.items()
    }


def by_kind(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Findings of the papers by kind, and checks of our own."""
    groups = {kind: [one for one in findings if one.of_paper and one.kind == kind] for kind in KINDS}
    return groups | {"own": [one for one in findings if not one.of_paper]}


def holding(findings: Sequence[Finding]) -> str:
    """How many of them hold, and how many are open."""
    n_open = sum(bool(one.edges) for one in findings)
    holding = f"{sum(one.agrees and not one.edges for one in findings)} of {len(findings)}"
    return f"{holding} ({n_open} open)" if n_open else holding


def findings_text(findings: Sequence[Finding]) -> str:
    """The findings as a table, then why verdicts are open, then why findings do not agree."""
    rows = [[one.paper, one.here, one.stated_by, one.verdict] for one in findings]
    parts = [markdown_table(["The paper", "Here", "Stated by", "Agrees"], rows)]
    parts += [f"*{one.paper}* {one.edges}" for one in findings if one.edges]
    reasons: dict[str, list[str]] = {}
    for one in findings:
        if not one.agrees and not one.edges and one.why:
            reasons.setdefault(one.why, []).append(f"*{one.paper}*")
    return "\n\n".join([*parts, *(f"{' '.join(papers)} {why}" for why, papers in reasons.items())])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body])


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows under the keys of the first; numbers with six significant digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{cell:.6g}" if isinstance(cell, float) else cell for key, cell in row.items()})


# -- what several pages say and draw -----------------------------------------------------------------------------------


class Panel(NamedTuple):
    """One of a plot's axes.

    Parameters
    ----------
    curves : dict
        x and values of shape (folds, len(x)) by name: means with standard errors are drawn.
    axes : dict
        Properties of the axes.
    columns : dict
        What the CSV file says of these curves in columns of its own.
    finish : callable, optional
        Draws more on the axes.
    """

    curves: Mapping[str, tuple[Any, Any]]
    axes: Mapping[str, Any]
    columns: Mapping[str, Any] = {}
    finish: Callable[[Any], Any] | None = None


def draw(
    stem: str,
    panels: Sequence[Panel],
    *,
    width: float | None = None,
    title: str | None = None,
    order: Sequence[str] = (),
) -> Plot:
    """Curves in panels side by side, under one legend with this title.

    A system has its look of `PLACES`, other curves have theirs by their place in `order`, or as they come.
    """
    figure, axes = new_figure(len(panels), width=width)
    rows: list[dict[str, Any]] = []
    places = {name: place for place, name in enumerate(order)}
    for one, panel in zip(axes, panels, strict=True):
        for name, (x, values) in panel.curves.items():
            place = places.setdefault(name, len(places))
            drawn = mean_series(one, name if name in PLACES else place, x, values, name)
            rows += [{**panel.columns, **row} for row in drawn]
        one.set(**panel.axes)
        if panel.finish:
            panel.finish(one)
    lines = {name: line for one in axes for line, name in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", frameon=False, title=title)
    return Plot(stem, figure, rows)


def set_ticks(ticks: Sequence[int]) -> Callable[[Any], None]:
    """Function that labels these places of a logarithmic x axis, and no others."""

    def finish(axes: Any) -> None:
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)

    return finish


def select(results: Results, **wanted: Any) -> Results:
    """The results that have these parameters."""
    return [one for one in results if all(one.get(key) == value for key, value in wanted.items())]


def open_text(systems: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Why a verdict over these systems is open: the settings at the edge of each in most folds; empty if none are."""
    texts = [f"{name}: {', '.join(names)}" for name, records in systems.items() if (names := at_edge(records))]
    return f"At the edge of what was tried in most folds: {'; '.join(texts)}." if texts else ""


def at_edge(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that more than half of the records, one a fold, have at the edge."""
    counts = Counter(name for record in records for name in record.get("edges", ()))
    return [name for name, count in counts.items() if 2 * count > len(records)]


def settings_text(records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """Chosen settings with the number of folds that chose each; a star marks those at the edge."""
    parts = []
    for name in names or records[0]["settings"]:
        chosen = Counter((r["settings"][name], name in r["edges"]) for r in records if name in r["settings"])
        cells = [f"{value:,.10g}{'*' * edge} ({n})" for (value, edge), n in sorted(chosen.items())]
        parts.append(f"{name} {', '.join(cells)}")
    return "; ".join(parts)


def settings_by_fold(records: Sequence[Mapping[str, Any]]) -> str:
    """Chosen settings, fold by fold; a star marks those at the edge."""
    texts = []
    for key in records[0]["settings"]:
        values = [f"{one['settings'][key]:g}" + "*" * (key in one["edges"]) for one in records]
        texts.append(f"{key} {', '.join(values)}")
    return "; ".join(texts)


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"f": format, "plus_minus": plus_minus, "mean": lambda values: float(np.mean(values))}
_TEMPLATES.globals |= {
    "clearly_above": clearly_above,
    "count": count,
    "difference": difference,
    "findings_text": findings_text,
    "holding": holding,
    "plus_minus": plus_minus,
    "ratio_text": ratio_text,
    "table": markdown_table,
}
_TEMPLATES.globals["growth"] = joined(_TEMPLATES.get_template("growth.md.jinja").render(doublings=MOST_DOUBLINGS))
