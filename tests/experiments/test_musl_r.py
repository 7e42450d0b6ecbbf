"""MuSL's r: the rules of the page on made-up results."""

import numpy as np
import pytest

from experiments import musl_r
from experiments.pages import FEWEST, render

SOURCES = [0] * 7 + [1] * 7 + [2] * 6


def made_up(*, sharp_at=100, gain=12.0, novel=27.0):
    """Groups are the sources from r `sharp_at` times today's on, and weights of other metrics are 0 there."""
    results = []
    for job in musl_r.jobs(quick=False):
        sharp = job["settings"].get("r", 0) >= sharp_at * musl_r.R
        if job.get("part"):
            weights = [[0.5, 0.3 * (not sharp), 0.1]] if not sharp else [[0.5, 0.01, 0.0]]
            results.append(job | {"pairs": {name: {"weights": weights} for name in ("easy", "difficult")}})
            continue
        vary = 0.1 * np.random.default_rng([job["trial"], job["n_metrics"]]).random()
        several = job["system"] == "joint"
        accuracy = [40 + vary + gain * several] * 4
        grouping = SOURCES if sharp else np.random.default_rng(job["trial"]).permutation(SOURCES).tolist()
        figures = {"accuracy": accuracy, "novel": [40 + vary + novel * several] * 4, "all": accuracy}
        results.append(job | figures | {"grouping": grouping, "sources": SOURCES})
    return [one | {"seconds": 1.0} for one in results]


def test_page_of_all_jobs():
    page = render(musl_r, made_up())
    assert all(one.agrees for one in page.findings)
    assert not any(one.stated for one in page.findings)  # musl has these claims
    assert all(one.verdict == "holds" for one in page.findings)
    assert musl_r.TRIALS >= FEWEST
    assert "from 100 times today's r on" in page.text
    findings = render(musl_r, made_up(sharp_at=1000)).findings
    assert [one.verdict for one in findings] == ["open", "holds", "open", "open"]
    assert "1,000 times" in findings[0].edges


@pytest.mark.parametrize(
    ("broken", "n"), [({"sharp_at": 10**6}, 2), ({"gain": 9.0}, 1), ({"novel": 20.0}, 1)], ids=["never", "few", "novel"]
)
def test_broken_findings_do_not_agree(broken, n):
    assert sum(not one.agrees for one in render(musl_r, made_up(**broken)).findings) == n
