"""Labels edited through the service, and on the page."""

import re

import pytest

from visterm.pipeline import LabelEditor, Searcher
from visterm.service import snapshot


def change(number, label, how):
    return {"id": number, "label": label, "change": how}


def test_edits_are_searched_at_once_undone_and_a_table(own, serving, photos):
    plum, fig = photos.id("plum/0.jpg"), photos.id("fig/0.jpg")
    with serving(own) as client:
        edits = [{"ids": [plum, fig], "label": "ripe", "change": "add"}, change(fig, "fig", "remove")]
        done = client.post("/api/labels", json={"edits": edits}).json()
        assert (done["changed"], done["images"][1]["labels"], done["last"]["added"]) == (2, ["ripe"], ["ripe"])
        (answer,) = client.get("/search", params={"id": plum, "label": "ripe"}).json()
        assert [result["id"] for result in answer["results"]] == [fig]
        LabelEditor(own).remove("ripe", [plum])  # of another program: the later one wins
        assert client.get("/api/labels/last").json()["last"]["removed"] == ["ripe"]
        for _ in range(2):
            client.post("/api/labels/undo")
        assert LabelEditor(own).of([plum, fig]) == {"fig/0.jpg": {"fig": 1.0}, "plum/0.jpg": {"plum": 1.0}}
        client.check_error(client.post("/api/labels/undo"), 409, "no edit of labels to undo")
        for label, message in (("a" * 4000, "4,000 characters"), ("a\nb", "control characters"), (" ", "is empty")):
            refused = client.post("/api/labels", json={"edits": [change(plum, label, "add")]})
            client.check_error(refused, 409, message)
    with serving(own) as client:
        edits = [change(photos.id("plum/0.jpg"), label, "add") for label in ("=ripe", "ü, x")]
        client.post("/api/labels", json={"edits": edits})
        answer = client.get("/api/labels.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="labels.csv"'
    rows = answer.content.decode().splitlines()
    assert rows[0] == "path,label"
    assert {"plum/0.jpg,'=ripe", 'plum/0.jpg,"ü, x"', "plum/0.jpg,plum", "fig/0.jpg,fig"} <= {*rows}


def test_an_undo_is_of_its_own_step_or_refused(own, serving, photos):
    plum, fig = photos.id("plum/0.jpg"), photos.id("fig/0.jpg")
    with serving(own) as client:
        own_step = client.post("/api/labels", json={"edits": [change(plum, "ripe", "add")]}).json()["last"]["step"]
        LabelEditor(own).add("sour", [fig])  # of another page, or a command
        refused = client.post("/api/labels/undo", json={"step": own_step})
        client.check_error(refused, 409, "label sour was changed since; undo that first")
        assert LabelEditor(own).counts()["ripe"] == LabelEditor(own).counts()["sour"] == 1
        client.check_error(client.post("/api/labels/undo", json={"stp": 1}), 422, "did you mean step?")
        client.post("/api/labels/undo")  # whichever is the last
        assert client.post("/api/labels/undo", json={"step": own_step}).json()["changed"] == 1
        assert not {"ripe", "sour"} & LabelEditor(own).counts().keys()


def test_a_label_that_was_confirmed_is_not_asked_about_again(own, serving, photos, draw_overview):
    plum, fig = photos.id("plum/0.jpg"), photos.id("fig/0.jpg")
    draw_overview(own, [(plum, "plum"), (fig, "fig")])
    with serving(own) as client:
        client.post("/api/labels", json={"edits": [change(plum, "plum", "add")], "source": "queue"})
        assert [entry["image"]["id"] for entry in client.get("/api/check").json()["entries"]] == [fig]
        edits = [change(fig, "fig", "remove"), change(fig, "pear", "add")]
        client.post("/api/labels", json={"edits": edits, "source": "queue"})
        assert client.get("/api/check").json()["total"] == 0
        client.post("/api/labels/undo")
        assert client.get("/api/check").json()["total"] == 1


def test_a_concept_is_learned_from_answers_that_survive_a_restart(own, serving, photos):
    ids = {name: [photos.id(f"{name}/{i}.jpg") for i in range(5)] for name in ("plum", "fig")}
    asked = {"label": "round"}

    def answer(client, number, how):
        response = client.post("/api/labels", json={"edits": [change(number, "round", how)], "source": "concept"})
        assert response.json()["changed"] == 1

    with serving(own) as client:
        client.check_error(client.get("/api/concept", params=asked), 404, "has no label 'round'")
        edits = [change(number, "round", "add") for number in ids["plum"][:3]]
        client.post("/api/labels", json={"edits": edits, "source": "concept"})
        state = client.get("/api/concept", params=asked).json()
        assert (state["yes"], state["no"], state["n_sure"]) == (3, 0, len(state["sure"]))
        first = state["ask"]["id"]
        assert first not in ids["plum"][:3]
        other = client.get("/api/concept", params=asked | {"skip": str(first)}).json()["ask"]["id"]
        assert other != first
        for number in ids["fig"]:
            answer(client, number, "remove")
        answer(client, ids["fig"][0], "remove")  # said twice, of two pages
        assert LabelEditor(own).of(ids["fig"][:1]) == {"fig/0.jpg": {"fig": 1.0}}
    with serving(own) as client:
        state = client.get("/api/concept", params=asked).json()
        assert (state["yes"], state["no"]) == (3, 5)
        assert not {*ids["plum"][:3], *ids["fig"]} & {state["ask"]["id"], *state["sure"]}
        for number in ids["fig"][:2]:
            answer(client, number, "add")  # the later answer counts
        assert client.get("/api/concept", params=asked).json()["no"] == 3
        for _ in range(2):
            client.post("/api/labels/undo")
        assert client.get("/api/concept", params=asked).json()["no"] == 5


def test_a_concept_of_nothing_is_refused_on_one_line(own, serving, photos):
    gone = photos.id("fig/0.jpg")
    with serving(own) as client:
        none = {"edits": [{"label": "round", "change": "add"}]}
        client.check_error(client.post("/api/labels", json=none), 422, "each needs an id, or ids")
        for label, status, message in (
            ("", 409, "the label is empty"),
            (" ", 409, "the label is empty"),
            ("a" * 4000, 409, "4,000 characters"),
            ("a" * 5000, 422, "at most 4096"),
            ("a\nb", 409, "control characters"),
        ):
            client.check_error(client.get("/api/concept", params={"label": label}), status, message)
        client.check_error(client.get("/api/concept"), 422, "label")
        client.check_error(client.get("/api/concept", params={"label": "fig", "skip": "x"}), 422, "skip")
        client.check_error(client.post("/api/labels", json={"edits": [], "source": "concept"}), 422, "at least 1")
        client.post("/api/images/remove", json={"ids": [gone]})
        edits = {"edits": [change(gone, "round", "add")], "source": "concept"}
        client.check_error(client.post("/api/labels", json=edits), 409, "fig/0.jpg was removed from the run")
        edits = {"edits": [change(999_999, "round", "add")]}
        client.check_error(client.post("/api/labels", json=edits), 409, "no image has id:999999; no label was changed")
        state = client.get("/api/concept", params={"label": "fig", "skip": str(gone)}).json()
        assert state["yes"] == 5


@pytest.fixture
def labelled(own_shown, serving, draw_overview):
    """The address of a service of a copy of the pages' run, with two labels to check; and the run."""
    images = Searcher(own_shown).images
    draw_overview(own_shown, [(image.id, "plum") for image in images if image.path in ("plum/1.jpg", "plum/2.jpg")])
    with serving(own_shown) as client:
        yield str(client.base_url), own_shown


def test_a_label_pressed_while_labels_are_read_again_is_taken_away(page, labelled, ids):
    from playwright.sync_api import expect

    page.goto(f"{labelled[0]}?view=album&open={ids['plum/1.jpg']}")
    page.wait_for_load_state("networkidle")  # the viewer fills, and its parts move
    labels = page.get_by_role("region", name="Labels")
    labels.get_by_role("button", name="Remove label plum").hover()
    page.mouse.down()
    with page.expect_response("**/api/labels/last"):
        page.evaluate("dispatchEvent(new Event('focus'))")  # as where a press brings the browser's window to the front
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    page.mouse.up()
    expect(labels.get_by_role("listitem")).to_have_text(["No label"])
    expect(labels.get_by_role("button", name="Undo plum removed")).to_be_visible()  # it is kept


def test_labels_are_edited_where_they_are_seen(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    number = ids["plum/1.jpg"]
    page.goto(f"{address}?view=album&open={number}")
    labels = page.get_by_role("region", name="Labels")
    labels.get_by_label("Add a label").fill("ripe")
    page.keyboard.press("Enter")
    expect(labels.get_by_role("listitem")).to_have_text(["plum", "ripe"])
    labels.get_by_role("button", name="Remove label plum").click()
    expect(labels.get_by_role("listitem")).to_have_text(["ripe"])
    expect(labels.get_by_role("button", name="Undo plum removed")).to_be_visible()  # it is kept
    labels.get_by_role("button", name="Add suggested label plum").click()  # without an annotator
    expect(labels.get_by_role("listitem")).to_have_text(["ripe", "plum"])
    labels.get_by_role("button", name="Undo plum added").click()
    expect(labels.get_by_role("listitem")).to_have_text(["ripe"])
    expect(labels.get_by_role("button", name="Undo plum removed")).to_be_visible()
    page.reload()
    labels.get_by_role("button", name="Undo").click()
    labels.get_by_role("button", name=re.compile("Undo ripe added")).click()
    expect(labels.get_by_role("listitem")).to_have_text(["plum"])
    page.goto(f"{address}?view=queue")
    expect(page.locator("#queue")).to_contain_text("2 photos left")
    expect(page.locator("#queue")).to_contain_text("Compared with all other photos, pear is 91 % likely, plum 3 %.")
    page.keyboard.press("y")
    expect(page.locator("#queue")).to_contain_text("1 decided, 1 photo left")
    page.keyboard.press("n")
    expect(page.locator("#queue")).to_contain_text("No label is left to check")
    assert LabelEditor(run).of([number]) == {"plum/1.jpg": {"pear": 1.0}}


def test_the_queue_shows_the_next_photo_at_once_and_large(page, labelled):
    """While the decision is saved; a photo is enlarged where it is, and a refused decision comes back."""
    from playwright.sync_api import expect

    address, run = labelled
    queue = page.locator("#queue")
    page.goto(f"{address}?view=queue")
    photo = queue.locator(".doubted img")
    expect(queue.locator(".evidence li")).to_have_count(6)
    expect(photo).to_have_attribute("src", re.compile("size=1024"))
    photo.dblclick()
    expect(queue.locator(".zoomed")).to_have_count(1)
    page.keyboard.press("z")
    expect(queue.locator(".zoomed")).to_have_count(0)
    assert page.url.endswith("?view=queue")
    assert page.violations() == []
    held, first = [], photo.get_attribute("alt")
    page.route("**/api/labels", lambda route: held.append(route), times=1)
    queue.get_by_role("button", name="It is pear").press("Enter")
    expect(queue).to_contain_text("1 decided, 1 photo left")
    expect(photo).not_to_have_attribute("alt", first)
    expect(queue.get_by_role("button", name="It is pear")).to_be_focused()
    page.refusals = 1
    held[0].fulfill(status=503, json={"ok": False, "error": "the disk is full", "status": 503})
    expect(page.locator("#failure")).to_contain_text("the disk is full")
    expect(queue).to_contain_text("0 decided, 2 photos left")
    expect(photo).to_have_attribute("alt", first)
    assert (
        "pear" not in LabelEditor(run).of([int(re.search(r"images/(\d+)", photo.get_attribute("src"))[1])]).popitem()[1]
    )
    with page.expect_response("**/api/run"):  # which is read once the decision is saved
        page.keyboard.press("y")
    expect(queue).to_contain_text("1 decided, 1 photo left")
    expect(page.locator("#failure")).to_be_empty()


@pytest.mark.slow
def test_the_queue_goes_back_past_what_was_skipped_and_without_single_keys(page, labelled):
    from playwright.sync_api import expect

    queue = page.locator("#queue")
    page.goto(f"{labelled[0]}?view=queue")
    photo = queue.locator(".doubted img")
    first = photo.get_attribute("alt")
    page.keyboard.press("y")
    expect(queue).to_contain_text("1 decided, 1 photo left")
    page.keyboard.press("s")
    expect(queue).to_contain_text("No label is left to check")
    page.keyboard.press("u")
    expect(queue).to_contain_text("1 decided, 1 photo left")
    page.evaluate("localStorage.setItem('visterm.keys', 'false')")
    page.keyboard.press("Control+z")
    expect(queue).to_contain_text("0 decided, 2 photos left")
    expect(photo).to_have_attribute("alt", first)


@pytest.mark.slow
def test_a_label_that_was_renamed_has_its_new_name_on_the_map(page, labelled):
    from playwright.sync_api import expect

    page.goto(f"{labelled[0]}?view=map")
    expect(page.locator(".maplegend")).to_contain_text("plum")
    page.box.fill("label:plum")
    page.box.press("Enter")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("New name").fill("prune")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("plum is now prune")
    page.get_by_role("link", name="Map", exact=True).click()
    expect(page.locator(".maplegend")).to_contain_text("prune")
    expect(page.locator(".maplegend")).not_to_contain_text("plum")


@pytest.mark.slow
def test_a_concept_is_learned_by_keys_alone(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    concept, asked = page.locator("#concept"), page.locator("#concept .asked img")
    page.goto(f"{address}?view=album&label=plum")
    page.locator("#album a.open").first.focus()
    for key in (" ", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.locator("#selection").get_by_role("button", name="Find more of these").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Find more like these 3 photos")).to_be_visible()
    assert page.violations() == []
    page.keyboard.type("round")
    page.keyboard.press("Enter")
    expect(concept.get_by_role("heading", level=1)).to_have_text("Does this show round?")
    expect(concept).to_contain_text("3 photos: yes. 0 photos: no.")
    assert page.violations() == []

    def press(key):
        """Answer, and wait for the next photo; return the number of the one asked about."""
        name = asked.get_attribute("alt")
        page.keyboard.press(key)
        expect(asked).not_to_have_attribute("alt", name)
        return ids[name.removeprefix("Photo ")]

    yes, no, skipped = press("y"), press("n"), press("s")
    expect(concept).to_contain_text("4 photos: yes. 1 photo: no.")
    assert "round" in LabelEditor(run).of([yes]).popitem()[1]
    assert "round" not in LabelEditor(run).of([no]).popitem()[1]
    press("u")
    assert asked.get_attribute("alt") == f"Photo {next(path for path, number in ids.items() if number == skipped)}"
    press("u")
    expect(concept).to_contain_text("4 photos: yes. 0 photos: no.")
    press("n")
    page.reload()
    expect(concept).to_contain_text("4 photos: yes. 1 photo: no.")
    press("u")
    expect(concept).to_contain_text("4 photos: yes. 0 photos: no.")
    page.refusals = 1
    press("u")
    page.keyboard.press("u")
    expect(concept).to_contain_text("No photo is labelled “round”")
    assert "round" not in LabelEditor(run).counts()


@pytest.mark.slow
def test_control_z_on_another_view_undoes_the_last_answer(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    say(page, address, ids["plum/1.jpg"], "add")
    page.goto(f"{address}?view=concept&label=round")
    page.locator("#concept .asked img").wait_for()
    page.keyboard.press("y")
    expect(page.locator("#concept")).to_contain_text("2 photos: yes.")
    page.get_by_role("link", name="Albums").click()
    expect(page.locator("#albums .album").first).to_be_visible()
    page.keyboard.press("Control+z")
    expect(page.locator("#toasts")).to_contain_text("Undone: 1 photo as before.")
    assert LabelEditor(run).counts()["round"] == 1


def say(page, address, number, how):
    """Answer whether an image is round; return what is known then."""
    edits = [change(number, "round", how)]
    assert page.request.post(f"{address}/api/labels", data={"edits": edits, "source": "concept"}).ok
    return page.request.get(f"{address}/api/concept?label=round").json()


def test_the_photos_found_for_a_concept_get_the_label_in_one_step(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    concept = page.locator("#concept")
    state = say(page, address, ids["plum/1.jpg"], "add")
    while not state["n_sure"]:  # the images of the tests are alike: answer until some are found
        state = say(page, address, state["ask"]["id"], "remove" if state["yes"] > 2 else "add")
    n, before = state["n_sure"], LabelEditor(run).counts()["round"]
    page.goto(f"{address}?view=concept&label=round")
    expect(concept.get_by_role("heading", level=2)).to_have_text(re.compile(f"^{n} photos? found$"))
    held = []
    page.route("**/api/concept?*", lambda route: held.append(route), times=1)  # the photos that follow take their time
    page.refusals = 1
    page.route("**/suggestions?*", lambda route: page.refuse(route, "the disk is full", 507), times=1)
    concept.get_by_role("button", name="Add the label to").click()
    expect(page.locator("#failure")).to_contain_text("the disk is full")
    concept.get_by_role("button", name="Add the label to").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Photos")).to_contain_text(f"all: {n} photo")
    expect(dialog.get_by_role("listitem")).to_have_count(min(n, 6))  # the least certain ones
    assert page.violations() == []
    dialog.get_by_role("button", name="Add the label").click()
    expect(page.locator("#toasts")).to_contain_text(f"round added to {n} photo")
    assert LabelEditor(run).counts()["round"] == before + n
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    held[0].continue_()
    expect(page.locator("#toasts")).to_contain_text("Undone")
    expect(concept.get_by_role("heading", level=2)).to_have_text(re.compile(f"^{n} photos? found$"))
    assert LabelEditor(run).counts()["round"] == before
    concept.get_by_role("button", name=re.compile("^No: ")).first.click()
    expect(concept).to_contain_text(f": yes. {state['no'] + 1} photo")


def test_a_page_that_takes_long_says_so(page, labelled, ids):
    from playwright.sync_api import expect

    address, _ = labelled
    say(page, address, ids["plum/1.jpg"], "add")
    held = []
    page.route("**/api/concept?*", lambda route: held.append(route), times=1)
    page.goto(f"{address}?view=concept&label=round", wait_until="commit")
    expect(page.locator("#toasts")).to_have_text("Loading …")
    held[0].continue_()
    expect(page.get_by_role("heading", level=1)).to_have_text("Does this show round?")
    expect(page.locator("#toasts")).to_be_empty()


def undo_elsewhere(page, concept):
    """Undo on another view, and come back."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="Albums").click()
    expect(concept).to_be_hidden()
    with page.expect_response("**/api/concept/offer"):  # an earlier toast may still be there
        page.keyboard.press("Control+z")
    page.go_back()


def test_what_was_added_is_offered_where_albums_are_and_a_label_is_renamed_with_one_undo(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    state = say(page, address, ids["plum/1.jpg"], "add")
    while not state["n_sure"]:
        state = say(page, address, state["ask"]["id"], "remove" if state["yes"] > 2 else "add")
    newest = min(state["sure"]) - 1
    run.concepts.write_text(f'{{"round": {newest}}}')  # as if those found had been added since
    new = [id_ for id_ in state["sure"] if id_ > newest]
    [grown] = page.request.get(f"{address}/api/concepts").json()
    assert (grown["label"], grown["new"]) == ("round", new)
    page.goto(f"{address}?view=albums")
    page.get_by_role("link", name=f"round: {len(new)} new to look at").click()
    concept = page.locator("#concept")
    expect(concept.get_by_role("heading", level=2)).to_contain_text(f"{len(new)} new")
    expect(concept.get_by_role("img", name="New photo")).to_have_count(len(new))
    assert page.violations() == []
    let_go = concept.get_by_role("button", name="Do not offer new photos")
    for undo in (
        lambda: page.get_by_role("button", name="Undo").last.click(),
        lambda: page.keyboard.press("Control+z"),
        lambda: undo_elsewhere(page, concept),
    ):
        let_go.click()
        expect(concept.get_by_role("button", name="Offer new photos", exact=True)).to_be_visible()
        assert page.request.get(f"{address}/api/concepts").json() == []
        undo()
        expect(let_go).to_be_visible()
        assert page.request.get(f"{address}/api/concepts").json() == [grown]
    counts = LabelEditor(run).counts()
    for undo in (
        lambda: page.keyboard.press("Control+z"),
        lambda: page.locator("#toasts").get_by_role("button", name="Undo").click(),
        None,
    ):
        concept.get_by_role("button", name="Mark as seen").click()
        expect(concept.get_by_role("img", name="New photo")).to_have_count(0)
        assert page.request.get(f"{address}/api/concepts").json()[0]["new"] == []
        if undo:
            undo()
            expect(concept.get_by_role("img", name="New photo")).to_have_count(len(new))
            assert page.request.get(f"{address}/api/concepts").json() == [grown]
        assert LabelEditor(run).counts() == counts  # no answer is undone in its place
    page.goto(f"{address}?view=album&label=round")
    before = LabelEditor(run).counts()
    page.get_by_role("button", name="Rename").click()
    assert page.violations() == []
    page.get_by_role("dialog").get_by_label("New name").fill("fig")  # a label that exists
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("round is now fig")
    expect(page.get_by_role("heading", level=1)).to_have_text("fig")
    assert "round" not in LabelEditor(run).counts()
    page.keyboard.press("Control+z")
    expect(page.get_by_role("heading", level=1)).to_have_text("round")
    assert LabelEditor(run).counts() == before
    page.locator("#album .select-all").click()
    page.locator("#selection").get_by_role("button", name="Label").click()
    page.get_by_label("Label instead of round").fill("ball")
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("ball replaces round")
    assert (LabelEditor(run).counts()["ball"], "round" in LabelEditor(run).counts()) == (before["round"], False)
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.locator("#toasts")).to_contain_text("Undone")
    assert LabelEditor(run).counts() == before


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True}], indirect=True
)
def test_a_concept_is_answered_by_swipes_on_a_phone(page, labelled, ids):
    from playwright.sync_api import expect

    address, _ = labelled
    say(page, address, ids["plum/1.jpg"], "add")
    page.goto(f"{address}?view=concept&label=round")
    asked = page.locator("#concept .asked")
    touch = page.context.new_cdp_session(page)

    def swipe(by):
        place = asked.bounding_box()
        x, y = place["x"] + place["width"] / 2, place["y"] + 40
        for kind, points in (
            ("touchStart", [{"x": x, "y": y}]),
            ("touchMove", [{"x": x + by, "y": y}]),
            ("touchEnd", []),
        ):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    expect(page.locator("#concept")).to_contain_text("1 photo: yes. 0 photos: no.")
    assert page.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    swipe(120)
    expect(page.locator("#concept")).to_contain_text("2 photos: yes. 0 photos: no.")
    swipe(-120)
    expect(page.locator("#concept")).to_contain_text("2 photos: yes. 1 photo: no.")


def test_after_an_edit_scores_are_not_measured_again(own, serving, photos, monkeypatch):
    monkeypatch.setattr(snapshot, "_SAMPLE", 8)
    with serving(own) as client:
        client.get("/search", params={"id": photos.id("pear/1.jpg"), "learner": "cosine"})
        before = client.parts.snapshot
        assert "cosine" in before._low
        measured = []
        monkeypatch.setattr(snapshot.Snapshot, "is_unlike", lambda self, name, ranked: measured.append(set(self._low)))
        client.post("/api/labels", json={"edits": [change(photos.id("pear/1.jpg"), "plum", "add")]})
        edited = client.parts.snapshot
        assert edited is not before
        assert measured  # asked when its searches were warmed up, with what had been measured before
        assert all("cosine" in known for known in measured)
        assert edited._low == before._low
        measured.clear()
        client.post("/api/images/remove", json={"ids": [photos.id("fig/1.jpg")]})
        assert client.parts.snapshot is not edited
        assert measured
        assert not any(measured)
