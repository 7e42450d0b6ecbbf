"""evaluate --run-files: what other programs read, and their figures from it."""

import json

import numpy as np
import pytest
from machines import outside
from running import copy_run, json_of, visterm

from visterm.plugins.figures.run_files import falling


@pytest.fixture(scope="module")
def evaluated(finished, tmp_path_factory):
    """The folder of an evaluation of two learners with run files, and its metrics."""
    mine = copy_run(finished, tmp_path_factory.mktemp("run_files"))
    metrics = json_of("evaluate", "--learner", "oasis,wsabie", "--run-files", cwd=mine)
    return mine / "runs/fruit/evaluations/oasis+wsabie", metrics


def test_each_file_holds_all_ranks(evaluated):
    folder, metrics = evaluated
    files = sorted(path.name for path in (folder / "run_files").iterdir())
    systems = ("cosine", "oasis", "qrels", "wsabie")
    assert files == sorted(["images.csv", *(f"{name}.{kind}" for name in systems for kind in ("json", "trec"))])
    qrels = json.loads((folder / "run_files/qrels.json").read_text())
    run = json.loads((folder / "run_files/oasis.json").read_text())
    assert list(run) == list(qrels)
    assert len(run) == metrics["n_queries"]
    for query, ranked in run.items():
        assert len(ranked) == metrics["n_gallery"] - 1
        assert query not in ranked
        assert set(qrels[query]) < set(ranked)
        scores = list(ranked.values())
        assert all(a > b for a, b in zip(scores, scores[1:], strict=False))
    lines = [line.split() for line in (folder / "run_files/oasis.trec").read_text().splitlines()]
    assert [(q, d, float(s)) for q, _, d, _, s, _ in lines] == [(q, d, s) for q in run for d, s in run[q].items()]
    assert {(q0, tag) for _, q0, _, _, _, tag in lines} == {("Q0", "visterm-oasis")}
    assert [int(rank) for _, _, _, rank, _, _ in lines[:3]] == [1, 2, 3]
    judged = [line.split() for line in (folder / "run_files/qrels.trec").read_text().splitlines()]
    assert [[q, "0", d, "1"] for q in qrels for d in qrels[q]] == judged
    paths = dict(line.split(",") for line in (folder / "run_files/images.csv").read_text().splitlines()[1:])
    first = (folder / "neighbours.csv").read_text().splitlines()[1].split(",")
    assert paths[next(iter(run[next(q for q in run if paths[q] == first[0])]))] == first[2]
    for name in ("oasis", "wsabie", "cosine"):
        run = json.loads((folder / f"run_files/{name}.json").read_text())
        precisions = []
        for query, ranked in run.items():
            relevant = [image in qrels[query] for image in ranked]
            precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
            precisions.append(precision[relevant].mean())
        assert np.mean(precisions) == pytest.approx(metrics["systems"][name]["map"], abs=1e-9)


def test_they_are_written_where_they_are_missing(mine):
    folder = mine / "runs/fruit/evaluations/oasis"
    assert not (folder / "run_files").exists()
    visterm("evaluate", "--run-files", cwd=mine)
    before = (folder / "record.json").read_bytes()
    assert (folder / "run_files/oasis.trec").stat().st_size
    visterm("evaluate", cwd=mine)
    visterm("evaluate", "--run-files", cwd=mine)
    assert (folder / "record.json").read_bytes() == before


def test_equal_scores_fall_by_the_smallest_step():
    scores = np.array([[0.5, 0.5, 0.5, 0.25], [0, 0, -1, -1]], np.float32)
    distinct = falling(scores)
    assert (np.diff(distinct.astype(np.float64), axis=1) < 0).all()
    np.testing.assert_allclose(distinct, scores, atol=1e-6)
    assert scores[0, 1] == 0.5  # the ranking itself is left as it was


RANX = """
import os

os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiling takes minutes, and these few queries a second
import numpy as np
from ranx import Qrels, Run, evaluate

folder = str(inputs["folder"])
for kind in ("json", "trec"):
    qrels = Qrels.from_file(f"{folder}/qrels.{kind}")
    for name in ("oasis", "wsabie", "cosine"):
        run = Run.from_file(f"{folder}/{name}.{kind}")
        wanted = [str(measure) for measure in inputs["measures"]]
        outputs[f"{kind}_{name}"] = np.array([evaluate(qrels, run, measure) for measure in wanted])
        at_r = []
        relevant, ranked = qrels.to_dict(), run.to_dict()
        for query in relevant:
            one = Qrels({query: relevant[query]}), Run({query: ranked[query]})
            at_r.append(evaluate(*one, f"map@{len(relevant[query])}"))
        outputs[f"{kind}_{name}_map_at_r"] = np.mean(at_r)
"""
MEASURES = {
    "map": lambda own: own["map"],
    "precision@1": lambda own: own["precision_at"]["1"],
    "recall@1": lambda own: own["recall_at"]["1"],
    "ndcg@1": lambda own: own["ndcg_at"]["1"],
    "recall@LAST": lambda own: own["recall_at"]["LAST"],
    "ndcg@LAST": lambda own: own["ndcg_at"]["LAST"],
    "r-precision": lambda own: own["r_precision"],
}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ranx_gives_the_same_figures(evaluated):
    peers = pytest.importorskip("benchmarks.peers", reason="benchmarks lie in the repository")
    folder, metrics = evaluated
    last = max(metrics["systems"]["oasis"]["recall_at"], key=int)
    inputs = {
        "folder": np.array(str(folder / "run_files")),
        "measures": np.array([name.replace("LAST", last) for name in MEASURES]),
    }
    try:
        with outside():
            of_ranx = peers.run_in("ranx", ["ranx==0.3.21", "setuptools"], RANX, inputs, shared=True)
    except peers.PeerError as error:
        if "Could not find a version" in str(error) or "No matching distribution" in str(error):
            pytest.skip("no package index to fetch ranx from")
        raise
    for name in ("oasis", "wsabie", "cosine"):
        own = metrics["systems"][name]
        own = own | {key: own[key] | {"LAST": own[key][last]} for key in ("recall_at", "ndcg_at")}
        expected = [value(own) for value in MEASURES.values()]
        for kind in ("json", "trec"):
            np.testing.assert_allclose(of_ranx[f"{kind}_{name}"], expected, atol=1e-6)
            assert of_ranx[f"{kind}_{name}_map_at_r"] == pytest.approx(own["map_at_r"], abs=1e-6)
