"""Groups of duplicates, made of pairs: the image to keep, and those that were compared with it; never a chain.

Pictures that people said are different are in no group together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from .different import Parts

Pair = tuple[int, int, float]  # two ids, and their similarity


class Pairs(TypedDict):
    """Pairs of images, each of which was compared, and images of one colour, by ids."""

    same: list[Pair]  # of one picture
    scene: list[Pair]  # those of `alike` that show one scene
    alike: list[Pair]  # whose vectors are nearly equal
    blank: list[int]  # in no pair


LISTED = 2000  # groups of each kind


def group_pairs(pairs: Pairs, parts: Mapping[int, Parts], sizes: Mapping[int, int]) -> list[dict[str, Any]]:
    """Make the groups that `find_duplicates` describes; `parts` by id are as of `DifferentPictures.parts_of`.

    `sizes` are numbers of pixels by id: of one picture the largest image is kept, else that with the most pairs.
    """
    groups: list[dict[str, Any]] = []
    parts, members = dict(parts), set[int]()
    for degree, of_kind in (("picture", pairs["same"]), ("scene", pairs["scene"]), ("alike", pairs["alike"])):
        left = [pair for pair in of_kind if not members & {*pair[:2]}]
        stars = stars_of(left, parts, sizes if degree == "picture" else {})
        # In the next degree, the kept image stands for all of its group, with what was said of them.
        for kept, others in stars.items():
            members |= others.keys()
            for other in others:
                parts[kept] = parts.get(kept, {}) | parts.get(other, {})
        of_degree: list[dict[str, Any]] = [
            {
                "ids": [kept, *sorted(others)],
                "degree": degree,
                "same": degree == "picture",
                "similarity": min(others.values()),
            }
            for kept, others in stars.items()
        ]
        of_degree.sort(key=lambda group: (-len(group["ids"]), -group["similarity"], group["ids"][0]))
        groups += of_degree[:LISTED]
    return groups


def stars_of(
    pairs: Sequence[Pair], parts: Mapping[int, Parts], sizes: Mapping[int, int]
) -> dict[int, dict[int, float]]:
    """Choose the images to keep, and for each the others that are in a pair with it, by id and similarity.

    The largest images come first, of equal ones those in the most pairs; an image is of one group. The most similar
    images join first, but none that has another part of a step than one of the group.
    """
    near: dict[int, dict[int, float]] = defaultdict(dict)
    for a, b, value in pairs:
        near[a][b] = near[b][a] = value
    stars: dict[int, dict[int, float]] = {}
    taken = set[int]()
    for kept in sorted(near, key=lambda id_: (-sizes.get(id_, 0), -len(near[id_]), id_)):
        if kept in taken:
            continue
        of_group, others = dict(parts.get(kept, {})), {}
        for other, value in sorted(near[kept].items(), key=lambda item: (-item[1], item[0])):
            own = parts.get(other, {})
            if other not in taken and all(of_group.get(step, part) == part for step, part in own.items()):
                others[other] = value
                of_group |= own
        if others:
            taken |= {kept, *others}
            stars[kept] = others
    return stars


def with_equal(pairs: Mapping[tuple[int, int], float], equal: Mapping[int, Sequence[int]]) -> list[Pair]:
    """Add the images of equal files, by the first one of each, to pairs of first ones; with their own pairs."""
    every = {(first, other): 1.0 for first, others in equal.items() for other in others}
    for (a, b), value in pairs.items():
        every |= {(a, other): value for other in (b, *equal.get(b, ()))}
        every |= {(b, other): value for other in equal.get(a, ())}
    return [(a, b, value) for (a, b), value in every.items()]


def among(pairs: Pairs, present: Container[int]) -> Pairs:
    """Return the pairs of images that are present."""

    def left(of_kind: list[Pair]) -> list[Pair]:
        return [pair for pair in of_kind if pair[0] in present and pair[1] in present]

    blank = [id_ for id_ in pairs["blank"] if id_ in present]
    return {"same": left(pairs["same"]), "scene": left(pairs["scene"]), "alike": left(pairs["alike"]), "blank": blank}
