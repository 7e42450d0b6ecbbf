"""Search, annotation and explanation."""

import datetime
import hashlib
import io
import shutil

import pytest
from PIL import Image as Pillow

from visterm.learners.validation import CAUTIOUS_SPARSE
from visterm.pipeline.console import Console
from visterm.pipeline.evaluation.calibration import Calibration
from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.stages.train import train
from visterm.service import parts
from visterm.service.subjects.search import SearchSubject


def test_search_by_id_answers_as_searcher_does(client, searcher, photos):
    number = photos.id("plum/2.jpg")
    (answer,) = client.get("/search", params={"id": number, "k": 5}).json()
    (expected,) = searcher.search(f"id:{number}", k=5)
    assert [{key: row[key] for key in expected["results"][0]} for row in answer["results"]] == expected["results"]
    assert answer["query"] == "plum/2.jpg"
    assert answer["key"] == hashlib.sha256(photos.data("plum/2.jpg")).hexdigest()
    assert (answer["learner"], answer["n_searched"], answer["version"]) == ("oasis", 19, searcher.version)
    assert number not in [row["id"] for row in answer["results"]]
    assert {(row["width"], row["height"]) for row in answer["results"]} == {(128, 96)}


def test_every_learner_and_the_next_page(client):
    for learner in ("oasis", "knn", "cosine"):
        (whole,) = client.get("/search", params={"id": 1, "k": 12, "learner": learner}).json()
        (rest,) = client.get("/search", params={"id": 1, "k": 6, "offset": 6, "learner": learner}).json()
        assert rest["results"] == whole["results"][6:]
        assert whole["learner"] == learner
    (beyond,) = client.get("/search", params={"id": 1, "offset": 500}).json()
    assert beyond["results"] == []


def test_the_last_page_is_known_where_the_query_is_among_the_images(client, photos):
    pear, other = photos.id("pear/1.jpg"), photos.id("pear/2.jpg")
    for asked, n in (
        ({}, 18),  # of 19 images
        ({"label": "pear"}, 6),
        ({"label": "plum"}, 6),
        ({"example": f"id:{other}"}, 17),
        ({"example": f"id:{other}", "label": "pear"}, 5),
        ({"exclude_duplicates": True}, 17),  # there is a copy of pear/0.jpg
        ({"exclude_duplicates": True, "label": "pear"}, 5),
        ({"exclude_duplicates": True, "example": f"id:{other}"}, 16),
    ):
        for k in (n, n - 1):
            (answer,) = client.get("/search", params=asked | {"id": pear, "k": k}).json()
            assert (len(answer["results"]), answer["next"]) == (k, None if k == n else k)
    (answer,) = client.get("/search", params={"query_label": "pear", "k": 19}).json()
    assert (len(answer["results"]), answer["next"]) == (19, None)


def test_probabilities_filter_and_are_absent_with_the_reason(client, photos, monkeypatch):
    asked = {"id": photos.id("pear/0.jpg"), "k": 12, "learner": "oasis"}
    (answer,) = client.get("/search", params=asked).json()  # too few test images
    assert {row["probability"] for row in answer["results"]} == {answer["base_rate"]} == {None}
    assert "10 are needed" in answer["no_probability"]
    refused = client.get("/search", params=asked | {"min_probability": 0.5})
    assert (refused.status_code, "10 are needed" in refused.text) == (409, True)
    assert client.get("/search", params=asked | {"min_probability": 1.5}).status_code == 422

    known = Calibration([4.0, 4.0, 0.0], 0.0, 0.25, 100)
    monkeypatch.setattr(Searcher, "calibration", lambda *_, is_plain: known if is_plain else "more than one image")
    (answer,) = client.get("/search", params=asked).json()
    probabilities = [row["probability"] for row in answer["results"]]
    assert (probabilities, answer["base_rate"]) == (sorted(probabilities, reverse=True), 0.25)
    (likely,) = client.get("/search", params=asked | {"min_probability": probabilities[2]}).json()
    assert 1 <= len(likely["results"]) < 12
    assert likely["results"] == answer["results"][: len(likely["results"])]
    pages = asked | {"k": len(likely["results"]), "min_probability": probabilities[2]}
    (page,) = client.get("/search", params=pages).json()
    assert (page["results"], page["next"]) == (likely["results"], None)
    (page,) = client.get("/search", params=pages | {"k": 1}).json()
    assert (page["results"], page["next"]) == (likely["results"][:1], 1)
    columns = client.get("/search/columns", params=asked | {"min_probability": probabilities[2]}).json()
    assert columns["probabilities"] == [row["probability"] for row in likely["results"]]
    assert client.get("/search", params=asked | {"weight": 2, "min_probability": 0.1}).status_code == 409


def test_columns_of_searches_and_of_images(client, photos):
    columns = client.get("/search/columns", params={"id": photos.id("pear/0.jpg"), "label": "fig"}).json()
    assert len(columns["ids"]) == len(columns["scores"]) == 6
    client.check_error(client.get("/search/columns"), 422, "give exactly one of: id, path, upload, query_label")
    wanted = {"label": ["fig", "plum"], "not_label": "fig", "order": "recent"}
    images = client.get("/api/images", params={**wanted, "limit": 200}).json()
    assert {image["labels"][0] for image in images} == {"plum"}
    assert client.get("/api/images/columns", params=wanted).json()["ids"] == [image["id"] for image in images]


def test_a_share_of_what_was_learned(client, searcher, photos):
    number = photos.id("pear/0.jpg")
    (by_default,) = client.get("/search", params={"id": number}).json()
    assert by_default["learned_weight"] == searcher.share("oasis")
    assert by_default["learned_weight"] == CAUTIOUS_SPARSE  # three classes are too few to hold some out
    for share in (CAUTIOUS_SPARSE, 0, 0.25, 1):
        (answer,) = client.get("/search", params={"id": number, "learned_weight": share}).json()
        assert answer["learned_weight"] == share
        assert (answer["results"] == by_default["results"]) == (share == CAUTIOUS_SPARSE)
        result = answer["results"][0]
        explained = client.get(
            "/explain", params={"id": number, "result": result["id"], "learned_weight": share}
        ).json()
        assert explained["score"] == pytest.approx(result["score"], abs=2e-6)  # another sum, rounded, too
        assert explained["positive"] + explained["negative"] == pytest.approx(result["score"], abs=1e-3)
    client.check_error(client.get("/search", params={"id": number, "learned_weight": "much"}), 422, "learned_weight")


def test_duplicates_of_a_query_are_no_results(client, photos):
    asked = {"id": photos.id("pear/0.jpg"), "k": 100}
    (everything,) = client.get("/search", params=asked).json()
    (without,) = client.get("/search", params=asked | {"exclude_duplicates": True}).json()
    paths = [row["path"] for row in everything["results"]]
    assert "pear/0 again.jpg" in paths
    assert [row["path"] for row in without["results"]] == [path for path in paths if path != "pear/0 again.jpg"]
    assert [row["rank"] for row in without["results"]] == list(range(1, 18))


def test_upload_answers_as_searcher_does_and_can_be_asked_again(client, photos):
    data = photos.data("fig/1.jpg")
    (answer,) = client.upload(data, "dropped.jpg", k="4", learner="cosine").json()
    assert answer["query"] == "dropped.jpg"
    assert answer["results"][0]["path"] == "fig/1.jpg"  # what is dropped may be in the collection
    assert answer["results"][0]["score"] == pytest.approx(1, abs=1e-6)
    assert answer["key"] == answer["upload"] == hashlib.sha256(data).hexdigest()
    (again,) = client.get("/search", params={"upload": answer["upload"], "k": 4, "learner": "cosine"}).json()
    assert again["results"] == answer["results"]
    left = datetime.datetime.fromisoformat(again["upload_expires"]) - datetime.datetime.now(datetime.UTC)
    assert left.total_seconds() == pytest.approx(7 * 24 * 3600, abs=60)
    from_parameters = client.post(f"/search?upload={answer['upload']}&k=4&learner=cosine").json()
    assert from_parameters[0]["results"] == answer["results"]


def test_images_are_named_by_their_paths(client, photos):
    number = photos.id("plum/1.jpg")
    for address in ("/search", "/search/columns"):
        (by_id, by_path) = (
            client.get(address, params={"k": 3, **of}).json() for of in ({"id": number}, {"path": "./plum/1.jpg"})
        )
        if address == "/search":
            by_id[0].pop("seconds"), by_path[0].pop("seconds")
            assert by_id[0]["next"] == 3
        assert by_id == by_path
    posted = client.post("/search", data={"path": "plum/1.jpg", "k": 3}).json()[0]
    assert posted["results"] == client.get("/search", params={"id": number, "k": 3}).json()[0]["results"]
    labels = [client.post("/annotate", data=of).json() for of in ({"id": number}, {"path": "plum/1.jpg"})]
    assert labels[0] == labels[1]
    asked = {"result": photos.id("plum/2.jpg"), "learner": "cosine"}
    explained = [client.get("/explain", params=asked | of).json() for of in ({"id": number}, {"path": "plum/1.jpg"})]
    assert explained[0] == explained[1]
    for path in ("plum/99.jpg", "", "../plum/1.jpg", "/etc/passwd"):
        client.check_error(client.get("/search", params={"path": path}), 404, "no image")
    client.check_error(client.get("/search", params={"path": "plum/1.jpg", "id": 1}), 422, "exactly one of")
    everything = client.get("/search", params={"path": "plum/1.jpg", "k": 100}).json()[0]
    assert everything["next"] is None


def test_labels(client, searcher, photos):
    number = photos.id("plum/1.jpg")
    labels = client.post("/annotate", data={"id": number, "k": 2}).json()
    assert labels["labels"] == searcher.annotate(f"id:{number}", k=2)[0]["labels"]
    uploaded = client.post("/annotate", files={"file": ("a.jpg", photos.data("plum/1.jpg"))}, data={"k": 2}).json()
    assert uploaded["labels"] == labels["labels"]
    (answer,) = client.get("/search", params={"query_label": "plum", "k": 3, "offset": 1}).json()
    expected = searcher.search_label("plum", k=4)[0]["results"][1:]
    assert [(row["rank"], row["path"]) for row in answer["results"]] == [(r["rank"], r["path"]) for r in expected]
    assert answer["learner"] == "knn"
    client.check_error(client.get("/search", params={"query_label": "plumb"}), 404, "did you mean plum?")
    (among,) = client.get("/search", params={"query_label": "plum", "label": "fig", "k": 9}).json()
    figs = [row for row in searcher.search_label("plum", k=19)[0]["results"] if row["labels"] == ["fig"]]
    assert [(row["path"], row["score"]) for row in among["results"]] == [(row["path"], row["score"]) for row in figs]
    client.check_error(client.get("/search", params={"query_label": "plum", "label": "figs"}), 404, "figs")
    for ignored in ({"example": "id:1"}, {"region": "0,0,0.5,0.5"}, {"weight": 2}):
        client.check_error(client.get("/search", params={"text": "plums"} | ignored), 422, "queries that are images")
    client.check_error(client.get("/search", params={"text": "plums", "learned_weight": 0.5}), 422, "by itself")
    for asked in ({"query_label": "pear"}, {"text": "pears"}, {"text": "pears and figs"}):
        (whole,) = client.get("/search", params={"k": 19} | asked).json()
        (once,) = client.get("/search", params={"k": 19, "exclude_duplicates": True} | asked).json()
        paths = [result["path"] for result in whole["results"]]
        first = min("pear/0.jpg", "pear/0 again.jpg", key=paths.index)
        copy = ({"pear/0.jpg", "pear/0 again.jpg"} - {first}).pop()
        assert [result["path"] for result in once["results"]] == [path for path in paths if path != copy]
    client.check_error(client.get("/search", params={"query_label": "plum", "learner": "oasis"}), 409, "knn")


def test_an_explanation_by_images_that_were_removed_since(own, serving, photos):
    own_ids = photos.id("plum/1.jpg"), photos.id("plum/2.jpg")
    asked = {"id": own_ids[0], "result": own_ids[1], "learner": "oasis", "teachers": 4}
    with serving(own) as client:

        def taught():
            pairs = client.get("/explain", params=asked).json()["teachers"]["pairs"]
            return [(one[side]["id"], one[side]["thumbnail"]) for one in pairs for side in ("query", "result")]

        gone = next(id_ for id_, _ in taught() if id_ not in own_ids)
        client.post("/api/images/remove", json={"ids": [gone]})
        assert (None, None) in taught()


def test_explanation(client, photos):
    first, second = photos.id("plum/1.jpg"), photos.id("plum/2.jpg")
    asked = {"id": first, "result": second, "learner": "cosine"}
    explanation = client.get("/explain", params=asked).json()
    assert explanation["result"]["path"] == "plum/2.jpg"
    assert sum(explanation["query"]["heat"]) == pytest.approx(explanation["score"], abs=1e-4)
    (answer,) = client.upload(photos.data("plum/1.jpg")).json()
    same = client.get("/explain", params={"upload": answer["upload"], "result": second, "learner": "cosine"}).json()
    assert same["score"] == pytest.approx(explanation["score"], abs=1e-5)
    taught = client.get("/explain", params=asked | {"learner": "oasis", "teachers": 2}).json()
    teachers = taught["teachers"]
    assert teachers["unlearned"] + teachers["common"] + teachers["learned"] == pytest.approx(taught["score"], abs=1e-5)
    assert client.get("/" + teachers["pairs"][0]["query"]["thumbnail"]).status_code == 200
    none = client.get("/explain", params=asked | {"learner": "cosine", "teachers": 2}).json()
    assert none["teachers"] is None
    assert "oasis has one" in none["no_teachers"]
    png = client.get("/explain", params={"id": first, "result": second, "format": "png"})
    assert png.content.startswith(b"\x89PNG")
    client.check_error(client.get("/explain", params={"id": first, "result": 12345}), 404, "12345")


def test_batched_searches_equal_single_ones(client):
    shared, snapshot = client.subjects.of(SearchSubject), client.parts.snapshot
    asked = [
        (i, SearchRequest(k, name, offset=o))
        for i in (1, 2, 3)
        for k, o, name in ((3, 0, "oasis"), (3, 2, "oasis"), (5, 0, "cosine"), (4, 0, None))
    ]
    asked += [(77777, SearchRequest()), (1, SearchRequest(learner="none such"))]
    together = shared.search_batch([(snapshot, *question) for question in asked])
    for (number, request), outcome in zip(asked, together, strict=True):
        params = {"id": number, "k": request.k, "offset": request.offset}
        params |= {"learner": request.learner} if request.learner else {}
        alone = client.get("/search", params=params).json()
        if isinstance(outcome, Exception):
            assert alone["error"] == outcome.detail
        else:
            assert outcome | {"seconds": 0} == alone[0] | {"seconds": 0}
    assert [type(outcome).__name__ for outcome in together[-2:]] == ["HTTPException"] * 2


def test_filter_scores_only_the_images_with_its_label(made, serving):
    with serving(made) as client:
        client.parts.snapshot.searcher.index = lambda name, learned_weight: 1 / 0
        (answer,) = client.get("/search", params={"id": 1, "label": "plum", "k": 50}).json()
        assert len(answer["results"]) == answer["n_searched"] == 6


def test_labels_without_a_learner_that_ranks_labels(own, serving, photos):
    shutil.rmtree(own.learner("knn"))
    with serving(own) as client:
        assert client.get("/api/run").json()["annotators"] == []
        asked = {"id": photos.id("plum/1.jpg"), "k": 1}
        for learner in ({}, {"learner": "knn"}):
            (label,) = client.post("/annotate", data=asked | learner).json()["labels"]
            assert label["label"] == "plum"
        refused = client.post("/annotate", data=asked | {"learner": "oasis"})
        client.check_error(refused, 409, "does not rank labels; learners of this run that do: knn")
        (answer,) = client.get("/search?query_label=plum&k=3").json()
        assert [result["labels"] for result in answer["results"]] == [["plum"]] * 3  # by the photos with the label


def test_what_is_refused(client, photos):
    unknown, known = {"id": 999999}, {"id": 1}
    for answer in (
        client.post("/search", data=unknown),
        client.post("/annotate", data=unknown),
        client.get("/explain", params=unknown | {"result": 1}),
        client.get("/explain", params=known | {"result": 999999}),
    ):
        client.check_error(answer, 404, "no image 999999", "removed")
    for asked in ("id=-1", "id=1e99", f"id={2**70}", "upload=..%2F..%2Fetc%2Fpasswd", "upload=" + "A" * 64):
        client.check_error(client.get(f"/search?{asked}"), 422, asked.partition("=")[0])
    client.check_error(client.get("/search?id=1&offset=-1"), 422, "offset")
    client.check_error(client.get("/search?id=1&k=1000000"), 422, "1000")
    for k in ("0", "-3", "1000000", "ten"):
        client.check_error(client.get(f"/search?id=1&k={k}"), 422, "k: ")
        client.check_error(client.upload(photos.data("fig/1.jpg"), k=k), 422, "k: ")
        client.check_error(client.post("/search", data={"id": 1, "k": k}), 422, "k: ")
        client.check_error(client.post("/annotate", data={"id": 1, "k": k}), 422, "k: ")
    client.check_error(client.get("/search"), 422, "exactly one")
    client.check_error(client.get("/search", params={"id": 1, "query_label": "fig"}), 422, "exactly one")
    client.check_error(client.get("/search", params={"id": 1, "learner": "oasys"}), 404, "oasys", "oasis, knn, cosine")
    client.check_error(client.get("/search", params={"id": 1, "learner": "wsabie"}), 409, "not trained")
    client.check_error(client.get("/search", params={"id": 1, "label": "<b>"}), 404, "<b>")
    opened = client.get("/search", params={"id": 1, "label": "<b>"}, headers={"Sec-Fetch-Dest": "document"})
    assert (opened.status_code, opened.headers["content-type"]) == (404, "text/html; charset=utf-8")
    client.check_error(client.get("/nowhere"), 404)
    client.check_error(client.delete("/search"), 405)
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post("/search", content=b"nonsense", headers=headers).status_code in (400, 422)
    client.check_error(client.post("/search", content=b"id=1&id=no"), 422, "exactly one")
    picture = io.BytesIO()
    Pillow.new("1", (9000, 9000)).save(picture, "PNG")
    data = (b"hello, this is text", 415, "JPEG, PNG"), (picture.getvalue(), 413, "9000 x 9000 pixels")
    for sent, status, words in (*data, (bytes(parts.UPLOAD_BYTES), 413, "67,108,864 bytes")):
        client.check_error(client.post("/annotate", files={"file": ("x.jpg", sent)}), status, words)


def test_a_search_by_words(own_shown, serving):
    """By the labels that they name, where a learner ranks labels."""
    run = own_shown
    config = run.configure(None, ["ovr.n_steps=2000"])
    train(run, config, "ovr", Console(quiet=True))
    with serving(run) as client:
        both = client.get("/search", params={"text": "figs and a plumm", "k": 5}).json()[0]
        assert (both["query"], both["learner"], both["key"]) == ("fig + plum", "ovr", None)
        one = client.get("/search", params={"text": "FIG", "k": 9}).json()[0]["results"]
        same = client.get("/search", params={"query_label": "fig", "k": 9}).json()[0]["results"]
        assert [result["id"] for result in one] == [result["id"] for result in same]
        columns = client.get("/search/columns", params={"text": "figs and a plumm"}).json()
        assert columns["ids"][:5] == [result["id"] for result in both["results"]]
        client.check_error(client.get("/search", params={"text": "the sea"}), 404, "no word of 'the sea' is a label")
        client.check_error(client.get("/search", params={"text": "x" * 301}), 422, "at most 300")
        client.check_error(client.get("/search", params={"text": "x" * 10_001}), 422, "text")
        client.check_error(client.get("/search", params={"text": " "}), 422, "empty text")
        assert both["answered_by"] == "by the labels fig + plum; no labels: and, a" == columns["answered_by"]
        client.check_error(client.get("/search", params={"text": "fig", "text_by": "model"}), 409, "no text model")
        client.check_error(client.get("/search", params={"text": "fig", "text_by": "both"}), 422, "text_by")
        client.check_error(client.get("/search", params={"id": 1, "text_by": "model"}), 422, "for a text")
        client.check_error(client.get("/search", params={"text": "fig", "id": 1}), 422, "exactly one of")
