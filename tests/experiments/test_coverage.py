"""The table of what is where: every row leads somewhere, and every experiment is in it."""

import json
from dataclasses import asdict

import pytest

from experiments import coverage
from experiments.__main__ import NAMES
from experiments.pages import Finding

FINDINGS = [
    Finding("One.", "yes", True, name="oasis-over-mcml"),
    Finding("Two.", "no", False, name="oasis-over-lego"),
    Finding("Three.", "ours", True, of_paper=False),
]


def test_rows_lead_to_pages_and_say_what_holds(tmp_path):
    record = {"findings": [asdict(finding) for finding in FINDINGS]}
    (tmp_path / "retrieval.json").write_text(json.dumps(record))
    (tmp_path / "retrieval.md").touch()
    coverage.write_coverage(tmp_path, NAMES)
    text = (tmp_path / "coverage.md").read_text()
    assert "| OASIS | [retrieval](retrieval.md) |  |" in text
    assert "| [retrieval](retrieval.md) | 1 |  | 1 |  |  |" in text
    assert "`make reproduce ONLY=corel`" in text  # a page that is not there yet
    assert "[plugins/judge](../../plugins/judge/README.md)" in text
    assert text.count("**not repeated**") == sum(not row.where for row in coverage.ROWS)
    assert all(row.note for row in coverage.ROWS if not row.where)
    assert {row.paper for row in coverage.ROWS} == set(coverage.PAPERS)


def test_a_row_that_leads_nowhere_and_an_experiment_without_a_row_are_errors(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no row of coverage names the experiment other"):
        coverage.write_coverage(tmp_path, [*NAMES, "other"])
    claim = coverage.CLAIMS["rho"]._replace(item="figure 99")
    with monkeypatch.context() as patch:
        patch.setitem(coverage.CLAIMS, "rho", claim)
        with pytest.raises(ValueError, match="the claim rho: NIPS, figure 99"):
            coverage.write_coverage(tmp_path, NAMES)
    monkeypatch.setattr(coverage, "ROWS", (coverage.Row("JMLR", "figure 1", "lost"), *coverage.ROWS))
    with pytest.raises(ValueError, match="JMLR, figure 1: no experiment or page lost"):
        coverage.write_coverage(tmp_path, NAMES)
