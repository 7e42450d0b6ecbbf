import numpy as np
import pytest
import skimage.data
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from visterm.features.color import Palette

EXCESS = 7 * np.sqrt(3)  # the bound of the docstring, in grey levels


def exact(pixels, colors):
    """Squared distances (n, n_colors) in double precision."""
    return np.square(pixels[:, None, :].astype(np.float64) - colors.astype(np.float64)).sum(axis=-1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=12)
def test_a_pixel_goes_to_a_colour_hardly_farther_than_its_nearest(seed, n_colors):
    rng = np.random.default_rng(seed)
    palette = Palette(n_colors=n_colors).set_colors(rng.uniform(0, 255, (n_colors, 3)))
    image = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    distances = np.sqrt(exact(image.reshape(-1, 3), palette.colors_))
    chosen = np.take_along_axis(distances, palette.predict(image).reshape(-1, 1).astype(int), axis=1)[:, 0]
    assert (chosen <= distances.min(axis=1) + EXCESS + 1e-3).all()


def test_the_bound_holds_for_all_corners_of_all_cells_and_most_pixels_meet_it():
    palette = Palette(n_colors=8, random_state=0).fit(skimage.data.coffee()[::16, ::16].reshape(-1, 3))
    edge = np.array([8 * i + e for i in range(32) for e in (0, 7)], dtype=np.uint8)
    pixels = np.stack(np.meshgrid(edge, edge, edge, indexing="ij"), axis=-1).reshape(1, -1, 3)
    distances = np.sqrt(exact(pixels[0], palette.colors_))
    chosen = distances[np.arange(len(distances)), palette.predict(pixels)[0]]
    assert (chosen - distances.min(axis=1)).max() <= EXCESS
    image = np.ascontiguousarray(skimage.data.astronaut()[::4, ::4])
    palette = Palette(random_state=0).fit(image[::2, ::2].reshape(-1, 3))
    nearest = exact(image.reshape(-1, 3), palette.colors_).argmin(axis=1)
    assert (palette.predict(image).ravel() == nearest).mean() > 0.9


def test_four_colours_are_found_or_fewer_if_there_are():
    colors = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [255, 255, 255]])
    noise = np.random.default_rng(0).integers(-3, 4, (50, 1, 3))
    pixels = np.clip(colors + noise, 0, 255).reshape(-1, 3)
    learned_colors = {tuple(c) for c in Palette(n_colors=4, random_state=0).fit(pixels).colors_.round(-1)}
    assert learned_colors == {(0, 0, 0), (250, 0, 0), (0, 250, 0), (250, 250, 250)}
    palette = Palette(n_colors=5, random_state=0).fit(np.array([[0, 0, 0], [200, 200, 200], [0, 0, 0]]))
    assert palette.colors_.shape == (5, 3)
    codes = palette.predict(np.array([[[0, 0, 0], [200, 200, 200]]], dtype=np.uint8))
    assert sorted(codes[0]) == [0, 1]


def test_the_seed_decides_and_the_number_of_threads_does_not():
    pixels = skimage.data.coffee()[::10, ::10].reshape(-1, 3)
    first, second = (Palette(random_state=3).fit(pixels).colors_ for _ in range(2))
    assert first.tobytes() == second.tobytes()


def test_conventions_and_what_is_refused():
    for n_colors, pixels, message in (
        (20, np.zeros((0, 3)), "pixels must be"),
        (20, np.zeros((4, 4)), "pixels must be"),
        *((n, np.zeros((3, 3)), "n_colors") for n in (0, 257)),
    ):
        with pytest.raises(ValueError, match=message):
            Palette(n_colors=n_colors).fit(pixels)
    for image in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3))):
        with pytest.raises(ValueError, match="uint8 RGB"):
            Palette(n_colors=1).fit(np.zeros((3, 3))).predict(image)
    palette = Palette(n_colors=7, random_state=2)
    assert clone(palette).get_params() == palette.get_params()
    with pytest.raises(NotFittedError):
        palette.predict(np.zeros((4, 4, 3), dtype=np.uint8))
