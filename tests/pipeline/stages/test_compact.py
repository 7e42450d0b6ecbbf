"""Compacting made-up collections of many small segments: nothing that can be read changes, whatever happens."""

import os
from contextlib import closing
from signal import SIGKILL

import numpy as np
import pytest
from running import end_by_signal, in_small_files, json_of, visterm
from scipy import sparse

from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.segments import read_segment, write_segment


def synthetic(folder, n_segments=30, rows_each=40):
    """A collection of made-up counts in many small segments, image i in row i - 1 of the counts returned, too."""
    collection = Collection(folder / "collection", create=True)
    rng = np.random.default_rng(0)
    with collection.transaction():
        collection.insert([(b"%06d.jpg" % (i + 1), 1, 1, "pending", None) for i in range(n_segments * rows_each)])
        collection["root"] = os.fsencode(folder)
    pending = collection.pending()
    first = collection.reserve_segments(n_segments)
    parts = []
    for i in range(n_segments):
        outcomes = [
            Outcome(id_, f"{id_}", 9, 9, row, None)
            for row, (id_, _) in enumerate(pending[i * rows_each : (i + 1) * rows_each])
        ]
        parts.append(sparse.csr_matrix(rng.poisson(0.2, (rows_each, 2000)).astype(np.int32)))
        write_segment(collection.segments / str(first + i), parts[-1])
        collection.enter_segment(first + i, outcomes)
    return collection, sparse.vstack(parts, format="csr")


def bury(collection, ids):
    with collection.transaction():
        collection.bury(ids)


def holds(collection, expected, ids):
    """Check that a collection has the counts of just these images."""
    images = collection.images()
    assert [image.id for image in images] == list(ids)
    assert (collection.counts(images) != expected[[id_ - 1 for id_ in ids]]).nnz == 0


def test_compacting_changes_nothing_that_can_be_read(tmp_path):
    collection, expected = synthetic(tmp_path)
    mapped = [read_segment(collection.segments / str(segment.number)) for segment in collection.stored()]
    gone = [*range(7, 1200, 7), 1200]
    bury(collection, gone)
    assert len(collection.mergeable()) == 30
    done = {"segments_before": 30, "segments": 1, "dropped_rows": len(gone), "tombstones": len(gone) - 1}
    compacted = collection.compact()
    assert compacted == done | {"seconds": compacted["seconds"]}
    holds(collection, expected, [i for i in range(1, 1200) if i % 7])
    assert [path.name for path in collection.segments.iterdir()] == [str(s.number) for s in collection.stored()]
    assert (sparse.vstack(mapped) != expected).nnz == 0, "who has the old ones mapped keeps them"
    assert collection.compact()["segments_before"] == 1
    collection.insert([(b"new.jpg", 1, 1, "pending", None)])
    assert collection.pending() == [(1201, "new.jpg")], "an id is never given twice"
    collection.close()


def test_large_segments_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.pipeline.store.catalogue.MERGED_BYTES", 200_000)
    collection, expected = synthetic(tmp_path, n_segments=5)  # of 120 kB each
    assert collection.mergeable() == []
    bury(collection, range(1, 16))  # of 40: more than a quarter is dead
    (dead,) = collection.mergeable()
    assert (dead.rows, dead.living) == (40, 25)
    done = collection.compact()
    assert (done["segments"], done["dropped_rows"]) == (5, 15)
    holds(collection, expected, range(16, 201))
    collection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "numpy save 3",  # the new segment is half-written
        "visterm.pipeline.store.catalogue:Collection transaction 2",  # it is whole
        "shutil rmtree 20",  # the old ones are going
    ],
)
def test_a_killed_compact_leaves_the_old_or_the_new(tmp_path, moment):
    place = tmp_path / "runs/fruit"
    collection, expected = synthetic(place)
    bury(collection, range(3, 1201, 3))
    living = [i for i in range(1, 1201) if i % 3]
    collection.close()
    (place / "config.yaml").write_text("seed: 0\n")
    end_by_signal(SIGKILL, moment, "compact", cwd=tmp_path)
    with closing(Collection(place / "collection")) as collection:
        holds(collection, expected, living)
    visterm("compact", cwd=tmp_path)
    with closing(Collection(place / "collection")) as collection:
        holds(collection, expected, living)
        assert [path.name for path in collection.segments.iterdir()] == [str(s.number) for s in collection.stored()]
        assert collection.execute("SELECT count(*) FROM images").fetchone() == (len(living) + 1,)


@pytest.mark.slow
def test_no_room_for_a_segment(tmp_path):
    place = tmp_path / "runs/fruit"
    collection, expected = synthetic(place)  # 1.7 MB of indices
    (place / "config.yaml").write_text("seed: 0\n")
    line = in_small_files("compact", cwd=tmp_path, most=1_000_000)
    assert line.endswith("; fix this, then re-run the same command to resume")
    holds(collection, expected, range(1, 1201))
    assert len(list((place / "collection/segments").iterdir())) == 30
    assert json_of("compact", cwd=tmp_path)["segments"] == 1
    holds(collection, expected, range(1, 1201))
    collection.close()
