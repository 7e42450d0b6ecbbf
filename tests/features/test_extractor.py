import copy
import itertools
import json
import pickle
import warnings
import zlib

import cv2
import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from visterm.features import (
    ImageError,
    VistermExtractor,
    VistermWeighting,
    block_grid,
    count_visterms,
    describe,
    read_image,
    read_picture,
)


@pytest.fixture(scope="module")
def other(crops):
    return crops("rocket", 12, 3) + crops("astronaut", 8, 4)


@pytest.fixture(scope="module")
def extractor(train):
    return VistermExtractor(n_visterms=28, enlarge_to=None, random_state=0).fit(train)


FOREST = {"codebook": "forest", "n_visterms": 90, "n_trees": 4, "min_samples_leaf": 3, "random_state": 0} | {
    "enlarge_to": None
}


@pytest.fixture(scope="module")
def forest(train, labels):
    return VistermExtractor(**FOREST).fit(train, labels)


@pytest.fixture
def folder(tmp_path, train):
    """Images as PNG files, one of them broken."""
    for i, image in enumerate(train):
        cv2.imwrite(str(tmp_path / f"{i:02}.png"), image if image.ndim == 2 else image[..., ::-1])
    (tmp_path / "05.png").write_bytes(b"not an image")
    return tmp_path


def same(a, b):
    return all(getattr(a, part).tobytes() == getattr(b, part).tobytes() for part in ("data", "indices", "indptr"))


def test_rows_are_counts_of_blocks_and_vectors_their_weights(extractor, other, train):
    counts, vectors = extractor.count(other), extractor.transform(other)
    assert counts.shape == vectors.shape == (20, 28)
    assert counts.dtype == np.int32
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(counts.toarray().sum(axis=1), [len(block_grid(*image.shape[:2])) for image in other])
    assert same(vectors, extractor.weighting_.transform(counts))
    np.testing.assert_allclose(np.linalg.norm(vectors.toarray(), axis=1), 1, rtol=1e-6)
    for image, row in zip(other[:5], extractor.count(other[:5]), strict=True):
        ids = extractor.codebook_.predict(describe(image, extractor.palette_))
        assert same(count_visterms(ids, [len(ids)], 28), row)
    counts = extractor.count(train)
    np.testing.assert_array_equal(extractor.weighting_.idf_, VistermWeighting().fit(counts).idf_)
    assert extractor.weighting_.n_images_ == len(train)


def state(extractor):
    parts = (
        extractor.palette_.colors_,
        extractor.palette_.table_,
        extractor.codebook_.centers_,
        extractor.weighting_.idf_,
    )
    return [array.tobytes() for array in parts]


def test_nothing_is_learned_from_other_images(train, other):
    extractor = VistermExtractor(n_visterms=60, random_state=1).fit(train)
    before, vectors = state(extractor), extractor.transform(train)
    extractor.transform(other)
    extractor.count(iter(other))
    assert state(extractor) == before
    assert same(extractor.transform(train), vectors)
    # and a row depends on its own image alone
    assert same(extractor.transform(other + train)[len(other) :], vectors)


def test_the_seed_decides_and_neither_batches_nor_threads_do(extractor, train, other):
    twin = clone(extractor).set_params(n_jobs=2)
    assert same(twin.fit_transform(train), extractor.transform(train))
    assert state(twin) == state(extractor)
    assert state(twin.set_params(random_state=7).fit(train)) != state(extractor)
    images = other + train + other
    whole = extractor.count(images)
    assert same(whole, clone_fitted(extractor, n_jobs=2).count(images))
    assert same(whole, clone_fitted(extractor, n_jobs=3).count(iter(images)))
    for i in (0, 31, 32, 67):
        assert same(whole[i], extractor.count([images[i]]))


def clone_fitted(extractor, **settings):
    """Another extractor with the same state and other settings."""
    twin = clone(extractor).set_params(**settings)
    twin.palette_, twin.codebook_, twin.weighting_ = extractor.palette_, extractor.codebook_, extractor.weighting_
    return twin


def test_samples_are_capped(train):
    # 50 blocks an image at least, so that 100 descriptors come from 2 of the 28 images, and 100 pixels from one
    extractor = VistermExtractor(n_visterms=5, max_descriptors=100, max_color_samples=100, random_state=0)
    assert extractor.fit(train).count(train).shape == (28, 5)


def test_a_generator_is_read_as_the_work_goes_on_one_image_at_a_time(extractor, train):
    taken = []

    def images():
        for i in range(200):
            taken.append(i)
            yield train[0][:64, :64]

    assert extractor.count(images()).shape == (200, 28)
    assert len(taken) == 200
    # A generator of photos must not pile up as arrays, which are thirty times their files.
    import weakref

    class Photo(np.ndarray):
        pass

    alive = []

    def photos():
        for image in train * 2:
            photo = image.copy().view(Photo)
            alive.append(weakref.ref(photo))
            assert sum(ref() is not None for ref in alive) <= 3
            yield photo
            del photo

    extractor.count(photos())


def test_paths_and_arrays_may_be_mixed(extractor, folder, train):
    rows = extractor.count([folder / "00.png", train[1], str(folder / "02.png"), folder / "27.png"])
    assert same(rows, extractor.count([train[0], train[1], train[2], train[27]]))
    for dtype in (str, object):  # as scikit-learn splits them
        assert same(rows[[0]], extractor.count(np.array([str(folder / "00.png")], dtype)))


def test_a_broken_file_is_an_error_or_skipped(extractor, folder, train):
    paths = sorted(folder.iterdir())
    for read in (
        extractor.count,
        clone(extractor).fit,
        lambda paths: clone_fitted(extractor, n_jobs=2).count(paths * 20),
    ):
        with pytest.raises(ImageError, match=r"05\.png"):
            read(paths)
    skipping = clone_fitted(extractor, on_error="skip")
    with pytest.warns(UserWarning, match=r"1 of 28 images .*05\.png"):
        counts = skipping.count(paths)
    expected = extractor.count(train).toarray()
    expected[5] = 0
    np.testing.assert_array_equal(counts.toarray(), expected)
    with pytest.warns(UserWarning, match=r"1 of 28 images"):
        vectors = skipping.transform(paths)
    assert vectors[5].nnz == 0


def test_broken_files_are_left_out_of_fit_in_any_batch_unless_there_are_no_others(folder):
    paths = sorted(folder.iterdir()) * 2  # the second broken one is in the second batch of 32
    extractor = VistermExtractor(n_visterms=28, random_state=0, on_error="skip")
    with pytest.warns(UserWarning, match=r"2 of 56 images"):
        assert extractor.fit_transform(paths)[5].nnz == 0
    readable = [path for path in paths if path.name != "05.png"]
    expected = VistermWeighting().fit(extractor.count(readable))
    assert extractor.weighting_.n_images_ == expected.n_images_ == 54
    np.testing.assert_array_equal(extractor.weighting_.idf_, expected.idf_)
    with pytest.raises(ValueError, match="none of the 2 images"):
        VistermExtractor(on_error="skip").fit([folder / "05.png", folder / "missing.png"])
    with pytest.raises(ValueError, match="none of the"):
        VistermExtractor(n_visterms=5, max_pixels=10, on_error="skip").fit(sorted(folder.glob("*.png")))


def test_tiny_images_have_a_row_also_pickled_and_no_images_none(extractor, other):
    tiny = [np.zeros((1, 1, 3), np.uint8), np.full((1, 500), 255, np.uint8), np.zeros((63, 65, 3), np.uint8)]
    assert (extractor.count(tiny).toarray().sum(axis=1) > 0).all()
    assert extractor.count([]).shape == (0, 28)
    assert extractor.transform([]).shape == (0, 28)
    assert same(pickle.loads(pickle.dumps(extractor)).count(other), extractor.count(other))


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("extractor", ["codebook.npy", "idf.npy", "palette.npy"]),
        ("forest", ["filters.npy", "idf.npy", "nodes.npy", "roots.npy"]),
    ],
)
def test_a_saved_extractor_gives_the_same_bytes(name, arrays, other, tmp_path, request):
    extractor = request.getfixturevalue(name)
    extractor.save(tmp_path / "a" / "b")
    loaded = VistermExtractor.load(tmp_path / "a" / "b")
    assert same(loaded.transform(other), extractor.transform(other))
    assert loaded.get_params() == extractor.get_params()
    assert loaded.weighting_.n_images_ == extractor.weighting_.n_images_
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted([*arrays, "extractor.json"])
    loaded.save(tmp_path / "again")
    assert same(VistermExtractor.load(tmp_path / "again").count(other), extractor.count(other))


def test_images_within_the_limit_keep_their_vectors_and_larger_ones_are_averaged(train, other):
    """The longest side of the crops is at most 150."""
    unlimited, limited = (
        VistermExtractor(n_visterms=28, max_side=side, enlarge_to=None, random_state=0).fit(train)
        for side in (None, 150)
    )
    assert same(limited.transform(other), unlimited.transform(other))
    large = cv2.resize(other[0], (600, 420), interpolation=cv2.INTER_CUBIC)
    assert same(limited.count([large]), unlimited.count([cv2.resize(large, (150, 105), interpolation=cv2.INTER_AREA)]))
    boxes, visterms = limited.blocks(large)
    np.testing.assert_allclose(boxes, block_grid(105, 150) * 4)
    assert len(visterms) == len(boxes) < len(unlimited.blocks(large)[1])
    boxes, vectors = limited.block_vectors(large)
    np.testing.assert_allclose(vectors.sum(axis=0).A1, limited.transform([large]).toarray()[0], atol=1e-6)


def test_a_large_jpeg_has_the_same_vector_as_path_picture_and_small_copy(extractor, tmp_path):
    photo = cv2.resize(read_photo(), None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC)[..., ::-1]
    paths = [tmp_path / f"{n}.jpg" for n in (1, 2, 4)]
    for n, path in zip((1, 2, 4), paths, strict=True):
        cv2.imwrite(str(path), cv2.resize(photo, None, fx=1 / n, fy=1 / n, interpolation=cv2.INTER_AREA))
    vectors = extractor.transform(paths)
    assert (vectors @ vectors.T).toarray().min() > 0.7
    picture = read_picture(paths[0], max_side=extractor.max_side)
    assert same(extractor.transform([picture.pixels]), vectors[0])
    for image in (paths[0], picture):
        boxes, parts = extractor.block_vectors(image)
        np.testing.assert_allclose(parts.sum(axis=0).A1, vectors[0].toarray()[0], atol=1e-6)
        assert boxes[:, :2].max() > 1000
        assert ((boxes[:, :2] + boxes[:, 2:]).max(axis=0) <= (picture.width + 1e-6, picture.height + 1e-6)).all()


def read_photo():
    import skimage.data

    return skimage.data.coffee()


def test_saving_again_replaces_and_takes_seeds_of_numpy(extractor, tmp_path):
    extractor.save(tmp_path)
    clone_fitted(extractor, n_jobs=2).save(tmp_path)
    assert VistermExtractor.load(tmp_path).n_jobs == 2
    for seed, expected in ((np.int64(3), 3), (np.random.RandomState(0), None)):
        clone_fitted(extractor, random_state=seed).save(tmp_path)
        assert VistermExtractor.load(tmp_path).random_state == expected


def test_saving_that_is_interrupted_leaves_the_old_extractor_or_the_new_one(extractor, forest, tmp_path, interrupted):
    """The arrays were overwritten one by one, before the record."""
    for second in (clone_fitted(extractor, n_jobs=2), forest):
        heavier = VistermWeighting()
        heavier.idf_, heavier.n_images_ = second.weighting_.idf_ + 1, 7
        second = copy.copy(second)
        second.weighting_ = heavier
        for steps in itertools.count(1):
            folder = tmp_path / second.codebook / str(steps)
            extractor.save(folder)
            stopped = interrupted(steps, second.save, folder)
            loaded = VistermExtractor.load(folder)
            whole = second if loaded.weighting_.n_images_ == 7 else extractor
            assert loaded.get_params() == whole.get_params()
            np.testing.assert_array_equal(loaded.weighting_.idf_, whole.weighting_.idf_)
            (folder / "idf-00000000.npy.1-2.tmp").touch()  # of a process that was killed
            second.save(folder)
            assert VistermExtractor.load(folder).weighting_.n_images_ == 7
            assert len(list(folder.iterdir())) == (5 if second.codebook == "forest" else 4)
            if not stopped:
                break


def edit(folder, **changes):
    record = json.loads((folder / "extractor.json").read_text())
    (folder / "extractor.json").write_text(json.dumps(record | changes))


def swap(folder, name, array):
    """Replace an array and its checksum."""
    np.save(folder / f"{name}.npy", array)
    record = json.loads((folder / "extractor.json").read_text())
    record["crc32"][name] = zlib.crc32((folder / f"{name}.npy").read_bytes())
    edit(folder, crc32=record["crc32"])


DAMAGE = {
    "no record": lambda f: (f / "extractor.json").unlink(),
    "cut record": lambda f: (f / "extractor.json").write_bytes((f / "extractor.json").read_bytes()[:40]),
    "record is a list": lambda f: (f / "extractor.json").write_text("[1]"),
    "record is empty": lambda f: (f / "extractor.json").write_text("{}"),
    "another version": lambda f: edit(f, format=99),
    "another codebook": lambda f: edit(f, settings={"n_visterms": 28, "codebook": "forest"}),
    "unknown setting": lambda f: edit(f, settings={"colour": 1}),
    "settings that do not fit": lambda f: edit(f, settings={"n_visterms": 81}),
    "no checksums": lambda f: edit(f, crc32={}),
    "no array": lambda f: (f / "idf.npy").unlink(),
    "cut array": lambda f: (f / "codebook.npy").write_bytes((f / "codebook.npy").read_bytes()[:-9]),
    "empty array": lambda f: (f / "palette.npy").write_bytes(b""),
    "flipped bit": lambda f: (f / "idf.npy").write_bytes((f / "idf.npy").read_bytes()[:-1] + b"\x99"),
}
FELLED = {
    "no array": lambda f: (f / "nodes.npy").unlink(),
    "flipped bit": lambda f: (f / "nodes.npy").write_bytes((f / "nodes.npy").read_bytes()[:-1] + b"\x99"),
    "a node outside": lambda f: swap(f, "nodes", np.array([[0, 5, 700], [-1, -1, -1], [-1, -1, -1]], np.int32)),
    "another type": lambda f: swap(f, "nodes", np.zeros((3, 3))),
    "another number of trees": lambda f: swap(f, "roots", np.zeros(3, np.int32)),
    "filters of another kind": lambda f: swap(f, "filters", np.zeros((5, 9), np.uint8)),
    "k-means in its place": lambda f: edit(f, settings={"n_visterms": 90}),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [*(("extractor", damage) for damage in DAMAGE.values()), *(("forest", damage) for damage in FELLED.values())],
    ids=[*DAMAGE, *(f"forest: {name}" for name in FELLED)],
)
def test_a_damaged_folder_is_one_clear_line(name, damage, tmp_path, request):
    request.getfixturevalue(name).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match="extractor") as caught:
        VistermExtractor.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_pickle_in_disguise_is_not_opened(extractor, tmp_path):
    extractor.save(tmp_path)
    swap(tmp_path, "idf", np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="damaged.*allow_pickle=False"):
        VistermExtractor.load(tmp_path)
    with pytest.raises(ValueError, match="holds no readable extractor"):
        VistermExtractor.load(tmp_path / "missing")


def test_constructors_only_store_and_what_is_not_fitted_says_so(tmp_path):
    extractor = VistermExtractor(n_visterms=-3, normalization="?", on_error="?", scale=0)
    assert extractor.n_visterms == -3
    assert clone(extractor).get_params() == extractor.get_params()
    with pytest.raises(ValueError, match="no images"):
        VistermExtractor().fit([])
    for method, argument in (("transform", []), ("count", []), ("blocks", []), ("save", tmp_path)):
        with pytest.raises(NotFittedError):
            getattr(VistermExtractor(), method)(argument)


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        (
            {},
            [
                *({"n_visterms": 0}, {"codebook": "trees"}, {"n_colors": 0}, {"n_colors": 300}, {"block_size": 0}),
                *({"stride": -1}, {"scale": 1}, {"min_blocks": 0}, {"normalization": "l2"}, {"max_descriptors": 0}),
                *({"max_color_samples": 0}, {"max_iter": 0}, {"on_error": "ignore"}, {"tf": "log"}),
                *({"max_side": side} for side in (0, -500, 63, 99.5)),
                *({"enlarge_to": side} for side in (0, -1, 99.5)),
            ],
        ),
        (FOREST, [{"n_visterms": 11}, {"n_trees": 0}, {"n_candidates": 0}, {"min_samples_leaf": 0}]),
    ],
    ids=["k-means", "forest"],
)
def test_settings_are_checked_in_fit_and_named(base, settings, train, labels):
    for setting in settings:
        with pytest.raises(ValueError, match=next(iter(setting))):
            VistermExtractor(**base | setting).fit(train, labels)


def test_few_blocks_give_fewer_visterms(train, other, tmp_path):
    """One from four blocks; the other columns stay empty, in each cell, and on disk."""
    for cells, n_visterms in (((1,), 500), ((2,), 2000)):
        settings = {"n_visterms": n_visterms, "cells": cells, "random_state": 0}
        with pytest.warns(UserWarning, match="have blocks for .* visterms, not 500: the others occur in no image"):
            extractor = VistermExtractor(**settings, enlarge_to=None).fit(train)
        n_blocks = sum(len(block_grid(*image.shape[:2])) for image in train)
        n_centers = len(extractor.codebook_.centers_)
        assert n_centers == n_blocks // 4
        counts = extractor.count(other)
        assert counts.shape == (len(other), n_visterms)
        assert (counts.indices % 500).max() < n_centers
        assert counts.sum() == sum(len(block_grid(*image.shape[:2])) for image in other)
        extractor.save(tmp_path / str(cells))
        assert same(VistermExtractor.load(tmp_path / str(cells)).transform(other), extractor.transform(other))


def test_small_images_are_enlarged(train, other, tmp_path):
    """Blocks lie in the original all the same, and a path, its pixels and a larger copy have one vector."""
    extractor = VistermExtractor(n_visterms=28, enlarge_to=300, random_state=0).fit(train)
    small = other[0][:60, :80]
    large = np.array(Image.fromarray(small).resize((300, 225), Image.Resampling.BICUBIC))
    assert same(extractor.count([small]), extractor.count([large]))
    cv2.imwrite(str(tmp_path / "small.png"), small[..., ::-1])
    assert same(extractor.count([tmp_path / "small.png"]), extractor.count([large]))
    for image in (small, tmp_path / "small.png"):
        boxes, visterms = extractor.blocks(image)
        assert len(visterms) == len(block_grid(225, 300)) > 20
        np.testing.assert_allclose(boxes, block_grid(225, 300) * (80 / 300))
    assert same(extractor.count([tmp_path / "small.png"]), clone_fitted(extractor, max_side=300).count([small]))
    assert len(clone_fitted(extractor, max_side=64).blocks(small)[1]) == 1  # no larger than max_side
    extractor.save(tmp_path)
    edit(tmp_path, format=4)  # which enlarged by code that depends on the processor
    with pytest.raises(ValueError, match="has format 4, this version reads 6: rebuild it"):
        VistermExtractor.load(tmp_path)


def test_a_panorama_keeps_rows_enough_for_blocks(extractor, other, tmp_path):
    photo = other[0][:100, :120]  # the same content, once and sixteen times as wide
    panorama = np.ascontiguousarray(np.tile(photo, (1, 40, 1))[:, : 16 * 100])
    before = clone_fitted(extractor, max_side=500, reading=1)
    now = clone_fitted(extractor, max_side=500)
    Image.fromarray(panorama).save(tmp_path / "a.png")
    Image.fromarray(panorama).save(tmp_path / "a.jpg", quality=95)
    assert now.read(tmp_path / "a.png").pixels.shape[:2] == now.read(tmp_path / "a.jpg").pixels.shape[:2] == (79, 1265)
    assert before.read(tmp_path / "a.png").pixels.shape[:2] == (31, 500)
    assert same(now.count([tmp_path / "a.png"]), now.count([panorama]))
    heights = [of.blocks(panorama)[0][:, 3].max() for of in (before, now)]
    assert heights[1] < 100 == heights[0], "of a block, which were as high as the picture"
    # the rest as before: photos of up to 2.5:1, small or large
    images = [np.ascontiguousarray(np.tile(other[0], (3, 9, 1))[:height, :900]) for height in (360, 450, 900)]
    images.append(other[0][:48, :120])
    assert same(now.count(images), before.count(images))


def test_extractors_of_format_5_read_as_before(extractor, tmp_path):
    extractor.save(tmp_path)
    settings = json.loads((tmp_path / "extractor.json").read_text())["settings"]
    del settings["reading"], settings["white"]
    edit(tmp_path, format=5, settings=settings)
    loaded = VistermExtractor.load(tmp_path)
    assert (extractor.rules.version, loaded.rules.version, loaded.rules.longest) == (3, 1, 0)
    loaded.save(tmp_path)
    assert VistermExtractor.load(tmp_path).rules == loaded.rules


@pytest.mark.parametrize("images", ["a.jpg", b"a.jpg", np.zeros((64, 64), np.uint8), np.zeros((64, 64, 3), np.uint8)])
def test_a_single_image_is_refused_where_a_sequence_is_meant(extractor, images):
    with pytest.raises(ValueError, match="sequence of images"):
        extractor.count(images)
    with pytest.raises(ValueError, match="sequence of images"):
        VistermExtractor().fit(images)


def test_no_warning_is_given_without_a_reason(extractor, other):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone_fitted(extractor, on_error="skip", n_jobs=2).transform(other)


def test_the_orientations_of_a_picture_give_nearly_the_same_vectors(data):
    paths = sorted((data / "odd").glob("exif_Landscape_*.jpg"))
    assert len(paths) > 2
    pictures = [read_image(path)[::4, ::4] for path in paths]
    X = VistermExtractor(n_visterms=20, random_state=0).fit(pictures).count(pictures).toarray().astype(float)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    assert (X @ X.T).min() > 0.97


def test_fit_says_how_far_it_is(train, labels):
    seen = []
    VistermExtractor(n_visterms=20, random_state=0).fit(train, callback=lambda *progress: seen.append(progress))
    assert seen == sorted(seen)
    assert seen[-1] == (3 * len(train), 3 * len(train))
    seen.clear()
    VistermExtractor(**FOREST).fit(train, labels, callback=lambda *progress: seen.append(progress))
    assert seen == [(28, 56), (56, 56)]  # sampled, then counted


def test_counts_of_a_forest_are_of_all_nodes_on_any_number_of_threads(forest, other, train, labels):
    counts, vectors = forest.count(other), forest.transform(other)
    assert counts.shape == vectors.shape == (20, 90)
    assert counts.dtype == np.int32
    assert vectors.dtype == np.float32
    assert counts.has_sorted_indices
    np.testing.assert_array_equal(counts.toarray(), [forest.codebook_.count(image) for image in other])
    np.testing.assert_allclose(np.linalg.norm(vectors.toarray(), axis=1), 1, rtol=1e-6)
    # each image passes the roots, so that they have no weight
    np.testing.assert_array_equal(forest.weighting_.idf_[forest.codebook_.roots_], 0)
    assert forest.palette_ is None
    twin = clone(forest).set_params(n_jobs=3)
    assert same(twin.fit_transform(train, labels), forest.transform(train))
    for name in ("filters_", "nodes_", "roots_"):
        assert getattr(twin.codebook_, name).tobytes() == getattr(forest.codebook_, name).tobytes()
    assert same(twin.count(iter(other)), forest.count(other))
    assert same(twin.count(other[3:4]), forest.count(other)[3])
    assert forest.count([]).shape == (0, 90)


def test_blocks_say_where_each_visterm_is(extractor, forest, other):
    boxes, visterms = extractor.blocks(other[0])
    np.testing.assert_array_equal(boxes, block_grid(*other[0].shape[:2]))
    np.testing.assert_array_equal(np.bincount(visterms, minlength=28), extractor.count(other[:1]).toarray()[0])
    boxes, visterms = forest.blocks(other[0])
    np.testing.assert_array_equal(boxes, block_grid(*other[0].shape[:2]))
    assert visterms.shape == (len(boxes), 4)
    counts = forest.count(other[:1]).toarray()[0]
    leaves = np.flatnonzero(forest.codebook_.nodes_[:, 0] < 0)
    np.testing.assert_array_equal(np.bincount(visterms.ravel(), minlength=90)[leaves], counts[leaves])


def test_a_broken_file_is_left_out_of_a_forest_with_its_label(folder, train, labels):
    """Image 5 gives no blocks; the others keep their labels."""
    paths = sorted(folder.iterdir())
    with pytest.warns(UserWarning, match="1 of 28 images"):
        skipping = VistermExtractor(**FOREST, on_error="skip").fit(paths, labels)
    # the same with another label for it
    other = labels.copy()
    other[5] = "camera"
    with pytest.warns(UserWarning, match="1 of 28 images"):
        again = VistermExtractor(**FOREST, on_error="skip").fit(paths, other)
    assert skipping.codebook_.nodes_.tobytes() == again.codebook_.nodes_.tobytes()
    assert skipping.weighting_.n_images_ == 27
    with pytest.warns(UserWarning, match="1 of 28 images"):
        counts = skipping.count(paths).toarray()
    assert not counts[5].any()
    np.testing.assert_array_equal(counts[6], skipping.codebook_.count(train[6]))
    with pytest.raises(ImageError, match=r"05\.png"):
        VistermExtractor(**FOREST).fit(paths, labels)


def test_a_forest_needs_labels(train):
    for y, message in (
        (None, "learns from labels"),
        (sp.eye(28, format="csr"), "one label an image"),
        (["a"] * 27, "27 labels do not fit 28 images"),
        (["a"] * 28, "two classes"),
    ):
        with pytest.raises(ValueError, match=message):
            VistermExtractor(**FOREST).fit(train, y)


@pytest.mark.parametrize("name", ["extractor", "forest"])
def test_blocks_sum_to_the_vector_of_the_image(request, name, other):
    extractor = request.getfixturevalue(name)
    for image in [*other, other[0][:70, :40], other[0][..., 0]]:  # smaller than a block, and grey
        boxes, vectors = extractor.block_vectors(image)
        np.testing.assert_array_equal(boxes, block_grid(*image.shape[:2]))
        assert vectors.shape == (len(boxes), extractor.n_visterms)
        assert vectors.dtype == np.float32
        expected = extractor.transform([image]).toarray()
        np.testing.assert_allclose(vectors.sum(axis=0), expected, rtol=1e-5, atol=1e-7)


def test_a_block_adds_its_visterm_if_it_has_weight(extractor, other):
    vectors = extractor.block_vectors(other[0])[1]
    weights = extractor.transform(other[:1]).toarray()[0] / np.maximum(extractor.count(other[:1]).toarray()[0], 1)
    for row, visterm in zip(vectors.toarray(), extractor.blocks(other[0])[1], strict=True):
        np.testing.assert_allclose(row, np.where(np.arange(len(row)) == visterm, weights, 0), rtol=1e-6)
    twin = clone(extractor)
    twin.palette_, twin.codebook_ = extractor.palette_, extractor.codebook_
    twin.fit_weighting(extractor.count(other[:1]))  # every visterm of this image is in every training image
    boxes, vectors = twin.block_vectors(other[0])
    assert vectors.shape[0] == len(boxes)
    assert vectors.nnz == 0


def test_a_block_adds_every_node_that_it_passes(forest, other):
    nodes = forest.codebook_.nodes_
    vectors, leaves = forest.block_vectors(other[0])[1].toarray(), forest.blocks(other[0])[1]
    for row, ends in zip(vectors, leaves, strict=True):
        passed = set()
        for leaf in ends:
            root = max(root for root in forest.codebook_.roots_ if root <= leaf)
            at = root
            while at != leaf:
                passed.add(at)
                at = nodes[at, 2] if leaf >= nodes[at, 2] else at + 1  # a subtree is a range of visterms
            passed.add(leaf)
        with_weight = {node for node in passed if forest.weighting_.idf_[node] > 0}
        assert set(np.flatnonzero(row)) == with_weight


def test_parts_need_fitted_weights_of_as_many_visterms():
    counts = sp.csr_matrix(np.ones((2, 3), dtype=np.int32))
    with pytest.raises(NotFittedError):
        VistermWeighting().transform_parts(counts)
    with pytest.raises(ValueError, match="counts have 2 visterms, the weights 3"):
        VistermWeighting().fit(counts).transform_parts(counts[:, :2])


@pytest.mark.parametrize("cells", [(1,), (1, 2)])
def test_training_images_can_be_counted_as_new_ones(train, cells):
    settings = {"n_visterms": 28 * (5 if cells == (1, 2) else 1), "cells": cells, "enlarge_to": None, "random_state": 0}
    plain = VistermExtractor(**settings).fit(train)
    assert not hasattr(plain, "held_out_counts_")
    groups = [[1, 4, 7], [0, 1, 4, 7, 9]]
    extractor = VistermExtractor(**settings, n_jobs=2).fit(train, held_out=groups)
    assert extractor.codebook_.centers_.tobytes() == plain.codebook_.centers_.tobytes()
    assert extractor.weighting_.idf_.tobytes() == plain.weighting_.idf_.tobytes()
    counts = extractor.count(train)
    for group, as_new in zip(groups, extractor.held_out_counts_, strict=True):
        assert as_new.dtype == np.int32
        np.testing.assert_array_equal(as_new.sum(axis=1), counts[group].sum(axis=1))
        others = counts[np.setdiff1d(np.arange(len(train)), group)][:, :28]  # of the whole image
        alone = np.diff(others.tocsc().indptr) == 0
        assert counts[group][:, :28][:, alone].nnz
        assert not as_new[:, :28][:, alone].nnz  # there is no such centre without these images
    for in_the_fit, after_it in zip(extractor.held_out_counts_, plain.count_as_new(train, groups), strict=True):
        assert (in_the_fit != after_it).nnz == 0
    assert not hasattr(extractor.fit(train), "held_out_counts_")


def test_images_of_a_forest_or_of_unknown_blocks_cannot_be_counted_as_new_ones(train, labels):
    forest = VistermExtractor(n_visterms=40, codebook="forest", n_trees=2, random_state=0).fit(train, labels)
    by_chance = VistermExtractor(n_visterms=20).fit(train)
    for extractor in (forest, by_chance):
        with pytest.raises(ValueError, match="needs a k-means codebook and an integer random_state"):
            extractor.count_as_new(train, [[1]])


def test_held_out_images_that_cannot_be_read_have_no_counts(folder):
    paths = sorted(folder.iterdir())
    with pytest.warns(UserWarning, match="could not be read"):
        extractor = VistermExtractor(n_visterms=20, random_state=0, on_error="skip").fit(paths, held_out=[[4, 5, 6]])
    (as_new,) = extractor.held_out_counts_
    assert [bool(row.nnz) for row in as_new] == [True, False, True]
