"""Uploaded images."""

import io
import os
import time

import numpy as np
import pytest
from PIL import Image as Pillow

from visterm.service import reloader
from visterm.service.parts import UPLOAD_BYTES
from visterm.service.uploads import Uploads


def test_upload_keeps_pixels_and_nothing_else(client):
    picture = Pillow.fromarray(np.random.default_rng(0).integers(0, 256, (80, 90, 3), np.uint8))
    exif = Pillow.Exif()
    exif[0x010E] = "taken at home"
    stream = io.BytesIO()
    picture.save(stream, "JPEG", exif=exif)
    assert b"taken at home" in stream.getvalue()
    (answer,) = client.upload(stream.getvalue()).json()
    kept = client.get(f"/uploads/{answer['upload']}")
    assert kept.headers["content-type"] == "image/png"
    assert b"taken at home" not in kept.content
    with Pillow.open(io.BytesIO(kept.content)) as shown, Pillow.open(stream) as sent:
        assert not shown.getexif()
        assert np.abs(np.asarray(shown, int) - np.asarray(sent.convert("RGB"), int)).mean() < 1
    small = client.get(f"/uploads/{answer['upload']}", params={"size": 32})
    assert small.headers["content-type"] == "image/webp"


def test_uploads_that_are_refused(client, photos):
    for data, word in (
        (b"", "empty"),
        (b"hello, this is text", "not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "not an image"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", ""),
    ):
        client.check_error(client.upload(data, "x.jpg"), 415, "x.jpg", word, "JPEG, PNG")
    client.check_error(client.upload(photos.data("fig/1.jpg")[:-500]), 415, "truncated")
    stream = io.BytesIO()
    Pillow.new("1", (9000, 9000)).save(stream, "PNG")
    assert len(stream.getvalue()) < 50_000
    client.check_error(client.upload(stream.getvalue()), 413, "9000 x 9000 pixels")
    data = np.random.default_rng(0).bytes(UPLOAD_BYTES)
    client.check_error(client.upload(data), 413, "67,108,864 bytes")

    def parts():  # without Content-Length
        for start in range(0, len(data), 2**20):
            yield data[start : start + 2**20]
        yield b"and more"

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    client.check_error(client.post("/search", content=parts(), headers=headers), 413, "bytes")
    for key in ("0" * 64, "f" * 64):
        client.check_error(client.get(f"/uploads/{key}"), 404, "expired")
        client.check_error(client.get("/search", params={"upload": key}), 404, "expired")


def test_paths_as_names_of_uploads(own, tmp_path, serving, photos):
    with serving(own) as client:
        for picture, name in (("fig/1.jpg", "../../../up.jpg"), ("fig/2.jpg", str(tmp_path / "up.jpg"))):
            before = {file for file in tmp_path.rglob("*") if file.suffix in (".jpg", ".png")}
            (answer,) = client.upload(photos.data(picture), name).json()
            assert answer["query"] == name
            after = {file for file in tmp_path.rglob("*") if file.suffix in (".jpg", ".png")}
            assert after - before <= {own.folder / "service" / "uploads" / f"{answer['upload']}.png"}


def test_upload_that_cannot_be_stored(own, serving, photos):
    """The search works; only the link to it does not exist."""
    with serving(own) as client:
        (own.folder / "service" / "uploads").write_text("in the way")
        (answer,) = client.upload(photos.data("fig/1.jpg")).json()
    assert answer["results"]
    assert "upload" not in answer


def test_uploads_expire_and_have_a_cap(tmp_path):
    uploads = Uploads(tmp_path / "uploads", seconds=100, max_uploads=3)
    pixels = np.zeros((8, 8, 3), np.uint8)
    for i in range(5):
        assert uploads.add(f"{i}", pixels)
        os.utime(tmp_path / "uploads" / f"{i}.png", (time.time() - 50 + i,) * 2)
    uploads.sweep()
    assert sorted(file.stem for file in (tmp_path / "uploads").iterdir()) == ["2", "3", "4"]
    os.utime(tmp_path / "uploads" / "2.png", (time.time() - 101,) * 2)
    assert uploads.read("2") is None
    assert uploads.read("3") is not None  # renews its lifetime
    uploads.sweep()
    assert sorted(file.stem for file in (tmp_path / "uploads").iterdir()) == ["3", "4"]
    size = (tmp_path / "uploads" / "3.png").stat().st_size
    Uploads(tmp_path / "uploads", max_bytes=size)
    assert [file.stem for file in (tmp_path / "uploads").iterdir()] == ["3"]


@pytest.mark.slow
def test_expired_uploads_are_removed_while_the_service_runs(own, monkeypatch, serving, photos):
    monkeypatch.setattr(reloader, "CLEAN_UP_SECONDS", 0.05)
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    with serving(own) as client:
        for _ in range(2):  # one clean-up is that of the start
            (answer,) = client.upload(photos.data("fig/1.jpg")).json()
            file = own.folder / "service" / "uploads" / f"{answer['upload']}.png"
            os.utime(file, (0, 0))
            client.wait_until(lambda file=file: not file.exists())


def test_other_users_cannot_read_uploads(made, client, photos):
    client.upload(photos.data("fig/1.jpg"))
    assert (made.folder / "service" / "uploads").stat().st_mode & 0o077 == 0
