"""Access control: host, token, origin and limits of request bodies."""

import time

import pytest
from running import refused
from starlette.testclient import TestClient

from visterm.service import bodies, middleware
from visterm.service.routes_pages import Compressed, PageFiles
from visterm.service.subjects.search import SearchSubject


def test_token(made, serving):
    with serving(made, token="tell nobody", local=False, headers={"Host": "photos.example"}) as client:
        for path in ("/", "/api/run", "/docs", "/openapi.json", "/search?id=1", "/static/core/app.css", "/nowhere"):
            client.check_error(client.get(path), 401, "Bearer")
        assert client.get("/api/run").headers["www-authenticate"] == "Bearer"
        assert client.get("/health").json() == {"status": "ok"}  # for whoever watches the service
        for wrong in ("Bearer tell nobod", "Bearer", "tell nobody", "Basic tell nobody", "Bearer \xff"):
            client.check_error(client.get("/api/run", headers={"Authorization": wrong.encode("latin-1")}), 401)
        client.check_error(client.get("/api/run?token=tell"), 401)
        client.check_error(client.post("/search?token=tell+nobody&id=1"), 401)
        assert client.get("/health", headers={"Authorization": "Bearer tell nobody"}).json()["images"] == 19
        entered = client.get("/search?token=tell+nobody&id=1&k=2")
        assert entered.status_code == 303
        assert entered.headers["location"] == "./search?id=1&k=2"  # below any path of a proxy
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "nobody" not in cookie
        assert client.get("/api/run").status_code == 200  # by the cookie
        client.cookies.clear()
        wrong = {"Cookie": f"{cookie.partition('=')[0]}=wrong"}
        client.check_error(client.get("/api/run", headers=wrong), 401, "Bearer")
        for path, location in (("//evil.example/", "./"), ("//evil.example", "./evil.example"), ("/a:b%2Fc", "./c")):
            assert client.get(f"{client.base_url}{path}?token=tell+nobody").headers["location"] == location


def test_tokens_are_compared_in_constant_time(made, monkeypatch, serving):
    compared = []
    compare = middleware.hmac.compare_digest
    monkeypatch.setattr(middleware.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))
    with serving(made, token="tell nobody") as client:
        client.get("/health", headers={"Authorization": "Bearer guess"})
    assert (b"guess", b"tell nobody") in compared


def test_host_names_and_requests_of_other_sites(client):
    """Another site may point its own name here (DNS rebinding)."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "[", "0x7f.1"):
        client.check_error(client.get("/health", headers={"Host": host}), 421, "localhost")
    for host in ("localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000", "LOCALHOST"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    here = str(client.base_url).rstrip("/")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[x"},
        {"Origin": "http://127.0.0.1:81"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": here},
    ):
        client.check_error(client.post("/search?id=1", headers=headers), 403, "another site")
    for headers in ({"Origin": here}, {"Sec-Fetch-Site": "same-origin"}, {}):
        assert client.post("/search?id=1", headers=headers).status_code == 200
    for path in ("/health", "/nowhere", "/search", "/images/1/thumbnail", "/docs"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "unsafe" not in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


APP = "https://app.example"


def test_pages_of_named_origins_use_the_api(made, serving):
    settings = {"cors_origins": (APP, "http://localhost:3000")}
    other = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with serving(made, token="tell nobody", settings=settings) as client:
        preflight = client.options("/search", headers=other | asked)  # without the token, as browsers send it
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["access-control-allow-origin"] == APP
        assert preflight.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in preflight.headers
        refused = client.get("/api/run", headers=other)
        client.check_error(refused, 401, "Bearer")
        assert refused.headers["access-control-allow-origin"] == APP  # so that the page can read why
        bearer = other | {"Authorization": "Bearer tell nobody"}
        for answer in (client.get("/search?id=1", headers=bearer), client.post("/search?id=1", headers=bearer)):
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, APP)
            assert "Origin" in answer.headers["vary"]
            assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        for origin in (
            "https://evil.example",
            "https://app.example.evil",
            "https://sub.app.example",
            "null",
            APP + ":444",
        ):
            strange = bearer | {"Origin": origin}
            answer = client.get("/search?id=1", headers=strange)
            assert "access-control-allow-origin" not in answer.headers
            assert "Origin" in answer.headers["vary"]
            client.check_error(client.post("/search?id=1", headers=strange), 403, "another site")
            assert client.options("/search", headers=strange | asked).headers.get("access-control-allow-origin") is None
    with serving(made, settings=settings) as client:
        client.check_error(client.get("/health", headers=other | {"Host": "evil.example"}), 421, "localhost")
        client.check_error(client.options("/search", headers=other | asked | {"Host": "evil.example"}), 421)


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ("https://App.Example", APP),
        ("https://app.example:443", APP),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
        ("*", None),
        ("null", None),
        ("app.example", None),
        ("https://app.example/", None),
        ("https://*.example", None),
        ("https://user@app.example", None),
        ("https://app.example:", None),
        ("https://app.example:x", None),
        ("file:///tmp", None),
        ("", None),
    ],
)
def test_an_origin_is_a_scheme_and_a_host(origin, kept):
    if kept is not None:
        assert middleware.checked_origin(origin) == kept
        return
    with pytest.raises(ValueError, match="is no origin: give scheme and host alone"):
        middleware.checked_origin(origin)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/search", "GET, HEAD, POST"),
        ("DELETE", "/health", "GET, HEAD"),
        ("GET", "/annotate", "POST"),
        ("POST", "/feedback/export", "GET, HEAD"),
        ("GET", "/feedback/undo", "POST"),
        ("POST", "/static/core/app.css", "GET, HEAD"),
        ("NOTIFY", "/", "GET, HEAD"),
    ],
)
def test_wrong_methods(client, method, path, allowed):
    answer = client.request(method, path)
    client.check_error(answer, 405, allowed)
    assert answer.headers["allow"] == allowed
    assert answer.headers["x-content-type-options"] == "nosniff"
    answer = client.request("OPTIONS", path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allowed, b"")


def test_head_ranges_and_paths_that_are_not_described(client):
    for path in ("/", "/health", "/static/core/app.css", "/images/1/thumbnail", "/search?id=1"):
        for headers in ({}, {"Accept-Encoding": "identity"}):
            asked, answer = client.get(path, headers=headers), client.head(path, headers=headers)
            assert (answer.status_code, answer.content) == (200, b"")
            if path != "/search?id=1":  # its seconds differ
                assert answer.headers["content-length"] == asked.headers["content-length"]
        if path != "/search?id=1":
            assert answer.headers["content-length"] == str(len(asked.content))
    for path in ("/", "/static/core/app.css"):
        for ranges in ("bytes=0-1", "bytes=9-1", "x", "bytes=" + "0-0," * 900):
            assert client.get(path, headers={"Range": ranges}).status_code == 200
    # None with a slash more, which would redirect to the name in the Host header.
    for path in ("/health/", "/nowhere", "/static", "/static/../app.py", "/static/%00", "/%2e%2e/%2e%2e/etc/passwd"):
        client.check_error(client.get(path), 404)
    headers = {"Content-Type": "application/json"}
    client.check_error(client.post("/marks", content=b"{", headers=headers), 422)
    client.check_error(client.post("/marks", content=b" " * 100_000, headers=headers), 413, "65,536 bytes")


def test_internal_errors_show_no_traceback(made, serving):
    with serving(made) as client:
        client.subjects.of(SearchSubject).search_one = lambda *_: 1 / 0
        answer = client.get("/search?id=1&label=fig")
        client.subjects.of(SearchSubject).batcher.function = lambda *_: 1 / 0
        client.check_error(client.get("/search?id=1"), 500, "ZeroDivisionError")
    client.check_error(answer, 500, "ZeroDivisionError")
    assert answer.headers["x-content-type-options"] == "nosniff"


LONG = 100_000  # bytes; shorter uploads need no place


def test_many_uploads_at_once(made, monkeypatch, serving, photos, start_upload):
    """Only so many are held in memory; others wait, while their client does, and no longer than the limit."""
    monkeypatch.setattr(middleware, "MAX_CONCURRENT_UPLOADS", 2)
    monkeypatch.setattr(middleware, "UPLOAD_TURN_SECONDS", 0.2)
    monkeypatch.setattr(bodies, "SECONDS_BETWEEN_BYTES", 60.0)
    long, told = photos.data("fig/1.jpg").ljust(LONG, b"\0"), "Expect: 100-continue"
    with serving(made) as client:
        address = client.base_url
        with start_upload(address, LONG, told) as first, start_upload(address, LONG, told) as second:
            for held in (first, second):
                assert held.recv(100).startswith(b"HTTP/1.1 100 ")  # the service waits for its body
            answer = client.upload(long)
            client.check_error(answer, 429, "try again")
            assert answer.headers["retry-after"] == "1"
            assert client.upload(photos.data("fig/1.jpg")).status_code == 200
        client.wait_until(lambda: client.upload(long).status_code != 429)


@pytest.mark.parametrize(("limit", "more"), [("SECONDS_BETWEEN_BYTES", b""), ("SECONDS_FOR_BODY", b"x")])
def test_slow_upload(client, monkeypatch, start_upload, limit, more):
    """One that pauses, and one that never ends."""
    monkeypatch.setattr(bodies, limit, 0.2)
    response, deadline = b"", time.monotonic() + 120
    with start_upload(client.base_url, 10_000) as connection:
        connection.settimeout(0.05)
        while b"}" not in response:
            assert time.monotonic() < deadline
            try:
                response += connection.recv(10_000)
            except TimeoutError:
                connection.sendall(more)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"too slow" in response


def test_the_command_checks_origins(finished):
    told = refused("serve", "--cors-origin", "https://app.example/", cwd=finished)
    assert "--cors-origin: 'https://app.example/' is no origin" in told


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br", "br"),
        ("gzip;q=1.0, br;q=0", "gzip"),
        ("br; q=0.000, GZIP ; q=0.5", "gzip"),
        ("br;q=0, gzip;q=0.0", None),
        ("identity", None),
        ("", None),
    ],
)
def test_a_file_of_the_bundle_comes_in_an_encoding_that_is_accepted(tmp_path, accepted, encoding):
    """That br;q=0 refuses it was ignored."""
    for name in ("page-1.js", "page-1.js.br", "page-1.js.gz"):
        (tmp_path / name).write_text(9000 * name[-1])
    files = TestClient(Compressed(PageFiles(tmp_path), minimum_size=1000))
    with files.stream("GET", "/page-1.js", headers={"Accept-Encoding": accepted}) as answer:  # not decoded
        pass
    assert answer.headers.get("content-encoding") == encoding


@pytest.mark.parametrize("accepted", ["gzip", "gzip;q=0.1", "gzip;q=0"])
def test_an_answer_of_the_api_is_compressed_where_that_is_accepted(client, accepted):
    answer = client.get("/openapi.json", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == (None if accepted == "gzip;q=0" else "gzip")
