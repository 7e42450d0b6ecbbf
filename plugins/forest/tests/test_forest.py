import math

import cv2
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from visterm.features import ForestCodebook, block_grid, level_shapes, pyramid
from visterm.features.blocks import pad_to_block
from visterm.plugins.forest.forest import N_FILTERS, _preorder
from visterm.plugins.forest.haar import BRIGHTEST, CELLS, LAYOUTS, N_CHANNELS, _gradients, box_sum, haar_filters

SMALL = {"n_visterms": 120, "n_trees": 4, "min_samples_leaf": 2, "random_state": 0}


@pytest.fixture(scope="module")
def images(crops):
    return crops("coffee", 8, 0) + crops("chelsea", 8, 1) + crops("camera", 4, 2)


@pytest.fixture(scope="module")
def y():
    return ["coffee"] * 8 + ["cat"] * 8 + ["camera"] * 4


@pytest.fixture(scope="module")
def forest(images, y):
    return ForestCodebook(**SMALL).fit(images, y)


def orientation(dx, dy):
    """Bin of 22.5 degrees, opposite directions alike; a diagonal counts as the flatter of its two neighbours."""
    steps = math.degrees(math.atan2(abs(dy), abs(dx))) / 22.5
    sector = max(math.ceil(steps - 1e-9) - 1, 0)
    return 7 - sector if dx * dy < 0 else sector


def slow_cells(image, block_size, stride, scale, min_blocks):
    """Means of the cells of each block of each level, in quarters: (n_blocks, 16, 16, 11)."""
    image = pad_to_block(image if image.ndim == 3 else np.stack([image] * 3, axis=2), block_size)
    luv = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2Luv)
    gray = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)
    blocks = []
    for level in pyramid(gray, block_size=block_size, stride=stride, scale=scale, min_blocks=min_blocks):
        h, w = level.shape
        channels = np.zeros((h, w, N_CHANNELS), dtype=np.int64)
        edge = np.pad(level.astype(int), 1, mode="edge")
        for y in range(h):
            for x in range(w):
                nearest = luv[(2 * y + 1) * luv.shape[0] // (2 * h), (2 * x + 1) * luv.shape[1] // (2 * w)]
                channels[y, x, :3] = 4 * nearest.astype(int)
                dx, dy = edge[y + 1, x + 2] - edge[y + 1, x], edge[y + 2, x + 1] - edge[y, x + 1]
                channels[y, x, 3 + orientation(dx, dy)] = int(4 * math.hypot(dx, dy) + 0.5)
        for top in range(0, h - block_size + 1, stride):
            for left in range(0, w - block_size + 1, stride):
                first_y, first_x = top * CELLS // block_size, left * CELLS // block_size
                cells = np.empty((CELLS, CELLS, N_CHANNELS), dtype=int)
                for i in range(CELLS):
                    for j in range(CELLS):
                        y, x = (first_y + i) * block_size // CELLS, (first_x + j) * block_size // CELLS
                        y1 = max((first_y + i + 1) * block_size // CELLS, y + 1)
                        x1 = max((first_x + j + 1) * block_size // CELLS, x + 1)
                        pixels = channels[y:y1, x:x1].reshape(-1, N_CHANNELS)
                        cells[i, j] = np.minimum((pixels.sum(axis=0) + len(pixels) // 2) // len(pixels), BRIGHTEST)
                blocks.append(cells)
    return np.array(blocks)


def slow_responses(cells, filters):
    """Responses of blocks to filters, from masks of light and dark cells."""
    out = np.empty((len(cells), len(filters)))
    for f, (channel, *borders) in enumerate(filters.tolist()):
        whole, light = np.zeros((CELLS, CELLS), bool), np.zeros((CELLS, CELLS), bool)
        for mask, (top, left, bottom, right) in ((whole, borders[:4]), (light, borders[4:8]), (light, borders[8:])):
            mask[top:bottom, left:right] = True
        dark = whole & ~light
        values = cells[..., channel]
        bright = values[:, light].sum(axis=1)
        out[:, f] = dark.sum() * bright - light.sum() * values[:, dark].sum(axis=1) if dark.any() else bright
    return out


GRIDS = [
    {"block_size": 64, "stride": 32, "scale": 1.25, "min_blocks": 2},
    {"block_size": 40, "stride": 17, "scale": 1.5, "min_blocks": 3},  # cells of 2 and of 3 pixels
    {"block_size": 9, "stride": 4, "scale": 2, "min_blocks": 10},  # cells smaller than a pixel
]


@pytest.mark.parametrize("grid", GRIDS, ids=["64", "40", "9"])
@pytest.mark.parametrize("name", ["coffee", "camera"])
def test_responses_are_those_of_the_definition(name, grid, crops):
    high = 40 if grid["block_size"] < 16 else 100
    (image,) = crops(name, 1, 5, low=high - 20, high=high)
    forest = ForestCodebook(**grid).draw_filters(0)
    expected = slow_responses(slow_cells(image, **grid), forest.filters_)
    responses = forest.responses(image)
    assert responses.dtype == np.float32
    assert len(responses) == len(block_grid(*image.shape[:2], **grid))
    assert len(np.unique(expected)) > 500
    assert_array_equal(responses, expected)


def test_orientations_of_all_gradients():
    """-255 ... 255 in x and y: the comparison of squares gives what the arctangent gives."""
    steps = np.arange(0, 256, 3)
    for sign in (1, -1):
        for b in steps:
            row = np.zeros(3 * len(steps), dtype=np.uint8)
            row[2::3] = steps  # dx = step at the middle of each triple
            below = np.full_like(row, b if sign > 0 else 0)
            above = np.full_like(row, 0 if sign > 0 else b)
            bins, magnitudes = np.empty(len(row), np.int32), np.empty(len(row), np.int32)
            _gradients(above, row, below, bins, magnitudes)
            assert_array_equal(bins[1::3], [orientation(a, sign * b) for a in steps])
            assert_array_equal(magnitudes[1::3], [int(4 * math.hypot(a, b) + 0.5) for a in steps])


@pytest.mark.parametrize(("degrees", "bin_"), list(zip(np.arange(8) * 22.5 + 11.25, range(8), strict=True)))
def test_a_ramp_is_seen_in_the_channel_of_its_direction(degrees, bin_):
    y, x = np.mgrid[:64, :64] - 31.5
    ramp = 128 + 2.8 * (x * math.cos(math.radians(degrees)) + y * math.sin(math.radians(degrees)))
    forest = ForestCodebook()
    whole = [[c, 0, 0, 16, 16, 0, 0, 16, 16, 0, 0, 0, 0] for c in range(3, N_CHANNELS)]
    forest.filters_ = np.array(whole, dtype=np.uint8)
    assert forest.responses(np.clip(ramp, 0, 255).astype(np.uint8)).argmax() == bin_


def test_sums_stay_within_single_precision_and_may_wrap_around():
    """The largest response of all is below 2**24, so that float32 holds it exactly."""
    image = np.full((64, 64, 3), 255, np.uint8)
    image[:, 32:] = 0
    forest = ForestCodebook(n_visterms=30)
    forest.filters_ = np.array([[0, 0, 0, 16, 16, 0, 0, 16, 8, 0, 0, 0, 0]], dtype=np.uint8)
    assert forest.responses(image).tolist() == [[128 * 128 * 4 * 255]]
    assert 128 * 128 * BRIGHTEST < 2**24
    table = np.cumsum(np.cumsum(np.full((20, 20, 1), 1000), axis=0), axis=1)
    wrapped = (table + 2**31 - 150_000).astype(np.uint32).view(np.int32)
    assert (wrapped < 0).any()
    assert (wrapped > 0).any()
    assert box_sum(wrapped, 2, 3, 0, 0, 0, 16, 16) == box_sum(table.astype(np.int32), 2, 3, 0, 0, 0, 16, 16) == 256_000


def test_filters_are_of_all_layouts_and_lie_within_the_block():
    filters = haar_filters(600, range(3), 0).astype(int)
    channel, whole, light, second = filters[:, 0], filters[:, 1:5], filters[:, 5:9], filters[:, 9:]
    assert_array_equal(np.unique(channel), [0, 1, 2])

    def area(boxes):
        return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])

    for boxes in (whole, light):
        assert (area(boxes) > 0).all()
        assert (boxes.min(), boxes.max()) == (0, CELLS)
    n_light, n_parts = area(light) + area(second), np.zeros(600)
    share = area(whole) / n_light
    for n in (1, 2, 3):
        n_parts[share == n] = n
    assert (n_parts > 0).all()
    # a single one of each; two side by side or above each other, and two of four; the middle of three, in two ways
    n_of_each = np.bincount(n_parts.astype(int))[1:]
    assert (abs(n_of_each - 600 * np.array([1, 3, 2]) / len(LAYOUTS)) < 60).all()
    assert abs((area(second) > 0).sum() - 100) < 40
    # the middle of the light boxes is that of the filter in those of one, three and four; of two it lies left or above
    last = np.where(area(second)[:, None] > 0, second, light)
    to_middle = whole[:, :2] + whole[:, 2:] - light[:, :2] - last[:, 2:]
    assert not to_middle[(n_parts != 2) | (area(second) > 0)].any()
    assert (to_middle[(n_parts == 2) & (area(second) == 0)].max(axis=1) > 0).all()
    assert_array_equal(haar_filters(9, range(3), 1), haar_filters(9, range(3), 1))


def test_a_split_leaves_the_least_class_entropy():
    """Worked by hand: ten blocks of a and two of b, and two filters that tell any blocks apart.

    The first parts them 8a | 2a 2b: 8 * 0 + 4 * 1 = 4 bits are left. The second parts them 10a 1b | 1b: 11 * H(1/11) =
    4.834 + 0 bits. (The Gini impurity would have it the other way round: 4 * 0.5 = 2 against 11 * 20/121 = 1.818.)
    """
    assert 11 * -(1 / 11 * math.log2(1 / 11) + 10 / 11 * math.log2(10 / 11)) == pytest.approx(4.834, abs=1e-3)
    labels = np.array(list("aaaaaaaaaabb"))
    responses = np.zeros((12, 2 * N_FILTERS), dtype=np.float32)
    responses[:, 7] = [0] * 8 + [9] * 4
    responses[:, 11] = [0] * 11 + [9]
    for seed in range(5):
        forest = ForestCodebook(n_visterms=3, n_trees=1, n_candidates=N_FILTERS, min_samples_leaf=1).draw_filters(0)
        forest.grow(responses, labels, seed)
        assert forest.nodes_.shape == (3, 3)
        assert forest.nodes_[0, 0] == 7
        assert 0 <= forest.nodes_[0, 1] < 9
        assert_array_equal(forest.nodes_[:, 2], [2, -1, -1])
        assert_array_equal(forest.nodes_[1:, 0], [-1, -1])


def test_nodes_are_numbered_so_that_subtrees_are_ranges():
    class Tree:  # scikit-learn's numbers: 0 -> (1, 2), 2 -> (3, 4), 1 -> (5, 6)
        children_left = np.array([1, 5, 3, -1, -1, -1, -1])
        children_right = np.array([2, 6, 4, -1, -1, -1, -1])
        feature = np.array([10, 11, 12, -2, -2, -2, -2])
        threshold = np.array([0.5, -0.5, 7.0, -2, -2, -2, -2])

    expected = [[10, 0, 4], [11, -1, 3], [-1] * 3, [-1] * 3, [12, 7, 6], [-1] * 3, [-1] * 3]
    assert_array_equal(_preorder(Tree), expected)


def test_half_of_the_trees_look_at_colours_and_half_at_gradients(forest):
    for t, (root, end) in enumerate(zip(forest.roots_, [*forest.roots_[1:], len(forest.nodes_)], strict=True)):
        used = forest.nodes_[root:end, 0]
        channels = forest.filters_[used[used >= 0], 0]
        assert len(channels) > 0
        assert (channels < 3).all() if t < 2 else (channels >= 3).all()


def test_blocks_are_counted_at_each_node_of_their_paths(forest, images):
    """Each block is followed through each tree in plain Python."""
    for image in images[::7]:
        responses = forest.responses(image)
        counts, leaves = np.zeros(120, dtype=int), []
        for block in responses:
            for root in forest.roots_:
                node = root
                while True:
                    counts[node] += 1
                    f, threshold, right = forest.nodes_[node]
                    if f < 0:
                        break
                    node = node + 1 if block[f] <= threshold else right
                leaves.append(node)
        assert_array_equal(forest.count(image), counts)
        assert_array_equal(forest.predict(image), np.reshape(leaves, (-1, 4)))
    counts = forest.count(images[0])
    inner = np.flatnonzero(forest.nodes_[:, 0] >= 0)
    assert_array_equal(counts[inner], counts[inner + 1] + counts[forest.nodes_[inner, 2]])
    assert_array_equal(counts[forest.roots_], [len(block_grid(*images[0].shape[:2]))] * 4)
    assert not counts[len(forest.nodes_) :].any()
    assert counts.dtype == np.int32
    assert counts.shape == (120,)


def test_growing_is_bounded(images, y):
    forest = ForestCodebook(**{**SMALL, "min_samples_leaf": 9}).fit(images, y)
    counts = sum(forest.count(image) for image in images)
    assert counts[: len(forest.nodes_)].min() >= 9
    for n_visterms, n_trees in ((30, 10), (31, 10), (100, 7), (9, 3)):
        forest = ForestCodebook(n_visterms=n_visterms, n_trees=n_trees, random_state=0).fit(images, y)
        assert len(forest.roots_) == n_trees
        assert np.diff([*forest.roots_, len(forest.nodes_)]).max() <= n_visterms // n_trees
        assert forest.count(images[0]).shape == (n_visterms,)
    forest = ForestCodebook(**SMALL, max_blocks=40).draw_filters(0)
    assert [len(forest.sample(image, 2, 0)) for image in images] == [
        min(2, len(block_grid(*image.shape[:2]))) for image in images
    ]
    forest.fit(images, y)
    assert len(forest.nodes_) <= 4 * (2 * 40 // 2)


def test_leaves_tell_the_classes_apart(forest, crops):
    """On other crops of the photos, the most frequent class of the leaves' training blocks is mostly right."""
    train = {name: sum(map(forest.count, crops(name, 8, 0))) for name in ("coffee", "chelsea", "camera")}
    votes = np.array([counts / counts.max() for counts in train.values()])
    right = 0
    for i, name in enumerate(train):
        for image in crops(name, 5, 99):
            right += np.bincount(votes[:, forest.predict(image)].argmax(axis=0).ravel(), minlength=3).argmax() == i
    assert right >= 10  # by chance 5


def state(forest):
    return [part.tobytes() for part in (forest.filters_, forest.nodes_, forest.roots_)]


def test_growing_can_be_repeated_on_any_number_of_threads(forest, images, y):
    assert state(clone(forest).fit(images, y)) == state(forest)
    assert state(clone(forest).set_params(n_jobs=3).fit(images, y)) == state(forest)
    assert state(clone(forest).set_params(random_state=1).fit(images, y)) != state(forest)


def test_a_sample_is_rows_of_the_responses_in_their_order(forest, images):
    rows, sample = forest.responses(images[0]).tolist(), forest.sample(images[0], 3, 7).tolist()
    places = [rows.index(row) for row in sample]
    assert places == sorted(places)
    assert len(set(places)) == 3


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 500), (63, 65, 3), (300, 2)])
def test_tiny_images_have_blocks(forest, shape):
    image = np.full(shape, 90, np.uint8)
    n_blocks = len(block_grid(*shape[:2]))
    assert forest.count(image)[0] == n_blocks
    assert forest.predict(image).shape == (n_blocks, 4)


def test_an_image_may_be_a_read_only_view_or_grey(forest, images):
    image = np.repeat(images[0], 2, axis=1)[:, ::2]
    image.flags.writeable = False
    assert_array_equal(forest.count(image), forest.count(images[0]))
    assert_array_equal(forest.count(images[-1]), forest.count(np.stack([images[-1]] * 3, axis=2)))
    twin = clone(forest).set_trees(forest.filters_, forest.nodes_, forest.roots_)
    assert_array_equal(twin.count(images[0]), forest.count(images[0]))


@pytest.mark.parametrize("image", [np.zeros((64, 64, 4), np.uint8), np.zeros((64, 64, 3)), np.zeros((0, 5), np.uint8)])
def test_what_is_no_image_is_refused(forest, image):
    with pytest.raises(ValueError, match="image"):
        forest.count(image)


def test_tables_of_labels_and_images_that_look_the_same_are_refused(images):
    with pytest.raises(ValueError, match="1d array"):
        ForestCodebook(**SMALL).fit(images, np.zeros((20, 2)))
    with pytest.raises(ValueError, match="no filter splits the 12 training blocks"):
        ForestCodebook(**SMALL).fit([np.zeros((96, 128), np.uint8)] * 2, ["a", "b"])
    for method in ("count", "predict", "responses"):
        with pytest.raises(NotFittedError):
            getattr(ForestCodebook(), method)(images[0])


@pytest.mark.parametrize("setting", [{"n_visterms": 29}, {"max_blocks": 0}, {"scale": 1}])
def test_settings_are_checked_and_named(images, y, setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        ForestCodebook(**setting).fit(images, y)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


BROKEN = {
    "channel": lambda f, n, r: (changed(f, (0, 0), 11), n, r),
    "border": lambda f, n, r: (changed(f, (0, 3), 17), n, r),
    "filter": lambda f, n, r: (f, changed(n, (0, 0), 1000), r),
    "a way back": lambda f, n, r: (f, changed(n, (0, 2), 0), r),
    "a child of two": lambda f, n, r: (f, changed(n, (0, 2), 1), r),
    "outside": lambda f, n, r: (f, changed(n, (0, 2), len(n)), r),
    "root": lambda f, n, r: (f, n, changed(r, 0, -1)),
    "too many": lambda f, n, r: (f, np.concatenate([n, n]), r),
    "shape": lambda f, n, r: (f[:, 1:], n, r),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_forest_is_not_taken_over(forest, damage):
    broken = damage(forest.filters_, forest.nodes_, forest.roots_)
    with pytest.raises(ValueError, match="forest|shapes"):
        clone(forest).set_trees(*broken)


def test_levels_have_the_blocks_of_the_grid(images):
    """The cells of the last block lie within the level, whatever the grid."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        block_size = int(rng.integers(8, 90))
        grid = {"block_size": block_size, "stride": int(rng.integers(1, 70)), "scale": 1.3, "min_blocks": 4}
        forest = ForestCodebook(**grid)
        shapes = level_shapes(*images[0].shape[:2], **grid)
        for (table, ys, xs), (height, width) in zip(forest._levels(images[0]), shapes, strict=True):
            for cells, size in ((table.shape[0] - 1, height), (table.shape[1] - 1, width)):
                assert max(cells * block_size // CELLS, (cells - 1) * block_size // CELLS + 1) <= size
            assert (len(ys), len(xs)) == (
                (height - block_size) // grid["stride"] + 1,
                (width - block_size) // grid["stride"] + 1,
            )
