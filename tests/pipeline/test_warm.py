"""Compiling the kernels ahead."""

import pytest

from visterm.learners import LEARNERS
from visterm.pipeline import warm


@pytest.mark.parametrize("kind", warm.KINDS)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore")
def test_every_learner_takes_the_few_vectors(name, kind):
    warm.learn(name, kind)


def test_images_are_extracted():
    warm.extract()
