"""Images and thumbnails."""

import io
import os
import shutil
import sqlite3
import zipfile
from contextlib import closing

from PIL import Image as Pillow

from visterm.pipeline.console import Console
from visterm.pipeline.stages.edit import add, compact
from visterm.pipeline.stages.features import features as features_stage
from visterm.service import reloader, thumbnails

MARKUP = "fig/<img src=x onerror=alert(1)>.jpg"


def test_images_and_unknown_ids(client, searcher):
    listed = client.get("/api/images", params={"limit": 5, "offset": 2}).json()
    assert [image["path"] for image in listed] == [image.path for image in searcher.images[2:7]]
    some = client.get("/api/images", params={"sample": 6, "seed": 3, "label": "plum"}).json()
    assert {image["labels"][0] for image in some} == {"plum"}
    assert some == client.get("/api/images", params={"sample": 6, "seed": 3, "label": "plum"}).json()
    assert client.get("/api/images", params={"label": "none such"}).json() == []
    one = client.get(f"/api/images/{listed[0]['id']}").json()
    assert one["bytes"] == (searcher.root / one["path"]).stat().st_size
    images = [f"/images/999999/{what}" for what in ("thumbnail", "original")]
    for path in ("/search?id=999999", *images, "/api/images/999999", "/search?id=0"):
        client.check_error(client.get(path), 404, "no image", "removed")


def test_thumbnails_are_kept_by_content(client, photos):
    number = photos.id("pear/3.jpg")
    image = client.get(f"/api/images/{number}").json()
    plain = client.get(f"/images/{number}/thumbnail", params={"size": 100})
    assert plain.headers["content-type"] == "image/webp"
    with Pillow.open(io.BytesIO(plain.content)) as picture:
        assert picture.size == (128, 96)
    assert "immutable" not in plain.headers["cache-control"]  # another run may give this id to another image
    by_hash = client.get(f"/{image['thumbnail']}&size=100")
    assert "immutable" in by_hash.headers["cache-control"]
    etag = {"If-None-Match": plain.headers["etag"]}
    assert client.get(f"/images/{number}/thumbnail", params={"size": 100}, headers=etag).status_code == 304
    color = client.get(f"/api/images/{number}").json()["color"]
    assert len(color) == 7
    original = client.get(f"/images/{number}/original")
    assert original.content == photos.data("pear/3.jpg")
    assert original.headers["content-type"] == "image/jpeg"
    etag = {"If-None-Match": original.headers["etag"]}
    assert client.get(f"/images/{number}/original", headers=etag).status_code == 304
    for tags, status in ((f'"other", W/{etag["If-None-Match"]}', 304), ("*", 304), ('"other"', 200)):  # of a proxy
        given = {"If-None-Match": tags}
        assert client.get(f"/images/{number}/original", headers=given).status_code == status


def test_replaced_files_are_not_served(own, own_photos, tmp_path, serving, photos):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with serving(own) as client:
        link, pipe, other = (photos.id(f"plum/{i}.jpg") for i in (1, 2, 3))
        for i in (1, 2, 3):
            (own_photos / f"plum/{i}.jpg").unlink()
        (own_photos / "plum/1.jpg").symlink_to(secret)
        os.mkfifo(own_photos / "plum/2.jpg")
        shutil.copy(own_photos / "fig/1.jpg", own_photos / "plum/3.jpg")
        for number in (link, pipe, other):
            client.check_error(client.get(f"/images/{number}/original"), 410, "visterm features")
            client.check_error(client.get(f"/images/{number}/thumbnail"), 410, "gone or has changed")
        shutil.rmtree(own_photos / "fig")
        client.check_error(client.get(f"/images/{photos.id('fig/2.jpg')}/original"), 410)
        assert client.get("/search", params={"id": other}).status_code == 200  # its vector is still there


def test_name_that_is_not_utf8(own, own_photos, serving):
    shutil.copy(own_photos / "fig/1.jpg", os.path.join(os.fsencode(own_photos), b"fig/\xff\n.jpg"))
    features_stage(own, own.configure(None, []), None, Console(quiet=True))
    with serving(own) as client:
        image = client.get("/api/images", params={"label": "fig", "limit": 200}).json()[-1]
        assert image["path"] == "fig/\udcff\n.jpg"
        assert client.get(f"/images/{image['id']}/original").headers["content-disposition"].endswith("%FF%0A.jpg")


def test_removed_image_and_its_thumbnail(own, own_photos, serving, photos, searcher, monkeypatch):
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    with serving(own) as client:
        version, thumbnails = client.health()["version"], client.parts.thumbnails
        removed, kept = (photos.id(f"plum/{i}.jpg") for i in (4, 5))
        for number in (removed, kept):
            assert client.get(f"/images/{number}/thumbnail").status_code == 200
        (own_photos / "plum/4.jpg").unlink()
        features_stage(own, own.configure(None, []), None, Console(quiet=True))
        client.wait_for_version(version)
        client.check_error(client.get(f"/images/{removed}/thumbnail"), 404, "removed")
        client.check_error(client.get("/search", params={"id": removed}), 404, "removed")
        client.wait_until(lambda: len(thumbnails.colors) == 1)

        def stored():
            with closing(sqlite3.connect(own.folder / "service/thumbnails.sqlite")) as db:
                return [row[0] for row in db.execute("SELECT sha256 FROM thumbnails")]

        client.wait_until(lambda: len(stored()) == 1)
        assert stored() == list(thumbnails.colors) == [searcher.images[searcher.place[kept]].sha256]


def test_a_removal_is_undone_after_a_restart_and_is_described_before(own, serving, photos):
    ids = [photos.id(f"plum/{i}.jpg") for i in (3, 1)]
    file = own.folder / "service/removals.json"
    with serving(own) as client:
        before = client.get("/api/images", params={"limit": 200}).json()
        listed = client.get("/api/images/details", params={"ids": ",".join(map(str, ids))}).json()
        assert [image["path"] for image in listed] == ["plum/3.jpg", "plum/1.jpg"]
        read_later = {"color": None}  # in the background, perhaps between the two answers
        assert listed[1] | read_later == client.get(f"/api/images/{ids[1]}").json() | read_later
        assert {"bytes", "modified", "taken", "split", "width"} <= listed[0].keys()
        client.check_error(client.get("/api/images/details", params={"ids": f"{ids[0]},1000000"}), 404, "no image")
        removed = client.post("/api/images/remove", json={"ids": [*ids, ids[0]]}).json()
        assert removed["changed"] == 2  # named twice, removed once
        undo = removed["undo"]
    with serving(own) as client:
        assert len(client.get("/api/images", params={"limit": 200}).json()) == len(before) - 2
        assert client.parts.run.folder == own.folder
        assert client.post("/api/images/restore", json={"undo": undo}).json()["changed"] == 2
        assert [image["id"] for image in client.get("/api/images", params={"limit": 200}).json()] == [
            image["id"] for image in before
        ]
        client.check_error(client.post("/api/images/restore", json={"undo": undo}), 404, "no longer be undone")
        client.post("/api/images/remove", json={"ids": ids})
    for damaged in ("{", "[]", '{"x": [[1]]}', '{"x": 1}'):
        file.write_text(damaged)
        with serving(own) as client:
            client.check_error(client.post("/api/images/restore", json={"undo": "x"}), 404, "no longer be undone")


def test_a_restored_image_whose_vector_is_gone_waits_for_features(own, serving, photos):
    number, quiet = photos.id("plum/3.jpg"), Console(quiet=True)
    with serving(own) as client:
        undo = client.post("/api/images/remove", json={"ids": [number]}).json()["undo"]
        assert compact(own, quiet)["dropped_rows"] == 1
        restored = client.post("/api/images/restore", json={"undo": undo}).json()
        assert (restored["changed"], restored["n_images"]) == (1, 18)
        assert restored["behind"] == "1 image not extracted yet; run 'visterm features --run photos'"
        features_stage(own, own.configure(None, []), None, quiet)
        client.wait_until(lambda: client.get("/search", params={"id": number}).status_code == 200)


def test_thumbnails_have_a_cap_and_may_not_be_stored(tmp_path, searcher, caplog, monkeypatch):
    (tmp_path / "service").write_text("a file")
    kept = thumbnails.Thumbnails(tmp_path / "service" / "thumbnails.sqlite")
    assert kept.get(searcher.root, searcher.images[0], 128, 10**8)
    kept.sweep(searcher.images)
    assert "thumbnails are not stored" in caplog.text
    file, image = tmp_path / "cap.sqlite", searcher.images[0]
    with closing(thumbnails.Thumbnails(file)) as kept, closing(sqlite3.connect(file)) as db:

        def make():
            return kept.get(searcher.root, image, 128, 10**8)

        made = make()
        kept.sweep(searcher.images)
        assert db.execute("SELECT count(*) FROM thumbnails").fetchone() == (1,)
        assert make() == made
        monkeypatch.setattr(thumbnails, "MAX_THUMBNAIL_BYTES", 0)
        kept.sweep(searcher.images)
        assert db.execute("SELECT count(*) FROM thumbnails").fetchone() == (0,)
        db.execute("DROP TABLE thumbnails")  # as if damaged
        assert make() == made
    assert make() == made  # not stored any more


def test_markup_stays_text(client, photos):
    number = photos.id(MARKUP)
    answer = client.get("/search", params={"id": number})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()[0]["query"] == MARKUP
    original = client.get(f"/images/{number}/original")
    assert "<" not in original.headers["content-disposition"]
    assert original.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for refused in (
        client.upload(b"no image", "<script>alert(1)</script>\r\n.jpg"),
        client.get("/search", params={"id": number, "label": "<script>"}),
        client.get("/search", params={"query_label": "<script>"}),
        client.get("/search", params={"id": number, "learner": "<script>"}),
    ):
        assert refused.status_code in (404, 415)
        assert refused.headers["content-type"] == "application/json"
        assert refused.headers["x-content-type-options"] == "nosniff"


def test_an_archive_has_each_photo_once_and_names_no_folder_of_the_machine(own, own_photos, serving, tmp_path):
    outside = tmp_path / "elsewhere" / "other.jpg"
    outside.parent.mkdir()
    shutil.copy(own_photos / "pear/1.jpg", outside)
    with outside.open("ab") as file:
        file.write(b"\0")  # another content
    add(own, own.configure(None, []), [outside], Console(quiet=True), labels=["pear"])
    with serving(own) as client:
        numbers = {image.path: image.id for image in client.parts.snapshot.searcher.images}
        inside, added = numbers["pear/1.jpg"], numbers[str(outside)]
        answer = client.post("/images/download", data={"ids": f"{inside},0{inside},{added}"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert sorted(archive.namelist()) == sorted(["pear/1.jpg", f"{added}-other.jpg"])


def test_a_list_has_its_total_and_the_address_of_the_next_page(client):
    seen, address = [], "/api/images?limit=8&label=plum&label=pear"
    while address:
        answer = client.get(address)
        assert answer.headers["x-total-count"] == "13"
        seen += [image["id"] for image in answer.json()]
        following = answer.links.get("next")
        address = following and f"/api/images{following['url']}"
    assert len(seen) == len(set(seen)) == 13
    assert "x-total-count" not in client.get("/api/images?sample=3").headers
    first = client.get("/api/albums?limit=2").json()
    assert (first["total"], first["next"]) == (3, 2)
    assert client.get("/api/albums?limit=2&offset=2").json()["next"] is None
