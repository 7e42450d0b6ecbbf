"""Several labels per image: measures by hand, and a small set from photos to the page."""

import csv

import numpy as np
import pytest
import scipy.sparse as sp

from experiments import corel
from experiments.measured import corel as measured
from experiments.measured import protocol
from experiments.measured.pamir_images import ImagePAMIR, image_pass
from experiments.pages import render
from visterm.learners import Cosine, KNNAnnotator, OneVsRestPA
from visterm.learners.draws import stream
from visterm.learners.rows import as_rows

# Words: sky, sea, tree. Photo 0: sky, sea; 1: sky; 2: tree; 3: sky, sea.
WORDS = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [1, 1, 0]], bool)


def test_annotation_by_hand(monkeypatch):
    monkeypatch.setattr(measured, "WORDS", 1)
    scores = np.array([[3, 2, 1], [3, 2, 1], [3, 1, 2], [1, 3, 2.0]])
    # One word each: sky, sky, sky, sea. Sky: right 2 of 3, 2 of the 3 that have it; sea: 1 of 1, 1 of 2; tree: none.
    figures = measured.annotation_figures(scores, WORDS)
    assert figures["precision"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert figures["recall"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert (figures["n_recalled"], figures["n_words"]) == (2, 3)
    monkeypatch.setattr(measured, "WORDS", 1)
    figures = measured.annotation_figures(np.array([[3, 2, 1.0], [3, 2, 1]]), WORDS[:2] & [True, True, False])
    assert figures["n_words"] == 2
    # And one that every photo has is found at once.
    assert measured.query_maps(np.eye(2, 3), np.ones((2, 3), bool))["map_one_word"] == 1


def test_queries_and_standardised_scores_by_hand():
    scores = np.array([[4, 4, 0], [3, 1, 0], [2, 3, 9], [1, 2, 0.0]])
    maps = measured.query_maps(scores, WORDS)
    # sky: photos 0, 1, 3 at ranks 1, 2, 4; sea: 0, 3 at ranks 1, 3 of (0, 2, 3, 1); tree: rank 1.
    sky, sea = (1 + 1 + 3 / 4) / 3, (1 + 2 / 3) / 2
    assert maps["map_one_word"] == pytest.approx((sky + sea + 1) / 3)
    # sky and sea, the only pair of two photos: means 4, 2, 2.5, 1.5; photos 0, 3 at ranks 1, 4.
    assert maps["map_two_words"] == pytest.approx((1 + 2 / 4) / 2)
    training = np.array([[0.0, 10, 7], [2, 14, 7]])
    # Means 1, 12, 7; deviations 1, 2, 0: the last column is left in its own units.
    np.testing.assert_allclose(measured.standardised(np.array([[3.0, 13, 8]]), training), [[2, 0.5, 1]])


def test_images_by_hand(monkeypatch):
    monkeypatch.setattr(measured, "KS", (1, 2))
    X = sp.csr_array(np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1], [0.8, 0, 0.6]], np.float32))
    figures = measured.image_figures(Cosine().fit(X), X, WORDS)
    assert figures["precision"]["1"] == 1  # of the three photos that share a word with any other
    # The nearest of 0 is 1, of 1 is 0, of 2 is 3, of 3 is 0: 1/2, 1/2, 0, and all words alike.
    assert figures["overlap"]["1"] == pytest.approx((1 / 2 + 1 / 2 + 0 + 1) / 4)


@pytest.fixture
def small(tmp_path, monkeypatch, write_images):
    """Forty photos of four colours, each with its colour's word and most of them a word that others have, too."""
    names = ("pear", "plum", "fig", "lemon")
    write_images(tmp_path, [f"{part}/{name}/{i}.jpg" for part in ("train", "test") for name in names for i in range(5)])
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for part in ("train", "test"):
            writer.writerows(
                [f"{part}/{n}/{i}.jpg", word] for n in names for i in range(5) for word in (n, "photo")[: 2 - i % 2]
            )
    monkeypatch.setattr(measured, "COREL", tmp_path)
    monkeypatch.setattr(protocol, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(measured, "VISTERMS", {"n_visterms": 90, "cells": (3,), "block_size": 32, "stride": 16})
    monkeypatch.setattr(measured, "WORDS", 2)
    for module in (corel, measured):
        monkeypatch.setattr(module, "KS", (1, 2))
    monkeypatch.setattr(measured, "QUICK_IMAGES", 20)
    few = {
        "k-NN": measured.Grid(KNNAnnotator(), {"n_neighbors": (2, 3, 5)}),
        "one-vs-rest": measured.Grid(OneVsRestPA(n_steps=400, pass_steps=200), {"C": (0.03, 0.1, 0.3)}),
    }
    for module in (corel, measured):
        monkeypatch.setattr(module, "ANNOTATORS", {"visterms": few})


def test_from_photos_to_the_page(small):
    jobs = corel.jobs(quick=True)
    assert {job["system"] for job in jobs} == {"k-NN", "one-vs-rest", "cosine", "OASIS"}
    results = [job | measured.measure(**job) for job in jobs]
    words = {r["system"]: r for r in results if r["part"] == "words"}
    assert words["one-vs-rest"]["figures"][0]["recall"] > 0.8
    assert words["one-vs-rest"]["form"] in ("raw", "standardised")
    assert set(words["one-vs-rest"]["settings"]) == {"C", "n_steps"}
    page = render(corel, results, quick=True)
    assert "A part of the 4,493" in page.text
    table = page.text.partition("**Visterms: 2 words")[2].partition("**Published")[0]
    assert [row.split(" | ")[0] for row in table.splitlines()[4:6]] == ["| k-NN", "| one-vs-rest"]
    (finding,) = page.findings
    assert "OASIS learns from several labels" in finding.paper
    (own,) = words["one-vs-rest"]["figures"]
    assert f"one-vs-rest {own['precision']:.3f} and {own['recall']:.3f}" in page.notes["annotation"]


def test_a_step_of_pamir_by_hand_and_what_it_learns():
    """One word, which photo (2, 0, 1) has and photo (0, 1, 1) lacks."""
    rows = as_rows(sp.csr_array(np.array([[2, 0, 1], [0, 1, 1.0]], np.float32)))
    has = np.array([[True], [False]])
    given = rows, np.array([0, 1]), np.array([0]), np.array([0, 1]), has
    W = np.array([[0.1, 0.2, 0.3]], np.float32)
    # x+ - x- = (2, -1, 0): margin 0.2 - 0.2 = 0, loss 1, square 5, tau 0.2.
    loss, violating = image_pass(*given, 10.0, 1, stream(0), W)
    assert (loss, violating) == (pytest.approx(1.0), 1)
    np.testing.assert_allclose(W, [[0.5, 0.0, 0.3]], atol=1e-6)
    # The margin is 1 now: nothing more is learned.
    assert image_pass(*given, 10.0, 5, stream(0), W)[0] == pytest.approx(0.0, abs=1e-5)
    W[:] = [[0.1, 0.2, 0.3]]
    image_pass(*given, 0.05, 1, stream(0), W)
    np.testing.assert_allclose(W, [[0.2, 0.15, 0.3]], atol=1e-6)
    rng = np.random.default_rng(0)
    Y = rng.random((60, 5)) < 0.3
    X = sp.csr_array((Y @ rng.random((5, 20)) * (rng.random((60, 20)) < 0.6)).astype(np.float32))
    learner = ImagePAMIR(C=0.1, n_steps=20_000, random_state=0).fit(X, sp.csr_array(Y.astype(float)))
    assert np.mean(measured.word_precisions(learner.label_scores(X), Y)) > 0.85
