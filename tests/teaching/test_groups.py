"""Groups of duplicates: made of pairs, and of what people said are different pictures."""

from visterm.teaching.groups import group_pairs


def grouped(same, alike, parts=None):
    pairs = {"same": same, "scene": [], "alike": alike}
    groups = group_pairs(pairs, parts or {})
    return [tuple(group["ids"]) for group in groups if group["same"]], [
        tuple(group["ids"]) for group in groups if not group["same"]
    ]


def test_one_image_stands_for_its_picture_among_those_that_look_alike():
    assert grouped([(1, 2, 1.0)], [(2, 3, 0.95), (1, 2, 1.0)]) == ([(1, 2)], [(1, 3)])
    [group] = group_pairs({"same": [(4, 5, 0.92), (5, 6, 0.97)], "scene": [], "alike": []}, {})
    assert group == {"ids": [4, 5, 6], "degree": "picture", "same": True, "similarity": 0.92}


def test_one_image_stands_for_its_scene_among_those_that_look_alike():
    """1 and 2 are one picture, of the scene of 3 and 4, which 5 looks like."""
    pairs = {
        "same": [(1, 2, 1.0)],
        "scene": [(2, 3, 0.92), (1, 3, 0.95), (3, 4, 0.9)],
        "alike": [(1, 2, 1.0), (2, 3, 0.92), (1, 3, 0.95), (3, 4, 0.9), (4, 5, 0.88)],
    }

    def listed(parts):
        return [(group["degree"], group["ids"], group["similarity"]) for group in group_pairs(pairs, parts)]

    alike = ("alike", [1, 5], 0.88)
    assert listed({}) == [("picture", [1, 2], 1.0), ("scene", [1, 3, 4], 0.9), alike]
    assert not any(group["same"] for group in group_pairs(pairs, {})[1:])
    # What is said of a copy holds for its scene, and the two do not look alike either.
    assert listed({2: {7: 0}, 3: {7: 1}}) == [("picture", [1, 2], 1.0), ("scene", [3, 4], 0.9), ("alike", [3, 5], 0.88)]


def test_the_largest_groups_come_first():
    assert grouped([(8, 9, 1.0), (1, 2, 0.9), (2, 3, 0.9), (4, 5, 0.95)], [])[0] == [(1, 2, 3), (8, 9), (4, 5)]


def test_different_pictures_are_in_no_group_together():
    same, alike = [(1, 2, 0.99), (2, 3, 0.95)], [(1, 3, 0.99), (3, 4, 0.94)]
    assert grouped(same, alike) == ([(1, 2, 3)], [(1, 4)])
    # 1 and 3 are said to differ: 2 stays with the one that it is more similar to, and 4 with 3.
    assert grouped(same, alike, {1: {7: 0}, 3: {7: 1}}) == ([(1, 2)], [(3, 4)])
    assert grouped(same, alike, {1: {7: 0}, 3: {7: 0}}) == ([(1, 2, 3)], [(1, 4)])  # one part: nothing is said
    every = {number: {7: number} for number in (1, 2, 3, 4)}
    assert grouped(same, alike, every) == ([], [])


def test_two_things_said_hold_together():
    """1 differs from 2, and 3 from 4; chains must not bring them together in spite of it."""
    parts = {1: {5: 0}, 2: {5: 1, 6: 0}, 3: {6: 1}}
    same, alike = grouped([], [(1, 4, 0.99), (4, 2, 0.98), (4, 3, 0.97), (2, 3, 0.96)], parts)
    assert same == []
    assert alike == [(1, 3, 4)]
    # A picture of several images has what was said of any of them.
    assert grouped([(1, 9, 1.0)], [(9, 2, 0.99)], parts) == ([(1, 9)], [])
