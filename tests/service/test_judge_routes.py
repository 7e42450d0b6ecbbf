"""The human evaluation."""

import sys

from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.tasks import draw_tasks


def test_judging(own, serving, searcher):
    with serving(own) as client:
        answer = client.get("/api/judge/next", params={"judge": "Ann"})
        client.check_error(answer, 409, "photos/judgements.sqlite: no tasks yet; run 'visterm judge'")
        assert str(own.folder.parent) not in answer.text
        assert client.get("/api/run").json()["judging"] is False
        tasks = draw_tasks(searcher, "oasis", n_queries=1, k=3, n_random=1)
        Judgements(own.judgements).create(tasks, learner="oasis", version="1")
        assert client.get("/api/run").json()["judging"] is True
        following = client.get("/api/judge/next", params={"judge": "Ann"}).json()
        assert "broad rather than a strict sense" in following["instructions"]
        for done in range(4):
            assert following["done"] == done
            asked = {key: following["task"][key] for key in ("task", "image")} | {"judge": "Ann", "decision": "not"}
            following = client.post("/api/judge/decisions", json=asked).json()
        assert following["task"] is None
        assert client.post("/api/judge/undo", json={"judge": "Ann"}).json()["done"] == 3
        client.post("/api/judge/decisions", json=asked | {"decision": "relevant", "seconds": 1.5})
        results = client.get("/api/judge/results").json()
        assert results["judges"][0]["done"] == 4
        assert len(client.get("/api/judge/export").json()) == 4
        for format in ("csv", "qrels"):
            assert len(client.get("/api/judge/export", params={"format": format}).text.splitlines()) in (4, 5)
        client.check_error(client.post("/api/judge/decisions", json=asked | {"decision": "perhaps"}), 422, "decision")
        client.check_error(client.post("/api/judge/decisions", json=asked | {"image": 999999}), 409, "no image 999999")
        client.check_error(client.get("/api/judge/next", params={"judge": ""}), 422, "judge")
        client.check_error(client.post("/api/judge/undo", json={"judge": "Bob"}), 409, "nothing to undo")
        formula = asked | {"judge": "=HYPERLINK(1)"}
        assert client.post("/api/judge/decisions", json=formula).status_code == 200
        assert ",'=HYPERLINK(1)," in client.get("/api/judge/export", params={"format": "csv"}).text


def test_without_the_plug_in_the_service_has_no_judging(made, serving, monkeypatch):
    monkeypatch.setitem(sys.modules, "visterm.plugins.judge.routes", None)
    with serving(made) as client:
        client.check_error(client.get("/api/judge/next", params={"judge": "Ann"}), 404)
        assert client.get("/search?id=1").status_code == 200
