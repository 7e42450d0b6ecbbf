"""Images at web addresses: what is fetched, and from where nothing is."""

import contextlib
import http.server
import socket
import threading
import time

import pytest

from visterm.service import fetching
from visterm.service.fetching import FetchError, fetch_image, is_public
from visterm.service.settings import ServiceSettings


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),  # what clouds tell machines about themselves
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("2002:7f00:1::", False),  # 127.0.0.1 by 6to4
        ("64:ff9b::7f00:1", False),  # and by NAT64
    ],
)
def test_only_addresses_of_the_internet_are_public(address, public):
    assert is_public(address) is public


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "ftp://example.org/a.jpg",
        "http://example.org:8080/a.jpg",
        "http://user@example.org/a.jpg",
        "http:///a.jpg",
        "http://[x/a.jpg",
        "http://example.org/a b.jpg",
        "//example.org/a.jpg",
        "",
    ],
)
def test_other_addresses_are_refused_before_anything_is_resolved(address, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", None)
    with pytest.raises(FetchError):
        fetch_image(address, 1000)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "0x7f.1", "2130706433", "[::ffff:10.0.0.1]"])
def test_no_request_reaches_this_machine(host):
    with pytest.raises(FetchError, match="not a public address|no such host"):
        fetch_image(f"http://{host}/", 1000)


def test_a_name_with_one_private_address_is_refused(monkeypatch):
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: entries)
    with pytest.raises(FetchError, match="not a public address"):
        fetch_image("http://rebind.example/", 1000)


@pytest.fixture
def web(monkeypatch):
    """A server that stands for the internet: any name leads to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            where = {"/moved": "/a.jpg", "/inside": "http://127.0.0.1/", "/loop": "/loop"}.get(self.path)
            self.send_response(302 if where else 200 if self.path == "/a.jpg" else 404)
            if where:
                self.send_header("Location", where)
            self.end_headers()
            if not where:
                self.wfile.write(b"x" * 500)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    connect = socket.create_connection
    resolve = socket.getaddrinfo
    monkeypatch.setattr(fetching, "is_public", lambda ip: ip == "127.0.0.1" and names[-1] == "example.org")
    names = []

    def resolved(host, *arguments, **options):
        names.append(host)
        return resolve("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(
        socket, "create_connection", lambda address, **options: connect(("127.0.0.1", server.server_port))
    )
    yield "http://example.org"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_image_is_fetched_also_where_it_moved(web):
    assert fetch_image(f"{web}/a.jpg", 1000) == ("a.jpg", b"x" * 500)
    assert fetch_image(f"{web}/moved", 1000) == ("a.jpg", b"x" * 500)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/inside", "not a public address"), ("/loop", "redirects"), ("/none", "status 404"), ("/a.jpg", "larger than")],
)
def test_answers_that_are_refused(web, path, reason):
    with pytest.raises(FetchError, match=reason):
        fetch_image(f"{web}{path}", 400)


@pytest.mark.parametrize(
    "start", ["", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
def test_a_server_that_sends_a_byte_at_a_time_is_left_in_time(start, web, monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(fetching, "SECONDS", 0.5)
    monkeypatch.setattr(socket, "create_connection", lambda address, **options: ours)
    ended = threading.Event()

    def trickle():
        with theirs, contextlib.suppress(OSError):
            theirs.sendall(start.encode())
            while not ended.wait(0.05):
                theirs.sendall(b"1")

    thread = threading.Thread(target=trickle)
    thread.start()
    started = time.monotonic()
    with pytest.raises(FetchError, match="timed out"):
        fetch_image(f"{web}/a.jpg", 10**6)
    assert time.monotonic() - started < 10
    ended.set()
    thread.join()


def test_the_service_fetches_only_where_it_is_allowed(own, serving, photos, monkeypatch):
    from visterm.service.subjects import adding

    with serving(own) as client:
        client.check_error(client.post("/api/fetch", json={"url": "http://example.org/a.jpg"}), 403, "--fetch-urls")
        assert client.get("/api/run").json()["limits"]["fetch_urls"] == 0
        monkeypatch.setattr(adding, "fetch_image", lambda url, most: ("a.jpg", photos.data("pear/1.jpg")))
        client.parts.settings = ServiceSettings(fetch=True)
        fetched = client.post("/api/fetch", json={"url": "http://example.org/a.jpg"}).json()
        assert fetched["name"] == "a.jpg"
        assert client.get("/search", params={"upload": fetched["upload"]}).status_code == 200
        client.parts.settings = ServiceSettings(100, fetch=True)
        client.check_error(client.post("/api/fetch", json={"url": "http://example.org/a.jpg"}), 413, "too large")

        def refuse(url, most):
            raise FetchError("x is not a public address")

        monkeypatch.setattr(adding, "fetch_image", refuse)
        client.check_error(client.post("/api/fetch", json={"url": "http://10.0.0.1/"}), 422, "not a public address")
