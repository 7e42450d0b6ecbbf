"""Which test images decide whether a model is taken."""

import numpy as np

from visterm.pipeline.evaluation import held_out
from visterm.pipeline.evaluation.held_out import DECIDING, TEST_IMAGES, draw_held_out, third_part
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run


def test_a_third_part_of_many_test_images_decides():
    test = [Image(i, f"{i}.jpg", str(i), {"a": 1.0}, "test", 0, i) for i in range(600)]
    third = third_part(test)
    assert 150 < len(third) < 250
    assert third_part(test[::-1]) == third[::-1]  # by the path alone
    assert third_part(test[:200]) == []  # too few to decide


def test_the_third_part_measures_what_is_taken(finished, monkeypatch):
    run = Run(finished / "runs/fruit")
    with Collection(run.collection) as collection:
        images = collection.images()
        every = draw_held_out(run, "oasis", collection, images, set())
        monkeypatch.setattr(held_out, "FEWEST_DECIDING", 1)
        deciding = draw_held_out(run, "oasis", collection, images, set())
    test = [image for image in images if image.split == "test"]
    assert (deciding.what, every.what) == (DECIDING, TEST_IMAGES)
    assert deciding.X.shape[0] == len(third_part(test)) < every.X.shape[0] == len(test)
    np.testing.assert_array_equal(every.unmarked, True)
