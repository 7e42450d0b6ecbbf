import os
import signal
import subprocess
import sys
import time

WORK = """
import time
from visterm.pipeline.workers import work_for_service
work_for_service(lambda tell: tell("begun") or time.sleep(60))
"""
SERVICE = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {WORK!r}]).pid, flush=True)
time.sleep(60)
"""


def test_work_for_a_service_that_is_killed_ends():
    with subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True) as service:
        child = int(service.stdout.readline())
        assert "begun" in service.stdout.readline()
        service.kill()
    deadline = time.monotonic() + 20
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    if lives(child):
        os.kill(child, signal.SIGKILL)
        raise AssertionError("it works on for nobody")


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
