"""The page over imported vectors: pictures, words by a text model, an explanation without places, a ZIP archive."""

import io
import zipfile

import numpy as np
import pytest
from running import visterm

from experiments.studies.words import word_vectors, write_text_model
from visterm.pipeline.store.run import Run


@pytest.mark.slow
def test_a_run_of_imported_vectors_with_a_text_model(browser, serving, tmp_path, write_images):
    for package in ("onnx", "onnxruntime", "tokenizers"):
        pytest.importorskip(package)
    from playwright.sync_api import expect

    names = [f"{kind}/{i}.jpg" for kind in ("plum", "fig") for i in range(8)]
    y, rng = np.repeat([0, 1], 8), np.random.default_rng(0)
    X = 2 * np.eye(2, 12)[y] + rng.normal(size=(16, 12)) / 4
    write_images(tmp_path / "photos", names)
    (tmp_path / "photos/fig/7.jpg").unlink()
    np.save(tmp_path / "v.npy", X)
    (tmp_path / "v.txt").write_text("\n".join(names))
    write_text_model(tmp_path / "text", ["crimson", "azure"], word_vectors(X, np.eye(2)[y]))
    table = ["--vectors", "v.npy", "--ids", "v.txt", "--run", "fruit"]
    visterm("features", "photos", *table, "--set", "features.text_model=text/text.onnx", cwd=tmp_path)
    with serving(Run(tmp_path / "runs/fruit")) as client:
        context = browser.new_context(base_url=str(client.base_url), reduced_motion="reduce")
        page = context.new_page()
        try:
            page.goto("")
            box = page.locator("#q")
            box.fill("azure plums")
            expect(page.get_by_role("option")).to_have_count(2)  # by the label, and by the text model
            page.get_by_role("option", name="by the text model").click()
            expect(page.locator("#query")).to_contain_text("by the text model")
            assert "text_by=model" in page.url
            expect(page.locator("#results .tile").first.locator("img")).to_have_js_property("complete", True)
            page.goto("?text=azure")
            expect(page.locator("#query")).to_contain_text("by the text model")
            page.goto("?id=1&open=2&explain=1")
            expect(page.get_by_role("dialog")).to_contain_text("is not known")
            expect(page.get_by_role("dialog").get_by_label("Heat map")).to_have_count(0)  # there is none
            # The size of these photos is not known, but their shape is kept.
            photo = page.get_by_role("dialog").get_by_role("img", name="Query", exact=True).locator("image")
            expect(photo).to_have_attribute("preserveAspectRatio", "xMidYMid meet")
            colours = page.locator(".pictures").evaluate("(node) => node.style.getPropertyValue('--heat')")
            assert colours == "0"
            page.goto("?id=1&open=16&explain=1")  # a photo that is missing
            result = page.get_by_role("dialog").get_by_role("img", name="Result", exact=True)
            expect(result.get_by_text("image not available")).to_be_visible()
            gone = {
                "id": 16,
                "path": "fig/7.jpg",
                "labels": ["fig"],
                "contribution": 0.5,
                "thumbnail": "images/16/thumbnail?v=1",
            }
            near = {"score": 1.0, "alone": 0.5, "strength": 1.0, "sentence": "Both are like it.", "photos": [gone]}
            page.route("**/explain?*", lambda route: route.fulfill(json=route.fetch().json() | {"neighbours": near}))
            page.goto("?id=15&open=14&explain=1")
            expect(page.locator(".shared .missing")).to_have_text("fig/7.jpg")
            client.wait_until(lambda: client.get("/api/images/columns").json()["ratios"].count(0) == 1)
            page.goto("?view=photos")
            box = page.locator("#photos .tile").first.bounding_box()
            shape = page.locator("#photos .tile img").first.evaluate("(img) => img.naturalWidth / img.naturalHeight")
            assert box["width"] / box["height"] == pytest.approx(shape, rel=0.05)
            page.goto("?id=1")  # no other photo can be a query, and none is asked for
            expect(page.locator("#results .tile").first).to_be_visible()
            for name in ("Change image", "Search a region", "Search with a photo"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)
            page.goto("")
            expect(page.locator("#samples img").first).to_be_visible()
            expect(page.get_by_text("Drop an image")).to_be_hidden()
            archive = page.request.post("images/download", form={"ids": "1,2"}).body()
            assert sorted(zipfile.ZipFile(io.BytesIO(archive)).namelist()) == ["plum/0.jpg", "plum/1.jpg"]
            page.goto("about:blank")
        finally:
            context.close()
