"""Queries: files, folders, ids, paths and pixels, from Python and from the command line."""

import io
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running import paths_of, refused, visterm

from visterm.features import read_image
from visterm.pipeline import Searcher, explain_pair
from visterm.pipeline.errors import UserError

CLASSES = ("apple", "pear", "plum")


def test_a_file_an_id_a_path_and_pixels_are_the_same_query(searcher, finished):
    path = "pear/3.jpg"
    number = next(image.id for image in searcher.images if image.path == path)
    file = str(finished / "fruit" / path)
    pixels = read_image(file)
    by_file, by_path_object, by_id, by_path, by_pixels = searcher.search(
        [file, Path(file), f"id:{number}", path, pixels], k=29, learner="cosine"
    )
    assert by_file["results"] == by_id["results"] == by_path["results"] == by_path_object["results"]
    assert [answer["query"] for answer in (by_file, by_id, by_path)] == [file, f"id:{number}", path]
    assert path not in paths_of(by_file)
    assert paths_of(by_pixels)[0] == path  # of pixels nobody can say that they are the same file
    assert paths_of(by_pixels)[1:] == paths_of(by_file)[:28]
    assert by_pixels["query"] == "image 5"


def test_images_of_pillow_contents_and_numbers_are_queries(searcher, finished):
    file = finished / "fruit/pear/3.jpg"
    number = next(image.id for image in searcher.images if image.path == "pear/3.jpg")
    (pixels,) = searcher.search(read_image(file), k=29, learner="cosine")
    with Image.open(file) as image:
        turned = image.transpose(Image.Transpose.ROTATE_90)
        turned.getexif()[0x0112] = 6  # to be turned back
        content = file.read_bytes()
        for query in (image, turned, image.convert("RGBA"), content, bytearray(content), io.BytesIO(content)):
            (answer,) = searcher.search(query, k=29, learner="cosine")
            assert answer == pixels
    (by_number,) = searcher.search(number, k=29, learner="cosine")
    assert by_number == searcher.search([np.int64(number)], k=29, learner="cosine")[0]
    assert by_number["results"] == searcher.search(f"id:{number}", k=29, learner="cosine")[0]["results"]
    copies = searcher.search(file.read_bytes(), k=29, learner="cosine", exclude_duplicates=True)
    assert "pear/3.jpg" not in paths_of(copies[0])
    explained = [explain_pair(searcher, one, "id:1") for one in (read_image(file), Image.open(file), file.read_bytes())]
    assert explained[0]["score"] == explained[1]["score"] == explained[2]["score"]
    assert explain_pair(searcher, io.BytesIO(file.read_bytes()), "id:1")["score"] == explained[0]["score"]
    with pytest.raises(UserError, match="not an image"):
        explain_pair(searcher, b"no image", "id:1")
    region = searcher.search([file.read_bytes(), Image.open(file)], k=3, region=(0, 0, 0.9, 0.9))
    assert region[0]["results"][0]["path"] == "pear/3.jpg"
    refused = searcher.search([b"no image", 10**9])
    assert [answer["error"] for answer in refused] == ["not an image", "run fruit has no image of this id"]


def test_many_kinds_of_queries_need_no_list_and_can_be_used_again(searcher, finished, outside):
    file = finished / "fruit/plum/1.jpg"
    (answer,) = searcher.search(str(file), k=3)
    assert searcher.search([file], k=3) == [answer] == searcher.search(file, k=3)
    assert paths_of(searcher.search(read_image(file), k=1, learner="cosine")[0]) == ["plum/1.jpg"]
    assert searcher.search([]) == []
    (outside / "pear/notes.txt").write_text("no image")
    answers = searcher.search([outside, "id:1"], k=2)
    assert [answer["query"] for answer in answers] == [*(str(outside / c / "new.jpg") for c in CLASSES), "id:1"]
    for answer, label in zip(answers, CLASSES, strict=False):
        assert answer["results"][0]["labels"] == [label]
    queries = searcher.queries(outside)
    assert searcher.search(queries, k=4) == searcher.search(outside, k=4)
    assert searcher.annotate(queries, k=1) == searcher.annotate(outside, k=1)


def test_many_queries_in_threads_are_as_one_after_the_other(finished, outside, monkeypatch):
    searcher = Searcher(finished / "runs/fruit")
    files = [finished / "fruit" / image.path for image in searcher.images] * 4
    (outside / "bad.jpg").write_text("not an image")
    files.insert(70, outside / "bad.jpg")
    one_by_one = searcher.queries(files)
    object.__setattr__(searcher.config.compute, "n_jobs", 3)
    together = searcher.queries(files)
    assert together.names == one_by_one.names == [str(file) for file in files]
    assert together.errors == one_by_one.errors == {70: "not an image"}
    assert together.place == one_by_one.place == [i for i in range(121) if i != 70]
    assert together.rows == [*range(30), *range(30), *range(30), *range(30)]
    np.testing.assert_array_equal(together.Q.toarray(), one_by_one.Q.toarray())
    np.testing.assert_array_equal(together.Q[:30].toarray(), searcher.X.toarray())


def test_what_cannot_be_read_is_told_beside_the_others(searcher, outside, tmp_path):
    (tmp_path / "empty").mkdir()
    odd = np.zeros((4, 4), np.uint8)
    queries = [outside / "none.jpg", "id:999999", "a.jpg\0b.jpg", tmp_path / "empty", odd, odd.astype(float)]
    *bad, good = searcher.search([*queries, outside / "pear/new.jpg"], k=2)
    reasons = [answer["error"] for answer in bad]
    assert reasons[0].startswith("cannot be read")
    assert reasons[2].startswith("cannot be read")
    assert reasons[1:4:2] == ["run fruit has no image of this id", "no images in this folder"]
    assert reasons[4:] == ["not RGB uint8 (H, W, 3), but uint8 (4, 4)", "not RGB uint8 (H, W, 3), but float64 (4, 4)"]
    assert all(answer["results"] == [] for answer in bad)
    assert len(good["results"]) == 2
    assert all(answer["labels"] == [] for answer in searcher.annotate(queries))


def test_a_pipe_is_read_once(finished, tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    data = (finished / "fruit/pear/0.jpg").read_bytes()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.jpg").write_bytes(data), daemon=True)
    writer.start()
    (answer,) = Searcher(finished / "runs/fruit").search(tmp_path / "pipe.jpg", k=1)
    assert answer.get("error") or answer["results"]  # read or refused, but nothing hangs
    reader = os.open(tmp_path / "pipe.jpg", os.O_RDONLY | os.O_NONBLOCK)  # or a refused pipe's writer waits for ever
    writer.join()
    os.close(reader)


def test_many_kinds_of_queries_at_once(finished, outside):
    answers = json.loads(visterm("search", outside, "id:1", "plum/2.jpg", "-k", "2", "--json", cwd=finished).stdout)
    files = [str(outside / c / "new.jpg") for c in CLASSES]
    assert [answer["query"] for answer in answers] == [*files, "id:1", "plum/2.jpg"]
    assert all(len(answer["results"]) == 2 for answer in answers)
    rows = visterm("search", "id:1", "id:2", "-k", "1", "--format", "csv", cwd=finished).stdout.splitlines()
    assert rows[0] == "query,rank,id,path,score,labels,probability"
    assert [row.split(",")[:2] for row in rows[1:]] == [["id:1", "1"], ["id:2", "1"]]
    assert visterm("annotate", "id:1", "-k", "1", cwd=finished).stdout.startswith("id:1\n")
    assert "give images or --label, not both" in refused("annotate", "id:1", "--label", "pear", cwd=finished)
