"""What suites share that have the product run beside somebody whom its providers ask."""

import json
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

PATIENCE = 45
GIVEN = set()


def free(count):
    """Ports of 127.0.0.1 where nothing listens, and that the kernel gives nobody by itself."""
    found = []
    for port in random.sample(range(10_000, 30_000), 1_000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
            with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
                datagrams.bind(("127.0.0.1", port))
        except OSError:
            continue
        if port not in GIVEN:
            GIVEN.add(port)
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no port is free")


def call(method, url, body=None, fields=None):
    """Status and body of an answer; status 0 where there is none."""
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    request = urllib.request.Request(url, data=data, method=method, headers=fields or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return 0, ""


def becomes(what, wanted, of, patience=PATIENCE):
    """Waits until `of` gives what is wanted."""
    end = time.monotonic() + patience
    while True:
        found = of()
        if found == wanted:
            return
        if time.monotonic() > end:
            raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")
        time.sleep(0.01)


def stays(what, wanted, of, seconds=3):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = of()
        assert found == wanted, f"{what}: {found!r} instead of {wanted!r}"
        time.sleep(0.05)


class Product:
    """The executable under test, in a folder of its own."""

    def __init__(self, executable, folder):
        self.executable, self.file = executable, folder / "equipoise.yaml"
        self.web, self.admin = free(2)
        self.process = None

    def start(self, configuration):
        self.file.write_text(configuration)
        log = open(self.file.with_suffix(".log"), "a")
        command = [self.executable, "run", "--workers", "2", "-c", str(self.file)]
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        becomes("the provider is up", "up", lambda: self.provider()["state"] if self.says() != "0" else None)

    def reload(self, configuration):
        self.file.write_text(configuration)
        self.process.send_signal(signal.SIGHUP)

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def api(self, path):
        return json.loads(call("GET", f"http://127.0.0.1:{self.admin}/api/{path}")[1])

    def provider(self):
        """The first one."""
        return self.api("providers")["providers"][0]

    def endpoints(self, cluster="site"):
        """Weights of endpoints by their addresses."""
        found = self.api(f"clusters/{cluster}/endpoints").get("endpoints", [])
        return {one["name"]: one["weight"] for one in found}

    def says(self, path="/", fields=None):
        status, text = call("GET", f"http://127.0.0.1:{self.web}{path}", fields=fields)
        return text if status == 200 else str(status)


def run(cases, place, clean):
    """Prints the columns of each case."""
    for case in cases:
        try:
            found, why = "passed", case(place) or ""
        except (AssertionError, KeyError, ValueError) as error:
            found, why = "failed", str(error)
        try:
            clean()
        except AssertionError as error:
            found, why = "failed", why or str(error)
        print(f"{found}\t{case.__name__.replace('_', ' ')}\t{why}", flush=True)
