"""Settings chosen on training images: grids that grow until the best lies inside.

The one place where experiments choose. `search` tries the points of a grid; while the best of them lies at the edge, it
tries the next value there, and twice as many steps where learning had not saturated, for a few rounds. What is at the
edge after these is recorded: the page then calls the verdict open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sklearn.base import clone

ROUNDS = 3  # of growth
MOST_DOUBLINGS = 2  # of the number of steps
HOPELESS = 0.05  # of the best figure: points farther behind on the first inner fold are not tried on the others;
# after two folds half as far behind, after three a third
SATURATED = 0.005  # of the best figure: fewer steps are taken where they lose no more

Point = dict[str, Any]  # settings by name; `n_steps`, where there is one, is the most that may be chosen
Curve = list[tuple[int | None, float]]  # number of steps, validation figure; one entry without steps if there are none
Limits = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Grid:
    """A learner and the values that are tried of its parameters.

    The learner is unfitted, with what is not tried: its `n_steps` is the most that may be chosen at first, `pass_steps`
    how finely. `axes` are values by parameter, in ascending order if they are numbers; `limits` the least and largest
    value that a parameter may take, where there is one: a best value there is not at an edge.
    """

    learner: Any
    axes: Mapping[str, Sequence[Any]]
    limits: Limits = field(default_factory=dict)

    def points(self) -> list[Point]:
        steps = {"n_steps": self.learner.n_steps} if hasattr(self.learner, "n_steps") else {}
        return [dict(zip(self.axes, values, strict=True)) | steps for values in itertools.product(*self.axes.values())]

    def at(self, point: Point) -> Any:
        """The learner with these settings, unfitted."""
        return clone(self.learner).set_params(**point)

    def small(self) -> Grid:
        """The two middle values of each axis, for --quick."""
        middle = {name: values[max(0, len(values) // 2 - 1) :][:2] for name, values in self.axes.items()}
        return Grid(self.learner, middle, self.limits)


class Choice(NamedTuple):
    """The best point, with the number of steps taken; its figure; and the names of settings at the edge."""

    point: Point
    figure: float
    edges: list[str]


def search(
    points: Sequence[Point],
    measure: Callable[[list[Point]], Sequence[Curve]],
    *,
    limits: Limits | None = None,
    rounds: int = ROUNDS,
) -> Choice:
    """The point with the best figure, after growing the grid for up to so many rounds; 0: the grid stays as it is.

    All points of the grid to begin with have the same names; `measure` returns the curve of each point. `limits` are as
    of `Grid`.
    """
    limits = limits or {}
    most = MOST_DOUBLINGS if rounds else 0
    tried: list[tuple[Point, Curve]] = []
    todo = list(points)
    for turn in range(rounds + 1):
        tried += zip(todo, measure(todo), strict=True)
        best, curve = max(tried, key=lambda entry: max(figure for _, figure in entry[1]))
        steps, figure = saturation(curve)
        known = [point for point, _ in tried]
        more = {name: value for name in best if (value := next_value(name, best, known, limits)) is not None}
        edges = list(more)
        if steps is not None and steps == best.get("n_steps"):
            edges.append("n_steps")
            if steps < max(point["n_steps"] for point in points) * 2**most:
                more["n_steps"] = 2 * steps
        elif steps is not None and steps == curve[0][0]:  # fewer were not looked at
            edges.append("n_steps")
        todo = [best | {name: value} for name, value in more.items()]
        if not todo or turn == rounds:
            break
    return Choice(best if steps is None else best | {"n_steps": steps}, figure, edges)


def saturation(curve: Curve) -> tuple[int | None, float]:
    """The first entry that is as good as the best, but for a share of `SATURATED`."""
    best = max(figure for _, figure in curve)
    return next((steps, figure) for steps, figure in curve if figure >= best - SATURATED * abs(best))


def next_value(name: str, best: Point, tried: Sequence[Point], limits: Limits) -> Any:
    """The value beyond the best one if that is the least or the largest tried; None inside, and at a limit.

    The last step again on a logarithmic scale. Words and truth values have no edge: only points that have the same are
    compared.
    """
    value = best[name]
    if name == "n_steps" or not isinstance(value, int | float) or isinstance(value, bool):
        return None
    kinds = [key for key, own in best.items() if isinstance(own, bool | str)]
    alike = [point for point in tried if all(point[key] == best[key] for key in kinds)]
    values = sorted({point[name] for point in alike})
    if len(values) < 2 or value not in (values[0], values[-1]):
        return None
    neighbour = values[1] if value == values[0] else values[-2]
    least, largest = limits.get(name, (0, float("inf")))
    beyond = min(max(float(f"{value * value / neighbour:.1g}"), least), largest)
    beyond = round(beyond) if isinstance(value, int) else beyond
    return None if beyond in values else beyond
