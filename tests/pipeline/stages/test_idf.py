"""idf is that of all training images, also where palette and codebook are learned from a sample of them."""

import numpy as np
from running import visterm

from visterm.features import VistermWeighting
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.opened import opened
from visterm.pipeline.store.run import Run
from visterm.plugins.repair.info import measure_drift


def idf_of(run):
    return np.load(run.extractor / "files/idf.npy")


def test_idf_of_all_training_images(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in ("pear", "plum") for i in range(10)])
    few = ("--set", "features.max_training_images=6", "--set", "features.n_visterms=20", "--set", "compute.n_jobs=1")
    visterm("features", "fruit", *few, cwd=tmp_path)
    run = Run(tmp_path / "runs/fruit")
    collection = Collection(run.collection)
    images = collection.images("train")
    assert len(images) == 12
    np.testing.assert_allclose(idf_of(run), VistermWeighting().fit(collection.counts(images)).idf_)
    collection.close()
    # As long as nothing is added, there is no drift, and nothing to do.
    assert "nothing to do" in visterm("features", "fruit", *few, cwd=tmp_path).stderr
    with opened(run, run.configure(None, []), lock=False) as it:
        assert measure_drift(it)["mean_cosine"] in (None, 1.0)
    # Images that are added later change no idf.
    before = idf_of(run)
    write_images(tmp_path / "fruit", [f"fig/{i}.jpg" for i in range(4)])
    visterm("features", "fruit", *few, cwd=tmp_path)
    np.testing.assert_array_equal(idf_of(run), before)
