"""What a codebook's seed is worth: the page, what it notes for others, and one small job."""

import numpy as np
from scipy import sparse as sp

from experiments import seeds
from experiments.__main__ import NAMES
from experiments.measured import seeds as measured
from experiments.pages import render


def made_up(spread=0.01, lead=0.1):
    results = []
    for job in seeds.jobs(quick=False):
        level = 0.2 + spread * job["seed"] / 4
        figures = {"Euclidean": level, "OASIS": level + lead}
        if job["photos"] == "merged-20":
            figures = {"one metric": 100 * level}
        results.append(job | {"figures": figures, "seconds": 1.0})
    return results


def test_page_of_all_jobs():
    page = render(seeds, made_up())
    assert all(one.agrees for one in page.findings)
    assert not any(one.of_paper for one in page.findings)
    assert "| merged-20 | one metric | 20.5 | 0.4 | 20.0 | 21.0 |" in page.text
    assert set(page.notes) == set(seeds.PAGES)
    assert "Corel-5K, mAP: Euclidean 0.2000 to 0.2100, OASIS 0.3000 to 0.3100" in page.notes["corel"]
    assert not any(one.agrees for one in render(seeds, made_up(spread=0.2)).findings)
    assert set(seeds.PAGES) <= set(NAMES)
    assert {name for names in seeds.PAGES.values() for name in names} == set(measured.PHOTOS)


def test_a_job_changes_the_codebook_alone(monkeypatch):
    rng = np.random.default_rng(0)
    y, train = np.repeat(np.arange(4), 30), np.tile(np.arange(30) < 20, 4)
    asked = []

    def extracted(stem, paths, train, seed, **options):
        asked.append((seed, options))
        return sp.csr_array(rng.random((120, 20), np.float32) * (rng.random((120, 20)) < 0.3))

    monkeypatch.setattr(measured, "choose_images", lambda name: (["photo"] * 120, y, train))
    monkeypatch.setattr(measured, "extracted", extracted)
    monkeypatch.setattr(measured, "CLASSES_OASIS", measured.OASIS(n_steps=100, pass_steps=100, random_state=0))
    figures = measured.measure("10 classes", 3)["figures"]
    assert set(figures) == {"Euclidean", "OASIS"}
    assert all(0.2 < figure < 0.6 for figure in figures.values())
    assert asked == [(3, {"n_visterms": 1000, "max_side": None})]
