"""Photos and folders that are dropped on the page: searched by, or added to the collection."""

import re
import shutil
import sys

import pytest
from playwright.sync_api import expect

from visterm.service.subjects.adding import PhotoAdder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def drop(page, *files):
    """Drop files and folders, as the system's file manager does."""
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": list(map(str, files)), "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data})
    devtools.detach()


@pytest.fixture
def holiday(shown, write_images, tmp_path):
    """A folder with three new photos, one of the collection, one that is no image, and a file of another kind."""
    folder = tmp_path / "holiday"
    write_images(folder, ["sea/0.jpg", "sea/1.jpg", "2.jpg"])
    for file in folder.rglob("*.jpg"):
        file.write_bytes(file.read_bytes() + b" ")
    shutil.copy(shown.folder.parents[1] / "photos/pear/1.jpg", folder / "pear.jpg")
    (folder / "bad.jpg").write_text("no image")
    (folder / "notes.txt").write_text("no photo")
    return folder


def test_a_folder_is_added_and_what_is_there_or_no_image_is_said(page, own_shown, serving, holiday):
    page.refusals = 1  # bad.jpg
    with serving(own_shown) as client:
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        drop(page, holiday)
        dialog = page.locator("#confirm")
        expect(dialog).to_contain_text("5 photos")
        expect(dialog).to_contain_text("1 other file left out.")
        assert client.health()["images"] == 76
        dialog.get_by_role("button", name="Add to the collection").click()
        line = page.get_by_role("region", name="Adding photos")
        there = "3 photos added. Already there: pear.jpg is pear/1.jpg."
        expect(line).to_contain_text(there, timeout=400_000)  # a process of low priority, on a busy machine
        expect(line).to_contain_text("Not added: bad.jpg: ")
        assert client.health()["images"] == 79
        line.get_by_role("link", name="Show them").click()
        expect(page.locator("#added .tile").first).to_have_attribute("aria-setsize", "79")
        expect(line).to_be_hidden()


PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize("page", [PHONE, {}], ids=["phone", "keyboard"], indirect=True)
def test_photos_are_added_by_a_button(page, own_shown, serving, holiday):
    with serving(own_shown) as client:
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        button = page.locator("#start").get_by_role("button", name="Add photos")
        expect(button).to_be_in_viewport()
        assert page.violations() == []
        with page.expect_file_chooser() as chooser:
            if page.viewport_size["width"] == 390:
                button.tap()
            else:
                button.press("Enter")
        chooser.value.set_files([holiday / "2.jpg", holiday / "pear.jpg"])
        line = page.get_by_role("region", name="Adding photos")
        expect(line).to_contain_text("1 photo added. Already there: pear.jpg", timeout=400_000)
        recent = page.get_by_role("region", name="Recently added").get_by_role("img").first
        expect(recent).to_have_attribute("alt", re.compile("2.jpg"))  # without a reload
        page.goto(f"{client.base_url}?view=photos")
        expect(page.locator("#photos .tile").first).to_have_attribute("aria-setsize", "77")
        expect(page.locator("#photos").get_by_role("button", name="Add photos")).to_be_visible()
        assert page.violations() == []


def test_photos_of_a_folder_that_is_watched_appear_without_a_reload(page, own_shown, serving, ids):
    def as_watched(route):
        route.fulfill(json=route.fetch().json() | {"watching": True})

    with serving(own_shown) as client:
        undo = client.post("/api/images/remove", json={"ids": [ids["plum/2.jpg"]]}).json()["undo"]
        page.route("**/api/run", as_watched)
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        assert client.post("/api/images/restore", json={"undo": undo}).status_code == 200  # added by the service
        expect(page.get_by_role("region", name="Adding photos")).to_contain_text("1 photo added.")
        expect(page.get_by_role("region", name="Labels")).to_contain_text("19 photos")
        expect(page.get_by_role("region", name="Labels")).not_to_contain_text("18 photos")


def test_a_pasted_photo_is_asked_about_and_what_dropping_does_is_said(page, own_shown, serving):
    with serving(own_shown) as client:
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        page.evaluate(
            """() => {
                const data = new DataTransfer();
                data.items.add(new File([new Uint8Array(9)], "a.png", { type: "image/png" }));
                document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
                dispatchEvent(new DragEvent("dragenter", { dataTransfer: data }));
            }"""
        )
        expect(page.locator("#confirm").get_by_role("button", name="Add to the collection")).to_be_visible()
        expect(page.locator("#dropping")).to_have_text("Drop to search with it, or to add it to the collection")


def test_one_photo_is_searched_by_or_added_and_adding_is_cancelled(page, own_shown, serving, holiday, monkeypatch):
    with serving(own_shown) as client:
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        drop(page, holiday / "2.jpg")
        page.locator("#confirm").get_by_role("button", name="Cancel").click()
        expect(page.locator("#confirm")).to_be_hidden()
        drop(page, holiday / "2.jpg")
        expect(page.get_by_role("button", name="Search by it")).to_be_focused()
        page.keyboard.press("Enter")  # the first button has the focus
        expect(page.get_by_role("heading", level=1)).to_have_text("2.jpg")
        expect(page.locator("#end")).to_contain_text("results shown")
        code = 'import time; print(\'{"done": 0, "total": 1}\', flush=True); time.sleep(60)'
        monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", code))
        drop(page, holiday / "2.jpg")
        page.get_by_role("button", name="Add to the collection").click()
        line = page.get_by_role("region", name="Adding photos")
        expect(line).to_contain_text("Adding 0 of 1 …")
        expect(line.get_by_role("progressbar")).to_be_visible()
        line.get_by_role("button", name="Cancel").click()
        expect(line).to_contain_text("Cancelled: 1 photo not added.")
        assert list(own_shown.added.iterdir()) == []
        line.get_by_role("button", name="Dismiss").click()
        expect(line).to_be_hidden()
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("2.jpg"))


def test_photos_that_are_added_during_adding_are_next_also_after_those_of_another_page(
    page, own_shown, serving, holiday, monkeypatch
):
    """They were refused, and cancelling the first ones deleted them."""
    page.refusals = 1  # while another page adds
    code = 'import time; print(\'{"done": 0, "total": 1}\', flush=True); time.sleep(60)'
    command = PhotoAdder.command
    with serving(own_shown) as client:
        page.goto(str(client.base_url))
        expect(page.locator("#samples img").first).to_be_visible()
        monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", code))
        data = (holiday / "sea/1.jpg").read_bytes()
        client.post("/api/add/photo", files={"file": ("theirs.jpg", data)})
        client.post("/api/add")
        line = page.get_by_role("region", name="Adding photos")
        for name in ("2.jpg", "sea/0.jpg"):
            with page.expect_file_chooser() as chooser:
                page.locator("#start").get_by_role("button", name="Add photos").click()
            chooser.value.set_files([holiday / name])
        expect(line).to_contain_text("Adding … You can go on searching.")
        client.delete("/api/add")
        expect(line).to_contain_text("Adding 0 of 1 … You can go on searching.")
        assert [file.name for file in own_shown.added.iterdir()] == ["2.jpg"]
        monkeypatch.setattr(PhotoAdder, "command", command)
        line.get_by_role("button", name="Cancel").click()
        expect(line).to_contain_text("Cancelled: 1 photo not added. 1 photo added.", timeout=400_000)
        assert [file.name for file in own_shown.added.iterdir()] == ["0.jpg"]
