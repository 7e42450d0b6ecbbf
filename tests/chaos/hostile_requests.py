"""Hostile requests to `visterm serve`: ``python -m tests.chaos.hostile_requests --count 10000 --generated 7000``.

Every request follows from a seed, which is printed where an answer was wrong; ``--only CATEGORY:SEED`` sends it again.
Ours are what no description of the API has: paths, headers, pictures and damaged HTTP; parameters and JSON bodies are
generated. Counted as held: no server error, no absolute path and no traceback in a response, the right content type,
errors in one shape and with the security headers, a right Allow, and a service that still runs and has said nothing.
"""

import argparse
import contextlib
import http.client
import io
import json
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from visterm.service.responses import SECURITY_HEADERS

from .service_process import TOKEN, Answer, Service, made_run, parse, request, send, serving

CLIENTS = 8  # at the same time; most requests are not complete, and wait
Outcome = dict[str, tuple[int, int, list[str]]]  # category -> tried, held, seeds of what fell
PATHS = (
    *("/", "/judge", "/docs", "/openapi.json", "/health", "/search", "/annotate", "/explain", "/marks", "/marks/undo"),
    *("/feedback/update", "/feedback/undo", "/feedback/reset", "/feedback/export", "/api/run", "/api/images"),
    *("/api/images/1", "/images/1/thumbnail", "/images/1/original", f"/uploads/{'0' * 64}", "/static/core/app.js"),
    *("/api/evaluations/oasis/metrics", "/api/evaluations/oasis/curves", "/api/evaluations/oasis/precision-curve.svg"),
    *("/api/judge/next", "/api/judge/decisions", "/api/judge/undo", "/api/judge/results", "/api/judge/export"),
)
TRAVERSALS = (
    *("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "..\\", "....//", "%252e%252e%252f", "..;/", "%c0%ae%c0%ae/"),
    *("..%00/", "%2e%2e%00/", "./", "//", "/%2f", "..%ef%bc%8f"),
)
TARGETS = ("etc/passwd", "config.yaml", "catalogue.sqlite", "judgements.sqlite", "proc/self/environ", "app.py", "")
ENDS = ("\x00", "a\r\nSet-Cookie: a=b", "<script>alert(1)</script>", "/etc/passwd", "%s%n", "\ud800", "x" * 20_000)
MEDIA_TYPES = (
    (r"/static/.*\.js$", "text/javascript|application/javascript"),
    (r"/static/.*\.css$", "text/css"),
    (r"/static/.*\.svg$|.*precision-curve\.svg$", r"image/svg\+xml"),
    (r"/(judge|docs)?$|/static/.*\.html$", "text/html"),
    (r"/images/\d+/thumbnail$", "image/webp"),
    (r"/images/\d+/original$", "image/(jpeg|png)"),
    (r"/uploads/.*", "image/(png|webp)"),
    (r"/explain$", "application/json|image/png"),
    (r"/api/judge/export$", "application/json|text/(csv|plain)"),
    (r".*", "application/json"),
)


# -- checks ------------------------------------------------------------------------------------------------------------


def faults(service: Service, sent: bytes, answer: Answer, path: str | None = None) -> list[str]:
    """Return what is wrong with a response."""
    wrong = []
    if answer.status >= 500:
        wrong.append(f"server error {answer.status}: {answer.body[:200]!r}")
    shown = answer.body + repr(answer.headers).encode()
    for secret in service.secrets:
        if secret in shown and secret not in sent:
            wrong.append(f"shows {secret.decode()}")
    if b"Traceback (most" in shown or b'File "/' in shown:
        wrong.append("shows a traceback")
    wrong += [f"no header {name}" for name in SECURITY_HEADERS if name.lower() not in answer.headers]
    if answer.headers.get("x-content-type-options") != "nosniff":
        wrong.append("may be sniffed")
    if "set-cookie" in answer.headers and b"token=" not in sent:
        wrong.append("sets a cookie")
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status >= 400:
        wrong += _faults_of_error(answer, kind)
    elif 200 <= answer.status < 300 and answer.status != 204 and path is not None:
        expected = next(kinds for pattern, kinds in MEDIA_TYPES if re.match(pattern, path))
        if not re.fullmatch(expected, kind):
            wrong.append(f"{path} is {kind}")
    return wrong


def _faults_of_error(answer: Answer, kind: str) -> list[str]:
    needed = {401: "www-authenticate", 405: "allow", 429: "retry-after"}.get(answer.status)
    wrong = [f"{answer.status} without {needed}"] if needed and not answer.headers.get(needed) else []
    if kind != "application/json":
        return [*wrong, f"error {answer.status} is {kind}"]
    if not answer.body:  # of HEAD
        return wrong
    error = json.loads(answer.body)
    if set(error) != {"ok", "error", "status"} or error["ok"] or error["status"] != answer.status:
        wrong.append(f"error of another shape: {error}")
    elif "\n" in error["error"] or not error["error"]:
        wrong.append(f"not one line: {error['error']!r}")
    return wrong


# -- requests ----------------------------------------------------------------------------------------------------------


def _path(rng: random.Random) -> str:
    start = rng.choice(
        ("/static/", "/images/", "/uploads/", "/api/evaluations/", "/api/images/", "/", "//", "/search/")
    )
    middle = "".join(rng.choice(TRAVERSALS) for _ in range(rng.randint(0, 8)))
    end = rng.choice((*TARGETS, *(quote(end.encode("utf-8", "surrogatepass"), safe="") for end in ENDS)))
    return (start + middle + end + rng.choice(("", "", "/metrics", "/thumbnail", "/original", "?", "#")))[:60_000]


def paths(rng: random.Random) -> tuple[bytes, str, None]:
    """Paths that lead elsewhere."""
    target = _path(rng)
    if rng.random() < 0.2:
        target = f"http://{rng.choice(('localhost', 'evil.example', '127.0.0.1:1'))}{target}"
    method = rng.choice(("GET", "GET", "HEAD", "POST"))
    return request(method, target), method, None


def headers(rng: random.Random) -> tuple[bytes, str, str]:
    """Headers that pretend."""
    kinds = (
        (
            "Host",
            ("evil.example", "", "localhost:99999", "[::1", "127.0.0.1.evil.example", "localhost\t", "a" * 9000, "é"),
        ),
        ("Origin", ("http://evil.example", "null", "http://[x", "http://localhost", "file://", "\xff")),
        ("Sec-Fetch-Site", ("cross-site", "same-site", "none", "x")),
        (
            "Content-Type",
            ("text/xml", "application/json; charset=utf-16", "multipart/form-data", "é", "a/b/c", "", "*/*"),
        ),
        ("Content-Length", ("-1", "1e3", "99999999999999999999999", "0, 0", "+5", "5", "")),
        ("Transfer-Encoding", ("chunked", "gzip", "chunked, chunked", "identity", "x")),
        ("Authorization", ("Bearer", "Bearer " + "x" * 9000, "Basic Og==", "\xff\xfe", "Bearer \x01")),
        ("Cookie", ("a", "=;=;=", "visterm_x=y; " * 500, "\xff", '"', "a=b\x00")),
        ("Range", ("bytes=0-", "bytes=-1", "bytes=9-1", "bytes=" + "0-0," * 900, "x")),
        ("If-None-Match", ('"x"', "*", "\xff", "W/" * 500)),
        ("If-Modified-Since", ("yesterday", "Sat, 01 Jan 2028 00:00:00 GMT", "\xff")),
        ("X-Forwarded-For", ("evil", "1.2.3.4, 5.6.7.8", "::1", "x" * 5000, "\xff")),
        ("X-Forwarded-Host", ("evil.example",)),
        ("X-Forwarded-Proto", ("javascript", "https")),
        ("Expect", ("100-continue", "the worst")),
        ("Upgrade", ("websocket", "h2c", "TLS/1.0")),
        ("Connection", ("Upgrade", "keep-alive, close", "close")),
        ("Accept-Encoding", ("gzip", "br;q=x", "*;q=0")),
        ("X-HTTP-Method-Override", ("DELETE",)),
        (f"X-{rng.randint(0, 9)}", ("x" * rng.randint(0, 70_000),)),
    )
    path = rng.choice(PATHS)
    chosen = tuple((name, rng.choice(values)) for name, values in rng.sample(kinds, rng.randint(1, 4)))
    chosen += (("Connection", "close"),) * (rng.random() < 0.5)
    method = rng.choice(("GET", "GET", "HEAD", "POST"))
    return request(method, path, rng.choice((b"", b"{}", b"\xff")), chosen), method, path


def uploads(rng: random.Random) -> tuple[bytes, str, str]:
    """Pictures that are none, and forms that are none."""
    data = _picture(rng)
    name = rng.choice(
        ("a.jpg", "", "../../x.jpg", "/etc/passwd", "<b>.png", "a\x00b", "x" * 3000, "\ud83d", 'a"; x="y', "a\r\nb")
    )
    boundary = rng.choice(("x", "x", "x", "x" * 200, "é", "", "--"))
    parts = b""
    for _ in range(rng.choice((1, 1, 1, 1, 0, 2, 30))):
        field_name = rng.choice(("file", "file", "file", "k", "id", "", "x" * 2000))
        disposition = f'form-data; name="{field_name}"' + rng.choice(("", f'; filename="{name}"'))
        parts += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n".encode("utf-8", "surrogatepass")
        parts += rng.choice((b"", b"Content-Type: text/html\r\n", b"A: b\r\n" * 20)) + b"\r\n" + data + b"\r\n"
    parts += rng.choice((f"--{boundary}--\r\n".encode(), b"", b"--"))
    kind = f"multipart/form-data; boundary={boundary}".encode()
    path = rng.choice(("/search", "/search", "/annotate"))
    return request("POST", path + rng.choice(("", "?k=3", "?id=1")), parts, (("Content-Type", kind),)), "POST", path


def _picture(rng: random.Random) -> bytes:
    kind = rng.choice(("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "flat", "bomb", "svg", "bytes"))
    if kind == "flat":
        side = rng.choice((4900, 5000, 7000))
        return flat_png(side)
    if kind == "bomb":
        return b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + rng.randbytes(13) + rng.randbytes(20)
    if kind == "svg":
        return b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    if kind == "bytes":
        return rng.randbytes(rng.randint(0, 2000))
    stream = io.BytesIO()
    pixels = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (rng.randint(1, 90), rng.randint(1, 90), 3))
    Image.fromarray(pixels.astype(np.uint8)).save(stream, kind)
    data = bytearray(stream.getvalue())
    for _ in range(rng.choice((0, 1, 3, 20))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data) + 1)))])


_flat: dict[int, bytes] = {}


def flat_png(side: int) -> bytes:
    """A PNG of one colour: large, but not in bytes."""
    if side not in _flat:
        stream = io.BytesIO()
        Image.new("RGB", (side, side), "green").save(stream, "PNG", compress_level=9)
        _flat[side] = stream.getvalue()
    return _flat[side]


def not_http(rng: random.Random) -> tuple[bytes, str, None]:
    """Requests with flipped, missing and repeated bytes."""
    data = bytearray(rng.choice((paths, headers, uploads))(rng)[0][:5000])
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(data))
        change = rng.random()
        if change < 0.5:
            data[place] = rng.randrange(256)
        elif change < 0.7:
            del data[place : place + rng.randint(1, 20)]
        else:
            data[place:place] = rng.choice((b"\r\n", b"\n", b"\0", b" ", b":", rng.randbytes(5), bytes(data[:place])))
        if not data:
            data = bytearray(b"\r\n")
    return bytes(data), "GET", None


KINDS: dict[str, Callable[[random.Random], tuple[bytes, str, str | None]]] = {
    "paths": paths,
    "headers": headers,
    "uploads": uploads,
    "not HTTP": not_http,
}


def attempt(open_: Service, guarded: Service, category: str, seed: str) -> list[str]:
    """Send one request to the service, sometimes to the one with a token; return what is wrong with the answer."""
    rng = random.Random(f"{category} {seed}")
    data, method, path = KINDS[category](rng)
    service = guarded if rng.random() < 0.1 else open_
    incomplete = category in ("not HTTP", "headers", "paths")  # the service may rightly wait for the rest
    if category == "not HTTP" and data.startswith(b"HEAD"):
        method = "HEAD"
    wrong = [] if service.alive() else ["the service has ended"]
    try:
        try:
            answer = parse(send(service, data, 0.4 if incomplete else 60), method)
        except http.client.IncompleteRead:  # or slow, on a busy machine
            answer = parse(send(service, data, 5), method)
    except Exception as error:
        return [*wrong, f"not HTTP: {error!r}"]
    if answer is None:
        return wrong if incomplete else [*wrong, "no answer"]
    if category == "not HTTP":
        path = None
    if service is guarded and answer.status < 400 and TOKEN.encode() not in data:
        wrong.append(f"{answer.status} without a token")
    return wrong + faults(service, data, answer, path)


# -- generated from the description ------------------------------------------------------------------------------------


def generated(service: Service, count: int, seed: int) -> tuple[int, int, list[str]]:
    """Send requests that schemathesis generates from /openapi.json, half of them invalid; check what is described."""
    import schemathesis
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{service.address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    per_operation = -(-count // (2 * len(operations)))
    tried, fell = 0, []
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            n, wrong = _generated_of_operation(service, operation, mode, per_operation, seed)
            tried, fell = tried + n, fell + wrong
    return tried, tried - len(fell), fell


def _generated_of_operation(
    service: Service, operation: Any, mode: Any, count: int, seed: int
) -> tuple[int, list[str]]:
    import hypothesis
    import requests
    from schemathesis.specs.openapi import checks

    described = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    session, tried = requests.Session(), 0
    fell: list[str] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def send_one(case: Any) -> None:
        nonlocal tried
        tried += 1
        response = case.call(base_url=service.address, session=session, timeout=60)
        given = {name.lower(): ", ".join(values) for name, values in response.headers.items()}
        answer = Answer(response.status_code, given, response.content)
        wrong = faults(service, repr(case).encode(), answer)
        try:
            case.validate_response(response, checks=described)
        except Exception as error:  # one failure, or a group
            wrong.append(f"{type(error).__name__}: {error}"[:600])
        if mode.name == "POSITIVE" and answer.status not in (200, *ABSENT) and not _rightly_refused(case, answer):
            wrong.append(f"refused although valid: {answer.status} {answer.body[:300]!r}")
        if wrong:
            fell.append(f"generated:{seed}: {case.method} {case.formatted_path}: {wrong}")

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # nothing to get wrong
        send_one()
    return tried, fell


ABSENT = (404, 409, 410, 415, 429)  # not there, not trained, gone, no image, too busy


def _rightly_refused(case: Any, answer: Answer) -> bool:
    """Whether the description says in words what JSON schema cannot: exactly one query; or the body is too large; or
    this service was started without what the route needs."""
    words = b"exactly one of", b"send it with a file name"
    if answer.status == 403:
        return b"--fetch-urls" in answer.body
    return answer.status == 413 or (answer.status == 422 and any(word in answer.body for word in words))


# -- the campaign ------------------------------------------------------------------------------------------------------


def campaign(count: int, seed: int, *, n_generated: int | None = None) -> Outcome:
    """Send `count` hostile requests of our own, and half as many generated ones; return tried, held and fell."""
    outcome: Outcome = {}
    with made_run() as folder, serving(folder) as service, serving(folder, TOKEN) as guarded:
        fell: dict[str, list[str]] = defaultdict(list)
        tried: dict[str, int] = defaultdict(int)
        kinds = [list(KINDS)[i % len(KINDS)] for i in range(count)]
        with ThreadPoolExecutor(CLIENTS) as clients:
            seeds = [f"{seed}/{i}" for i in range(count)]
            answers = clients.map(partial(attempt, service, guarded), kinds, seeds)
            for category, number, wrong in zip(kinds, seeds, answers, strict=True):
                tried[category] += 1
                if wrong:
                    fell[category].append(f"{category}:{number}: {wrong}")
        for category in tried:
            outcome[category] = tried[category], tried[category] - len(fell[category]), fell[category]
        if wanted := count // 2 if n_generated is None else n_generated:
            outcome["generated"] = generated(service, wanted, seed)
        for name, each in (("service", service), ("service with a token", guarded)):
            wrong = [] if each.alive() else ["has ended"]
            wrong += [f"says {each.output()[-2000:]!r}"] if each.output() else []
            answer = parse(send(each, request("GET", "/health", headers=(("Authorization", f"Bearer {TOKEN}"),))))
            wrong += [] if answer and answer.status == 200 else ["does not answer any more"]
            outcome[f"{name} afterwards"] = 1, int(not wrong), wrong
    return outcome


def main() -> int:
    """Run the campaign, or one request of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=700, help="hostile requests of our own")
    parser.add_argument("--generated", type=int, help="requests generated from the description (default: half of that)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="CATEGORY:SEED", help="send one request again and show it")
    options = parser.parse_args()
    if options.only:
        category, _, seed = options.only.partition(":")
        with made_run() as folder, serving(folder) as service, serving(folder, TOKEN) as guarded:
            print(KINDS[category](random.Random(f"{category} {seed}"))[0][:3000])
            print(attempt(service, guarded, category, seed) or "held")
        return 0
    started = time.monotonic()
    outcome = campaign(options.count, options.seed, n_generated=options.generated)
    for category, (tried, held, fell) in outcome.items():
        print(f"{category:30} {tried:7,} tried {held:7,} held")
        for line in fell[:20]:
            print(f"  {line[:1500]}")
    print(f"{time.monotonic() - started:.0f} s")
    return int(any(tried != held for tried, held, _ in outcome.values()))


if __name__ == "__main__":
    sys.exit(main())
