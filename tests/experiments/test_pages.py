"""Pages of results: what they hold, and what the summary makes of them."""

import csv
import types

import jinja2
import numpy as np
import pytest
from scipy.stats import t as student

from benchmarks import plots
from experiments import pages
from experiments.pages import Finding, Plot, joined, render, render_again, write_page, write_summary
from experiments.statistics import (
    clearly_above,
    difference,
    mean_and_error,
    p_above,
    plus_minus,
    ratio_and_error,
    ratio_text,
)

TEMPLATE = """
{% extends "page.md.jinja" %}
{% block title %}Ranking{% endblock %}
{% block source %}A paper.{% endblock %}
{% block protocol %}Five
folds.{% endblock %}
{% block claims %}
{% for one in given %}
{% call claim(one.name, one.agrees, of=one.difference or (), kind=one.kind, must=one.must, repeat=one.repeat,
              edges=one.edges) %}
{{ one.paper }}
==
{{ one.here }}
== {{ one.why }}
{% endcall %}
{% endfor %}
{% endblock %}
{% block figures %}
Words.

**Figures**

{{ table(["system", "mAP"], [["OASIS", "0.2"]]) }}

{% call plot(curve) %}
Precision
{% endcall %}
{% endblock %}
"""


@pytest.fixture(autouse=True)
def template(monkeypatch):
    own = jinja2.DictLoader({f"{name}.md.jinja": TEMPLATE for name in ("ranking", "musl")})
    monkeypatch.setattr(pages._TEMPLATES, "loader", jinja2.ChoiceLoader([own, pages._TEMPLATES.loader]))
    monkeypatch.setattr(pages._TEMPLATES, "cache", None)


def ranking(*findings, name="ranking"):
    """An experiment whose page states these findings."""
    figure, (axes,) = plots.new_figure()
    plots.series(axes, 0, [1, 2], [0.5, 0.25], error=[0.1, 0.05], label="OASIS")
    axes.set(xlabel="k", ylabel="precision at k")
    plots.legend(figure, axes)
    data = [{"k": 1, "precision": 0.5}, {"k": 2, "precision": 1 / 3}]
    names = {"given": findings, "curve": Plot("curve", figure, data)}
    return types.SimpleNamespace(__name__=f"experiments.{name}", measure=render, facts=lambda results: names)


def write(folder, *findings, name="ranking", quick=False):
    experiment = ranking(*findings, name=name)
    write_page(folder, experiment, [{"seconds": 120}], command="make reproduce", code="code", quick=quick)
    return (folder / f"{name}.md").read_text()


def test_a_template_states_findings_and_plots_and_its_lines_are_joined_to_paragraphs():
    given = [
        Finding("OASIS leads.", "0.3", True, must=True, kind="threshold", edges="C.", name="oasis-every-k"),
        Finding("No.", "0", False, of_paper=False),
    ]
    page = render(ranking(*given), [])
    assert page.findings == given
    assert [plot.stem for plot in page.plots] == ["curve"]
    assert "\n\nFive folds.\n\n" in page.text
    assert joined("one\n  two\n\n- a\n  b\n- c\n") == "one two\n- a b\n- c"
    with pytest.raises(jinja2.UndefinedError, match="given"):
        render(types.SimpleNamespace(__name__="ranking", measure=render, facts=lambda results: {}), [])


LEADS = {"name": "oasis-over-mcml"}  # any claim will do
PAIRS = [([0.30, 0.32, 0.31], [0.20, 0.21, 0.22]), ([0.5, 0.6, 0.7], [0.1, 0.1, 0.1])]


def test_a_page_says_what_was_found_and_how(tmp_path):
    failed = [Finding(f"{name} leads.", "no", False, why="Too few folds.", **LEADS) for name in ("WARP", "OWPC")]
    text = write(tmp_path, Finding("OASIS leads.", "0.3 against 0.2", True, **LEADS), *failed)
    for expected in ("# Ranking", "A paper.", "`make reproduce`; 2 minutes", "| OASIS | 0.2 |", "Words."):
        assert expected in text
    assert "| OASIS leads. | 0.3 against 0.2 |  | rule met | none given | holds | what the paper states |" in text
    assert "*WARP leads.* *OWPC leads.* Too few folds." in text
    assert text.count("Too few folds.") == 1  # a reason of several findings is given once
    assert "Quick run" not in text
    assert "Quick run" in write(tmp_path, quick=True)


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        ((0.02, 0.01, 0.03, 3), "holds"),
        ((0.02, -0.01, 0.05, 3), "same direction"),
        ((-0.02, -0.05, 0.01, 3), "open"),
        ((-0.02, -0.03, -0.01, 3), "does not hold"),
        ((0.02, 0.01, 0.03, 2), "open"),
        ((0.02, float("nan"), float("nan"), 1), "open"),
    ],
)
def test_the_interval_of_the_difference_gives_the_verdict(difference, verdict):
    assert Finding("", "", True, difference=difference).verdict == verdict
    assert Finding("", "", True, difference=difference, edges="C").verdict == "open"


def test_of_several_pairs_the_one_that_is_least_ahead_counts():
    given = Finding("OASIS leads.", "yes", True, difference=PAIRS, **LEADS)
    (finding,) = render(ranking(given), []).findings
    mean, low, high, n = finding.difference
    assert (n, mean) == (3, pytest.approx(0.1))
    # By hand: differences 0.10, 0.11, 0.09 have variance 0.0001; t is 4.303; 25 / 40 test images per training image.
    assert (
        high - mean == pytest.approx(mean - low) == pytest.approx(4.3027 * np.sqrt((1 / 3 + 25 / 40) * 1e-4), rel=1e-4)
    )
    assert finding.lead == "+0.100 [0.058, 0.142], n = 3"
    assert finding.base == pytest.approx(0.21)
    (equal,) = render(
        ranking(Finding("OASIS leads.", "yes", True, difference=[([3, 4, 5], [1, 2, 3])], **LEADS)), []
    ).findings
    assert equal.difference == [2, None, None, 3]  # by chance: nothing is known of the spread
    assert (equal.sign, equal.verdict) == ("not tested", "open")
    assert Finding("", "", False, name="mcml-time", kind="threshold").verdict == "not comparable"


@pytest.mark.parametrize(
    ("name", "given", "size", "text"),
    [
        ("metrics-five", {"difference": (9, 2, 16, 6)}, "inside", "inside: 9 [2, 16]"),
        ("metrics-five", {"difference": (5, 2, 8, 6)}, "excluded", "excluded: 5 [2, 8]"),
        ("warp-over-auc", {"difference": (0.3, 0.1, 0.5, 5), "base": 0.2}, "inside", "inside: 2.5 [1.5, 3.5] times"),
        (
            "ensemble-sizes",
            {"difference": (0.0, -0.03, 0.03, 5), "base": 0.3},
            "excluded",
            "excluded: 1 [0.9, 1.1] times",
        ),
        ("oasis-saturates", {"sized": (50_000, None, None)}, "outside, no interval", "outside, no interval: 50,000"),
        ("diagonal-any-r", {"sized": (2.5, None, None)}, "inside", "inside: 2.5"),
        ("rho", {"sized": (0.93, 0.92, 0.95)}, "inside", "inside: 0.93 [0.92, 0.95]"),
        ("rho", {}, "not measured", "not measured"),
        ("mcml-time", {"sized": (12, None, None)}, "not comparable", "not comparable: 12"),
        ("rankers", {"difference": (0.3, 0.1, 0.5, 5)}, "", "none given"),
    ],
)
def test_the_papers_size_lies_inside_the_interval_or_not(name, given, size, text):
    one = Finding("", "", True, name=name, **given)
    assert (one.size, one.size_text) == (size, text)


def test_numbers_lie_beneath_the_figure_which_is_the_same_bytes_each_time(tmp_path):
    text = write(tmp_path / "a")
    assert "(curve.png)" in text
    assert "(curve.csv)" in text
    with (tmp_path / "a" / "curve.csv").open() as file:
        assert list(csv.DictReader(file))[1] == {"k": "2", "precision": "0.333333"}
    write(tmp_path / "b")
    figure = (tmp_path / "a" / "curve.png").read_bytes()
    assert figure.startswith(b"\x89PNG")
    assert figure == (tmp_path / "b" / "curve.png").read_bytes()


def test_the_summary_counts_and_names_what_must_hold(tmp_path):
    lost = Finding("WARP leads.", "0.1 < 0.2", False, must=True, name="warp-over-auc")
    write(tmp_path, Finding("OASIS leads.", "yes", True, must=True, **LEADS), lost)
    ahead = Finding("K = 5 leads.", "no", False, name="metrics-five", difference=PAIRS)
    write(tmp_path, ahead, Finding("Elsewhere.", "no", False, repeat=True, **LEADS), name="musl")
    codes = dict.fromkeys(["ranking", "musl", "missing"], "code")
    assert write_summary(tmp_path, codes) == ["ranking: WARP leads. Here: 0.1 < 0.2"]
    text = (tmp_path / "README.md").read_text()
    assert "Of 3 claims of the papers, 2 hold here, 0 point the same way, 1 do not hold, 0 are open" in text
    assert "Of the 2 sizes that they give, 0 lie in the interval here, 1 are excluded, 0 differ" in text
    counted, _, appendix = text.partition("## Appendix")
    assert (
        "| K = 5 is above one metric, with our changes | 10 points | +0.100 [0.058, 0.142], n = 3 | clear + | "
        "excluded: 0.1 [0.0579, 0.142] | holds | [musl] |"
    ) in counted
    assert "| Elsewhere. |  | does not hold | [musl] |" in appendix
    assert '[musl]: musl.md "Ranking"' in appendix


def test_all_claims_are_counted_and_checks_of_our_own_are_not(tmp_path):
    write(
        tmp_path,
        Finding("OASIS leads.", "yes", True, **LEADS),
        Finding("By much.", "no", False, kind="threshold", name="owpc-slow"),
        Finding("In linear time.", "yes", True, kind="construction", name="time-per-step"),
        Finding("By much, and ahead.", "no", False, kind="threshold", name="metrics-five", difference=PAIRS),
        Finding("Sane.", "no", False, must=True, of_paper=False),
    )
    assert write_summary(tmp_path, {"ranking": "code"}) == ["ranking: Sane. Here: no"]
    counted, _, appendix = (tmp_path / "README.md").read_text().partition("## Appendix")
    assert "Of 4 claims of the papers, 3 hold here, 0 point the same way, 1 do not hold" in counted
    assert (
        "| OWPC has hardly got anywhere when WARP is trained |  |  | rule not met | none given | does not hold |"
        in counted
    )
    assert "| Sane. |  | does not hold | [ranking] |" in appendix
    with pytest.raises(ValueError, match="kind must be one of paper, threshold, construction, got 'ours'"):
        Finding("OASIS leads.", "yes", True, kind="ours")


def test_an_open_verdict_says_why(tmp_path):
    edge = "At the edge of what was tried in most folds: OASIS: C."
    text = write(tmp_path, Finding("WARP leads.", "no", False, why="Too few folds.", edges=edge, **LEADS))
    assert "| WARP leads. | no |  | rule not met | none given | open | what the paper states |" in text
    assert f"*WARP leads.* {edge}" in text
    assert "Too few folds" not in text  # an open verdict needs no reason why not


def test_the_summary_says_which_results_are_of_earlier_code(tmp_path):
    write(tmp_path)
    write(tmp_path, name="musl")
    write_summary(tmp_path, {"ranking": "code", "musl": "other code"})
    assert "**Results of earlier code: musl. Run the command again.**" in (tmp_path / "README.md").read_text()


def test_findings_are_written_again_from_the_record_and_nothing_else(tmp_path):
    before = write(tmp_path, Finding("OASIS leads.", "yes", True, **LEADS))
    render_again(tmp_path, {"ranking": "code"})
    assert (tmp_path / "ranking.md").read_text() == before
    record = tmp_path / "ranking.json"
    record.write_text(record.read_text().replace("OASIS leads.", "OASIS is ahead."))
    render_again(tmp_path, {"ranking": "code"})
    assert (tmp_path / "ranking.md").read_text() == before.replace("OASIS leads.", "OASIS is ahead.")


def test_a_clear_difference_is_one_beyond_chance():
    first, second = [0.30, 0.32, 0.31, 0.33, 0.30], [0.20, 0.21, 0.22, 0.20, 0.19]
    assert clearly_above(first, second)
    assert not clearly_above(second, first)
    assert not clearly_above([0.3, 0.1, 0.3, 0.1], [0.2, 0.2, 0.1, 0.3])
    assert not clearly_above([0.3, 0.4], [0.2, 0.3])
    # Folds that share images: a paired t test would be sure of this (t = 3.3), the corrected one is not.
    assert not clearly_above([0.30, 0.33, 0.29, 0.34, 0.31], [0.28, 0.28, 0.28, 0.30, 0.30])
    assert clearly_above([0.30, 0.33, 0.29, 0.34, 0.31], [0.28, 0.28, 0.28, 0.30, 0.30], test_per_train=0)
    # By hand: differences 1, 2, 3 have mean 2 and variance 1; t = 2 / sqrt(1/3 + 2/3) = 2 with two degrees of freedom.
    assert p_above([1, 2, 3], [0, 0, 0], test_per_train=2 / 3) == pytest.approx(student.sf(2, 2))
    assert difference([0.1, 0.3], [0.0, 0.0]) == "+0.200 ± 0.100"
    values = [1.0, 2.0, 3.0]
    assert mean_and_error(values) == pytest.approx((2.0, np.std(values, ddof=1) / np.sqrt(3)))
    assert mean_and_error([2.0]) == (2.0, 0.0)
    assert plus_minus([0.1, 0.3]) == "0.200 ± 0.100"
    assert plus_minus([0.1]) == "0.100"
    # The ratio is 2 exactly; folds that are off by 0.1 above and below, over a mean of 2.
    assert ratio_and_error([3.9, 4.1], [2.0, 2.0]) == pytest.approx((2.0, 0.05))
    assert ratio_text([3.9, 4.1], [2.0, 2.0]) == "2.00 ± 0.05"
    assert ratio_text([3.0], [2.0]) == "1.50"


def test_a_page_shows_what_others_note_for_it(tmp_path):
    experiment = ranking(Finding("OASIS leads.", "yes", True, **LEADS), name="musl")
    facts = experiment.facts
    experiment.facts = lambda results: facts(results) | {"notes": {"ranking": "A seed is worth 0.01."}}
    write_page(tmp_path, experiment, [{"seconds": 1}], command="make reproduce", code="code", quick=False)
    text = write(tmp_path, Finding("OASIS leads.", "yes", True, **LEADS))
    assert "A seed is worth 0.01." in text.partition("## Figures")[0]
    render_again(tmp_path, {"ranking": "code", "musl": "code"})
    assert (tmp_path / "ranking.md").read_text() == text
    assert "A seed" not in (tmp_path / "musl.md").read_text()
