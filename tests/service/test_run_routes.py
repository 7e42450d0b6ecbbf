"""The run, its evaluations and the API documentation."""

import pytest

from visterm.pipeline.store.records import version
from visterm.pipeline.store.run import Run


def test_run_info_and_documentation_that_needs_no_other_host(client, searcher):
    facts = client.get("/api/run").json()
    assert facts["labels"] == {"fig": 6, "pear": 7, "plum": 6}
    assert facts["learners"] == ["oasis", "knn", "cosine"]
    assert (facts["default_learner"], facts["annotators"], facts["evaluations"]) == ("oasis", ["knn"], ["oasis"])
    assert client.get("/health").json() == {"status": "ok", "version": searcher.version, "images": 19, "problem": None}
    metrics = client.get("/api/evaluations/oasis/metrics").json()
    curves = client.get("/api/evaluations/oasis/curves").json()
    assert set(curves["systems"]) == set(metrics["systems"])
    assert curves["systems"]["oasis"][0] == pytest.approx(metrics["systems"]["oasis"]["precision_at"]["1"], abs=1e-6)
    schema = client.get("/openapi.json").json()
    assert {"/search", "/annotate", "/explain", "/health", "/api/run", "/api/images"} <= set(schema["paths"])
    assert schema["paths"]["/search"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    page = client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert "<script" not in page
    assert "//" not in page.replace("http://www.w3.org", "").replace("http://127.0.0.1", "")
    assert 'href="#get--search"' in page
    assert 'id="get--search"' in page


def test_paths_that_climb_out(client):
    for path in (
        "/static/../service.py",
        "/static/%2e%2e/service.py",
        "/static/..%2fservice.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/api/evaluations/..%2f..%2fcollection/metrics",
        "/api/evaluations/../../config.yaml/metrics",
        "/api/evaluations/..%2fevaluations%2foasis/precision-curve.svg",
        "/images/..%2f..%2fetc%2fpasswd/original",
        "/images/%2fetc%2fpasswd/original",
        "/uploads/..%2f..%2fconfig.yaml",
    ):
        answer = client.get(path)
        assert answer.status_code in (404, 422), path
        assert b"root:" not in answer.content
        assert b"create_app" not in answer.content


def test_markup_in_the_name_of_a_run_stays_text(own, serving):
    own.folder.rename(own.folder.with_name("<b>photos"))
    with serving(Run(own.folder.with_name("<b>photos"))) as client:
        page = client.get("/docs").text
        assert "&lt;b&gt;photos" in page
        assert "<b>photos" not in page
        assert client.get("/api/run").json()["run"] == "<b>photos"


def test_curves_and_reports_that_are_damaged_missing_or_there(own, serving):
    file = own.evaluation("oasis") / "curves.csv"
    with serving(own) as client:
        for text in ("", "k,oasis\n", "k,oasis\n1,x\n", "k,oasis\n1,0.5,0.5\n", None):
            file.unlink()
            if text is not None:
                file.write_text(text)
            client.check_error(client.get("/api/evaluations/oasis/curves"), 409, "visterm evaluate --force")
    file, url = own.evaluation("oasis") / "precision_curve.svg", "/api/evaluations/oasis/precision-curve.svg"
    with serving(own) as client:
        file.unlink(missing_ok=True)
        client.check_error(client.get(url), 404, "no precision_curve.svg", "visterm evaluate --force")
        svg = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><style>path{}</style></svg>'
        file.write_bytes(svg)
        answer = client.get(url)
        assert (answer.content, answer.headers["content-type"]) == (svg, "image/svg+xml")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-cache"
        client.check_error(client.get("/api/evaluations/none/precision-curve.svg"), 404, "no evaluation none", "oasis")
    with serving(own) as client:
        (own.evaluation("oasis") / "report.html").write_text("<p>räport</p>", encoding="utf-8")
        answer = client.get("/api/evaluations/oasis/report")
        assert (answer.text, answer.headers["content-type"]) == ("<p>räport</p>", "text/html; charset=utf-8")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "sandbox" in policy  # it may not reach the service
        (own.evaluation("oasis") / "report.html").unlink()
        client.check_error(client.get("/api/evaluations/oasis/report"), 404, "no report", "visterm evaluate --force")
        client.check_error(client.get("/api/evaluations/none/report"), 404, "no evaluation none", "oasis")


def test_description_says_what_is_refused(client):
    api = client.get("/openapi.json").json()
    for path, method in (("/search", "get"), ("/search", "post"), ("/annotate", "post"), ("/explain", "get")):
        assert "exactly one of: " in api["paths"][path][method]["description"]
    for operations in api["paths"].values():
        for operation in operations.values():
            assert set(operation["responses"]) == {"200", "default"}  # the default is the shape of every error
            for parameter in operation.get("parameters", []):
                assert "null" not in str(parameter["schema"].get("anyOf"))
    form = api["components"]["schemas"]["UploadSearchRequest"]["properties"]
    assert (form["id"]["maximum"], form["query_label"]["maxLength"]) == (2**53 - 1, 4096)
    assert api["info"]["version"] == version("visterm")
    assert api["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    operations = [operation for of_path in api["paths"].values() for operation in of_path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert "search_upload" in names
    examples = {operation["operationId"]: operation["x-codeSamples"][0]["source"] for operation in operations}
    assert examples["search"] == "curl 'http://127.0.0.1:8000/search?id=1'"
    assert examples["search_upload"].startswith("curl -X POST -F file=@photo.jpg ")
    assert '{"edits": [{"id": 1, "label": "dog", "change": "add"}]}' in examples["edit_labels"]


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("method", "url", "options", "words"),
    [
        ("GET", "/api/images?lable=dog", {}, ["unknown parameter lable; did you mean label?"]),
        ("GET", "/search?id=1&kk=3", {}, ["unknown parameter kk; did you mean k?"]),
        ("GET", "/api/run?x=1", {}, ["unknown parameter x; known: none"]),
        ("GET", "/search?id=1&k=2&k=3", {}, ["k: given more than once"]),
        ("POST", "/images/download", {"data": {"ids": "1", "name": "a"}}, ["unknown parameter name; known: ids"]),
        (
            "POST",
            "/api/add/photo",
            {"files": {"file": ("a.jpg", b"x")}, "data": {"x": "1"}},
            ["unknown parameter x; known: file"],
        ),
        ("GET", "/images/1/thumbnail?sise=9", {}, ["did you mean size?"]),
        ("GET", "/images/1/thumbnail?number=2", {}, ["unknown parameter number"]),
        ("POST", "/search?idd=1", {}, ["did you mean id?"]),
        ("POST", "/search", {"data": {"id": "1", "lable": "dog"}}, ["unknown parameter lable; did you mean label?"]),
        ("POST", "/search", {"data": {"id": ["1", "2"]}}, ["id: given more than once"]),
        ("POST", "/search?k=2", {"data": {"id": "1", "k": "3"}}, ["k: given more than once"]),
        ("POST", "/search", {"files": [("file", ("a.jpg", b"x")), ("file", ("b.jpg", b"y"))]}, ["file: given more"]),
        ("POST", "/search", {"json": {"id": 1}}, ["takes a form, not JSON: curl -F"]),
        ("POST", "/search", {"content": '{"id": 1}', "headers": FORM}, ["takes a form, not JSON: curl -F"]),
        ("POST", "/api/labels", {"json": {"ids": [1]}}, ["unknown parameter ids; it belongs to another part of the"]),
        ("POST", "/api/labels", {"json": {"edit": []}}, ["edits: Field required", "did you mean edits?"]),
        (
            "POST",
            "/api/labels",
            {"json": {"edits": [{"id": 1, "lable": "a", "label": "a", "change": "add"}]}},
            ["edits.0: unknown parameter lable; did you mean label?"],
        ),
        ("POST", "/api/labels", {"content": b'{"edits": []}', "headers": FORM}, ["Content-Type: application/json"]),
        ("POST", "/api/labels", {"content": b'{"edits": []}'}, ["Content-Type: application/json"]),
    ],
)
def test_a_request_that_is_not_understood_is_told_what_is_wrong(client, method, url, options, words):
    client.check_error(client.request(method, url, **options), 422, *words)


def test_an_address_of_nothing_names_the_list_of_requests(client):
    client.check_error(client.get("/api/serach"), 404, "there is no /api/serach; GET /docs lists")
