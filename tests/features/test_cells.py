"""Grids of cells: where blocks lie, whose columns their visterms get, and that nothing else changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visterm.features import ForestCodebook, VistermExtractor, block_grid, count_visterms, describe
from visterm.features.cells import block_cells, check_cells, n_cells

GRIDS = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)
SIDES = st.integers(1, 400)


@given(SIDES, SIDES, GRIDS)
def test_a_block_is_in_the_cell_of_its_centre(height, width, cells):
    boxes = block_grid(height, width, stride=16)
    numbers = block_cells(boxes, height, width, cells)
    assert numbers.shape == (len(boxes), len(cells))
    first = 0
    for g, column in zip(cells, numbers.T, strict=True):
        y, x = np.divmod(column - first, g)
        assert set(x) | set(y) <= set(range(g))
        for cell, start, size, length in ((x, boxes[:, 0], boxes[:, 2], width), (y, boxes[:, 1], boxes[:, 3], height)):
            centre = (start + size / 2) / length * g
            assert (cell <= centre + 1e-9).all()
            assert (centre <= cell + 1 + 1e-9).all()
        first += g * g
    assert first == n_cells(cells)


@pytest.mark.parametrize("cells", [[], [0], [-1], [1, 1], [1.5], [True], 3, "3", None])
def test_grids_that_make_no_sense_are_refused(cells, train):
    with pytest.raises(ValueError, match="cells must list the sides of different grids"):
        VistermExtractor(cells=cells).fit(train[:2])


def test_too_many_cells_for_the_visterms_are_refused_and_one_grid_gives_one_visterm_per_block(train):
    check_cells([1, 3], 20)
    with pytest.raises(ValueError, match=r"cells \[1, 3\] make 10 cells.*at least 20"):
        check_cells([1, 3], 19)
    with pytest.raises(ValueError, match=r"raise n_visterms to at least 270"):  # a root and two leaves per tree
        VistermExtractor(codebook="forest", cells=[3], n_visterms=269).fit([np.zeros((64, 64), np.uint8)], ["a"])
    extractor = VistermExtractor(n_visterms=90, cells=[3], random_state=0).fit(train)
    boxes, visterms = extractor.blocks(train[0])
    assert visterms.shape == (len(boxes),)
    np.testing.assert_array_equal(np.bincount(visterms, minlength=90), extractor.count(train[:1]).toarray()[0])


# 10 visterms for each of 10 cells
SETTINGS = {"n_visterms": 103, "stride": 16, "cells": (1, 3), "tf": "sqrt", "enlarge_to": None, "random_state": 0}


@pytest.fixture(scope="module", params=["kmeans", "forest"])
def extractor(request, train, labels):
    forest = {"codebook": "forest", "n_trees": 3} if request.param == "forest" else {}
    return VistermExtractor(**SETTINGS | forest).fit(train, labels)


def test_each_cell_counts_its_own_blocks(extractor, train):
    codebook = extractor.codebook_
    for image in train[:4]:
        row = extractor.count([image]).toarray()[0]
        assert not row[100:].any()
        boxes = block_grid(*image.shape[:2], stride=16)
        blocks, ids = np.arange(len(boxes)), None
        if isinstance(codebook, ForestCodebook):
            blocks, ids = codebook.passed(codebook.predict(image))
        else:
            ids = codebook.predict(describe(image, extractor.palette_, stride=16))
        np.testing.assert_array_equal(row[:10], count_visterms(ids, [len(ids)], 10).toarray()[0])
        of_blocks = block_cells(boxes, *image.shape[:2], [3])[blocks, 0]
        for cell in range(9):
            expected = np.bincount(ids[of_blocks == cell], minlength=10)
            np.testing.assert_array_equal(row[10 * (cell + 1) : 10 * (cell + 2)], expected)


def test_blocks_add_up_to_the_vector_also_after_saving(extractor, train, tmp_path):
    extractor.save(tmp_path)
    loaded = VistermExtractor.load(tmp_path)
    whole = extractor.transform(train[:3])
    np.testing.assert_array_equal(loaded.transform(train[:3]).toarray(), whole.toarray())
    for image, row in zip(train[:3], whole.toarray(), strict=True):
        boxes, parts = loaded.block_vectors(image)
        np.testing.assert_allclose(np.asarray(parts.sum(axis=0))[0], row, atol=1e-6)
        n = 6 if isinstance(loaded.codebook_, ForestCodebook) else 2
        assert loaded.blocks(image)[1].shape == (len(boxes), n)
