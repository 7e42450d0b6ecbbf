"""Groups of duplicates: made of pairs, and of what people said are different pictures."""

from visterm.teaching.groups import among, group_pairs, stars_of, with_equal


def grouped(same, alike, parts=None):
    pairs = {"same": same, "scene": [], "alike": alike, "blank": []}
    groups = group_pairs(pairs, parts or {}, {})
    return [tuple(group["ids"]) for group in groups if group["same"]], [
        tuple(group["ids"]) for group in groups if not group["same"]
    ]


def test_one_image_stands_for_its_picture_among_those_that_look_alike():
    """But nothing that it was not compared with is in its group."""
    assert grouped([(1, 2, 1.0)], [(1, 3, 0.95), (2, 3, 0.95), (1, 2, 1.0)]) == ([(1, 2)], [(1, 3)])
    assert grouped([(1, 2, 1.0)], [(2, 3, 0.95)]) == ([(1, 2)], [])
    pairs = {"same": [(4, 5, 0.92), (5, 6, 0.97)], "scene": [], "alike": [], "blank": []}
    [group] = group_pairs(pairs, {}, {})
    assert group == {"ids": [5, 4, 6], "degree": "picture", "same": True, "similarity": 0.92}
    [group] = group_pairs(pairs, {}, {4: 100, 5: 50, 6: 50})  # the largest is kept; 6 was not compared with it
    assert (group["ids"], group["similarity"]) == ([4, 5], 0.92)


def test_no_group_is_a_chain_and_the_largest_come_first():
    """400 frames of a slow pan: each was compared with its neighbours alone."""
    pan = [(i, i + step, 0.99 - step / 100) for i in range(400) for step in (1, 2) if i + step < 400]
    for kind in ("same", "scene", "alike"):
        pairs = {"same": [], "scene": [], "alike": [], "blank": []} | {kind: pan}
        groups = group_pairs(pairs, {}, {})
        compared = {pair[:2] for pair in pan}
        for kept, *others in (group["ids"] for group in groups):
            assert {(min(kept, other), max(kept, other)) for other in others} <= compared
        assert max(len(group["ids"]) for group in groups) == 5
    assert grouped([(8, 9, 1.0), (1, 2, 0.9), (2, 3, 0.9), (4, 5, 0.95)], [])[0] == [(2, 1, 3), (8, 9), (4, 5)]


def test_one_image_stands_for_its_scene_among_those_that_look_alike():
    """1 and 2 are one picture, of the scene of 3 and 4, which 5 looks like."""
    pairs = {
        "same": [(1, 2, 1.0)],
        "scene": [(2, 3, 0.92), (1, 3, 0.95), (3, 4, 0.9)],
        "alike": [(1, 2, 1.0), (2, 3, 0.92), (1, 3, 0.95), (3, 4, 0.9), (3, 5, 0.88), (1, 6, 0.87)],
        "blank": [],
    }

    def listed(parts):
        return [(group["degree"], group["ids"], group["similarity"]) for group in group_pairs(pairs, parts, {})]

    assert listed({}) == [("picture", [1, 2], 1.0), ("scene", [3, 1, 4], 0.9), ("alike", [3, 5], 0.88)]
    assert not any(group["same"] for group in group_pairs(pairs, {}, {})[1:])
    # What is said of a copy holds for its scene, and the two do not look alike either.
    assert listed({2: {7: 0}, 3: {7: 1}}) == [
        ("picture", [1, 2], 1.0),
        ("scene", [3, 4], 0.9),
        ("alike", [3, 5], 0.88),
        ("alike", [1, 6], 0.87),
    ]


def test_different_pictures_are_in_no_group_together():
    same, alike = [(1, 2, 0.99), (2, 3, 0.95)], [(2, 3, 0.99), (3, 4, 0.94), (2, 4, 0.93)]
    assert grouped(same, alike) == ([(2, 1, 3)], [(2, 4)])
    # 1 and 3 are said to differ: 2 stays with the one that it is more similar to.
    assert grouped(same, alike, {1: {7: 0}, 3: {7: 1}}) == ([(2, 1)], [(2, 4)])
    assert grouped(same, alike, {1: {7: 0}, 3: {7: 0}}) == ([(2, 1, 3)], [(2, 4)])  # one part: nothing is said
    every = {number: {7: number} for number in (1, 2, 3, 4)}
    assert grouped(same, alike, every) == ([], [])
    # 1 differs from 2, and 3 from 4, and no group has two of them in spite of it.
    parts = {1: {5: 0}, 2: {5: 1, 6: 0}, 3: {6: 1}}
    same, alike = grouped([], [(1, 4, 0.99), (4, 2, 0.98), (4, 3, 0.97), (2, 3, 0.96)], parts)
    assert same == []
    assert alike == [(4, 1, 3)]
    # A picture of several images has what was said of any of them.
    assert grouped([(1, 9, 1.0)], [(9, 2, 0.99), (1, 2, 0.99)], parts) == ([(1, 9)], [])
    pairs = {"same": [(1, 2, 1.0)], "scene": [(2, 3, 0.9)], "alike": [(2, 3, 0.9), (3, 4, 0.9)], "blank": [1, 5]}
    assert among(pairs, {2, 3, 4, 5}) == {**pairs, "same": [], "blank": [5]}
    assert among(pairs, {1, 3, 4, 5}) == {"same": [], "scene": [], "alike": [(3, 4, 0.9)], "blank": [1, 5]}


def test_all_equal_files_are_compared_by_the_first():
    """1, 2 and 3 are equal files, and so are 4 and 5, of which 4 is a copy of 1."""
    pairs = with_equal({(1, 4): 0.98}, {1: [2, 3], 4: [5]})
    assert sorted(pairs) == [
        (1, 2, 1.0),
        (1, 3, 1.0),
        (1, 4, 0.98),
        (1, 5, 0.98),
        (4, 2, 0.98),
        (4, 3, 0.98),
        (4, 5, 1.0),
    ]
    assert stars_of(pairs, {}, {}) == {1: {2: 1.0, 3: 1.0, 4: 0.98, 5: 0.98}}
    assert stars_of(pairs, {}, {4: 9, 5: 9}) == {4: {5: 1.0, 1: 0.98, 2: 0.98, 3: 0.98}}
