import gc
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from visterm.learners import OASIS, Cosine, load_learner
from visterm.learners.storage import load_array


@pytest.fixture
def folder(synonyms, tmp_path):
    OASIS(n_steps=200, random_state=0).fit(*synonyms).save(tmp_path / "model")
    return tmp_path / "model"


def assert_refused(folder, message, **options):
    """One line that says where and what."""
    with pytest.raises(ValueError, match=message) as caught:
        load_learner(folder, **options)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def flip(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


class TestDamage:
    def test_nothing_is_saved_here(self, tmp_path):
        assert_refused(tmp_path / "nothing", "no learner is saved here")
        assert_refused(tmp_path, "no learner is saved here")

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', "null"])
    def test_damaged_record(self, folder, text):
        (folder / "learner.json").write_text(text)
        assert_refused(folder, "learner.json is damaged")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda record: record.pop("state"), "learner.json is damaged"),
            (lambda record: record.pop("arrays"), "learner.json is damaged"),
            (lambda record: record.update(format=99), "format 99, this version reads 1"),
            (lambda record: record.update({"class": "Oracle"}), "unknown learner 'Oracle'; this version knows AROMA, "),
            (lambda record: record["params"].update(magic=1), "does not match OASIS"),
            (lambda record: record["state"].update(fit=1), "unknown state 'fit'"),
        ],
    )
    def test_record_of_something_else(self, folder, change, message):
        record = json.loads((folder / "learner.json").read_text())
        change(record)
        (folder / "learner.json").write_text(json.dumps(record))
        assert_refused(folder, message)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda file: file.unlink(), "cannot be read"),
            (lambda file: file.write_bytes(b""), "damaged"),
            (flip, "checksum"),
            (lambda file: np.save(file, np.zeros(3)), "is not the array"),
            (lambda file: np.save(file, np.array([{}]), allow_pickle=True), "damaged"),
        ],
    )
    def test_array(self, folder, change, message):
        change(next(folder.glob("*.npy")))
        assert_refused(folder, message)

    def test_saving_again_replaces_a_damaged_file(self, folder):
        learner = load_learner(folder)
        flip(next(folder.glob("W_-*.npy")))
        assert_refused(folder, "damaged")
        learner.save(folder)
        np.testing.assert_array_equal(load_learner(folder).W_, learner.W_)

    @pytest.mark.parametrize("mmap_mode", [None, "r"])
    def test_truncated_array(self, folder, mmap_mode):
        path = next(folder.glob("*.npy"))
        path.write_bytes(path.read_bytes()[:-8])
        assert_refused(folder, "damaged", mmap_mode=mmap_mode, verify=False)


class TestWriting:
    def test_what_cannot_be_saved_leaves_nothing(self, tmp_path):
        with pytest.raises(ValueError, match="not fitted"):
            OASIS().save(tmp_path / "a")
        assert not (tmp_path / "a").exists()
        learner = Cosine().fit(np.eye(2))
        learner.n_features_in_ = object()
        with pytest.raises(TypeError, match="cannot be saved"):
            learner.save(tmp_path / "a")
        assert list(tmp_path.iterdir()) == []

    def test_replaces_the_learner_before_mapped_or_not(self, folder, synonyms):
        other = OASIS(n_steps=300, random_state=1).fit(*synonyms)
        other.save(folder)
        np.testing.assert_array_equal(load_learner(folder).W_, other.W_)
        assert len(list(folder.iterdir())) == 2
        mapped = load_learner(folder, mmap_mode="r")
        before = np.array(mapped.W_)
        mapped.partial_fit(*synonyms).save(folder)
        again = load_learner(folder)
        np.testing.assert_array_equal(again.W_, mapped.W_)
        assert not np.array_equal(again.W_, before)

    def test_generator_as_random_state(self, synonyms, tmp_path):
        learner = OASIS(n_steps=200, random_state=np.random.RandomState(3)).fit(*synonyms)
        learner.save(tmp_path / "a")
        assert load_learner(tmp_path / "a").random_state == learner.seed_

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
    def test_killed_while_writing(self, tmp_path):
        """Whenever it is killed, the folder holds one of the learners that were saved to it, whole."""
        program = (
            "import runpy, sys\n"
            "import numpy as np\n"
            "save = runpy.run_path(sys.argv[2])['save']\n"  # alone: the package would import Numba, which takes seconds
            "for i in range(10**6):\n"
            "    save(sys.argv[1], 'Cosine', {}, {'A': np.full((300, 300), i), 'n': i})\n"
            "    print(i, flush=True)\n"
        )
        from visterm.learners import storage

        for delay in (0.0, 0.003, 0.01):
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(tmp_path / "a"), storage.__file__], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            with process.stdout:
                process.stdout.readline()
                time.sleep(delay)
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
            _, _, state = storage.load(tmp_path / "a")
            assert (state["A"] == state["n"]).all()
        storage.save(tmp_path / "a", "Cosine", {}, {"n": 1})
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["learner.json"]


def test_threads_read_arrays_at_once(tmp_path):
    """The garbage collector hands over to the other thread in the middle of a header."""
    np.save(tmp_path / "a.npy", np.arange(3))

    def hand_over(phase, info):
        time.sleep(0)

    before = gc.get_threshold()
    gc.set_threshold(5)
    gc.callbacks.append(hand_over)
    try:
        with ThreadPoolExecutor(2) as pool:
            sums = list(pool.map(lambda _: load_array(tmp_path / "a.npy", "r").sum(), range(800)))
    finally:
        gc.callbacks.remove(hand_over)
        gc.set_threshold(*before)
    assert sums == [3] * 800


@pytest.mark.parametrize(("n", "mode"), [(10, "copied r"), (300_000, "copied r"), (300_000, "copied c")])
def test_a_copy_outlives_its_file(tmp_path, n, mode):
    file, values = tmp_path / "a.npy", np.arange(n, dtype=np.float32)
    np.save(file, values)
    whole, array = file.read_bytes(), load_array(file, mode)
    if mode.endswith("c"):
        array[0] = 7  # what a version learned
    os.truncate(file, 140)
    assert isinstance(array, np.memmap) == (n > 10)
    assert (array[1:] == values[1:]).all()  # of a map of the file itself, reading this would end the process
    assert (array[0] == 7) == mode.endswith("c")
    with pytest.raises(ValueError, match=r"mmap length|reshape|cannot"):
        load_array(file, mode)
    assert (os.listdir(tmp_path), file.read_bytes()) == (["a.npy"], whole[:140])
