"""A run that is renamed or replaced while it is served."""

from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.tasks import draw_tasks


def test_nothing_is_written_until_the_folder_is_back(own, serving, photos, searcher):
    tasks = draw_tasks(searcher, "oasis", n_queries=1, k=3, n_random=1)
    Judgements(own.judgements).create(tasks, learner="oasis", version="1")
    query, result = (photos.id(f"plum/{i}.jpg") for i in range(2))
    with serving(own) as client:
        key = client.mark(photos, "plum/0.jpg", ["plum/1.jpg"], [])
        writes = {
            "/marks": {"query": key, "image": result, "mark": -1},
            "/marks/undo": {"query": key},
            "/feedback/update": {},
            "/feedback/undo": {},
            "/feedback/reset": {},
            "/api/judge/decisions": {"judge": "Ann", "task": 0, "image": tasks[0].candidates[0].id, "decision": "not"},
            "/api/judge/undo": {"judge": "Ann"},
            "/api/images/remove": {"ids": [result]},
            "/api/images/restore": {"undo": "0" * 16},
            "/api/map": {},
            "/api/train": {},
            "/api/train/undo": {},
        }

        def refuses_all():
            for path, body in writes.items():
                client.check_error(client.post(path, json=body), 503, "run photos: its folder", "move the folder back")
            assert client.upload(photos.data("fig/1.jpg")).json()[0].get("upload") is None
            assert client.get("/search", params={"id": query}).status_code == 200

        away = own.folder.rename(own.folder.with_name("away"))
        refuses_all()
        client.check_error(client.get("/feedback/export"), 503, "cannot be read", "No such file")
        assert client.get(f"/images/{query}/thumbnail").status_code == 200
        assert not own.folder.exists()
        own.folder.mkdir()  # another run of this name
        refuses_all()
        assert list(own.folder.iterdir()) == []
        own.folder.rmdir()
        away.rename(own.folder)
        assert client.post("/marks", json=writes["/marks"]).status_code == 200
        assert client.post("/api/judge/decisions", json=writes["/api/judge/decisions"]).status_code == 200
        assert [mark["mark"] for mark in client.get("/feedback/export").json()] == [1, -1]
