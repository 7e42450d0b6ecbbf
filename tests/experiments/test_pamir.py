"""PAMIR beside PAMIR-IA: the rules of the page on made-up precisions."""

import numpy as np
import pytest

from experiments import pamir
from experiments.pages import render


@pytest.fixture(autouse=True)
def deep(monkeypatch):
    monkeypatch.setattr(pamir, "has_deep", lambda: True)


def made_up(edges=(), **levels):
    """Average precisions of 260 words about a level of each system."""
    levels = {"PAMIR": 0.3, "PAMIR_IA": 0.25, "rest": 0.2} | levels
    of = dict(zip(("PAMIR", "PAMIR-IA", "one-vs-rest"), levels.values(), strict=True))
    results = []
    for job in pamir.jobs(quick=False):
        rng = np.random.default_rng([len(job["system"]), len(job["vectors"])])
        precisions = (of[job["system"]] + rng.normal(0, 0.1, 260)).tolist()
        chosen = {"settings": {"C": 0.1, "n_steps": 1000}, "edges": [*edges], "validation": 0.3}
        results.append(job | chosen | {"precisions": precisions, "seconds": 1.0})
    return results


def test_page_of_all_jobs():
    page = render(pamir, made_up())
    assert [one.verdict for one in page.findings] == ["holds"] * 4
    assert page.text.count("| Visterms | PAMIR") == 2
    assert {one.verdict for one in render(pamir, made_up(edges=["C"])).findings} == {"open"}
    behind = render(pamir, made_up(PAMIR_IA=0.4)).findings
    assert [one.verdict for one in behind] == ["holds", "does not hold"] * 2
    close = render(pamir, made_up(PAMIR=0.201, PAMIR_IA=0.2)).findings
    assert "holds" not in {one.verdict for one in close}
