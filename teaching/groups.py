"""Groups of duplicates, made of pairs, such that pictures that people said are different are never in one group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from visterm.pipeline.store.not_same import Parts

Pair = tuple[int, int, float]  # two ids, and their similarity
# "same": of images of one picture; "alike": of images whose vectors are nearly equal; "scene": those of them that show
# one scene.
Pairs = dict[str, list[Pair]]

LISTED = 2000  # groups of each kind


def group_pairs(pairs: Pairs, parts: dict[int, Parts]) -> list[dict[str, Any]]:
    """Make the groups that `find_duplicates` describes; `parts` by id are as of `DifferentPictures.parts_of`."""
    groups: list[dict[str, Any]] = []
    for degree, kind in (("picture", "same"), ("scene", "scene"), ("alike", "alike")):
        group_of = _grouped(pairs[kind], parts)
        groups += _described(pairs[kind], group_of, degree)
        # In the next degree, the first image of a group stands for all of it.
        first = dict[int, int]()
        for id_ in sorted(group_of):
            first.setdefault(group_of[id_], id_)
        stands = {id_: first[number] for id_, number in group_of.items()}
        pairs = {other: _of_first(of_kind, stands) for other, of_kind in pairs.items()}
        joined: dict[int, Parts] = defaultdict(dict)
        for id_, own in parts.items():
            joined[stands.get(id_, id_)] |= own
        parts = joined
    return groups


def _of_first(pairs: Iterable[Pair], stands: dict[int, int]) -> list[Pair]:
    """Pairs of the images that stand for others, and of all others."""
    moved = [(stands.get(a, a), stands.get(b, b), value) for a, b, value in pairs]
    return [(a, b, value) for a, b, value in moved if a != b]


def _described(pairs: Iterable[Pair], group_of: dict[int, int], degree: str) -> list[dict[str, Any]]:
    """Return the groups of at least two, with the smallest similarity of a pair in each; the largest ones first."""
    ids, weakest = defaultdict(list), dict[int, float]()
    for id_ in sorted(group_of):
        ids[group_of[id_]].append(id_)
    for a, b, value in pairs:
        if group_of[a] == group_of[b]:
            weakest[group_of[a]] = min(value, weakest.get(group_of[a], 1.0))
    groups: list[dict[str, Any]] = [
        {"ids": own, "degree": degree, "same": degree == "picture", "similarity": weakest[number]}
        for number, own in ids.items()
        if len(own) > 1
    ]
    groups.sort(key=lambda group: (-len(group["ids"]), -group["similarity"], group["ids"][0]))
    return groups[:LISTED]


def _grouped(pairs: Sequence[Pair], parts: dict[int, Parts]) -> dict[int, int]:
    """Number the ids of pairs so that a pair has one number, the most similar pairs first.

    Not pairs that would bring two ids together that have different parts of a step.
    """
    group_of = {id_: id_ for pair in pairs for id_ in pair[:2]}
    members = {id_: [id_] for id_ in group_of}
    parts_of = {id_: parts.get(id_, {}) for id_ in group_of}
    for a, b, _ in sorted(pairs, key=lambda pair: (-pair[2], pair)):
        one, other = group_of[a], group_of[b]
        if one == other:
            continue
        if any(parts_of[other].get(step, part) != part for step, part in parts_of[one].items()):
            continue
        if len(members[one]) < len(members[other]):
            one, other = other, one
        for id_ in members[other]:
            group_of[id_] = one
        members[one] += members.pop(other)
        parts_of[one] = parts_of[one] | parts_of.pop(other)
    return group_of
