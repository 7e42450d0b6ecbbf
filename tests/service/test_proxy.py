"""The service below a path of a reverse proxy, as docs/proxies.md says."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time

import cv2
import httpx
import numpy as np
import pytest

TOKEN = "tell nobody of this token"
PATIENCE = 60  # seconds
SLOW = pytest.mark.slow
NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {block}
}}
"""


def _listens(port):
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _is_up(address):  # Traefik reads its file after it listens
    return httpx.get(address, headers={"Host": "photos.example"}).status_code == 200


@contextlib.contextmanager
def proxied(kind, repository, folder, port):
    """Run a proxy with the configuration of the documentation; give the address of the service."""
    program = shutil.which(kind, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"{kind} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        here = free.getsockname()[1]
    text = (repository / "docs/proxies.md").read_text()
    block = re.search(rf"^## {kind}$.*?```\n(.*?)```", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)[1]
    block = block.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("listen 443 ssl", f"listen {here}")
    block = block.replace("photos.example {", f"http://photos.example:{here} {{")
    file = folder / "configuration"
    if kind == "nginx":
        file.write_text(NGINX.format(folder=folder, block=block))
        command = [program, "-e", folder / "error.log", "-c", file]
    elif kind == "traefik":
        file = file.with_suffix(".yaml")
        file.write_text(block.replace("tls: {}", ""))
        options = f"providers.file.filename={file}", f"entryPoints.websecure.address=127.0.0.1:{here}"
        command = [program, *(f"--{option}" for option in options)]
    else:
        file.write_text("{\n    admin off\n}\n" + block)
        command = [program, "run", "--config", file, "--adapter", "caddyfile"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env={"HOME": str(folder)}, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (_listens(here) and _is_up(f"http://127.0.0.1:{here}/photos/health")):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"http://127.0.0.1:{here}/photos/"
    finally:
        process.terminate()
        process.wait(PATIENCE)


@SLOW
@pytest.mark.parametrize("kind", ["nginx", "caddy", "traefik"])
def test_a_path_a_token_and_a_large_upload(made, serving, repository, tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 256, (4000, 4200, 3), np.uint8)
    data = cv2.imencode(".png", noise, [cv2.IMWRITE_PNG_COMPRESSION, 0])[1].tobytes()
    assert len(data) > 50e6
    with serving(made, token=TOKEN, local=False) as client:
        port = client.base_url.port
        with (
            proxied(kind, repository, tmp_path, port) as address,
            httpx.Client(
                base_url=address, headers={"Host": "photos.example"}, timeout=PATIENCE, verify=False
            ) as outside,
        ):
            assert outside.get("api/run").status_code == 401
            assert outside.get("health").json() == {"status": "ok"}
            entered = outside.get("search", params={"id": 1, "k": 2, "token": TOKEN})
            assert (entered.status_code, entered.headers["location"]) == (303, "./search?id=1&k=2")
            cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
            followed = outside.get(str(entered.next_request.url), headers=cookie)
            assert len(followed.json()[0]["results"]) == 2
            bare = outside.get(address.removesuffix("/"), headers=cookie)
            assert bare.headers.get("location", "").endswith("/photos/")
            page = outside.get("", headers=cookie).text
            assert 'src="/' not in page
            assert 'href="/' not in page
            answer = outside.post("search", files={"file": ("noise.png", data)}, headers=cookie)
            assert answer.status_code == 200, answer.text
            assert outside.get(f"uploads/{answer.json()[0]['upload']}?size=128", headers=cookie).status_code == 200


def test_a_proxy_that_keeps_the_host_is_told_what_to_do(client):
    client.check_error(client.get("/", headers={"Host": "photos.example"}), 421, "--token TEXT", "Host: localhost")
