"""Grids that grow until the best lies inside, and what is said where it does not."""

import numpy as np
import pytest

from experiments.measured.grids import Grid, saturation, search
from experiments.pages import at_edge, open_text, settings_text
from visterm.learners import OASIS


def peak(**best):
    """Curves of one figure, highest at these values on a logarithmic scale."""

    def measure(points):
        measured.append(points)
        return [
            [(None, 1 - 0.1 * sum(abs(np.log10(point[name] / value)) for name, value in best.items()))]
            for point in points
        ]

    measured: list = []
    return measure, measured


@pytest.mark.parametrize(("best", "tried"), [(0.01, [3]), (1.0, [3, 1, 1, 1]), (0.0003, [3, 1, 1, 1])])
def test_a_grid_grows_towards_the_best(best, tried):
    measure, measured = peak(C=best)
    choice = search([{"C": 0.003}, {"C": 0.01}, {"C": 0.03}], measure)
    assert [len(points) for points in measured] == tried
    assert np.log10(choice.point["C"] / best) == pytest.approx(0, abs=0.25)
    assert choice.edges == (["C"] if best == 1.0 else [])


def test_words_limits_and_single_steps_are_no_edges():
    measure, measured = peak(C=0.1)
    choice = search([{"C": 0.01}, {"C": 0.03}, {"C": 0.1}], measure)
    assert choice == ({"C": 0.1}, 1, [])
    assert measured[1:] == [[{"C": 0.3}]]
    measure, _ = peak(alpha=1.0)
    points = [{"kind": "a", "flag": True, "alpha": a} for a in (0.3, 1.0, 3.0)]
    points += [{"kind": "b", "flag": True, "alpha": a} for a in (10.0, 100.0)]
    assert search(points, measure).edges == []
    assert search(points[1:], measure, rounds=0).edges == ["alpha"]
    measure, measured = peak(share=5.0)
    choice = search([{"share": 0.5}, {"share": 1.0}], measure, limits={"share": (0, 1)})
    assert choice.point == {"share": 1.0}
    assert choice.edges == []
    assert len(measured) == 1
    measure, measured = peak(n=1000)
    assert search([{"n": 30}, {"n": 100}], measure, limits={"n": (1, 200)}).point == {"n": 200}
    assert isinstance(measured[1][0]["n"], int)
    grid = Grid(OASIS(), {"C": (1, 2, 3, 4), "r": (1, 2, 3), "one": (7,)})
    assert grid.small().axes == {"C": (2, 3), "r": (1, 2), "one": (7,)}


def test_each_axis_grows_where_it_must():
    measure, measured = peak(rate=0.3, norm=1.0)
    grid = Grid(OASIS(), {"rate": (0.01, 0.03), "norm": (0.5, 1.0, 2.0)})
    points = [{name: value for name, value in point.items() if name != "n_steps"} for point in grid.points()]
    choice = search(points, measure)
    assert choice.point == {"rate": 0.3, "norm": 1.0}
    assert measured[1] == [{"rate": 0.09, "norm": 1.0}]


def test_steps_are_doubled_while_learning_goes_on():
    def measure(points):
        return [[(n, min(n, 3000)) for n in range(500, point["n_steps"] + 1, 500)] for point in points]

    start = [{"C": 0.1, "n_steps": 1000}]
    assert search(start, measure) == ({"C": 0.1, "n_steps": 3000}, 3000, [])
    assert search(start, measure, rounds=0).edges == ["n_steps"]
    start = [{"C": 0.1, "n_steps": 500}]
    assert search(start, measure) == ({"C": 0.1, "n_steps": 2000}, 2000, ["n_steps"])  # four times as many at most

    def measure(points):
        return [[(n, -n) for n in range(500, point["n_steps"] + 1, 500)] for point in points]

    choice = search([{"C": 0.1, "n_steps": 1000}], measure)
    assert choice.point["n_steps"] == 500
    assert choice.edges == ["n_steps"]
    assert saturation([(1, 0.5), (2, 0.996), (3, 0.9), (4, 1.0)]) == (2, 0.996)
    assert saturation([(1, 0.5), (2, 0.99), (3, 1.0)]) == (3, 1.0)


def test_a_verdict_is_open_where_most_folds_are_at_the_edge():
    inside, at = {"settings": {"C": 0.1}, "edges": []}, {"settings": {"C": 1.0}, "edges": ["C"]}
    assert at_edge([inside, at, at]) == ["C"]
    assert at_edge([inside, at]) == []
    assert open_text({"OASIS": [inside, at, at], "Euclidean": [{}]}).endswith("most folds: OASIS: C.")
    assert open_text({"OASIS": [inside, inside, at]}) == ""
    assert settings_text([inside, at, at]) == "C 0.1 (1), 1* (2)"
