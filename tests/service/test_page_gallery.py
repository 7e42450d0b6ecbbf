"""The gallery in a real browser: rows, virtual scrolling, sizes, selections, copies, phones."""

import csv
import io
import re
import shutil
import zipfile
from contextlib import closing

import cv2
import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")

from playwright.sync_api import expect

from visterm.pipeline import LabelEditor
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features as features_stage

phone = pytest.mark.parametrize(
    "page", [{"viewport": {"width": 390, "height": 740}, "is_mobile": True, "has_touch": True}], indirect=True
)
BOXES = """() => [...document.querySelectorAll('#results .tile[data-index]')].map((node) => {
    const { x, y, right, bottom, width, height } = node.getBoundingClientRect();
    return { index: Number(node.dataset.index), x, y, right, bottom, width, height };
})"""


def test_rows_are_justified_edge_to_edge_with_whole_photos(page, ids):
    page.goto("")
    read = "fetch('api/images?limit=100').then((r) => r.json()).then((all) => all.every((one) => one.color))"
    while not page.evaluate(read):  # the colours come in the background
        page.wait_for_timeout(50)
    page.ask(ids["plum/2.jpg"], "&learned_weight=1")  # with a share, weaker matches begin in the second row
    expect(page.locator("#end")).to_have_text("All 75 results shown.")
    tiles = [tile for tile in page.evaluate(BOXES) if tile["y"] < 860]  # others are made when there is time
    rows = {}
    for tile in tiles:
        rows.setdefault(round(tile["y"]), []).append(tile)
    full = [row for row in rows.values() if row[-1]["right"] == 1256]
    assert len(full) >= max(3, len(rows) - 2)  # the last row of a part may end before
    for row in full:
        assert row[0]["x"] == 24  # as the headings
        assert {tile["height"] for tile in row} == {row[0]["height"]}
        assert [b["x"] - a["right"] for a, b in zip(row, row[1:], strict=False)] == [4] * (len(row) - 1)
        assert 150 < row[0]["height"] < 290
        for tile in row:
            assert abs(tile["width"] / tile["height"] - 4 / 3) < 0.02
    image = page.tile(0).get_by_role("img")
    assert "384w" in image.get_attribute("srcset")
    assert page.tile(0).evaluate("(node) => node.style.getPropertyValue('--shade')").startswith("#")


@pytest.fixture
def many(page, ids):
    """A page of 50,000 photos of one pixel each; their number."""
    n = 50_000
    numbers = list(ids.values())
    columns = {
        "version": "x",
        "ids": [i * 1000 + numbers[i % len(numbers)] for i in range(n)],
        "ratios": [(0.75, 1, 1.33, 1.5, 1.78)[i % 5] for i in range(n)],
        "colors": [(i * 7919) % 0xFFFFFF for i in range(n)],
        "keys": ["0"] * n,
        "groups": [-1] * n,
    }
    pixel = cv2.imencode(".webp", cv2.cvtColor(cv2.UMat(8, 8, cv2.CV_8UC3).get(), cv2.COLOR_RGB2BGR))[1].tobytes()
    page.route("**/api/images/columns", lambda route: route.fulfill(json=columns))
    page.route("**/thumbnail?*", lambda route: route.fulfill(body=pixel, content_type="image/webp"))
    page.route("**/api/images?ids=*", lambda route: route.fulfill(json=[]))
    page.goto("?view=photos")
    expect(page.locator("#photos .tile").first).to_be_visible()
    return n


@pytest.mark.slow
def test_fifty_thousand_photos_scroll_with_few_tiles(page, many):
    n, tiles = many, page.locator("#photos .tile")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = page.locator(f'#photos .tile[data-index="{n - 1}"]')
    expect(last).to_be_in_viewport()
    assert tiles.count() < 150
    assert last.get_attribute("aria-posinset") == last.get_attribute("aria-setsize") == str(n)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    last.locator("a.open").focus()
    page.keyboard.press("Home")
    first = page.locator('#photos .tile[data-index="0"] a.open')
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").locator(".counter")).to_have_text("1 / 50,000")
    page.keyboard.press("Escape")
    expect(first).to_be_focused()


@pytest.mark.slow
@pytest.mark.parametrize(("screens", "loaded"), [(1, True), (20, False)])
def test_photos_that_pass_fast_are_loaded_when_the_scroll_slows_down(page, many, screens, loaded):
    page.wait_for_load_state("networkidle")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "thumbnail" in request.url else None)
    page.evaluate(
        """(screens) => new Promise((done) => {
            const begun = performance.now(), from = scrollY;
            const step = () => {
                const seconds = (performance.now() - begun) / 1000;
                scrollTo(0, from + seconds * screens * innerHeight);
                if (seconds < 2) requestAnimationFrame(step); else done();
            };
            step();
        })""",
        screens,
    )
    n_passed = page.evaluate("Number(document.querySelector('#photos .tile').dataset.index)")
    assert loaded or n_passed > 500
    assert loaded == (len(asked) > 0.3 * n_passed)  # a page that cannot keep up stands still at times, and loads
    page.wait_for_function("""() => [...document.querySelectorAll('#photos .tile')].every((tile) => {
        const { top, bottom } = tile.getBoundingClientRect();
        return bottom < 0 || top > innerHeight || tile.classList.contains('seen');
    })""")
    assert asked


@pytest.mark.slow
def test_photos_are_larger_or_smaller_by_slider_keys_and_pinch(page, ids):
    page.ask(ids["plum/2.jpg"])
    height = "document.querySelector('#results .tile').getBoundingClientRect().height"
    page.tile(1).locator("a.open").focus()
    usual = page.evaluate(height)
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.evaluate(height) > 1.2 * usual
    page.options(advanced=False)
    page.get_by_label("Photo size").press("Home")
    small = page.evaluate(height)
    assert small < 0.6 * usual
    page.keyboard.press("Escape")
    page.tile(3).hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -150)
    page.keyboard.up("Control")
    page.wait_until(f"{height} > {1.5 * small}")
    kept = page.evaluate(height)
    page.reload()
    expect(page.tile(0)).to_be_visible()
    assert page.evaluate(height) == kept


@pytest.mark.slow
def test_rank_and_name_appear_on_hover_and_focus_or_always(page, ids):
    page.ask(ids["plum/2.jpg"])
    rank, acts = page.tile(2).locator(".rank"), page.tile(2).locator(".acts")
    page.mouse.move(2, 2)
    for part in (rank, acts):
        expect(part).to_have_css("opacity", "0")
    page.tile(2).hover()
    for part in (rank, acts):
        expect(part).to_have_css("opacity", "1")
    page.mouse.move(2, 2)
    expect(rank).to_have_css("opacity", "0")
    page.tile(2).locator("a.open").focus()
    expect(rank).to_have_css("opacity", "1")
    page.tile(1).locator("a.open").focus()
    page.options(advanced=False)
    page.get_by_label("Always show rank, name and marks").check()
    for part in (rank, acts, page.tile(2).locator(".pill")):
        expect(part).to_have_css("opacity", "1")


@pytest.mark.slow
def test_several_are_selected_marked_and_exported(page, ids):
    page.ask(ids["fig/9.jpg"])
    bar = page.locator("#selection")
    page.tile(1).hover()
    page.tile(1).get_by_role("checkbox").click()
    expect(bar).to_contain_text("1 photo selected")
    page.tile(4).click(modifiers=["Shift"])
    expect(bar).to_contain_text("4 photos selected")
    page.tile(2).click()  # while selecting, a click selects
    expect(bar).to_contain_text("3 photos selected")
    expect(page.get_by_role("dialog")).to_be_hidden()
    [answer] = page.request.get(f"search?id={ids['fig/9.jpg']}&k=9").json()
    chosen = [answer["results"][i] for i in (1, 3, 4)]
    bar.get_by_role("button", name="Relevant", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("3 photos marked as relevant")
    expect(page.tile(3)).to_have_attribute("data-mark", "relevant")
    with page.expect_download() as saved:
        bar.get_by_role("button", name="Export CSV").click()
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text())))
    assert {(row["path"], row["rank"], row["mark"]) for row in rows} == {
        (image["path"], str(image["rank"]), "relevant") for image in chosen
    }
    with page.expect_download() as saved:
        bar.get_by_role("button", name="Download").click()
    with zipfile.ZipFile(saved.value.path()) as archive:
        assert sorted(archive.namelist()) == sorted(image["path"] for image in chosen)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    bar.get_by_role("button", name="Copy paths").click()
    expect(page.locator(".toast")).to_contain_text("3 paths copied")
    copied = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert sorted(copied) == sorted(image["path"] for image in chosen)
    bar.get_by_role("button", name="Clear selection").click()
    expect(bar).to_be_hidden()
    page.get_by_role("button", name="Clear marks").click()
    expect(page.locator("#marks .tray li")).to_have_count(0)


@pytest.mark.slow
def test_exported_rows_hold_no_formula(page, ids):
    def renamed(route):
        [answer] = route.fetch().json()
        answer["results"][0] |= {"path": "=1+1.jpg", "labels": ["-ripe"], "score": -0.5}
        route.fulfill(json=[answer])

    page.route("**/search?*", renamed)
    page.ask(ids["fig/9.jpg"])
    page.tile(0).hover()
    page.tile(0).get_by_role("checkbox").click()
    with page.expect_download() as saved:
        page.locator("#selection").get_by_role("button", name="Export CSV").click()
    (row,) = csv.DictReader(io.StringIO(saved.value.path().read_text()))
    assert (row["path"], row["labels"], row["score"]) == ("'=1+1.jpg", "'-ripe", "-0.5")


@pytest.mark.slow
def test_marks_of_several_are_undone_at_once(page, ids):
    page.ask(ids["fig/9.jpg"])
    marked, toast = page.locator("#marks .tray li"), page.locator(".toast")
    page.tile(0).locator("a.open").focus()
    page.keyboard.press("x")
    expect(marked).to_have_count(1)
    for undo in (lambda: toast.get_by_role("button", name="Undo").click(), lambda: page.keyboard.press("Control+z")):
        page.tile(0).locator("a.open").focus()
        page.keyboard.press("Shift+ArrowRight")
        page.locator("#selection").get_by_role("button", name="Relevant", exact=True).click()
        expect(toast).to_contain_text("2 photos marked as relevant")
        page.locator("#selection").get_by_role("button", name="Clear selection").click()
        undo()
        expect(toast).to_contain_text("2 marks undone.")
        expect(marked).to_have_count(1)
        expect(page.tile(0)).to_have_attribute("data-mark", "not relevant")


@pytest.mark.slow
def test_what_is_done_with_more_photos_than_a_request_takes_is_told_and_undone_as_it_was_done(page, many):
    """The labels of all but some are there already, and after some photos the others cannot be removed."""
    asked = []

    def answer(route, changed):
        asked.append(route.request.post_data_json)
        step = {"step": 1, "time": "", "added": ["ripe"], "removed": [], "images": 1}
        body = {"changed": changed(asked[-1]), "images": [], "last": step, "version": "x", "behind": None}
        route.fulfill(json=body | {"undo": "token", "n_images": 1})

    page.route("**/api/labels", lambda route: answer(route, lambda body: int(len(asked) == 3)))
    page.locator("#photos a.open").first.focus()
    page.keyboard.press("Control+a")
    bar, toast = page.locator("#selection"), page.locator(".toast")
    bar.get_by_role("button", name="Label").click()
    page.get_by_label("Label to add").fill("ripe")
    page.keyboard.press("Enter")
    expect(toast).to_contain_text("ripe added to 1 photo.")
    assert len(asked) == 10
    page.route("**/api/labels/undo", lambda route: answer(route, lambda body: 1))
    toast.get_by_role("button", name="Undo").click()
    expect(toast).to_contain_text("Undone: 1 photo as before.")
    assert len(asked) == 11

    def remove(route):
        if len(asked) == 12:
            page.refusals = 1
            page.refuse(route, "the disk is full", 507)
        else:
            answer(route, lambda body: len(body["ids"]))

    page.route("**/api/images/remove", remove)
    bar.get_by_role("button", name="Remove").click()
    page.locator("#confirm").get_by_role("button", name="Remove 50,000 photos").click()
    expect(toast).to_contain_text("5,000 photos removed from the collection. The others were not: the disk is full")
    expect(toast.get_by_role("button", name="Undo")).to_be_visible()


@pytest.mark.slow
def test_photos_are_selected_by_keys_alone_and_by_a_drag(page, ids):
    page.ask(ids["plum/2.jpg"])
    bar = page.locator("#selection")
    page.tile(0).locator("a.open").focus()
    page.keyboard.press(" ")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(bar).to_contain_text("3 photos selected")
    expect(page.tile(2).locator("a.open")).to_be_focused()
    page.keyboard.press("Control+a")
    expect(bar).to_contain_text("75 photos selected")
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    first, last = page.tile(1).bounding_box(), page.tile(3).bounding_box()
    page.mouse.move(first["x"] + 50, first["y"] + 60)
    page.mouse.down()
    page.mouse.move(last["x"] + 50, last["y"] + 70, steps=4)
    expect(bar).to_contain_text("3 photos selected")
    page.mouse.up()
    expect(page.get_by_role("dialog")).to_be_hidden()  # the drag is no click
    expect(bar).to_contain_text("3 photos selected")


@pytest.mark.slow
def test_a_mark_by_the_button_of_a_photo_keeps_the_focus_on_it(page, ids):
    page.ask(ids["fig/11.jpg"])
    page.tile(1).locator("a.open").focus()
    page.keyboard.press("Tab")
    expect(page.tile(1).get_by_role("checkbox")).to_be_focused()
    page.keyboard.press("Tab")
    button = page.tile(1).get_by_role("button", name="Relevant", exact=True)
    for pressed in ("true", "false"):
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-pressed", pressed)
        expect(button).to_be_focused()


@pytest.mark.slow
def test_removal_is_asked_twice_and_undone(page, serving, own_shown, ids):
    with serving(own_shown) as client:

        def first():
            results = client.get("/search", params={"id": ids["fig/2.jpg"], "k": 5}).json()[0]["results"]
            return [(image["id"], image["score"], image["labels"]) for image in results]

        before = first()
        page.goto(f"{client.base_url}/?id={ids['fig/2.jpg']}")
        expect(page.locator("#end")).to_have_text("All 75 results shown.")
        page.tile(0).locator("a.open").focus()
        page.keyboard.press(" ")
        page.keyboard.press("Shift+ArrowRight")
        page.locator("#selection").get_by_role("button", name="Remove").click()
        dialog = page.locator("#confirm")
        assert client.health()["images"] == 76
        dialog.get_by_role("button", name="Remove 2 photos").click()
        expect(page.locator(".toast")).to_contain_text("2 photos removed from the collection.")
        expect(page.locator("#end")).to_have_text("All 73 results shown.")
        assert client.health()["images"] == 74
        assert int(page.tile(0).get_attribute("data-id")) == first()[0][0]
        page.locator(".toast").get_by_role("button", name="Undo").click()
        expect(page.locator("#end")).to_have_text("All 75 results shown.")
        assert first() == before
        client.check_error(client.post("/api/images/restore", json={"undo": "x"}), 404, "no longer be undone")
        every = list(ids.values())
        client.check_error(client.post("/api/images/remove", json={"ids": every}), 409, "keep at least one")


@pytest.mark.slow
@phone
def test_a_long_press_selects_and_a_finger_takes_more_in(page, ids):
    page.ask(ids["plum/2.jpg"])
    touch = page.context.new_cdp_session(page)

    def at(index):
        box = page.tile(index).bounding_box()
        return {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}

    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at(0)]})
    bar = page.locator("#selection")
    expect(bar).to_contain_text("1 photo selected")
    touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [at(2)]})
    expect(bar).to_contain_text("3 photos selected")
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    expect(bar).to_contain_text("3 photos selected")
    assert page.evaluate("scrollY") == 0
    for button in bar.get_by_role("button").all():
        assert button.bounding_box()["height"] >= 44
    page.tile(0).tap()
    expect(bar).to_contain_text("2 photos selected")


@pytest.mark.slow
def test_copies_are_one_tile_with_a_count(page, serving, own, own_photos):
    page.set_default_timeout(20_000)
    pixels = cv2.imread(str(own_photos / "plum/3.jpg"))
    cv2.imwrite(str(own_photos / "plum/mirrored.jpg"), pixels[:, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])
    cv2.imwrite(str(own_photos / "plum/large.jpg"), cv2.resize(pixels, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC))
    features_stage(own, own.configure(None, []), own_photos, Console(quiet=True))
    with serving(own) as client:
        images = {image["path"]: image for image in client.get("/api/images", params={"limit": 200}).json()}
        copies = [images[f"plum/{name}.jpg"] for name in ("3", "mirrored", "large")]
        client.wait_until(
            lambda: all(
                client.get(f"/api/images/{image['id']}").json()["group"]
                == images["plum/large.jpg"]["id"]  # of most pixels
                for image in copies
            )
        )
        assert client.get(f"/api/images/{images['plum/4.jpg']['id']}").json()["group"] is None
        page.goto(f"{client.base_url}/?id={images['plum/4.jpg']['id']}")
        expect(page.locator("#end")).to_have_text("All 20 results shown.")
        tile = page.locator("#results .tile", has=page.locator(".copies", has_text="3"))
        expect(tile).to_have_count(1)
        tile.locator("a.open").click()
        expect(page.get_by_role("dialog")).to_contain_text("2 copies")
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Photos", exact=True).click()
        expect(page.locator("#photos .bar")).to_contain_text("21 photos, 3 copies folded")
        page.keyboard.press("Control+a")
        expect(page.locator("#selection")).to_contain_text("18 photos selected")
        page.go_back()
        expect(tile).to_have_count(1)
        page.options(advanced=False)
        page.get_by_label("Show copies as one photo").uncheck()
        expect(page.locator("#results .copies")).to_have_count(0)


@pytest.mark.slow
def test_a_photo_that_cannot_be_read_is_a_tile_with_words(page, serving, own, own_photos):
    with serving(own) as client:
        images = {image["path"]: image for image in client.get("/api/images", params={"limit": 200}).json()}
        for file in (own_photos / "fig").iterdir():
            file.write_bytes(b"no picture")
        page.refusals = 6  # of each the thumbnail alone
        page.goto(f"{client.base_url}/?id={images['plum/4.jpg']['id']}&label=fig")
        expect(page.locator("#results .missing")).to_have_count(6)
        expect(page.locator("#results .missing").first).to_have_text(re.compile(r"^fig/.+\.jpg"))
        page.refusals += 6
        page.route(
            "**/api/images?ids=*", lambda route: (page.locator("#album .missing").nth(5).wait_for(), route.continue_())
        )
        page.goto(f"{client.base_url}/?view=album&label=fig")  # names that come later stand in their places
        expect(page.locator("#album .missing").first).to_have_text(re.compile(r"^fig/.+\.jpg"))
        page.wait_for_timeout(100)


@pytest.mark.slow
def test_the_dropped_picture_is_shown_at_once_and_skeletons_stand_for_results(page, shown):
    held = []
    page.route(re.compile("/search$"), lambda route: held.append(route))
    page.goto("")
    page.locator("#file").set_input_files(shown.folder.parents[1] / "photos" / "pear" / "3.jpg")
    expect(page.locator("#results .waiting .tile").first).to_be_visible()
    page.wait_until("document.documentElement.scrollWidth <= innerWidth", 5)
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    picture = page.locator("#query img")
    expect(picture).to_have_attribute("src", re.compile("^blob:"))
    page.wait_until("document.querySelector('#query img').naturalWidth > 0")
    held[0].continue_()
    expect(page.locator("#end")).to_contain_text("results shown")


@pytest.mark.slow
def test_a_picture_dropped_before_the_run_is_read_is_not_replaced_by_the_start_page(page, shown):
    runs, searches = [], []
    page.route(re.compile("api/run$"), lambda route: runs.append(route))
    page.route(re.compile("/search$"), lambda route: searches.append(route))
    with page.expect_request(re.compile("api/run$")):
        page.goto("")
    page.locator("#file").set_input_files(shown.folder.parents[1] / "photos" / "pear" / "3.jpg")
    page.wait_for_timeout(200)
    runs[0].continue_()
    expect(page.locator("#results .waiting .tile").first).to_be_visible()
    page.wait_for_timeout(300)  # for what the page does when it begins
    expect(page.get_by_role("heading", level=1)).to_have_text("3.jpg")
    expect(page.locator("#start")).to_be_hidden()
    searches[0].continue_()
    expect(page.locator("#end")).to_contain_text("results shown")


@pytest.mark.slow
def test_photos_of_the_start_page_that_come_late_leave_a_dropped_one_alone(page, shown):
    samples, searches = [], []
    page.route(re.compile("api/images.sample="), lambda route: samples.append(route))
    page.route(re.compile("/search$"), lambda route: searches.append(route))
    with page.expect_request(re.compile("api/images.sample=")):
        page.goto("")
    page.locator("#file").set_input_files(shown.folder.parents[1] / "photos" / "pear" / "3.jpg")
    expect(page.locator("#results .waiting .tile").first).to_be_visible()
    with page.expect_response(re.compile("api/images.sample=")):
        samples[0].continue_()
    page.wait_for_timeout(300)  # for what the page does with the answer
    expect(page.locator("#start")).to_be_hidden()
    searches[0].continue_()
    expect(page.locator("#end")).to_contain_text("results shown")
    page.unroute(re.compile("api/images.sample="))
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("#samples img").first).to_be_visible()


@pytest.mark.slow
def test_a_server_that_stops_is_a_sentence_and_can_be_tried_again(page, ids):
    page.refusals = 1
    page.ask(ids["plum/2.jpg"])
    page.route("**/search?*", lambda route: route.abort())
    page.tile(1).get_by_role("button", name="Search with this").click()
    expect(page.get_by_role("alert")).to_contain_text("Cannot reach the server. Check that visterm serve is running.")
    expect(page.tile(0)).to_be_visible()
    page.unroute("**/search?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.slow
def test_an_unlike_photo_is_told(page, ids):
    [answer] = page.request.get(f"search?id={ids['pear/1.jpg']}&k=100").json()
    assert answer["unlike"] is False
    page.route("**/search?*", lambda route: route.fulfill(json=[answer | {"unlike": True}]))
    page.ask(ids["pear/1.jpg"])
    expect(page.locator(".unlike")).to_have_text("Nothing here is much like this photo. These are the nearest ones.")


@pytest.mark.slow
def test_names_of_any_length_and_script(page, serving, own, own_photos, write_images):
    name, label = "שלום عالم 你好 " + "x" * 180, "תווית " + "y" * 190
    write_images(own_photos, [f"{label}/{name}.jpg"])
    features_stage(own, own.configure(None, []), own_photos, Console(quiet=True))
    with serving(own) as client:
        image = next(one for one in client.get("/api/images", params={"limit": 200}).json() if label in one["labels"])
        page.set_viewport_size({"width": 390, "height": 740})
        page.goto(f"{client.base_url}/?id={image['id']}")
        expect(page.get_by_role("heading", level=1)).to_contain_text("שלום")
        page.goto(f"{client.base_url}/?view=photos&open={image['id']}")
        expect(page.locator("#viewer .path")).to_contain_text(name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_looks_are_read_once_and_kept(own, own_photos, serving):
    import sqlite3

    with serving(own) as client:
        client.wait_until(lambda: len(client.parts.looks.colors) >= 18)
    with closing(sqlite3.connect(own.folder / "service/looks.sqlite")) as db:
        stored = dict(db.execute("SELECT sha256, color FROM looks"))
    assert all(re.fullmatch("#[0-9a-f]{6}", color) for color in stored.values())
    shutil.rmtree(own_photos)
    with serving(own) as client:
        assert client.parts.looks.colors == stored


def test_control_z_undoes_the_last_thing_of_any_kind(page, serving, own_shown):
    with serving(own_shown) as client:
        page.goto(f"{client.base_url}?view=photos")
        first = page.locator("#photos a.open").first
        first.focus()
        page.keyboard.press(" ")
        page.locator("#selection").get_by_role("button", name="Label").click()
        page.get_by_label("Label to add").fill("ripe")
        page.keyboard.press("Enter")
        expect(page.locator("#toasts")).to_contain_text("ripe added to 1 photo")
        page.locator("#selection").get_by_role("button", name="Remove").click()
        page.locator("#confirm").get_by_role("button", name="Remove 1 photo").click()
        expect(page.locator("#photos .tile").first).to_have_attribute("aria-setsize", "75")
        page.refusals = 2  # of what is not undone, the next Ctrl Z tries again
        page.route("**/undo", lambda route: page.refuse(route, "no space", 507), times=1)
        page.route("**/restore", lambda route: page.refuse(route, "no space", 507), times=1)
        page.keyboard.press("Control+z")
        expect(page.locator("#toasts")).to_contain_text("Not restored: no space")
        page.keyboard.press("Control+z")
        expect(page.locator("#photos .tile").first).to_have_attribute("aria-setsize", "76")
        assert "ripe" in client.get("/api/run").json()["labels"]
        page.keyboard.press("Control+z")
        expect(page.locator("#toasts")).to_contain_text("Not undone: no space")
        page.keyboard.press("Control+z")
        expect(page.locator("#toasts")).to_contain_text("Undone: 1 photo as before.")
        assert "ripe" not in client.get("/api/run").json()["labels"]


def test_an_undo_leaves_alone_what_another_page_did_since(page, serving, own_shown, ids):
    with serving(own_shown) as client:
        page.goto(f"{client.base_url}?view=photos")
        page.locator("#photos a.open").first.focus()
        page.keyboard.press(" ")
        page.locator("#selection").get_by_role("button", name="Label").click()
        page.get_by_label("Label to add").fill("ripe")
        page.keyboard.press("Enter")
        toast = page.locator(".toast")
        expect(toast).to_contain_text("ripe added to 1 photo.")
        labels = LabelEditor(own_shown)
        labels.add("sour", [ids["plum/2.jpg"]])
        page.refusals = 1
        toast.get_by_role("button", name="Undo").click()
        expect(toast).to_contain_text("Not undone: label sour was changed since; undo that first")
        assert {"ripe", "sour"} <= labels.counts().keys()
        labels.undo()
        page.keyboard.press("Control+z")
        expect(toast).to_contain_text("Undone: 1 photo as before.")
        assert not {"ripe", "sour"} & labels.counts().keys()


def test_a_busy_server_is_asked_again_for_the_thumbnail(page, ids):
    page.set_default_timeout(20_000)
    busy = {"status": 429, "headers": {"Retry-After": "1"}, "json": {"ok": False, "error": "x", "status": 429}}
    asked, refused = [], []
    page.on("request", lambda request: asked.append(request.url))

    def answer(route):
        if len(refused) < 3:
            refused.append(route.request.url)
            route.fulfill(**busy)
        else:
            route.continue_()

    page.route(f"**/images/{ids[min(ids)]}/thumbnail*", answer)
    page.route("**/api/run", lambda route: route.fulfill(**busy), times=1)
    page.refusals = 4
    page.goto("?view=photos")
    picture = page.locator("#photos .tile[data-index='0'] img")
    expect(picture).to_have_attribute("data-again", "1")
    page.wait_until("document.querySelector('#photos .tile[data-index=\"0\"] img').naturalWidth")
    assert not any("/original" in url for url in asked)


def test_the_viewer_says_where_a_photo_is_from(page, ids):
    def with_fields(route):
        answer = route.fetch().json()
        route.fulfill(json=answer | {"fields": answer["fields"] | {"focal_length": "23", "shop": "12"}})

    page.route(f"**/api/images/{ids['plum/1.jpg']}", with_fields)
    page.goto(f"?view=photos&open={ids['plum/1.jpg']}")
    facts = page.get_by_role("dialog").locator(".facts")
    rows = [("Folder", "plum"), ("File", r"\d+ KB"), ("File changed", r"\d{4}-\d\d-\d\d")]
    for name, value in [*rows, ("Focal length (mm)", "23"), ("shop", "12")]:
        row = facts.locator(f"dt:text-is('{name}') + dd")
        expect(row).to_have_text(re.compile(value))
    assert page.violations() == []


def test_photos_of_one_folder_have_no_folder_and_unknown_words_lead_to_three_photos(page, flat, serving):
    with serving(flat) as client:
        page.goto(f"{client.base_url}?view=photos&open=1")
        facts = page.get_by_role("dialog").locator(".facts")
        expect(facts.locator("dt:text-is('File') + dd")).to_be_visible()
        expect(facts.locator("dt:text-is('Folder')")).to_have_count(0)
        page.goto(str(client.base_url))
        expect(page.get_by_role("region", name="Recently added")).to_be_visible()
        expect(page.get_by_role("region", name="Folders")).to_have_count(0)
        page.box.fill("pear0")  # a suggestion of which a text that is too long must not be taken for
        expect(page.get_by_role("option").first).to_be_visible()
        page.box.fill("sunset at the beach " * 20)
        page.keyboard.press("Enter")
        page.locator(".toast").get_by_role("button", name="Show three photos of it").click()
        page.wait_until("location.search === '?view=photos'")


def test_headings_in_a_grid_stand_at_the_left_edge_of_the_photos(page, ids):
    page.goto("?view=dates")
    heading = page.locator("#dates .divider h2").first
    expect(heading).to_be_visible()
    assert heading.bounding_box()["x"] == page.locator("#dates .tile").first.bounding_box()["x"]


def test_all_results_are_selected_by_a_button_and_by_control_a_anywhere(page, ids):
    bar = page.locator("#selection")
    page.ask(ids["plum/2.jpg"])
    page.get_by_role("button", name="Select all").click()
    expect(bar).to_contain_text("75 photos selected")
    page.keyboard.press("Escape")
    page.goto("?view=photos")
    expect(page.locator("#photos .tile").first).to_be_visible()
    page.keyboard.press("Control+a")  # nothing has the focus
    expect(bar).to_contain_text("76 photos selected")
    bar.get_by_role("button", name="Clear selection").click()
    page.locator("#q").focus()
    page.keyboard.press("Control+a")  # the text of the field
    expect(bar).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator("#photos h1").click()
    page.locator("#photos").get_by_role("button", name="Select all").click()
    expect(bar).to_contain_text("76 photos selected")
    assert page.violations() == []
