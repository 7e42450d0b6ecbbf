"""Words for what two blocks share."""

import numpy as np
import pytest

from visterm.plugins.explanation.matched_words import words_in_common

FLAT = np.full((64, 64, 3), 0, np.uint8)


def stripes(color, across):
    block = np.full((64, 64, 3), 245, np.uint8)
    lines = np.arange(64) % 16 < 8
    block[(slice(None), lines) if across else lines] = color
    return block


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (FLAT + np.uint8([40, 80, 170]), FLAT + np.uint8([55, 95, 190]), "blue, smooth"),
        (FLAT + np.uint8([190, 40, 40]), FLAT + np.uint8([60, 140, 60]), "smooth"),
        (stripes([190, 40, 40], True), stripes([185, 45, 40], True), "white and red, upright edges"),
        (stripes([190, 40, 40], True), stripes([190, 40, 40], False), "white and red"),
        (stripes([190, 40, 40], False), stripes([190, 40, 40], False), "white and red, level edges"),
        (FLAT[:2], FLAT, ""),  # too small to describe
    ],
)
def test_colours_and_textures_have_names(first, second, words):
    common, named = (sorted(text.replace(",", "").split()) for text in (words_in_common(first, second), words))
    assert common == named  # two colours of equal shares come in any order


def test_noise_is_rough():
    noise = np.random.default_rng(0).integers(0, 256, (2, 48, 48, 3)).astype(np.uint8)
    assert words_in_common(*noise).endswith("rough")
