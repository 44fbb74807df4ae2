#!/usr/bin/env python3
"""Equipoise beside a real Docker Engine: what containers, their labels, networks and health do to endpoints and routes.

    docker.py ROOT EQUIPOISE FOLDER

Runs in namespaces of its own (mounts, network, processes), as `conformance/docker.rs` starts it, so that nothing stays behind when it
ends, however it ends. ROOT holds the engine with all its libraries; it is seen at /mnt, with a `/run` and a `/var/lib` in memory. The image of the containers
is Busybox alone, imported: nothing is fetched. The product runs in the same network as the engine, and reaches the containers at
the addresses that the engine gives them. Prints a line for each case: verdict, name and reason, with tabs between them.
"""

import contextlib
import http.client
import io
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.parse

from beside import Product, becomes, free, run, stays

ROOT, EQUIPOISE, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
SEEN = pathlib.Path("/mnt")
SOCKET = SEEN / "run/docker.sock"
FLAGS = SEEN / "run/flags"
# Of this network namespace alone.
SUBNETS = {"bridge": "172.31.250", "front": "172.31.251", "back": "172.31.252"}
CGROUPS = pathlib.Path("/sys/fs/cgroup")
CGROUP = "equipoise-docker-"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
PORT = 8080
# As the engine counts time.
SECOND = 10**9
(TCP,) = free(1)
PRODUCT = Product(EQUIPOISE, FOLDER)
endpoints, provider, says = PRODUCT.endpoints, PRODUCT.provider, PRODUCT.says
CONFIGURATION = f"""version: 1
listeners: {{ web: {{ bind: "127.0.0.1:{PRODUCT.web}" }} }}
routes:
  - {{ match: {{ headers: {{ x-by: tcp }} }}, cluster: far }}
  - {{ cluster: site }}
clusters:
  site: {{ endpoints: {{ from: engine }} }}
  far: {{ endpoints: {{ from: far, key: site }} }}
providers:
  engine: {{ docker: {{ url: "unix:{SOCKET}" }} }}
  far: {{ docker: {{ url: "http://127.0.0.1:{TCP}" }} }}
admin: {{ bind: "127.0.0.1:{PRODUCT.admin}" }}
"""


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(SOCKET))


def ask(method, path, body=None):
    """Status and body of the engine's answer."""
    is_text = isinstance(body, dict)
    connection = Connection("docker")
    data = json.dumps(body).encode() if is_text else body
    connection.request(method, path, data, {"content-type": "application/json" if is_text else "application/x-tar"})
    answer = connection.getresponse()
    status, text = answer.status, answer.read().decode()
    connection.close()
    return status, text


def docker(method, path, body=None):
    status, text = ask(method, path, body)
    assert status < 300 or status == 304, f"the engine answers {status} to {method} {path}: {text}"
    return json.loads(text) if text.startswith(("{", "[")) else None


def serve(name, port=PORT):
    """A command that serves the name of its container."""
    shop = "/busybox mkdir -p /www/shop; echo -n $0 >/www/index.html; echo -n $0 >/www/shop/index.html; "
    return ["/busybox", "sh", "-c", f"{shop} exec /busybox httpd -f -p {port} -h /www", name]


def create(name, labels=None, network="bridge", command=None, **more):
    """More as the engine calls it; what it knows of the host is in `HostConfig`."""
    host = {"NetworkMode": network, "Binds": ["/run/flags:/flags"], **more.pop("HostConfig", {})}
    labels = {"equipoise.enable": "true", "equipoise.cluster": "site", **(labels or {})}
    labels = {label: value for label, value in labels.items() if value is not None}
    body = {"Image": "origin", "Cmd": command or serve(name), "Labels": labels, "HostConfig": host, "StopTimeout": 0, **more}
    docker("POST", f"/containers/create?name={name}", body)


def launch(name, *given, **more):
    create(name, *given, **more)
    docker("POST", f"/containers/{name}/start")


def do(name, what):
    docker("POST", f"/containers/{name}/{what}")


def remove(name):
    docker("DELETE", f"/containers/{name}?force=true")


def checked_by(flag):
    """Healthy is who sees this flag."""
    test = ["CMD", "/busybox", "test", "-e", f"/flags/{flag}"]
    return {"Test": test, "Interval": SECOND // 5, "Timeout": 10 * SECOND, "Retries": 1}


def address(name, network="bridge", port=PORT):
    networks = docker("GET", f"/containers/{name}/json")["NetworkSettings"]["Networks"]
    return f"{networks[network]['IPAddress']}:{port}"


def site():
    return set(endpoints())


def told(start):
    """What is left out and begins so."""
    return [one for one in provider()["left_out"] if one.startswith(start)]


class Engine:
    """The engine, whose containers live on when it dies."""

    def __init__(self):
        self.process = self.mounts = None
        self.cgroup = f"{CGROUP}{random.randrange(1 << 32):x}"

    def prepare(self):
        """What the engine is to see as its machine."""
        clear_cgroups()
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        mount("--bind", ROOT, SEEN)
        for folder in ("proc", "sys", "dev", "run", "tmp", "var/lib"):
            (SEEN / folder).mkdir(parents=True, exist_ok=True)
        mount("--rbind", "/sys", SEEN / "sys")
        mount("--rbind", "/dev", SEEN / "dev")
        mount("-t", "proc", "proc", SEEN / "proc")
        for folder in ("run", "tmp", "var/lib"):
            mount("-t", "tmpfs", "tmpfs", SEEN / folder)
        FLAGS.mkdir()
        # Its root must be that of its mounts, or what it has containers execute is looked for here.
        move = f"cd {SEEN} && pivot_root . . && busybox umount -l . && cd / && exec busybox sleep 10000"
        self.mounts = subprocess.Popen(["unshare", "--mount", "sh", "-c", move], env=ENVIRONMENT)
        cmdline = pathlib.Path(f"/proc/{self.mounts.pid}/cmdline")
        becomes("its mounts are there", True, lambda: cmdline.read_bytes().startswith(b"busybox\0sleep"))

    def start(self, is_lasting=True):
        """`is_lasting`: its containers outlive it."""
        command = ["nsenter", f"--mount=/proc/{self.mounts.pid}/ns/mnt", "dockerd", "--cgroup-parent", f"/{self.cgroup}"]
        command += ["--storage-driver", "vfs", "--live-restore" if is_lasting else "--live-restore=false"]
        command += ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false", "--userland-proxy=false"]
        command += ["--bip", f"{SUBNETS['bridge']}.1/24", "--tls=false"]
        command += ["-H", "unix:///run/docker.sock", "-H", f"tcp://127.0.0.1:{TCP}"]
        log = open(FOLDER / "dockerd.log", "a")
        self.process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=subprocess.STDOUT)
        becomes("the engine answers", True, self.answers)

    def answers(self):
        assert self.process.poll() is None, "the engine does not start: " + last_words()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return ask("GET", "/_ping") == (200, "OK")
        return False

    def fill(self):
        """An image and two networks."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(SEEN / "usr/bin/busybox", "busybox")
        expose = urllib.parse.quote(f"EXPOSE {PORT}")
        docker("POST", f"/images/create?fromSrc=-&repo=origin&tag=latest&changes={expose}", packed.getvalue())
        for name in ("front", "back"):
            pool = {"Subnet": f"{SUBNETS[name]}.0/24"}
            docker("POST", "/networks/create", {"Name": name, "IPAM": {"Config": [pool]}})

    def end(self, how=signal.SIGKILL):
        if self.process:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def leave(self):
        """What the namespaces do not take with them."""
        if self.process:
            with contextlib.suppress(AssertionError, OSError):
                clean_engine()
            self.end(signal.SIGTERM)
        if self.mounts:
            self.mounts.kill()
        clear_cgroups()


def mount(*given):
    subprocess.run(["mount", *map(str, given)], check=True)


def clear_cgroups():
    """Control groups of this run, and of those before it that were killed; one that is in use stays."""
    for pattern in (f"{CGROUP}*", f"*/{CGROUP}*"):
        for group in CGROUPS.glob(pattern):
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def last_words():
    return " | ".join((FOLDER / "dockerd.log").read_text().splitlines()[-3:])


def clean_engine():
    for one in docker("GET", "/containers/json?all=true"):
        remove(one["Id"])


def clean():
    """Leaves nothing of a case to the next one."""
    for flag in FLAGS.iterdir():
        flag.unlink()
    clean_engine()
    becomes("nothing is left of it", ("503", "503", []), lambda: (says(), says(fields=TCP_ROUTE), provider()["left_out"]))


TCP_ROUTE = {"x-by": "tcp"}


def a_container_comes_and_goes(_):
    becomes("nothing is there", "503", says)
    launch("one")
    becomes("it is there", "one", says)
    assert site() == {address("one")}, site()
    launch("two")
    both = {address("one"), address("two")}
    becomes("both are there", both, site)
    do("one", "stop")
    becomes("it is stopped", "two", lambda: says() if len(site()) == 1 else None)
    do("one", "start")
    becomes("it is started", both, site)
    do("one", "kill")
    becomes("it is killed", {address("two")}, site)
    remove("one")
    remove("two")
    becomes("nobody is there", "503", says)


def an_engine_is_followed_by_tcp_too(_):
    launch("one")
    becomes("it is there", "one", lambda: says(fields=TCP_ROUTE))
    remove("one")
    becomes("it is gone", "503", lambda: says(fields=TCP_ROUTE))


def only_containers_that_want_it_are_taken(_):
    launch("one")
    launch("two", {"equipoise.enable": None})
    launch("three", {"equipoise.enable": "false"})
    becomes("one is there", "one", says)
    launch("four", {"equipoise.enable": "yes"})
    becomes("a word is told", 1, lambda: len(told("four: `equipoise.enable` is \"yes\"")))
    assert site() == {address("one")}, site()


def the_name_that_compose_gives_is_the_key(_):
    compose = {"equipoise.cluster": None, "com.docker.compose.project": "shop", "com.docker.compose.service": "site"}
    launch("shop-site-1", compose)
    becomes("it is there", "shop-site-1", says)


def the_name_of_a_container_is_the_key_and_follows_it(_):
    launch("site", {"equipoise.cluster": None})
    becomes("it is there", "site", says)
    do("site", "rename?name=other")
    becomes("it is called otherwise", "503", says)
    do("other", "rename?name=site")
    becomes("it is called so again", "site", says)


def a_container_that_others_link_to_keeps_its_name(_):
    launch("site", {"equipoise.cluster": None})
    becomes("it is there", "site", says)
    for name in ("a-first", "z-last"):
        launch(name, {"equipoise.enable": None}, HostConfig={"Links": ["site:db"]})
    launch("one", {"equipoise.cluster": "other"})
    stays("it keeps its name", "site", says, 1)


def a_weight_is_read(_):
    launch("one", {"equipoise.weight": "7", "equipoise.zone": "a", "equipoise.label.version": "v2"})
    becomes("it is there", "one", says)
    assert endpoints() == {address("one"): 7}, endpoints()


def one_that_is_paused_gets_no_work(_):
    launch("one")
    becomes("it is there", "one", says)
    do("one", "pause")
    becomes("it is paused", "503", says)
    do("one", "unpause")
    becomes("it runs on", "one", says)


def health_is_followed_from_the_start_on(_):
    launch("one", Healthcheck={**checked_by("ok"), "StartPeriod": 60 * SECOND, "StartInterval": SECOND // 5})
    launch("two")
    becomes("what has no check is there", "two", says)
    stays("what is starting gets no work", {address("two")}, site, 1)
    (FLAGS / "ok").touch()
    becomes("it is healthy", {address("one"), address("two")}, site)
    (FLAGS / "ok").unlink()
    becomes("it is not healthy", {address("two")}, site)
    (FLAGS / "ok").touch()
    becomes("it is healthy again", {address("one"), address("two")}, site)


def one_that_ends_by_itself_is_taken_when_it_runs_again(_):
    (FLAGS / "run").touch()
    script = f"/busybox mkdir /www; echo -n one >/www/index.html; /busybox httpd -p {PORT} -h /www; "
    script += "while [ -e /flags/run ]; do /busybox sleep 0.05; done"
    launch("one", command=["/busybox", "sh", "-c", script], HostConfig={"RestartPolicy": {"Name": "always"}})
    becomes("it is there", "one", says)
    (FLAGS / "run").unlink()
    becomes("it has ended", "503", says)
    becomes("it is tried again", "restarting", lambda: docker("GET", "/containers/one/json")["State"]["Status"])
    stays("nothing is wrong with it", [], lambda: provider()["left_out"], 1)
    (FLAGS / "run").touch()
    becomes("it runs again", "one", says)


def networks_are_chosen_or_told(_):
    launch("one", {"equipoise.network": "front"})
    becomes("it is elsewhere", 1, lambda: len(told("one: it is not in the network `front`")))
    docker("POST", "/networks/front/connect", {"Container": "one"})
    becomes("it is connected", "one", says)
    assert site() == {address("one", "front")}, site()
    launch("two")
    becomes("another is there", {address("one", "front"), address("two")}, site)
    docker("POST", "/networks/back/connect", {"Container": "two"})
    becomes("it is in two", 1, lambda: len(told("two: it is in several networks")))
    docker("POST", "/networks/bridge/disconnect", {"Container": "two"})
    becomes("it is in the other", {address("one", "front"), address("two", "back")}, site)
    docker("POST", "/networks/front/disconnect", {"Container": "one"})
    becomes("it has left", {address("two", "back")}, site)


def one_of_the_host_is_on_this_machine(_):
    (port,) = free(1)
    launch("one", {"equipoise.port": str(port)}, network="host", command=serve("one", port))
    becomes("it is there", "one", says)
    assert site() == {f"127.0.0.1:{port}"}, site()


def one_without_an_address_is_told(_):
    launch("one", {"equipoise.port": str(PORT)}, network="none")
    becomes("it has none", 1, lambda: len(told("one: it has no address in any network")))
    launch("two")
    becomes("another is there", "two", says)


def one_in_the_network_of_another_is_told(_):
    launch("one", {"equipoise.enable": None})
    launch("two", {"equipoise.port": str(PORT)}, network="container:one", command=["/busybox", "sleep", "1000"])
    becomes("it is told", 1, lambda: len(told("two: it shares the network of another container")))


def the_port_is_the_only_one_that_is_exposed_or_that_of_a_label(_):
    more = {"ExposedPorts": {f"{PORT + 1}/tcp": {}}}
    launch("one", **more)
    becomes("there are two", 1, lambda: len(told("one: it exposes several ports")))
    launch("two", {"equipoise.port": str(PORT)}, **more)
    becomes("one is chosen", "two", says)
    (port,) = free(1)
    published = {f"{PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
    launch("three", HostConfig={"PortBindings": published})
    becomes("what is published is where it is", {address("two"), address("three")}, site)


def labels_bring_a_route_and_its_cluster(_):
    labels = {"equipoise.cluster": "shop", "equipoise.route.path": "/shop/"}
    launch("one")
    becomes("it is there", "one", lambda: says("/shop/"))
    launch("two", labels)
    becomes("the route is there", "two", lambda: says("/shop/"))
    assert says() == "one", says()
    launch("three", labels)
    becomes("both serve it", {address("two"), address("three")}, lambda: set(endpoints("shop")))
    remove("two")
    becomes("the other serves it", "three", lambda: says("/shop/") if len(endpoints("shop")) == 1 else None)
    remove("three")
    becomes("the route is gone", "one", lambda: says("/shop/"))


def wrong_labels_hold_up_no_others(_):
    launch("one", {"equipoise.weight": "heavy"})
    launch("two", {"equipoise.cluster": "shop", "equipoise.route.path": "nope"})
    launch("three")
    becomes("the other is there", "three", says)
    becomes("they are told", 2, lambda: len(told("one: `equipoise.weight`") + told("two: its labels make no route")))


def ten_changes_are_felt_one_by_one(_):
    create("one")
    slowest = 0
    for number in range(10):
        what, found = [("start", "one"), ("kill", "503")][number % 2]
        do("one", what)
        begun = time.monotonic()
        # Whoever asks before waits for an address that is gone.
        becomes("it is felt", number % 2, lambda: 1 - len(site()))
        assert says() == found, says()
        slowest = max(slowest, time.monotonic() - begun)
    return f"the slowest after {1000 * slowest:.0f} ms"


def twenty_that_come_at_once_are_taken_and_go_at_once(_):
    names = [f"many-{number}" for number in range(20)]
    for name in names:
        create(name)
    for what in ("start", "kill"):
        doing = [threading.Thread(target=do, args=(name, what)) for name in names]
        for one in doing:
            one.start()
        for one in doing:
            one.join()
        wanted = {address(name) for name in names} if what == "start" else set()
        becomes(f"after {what}", wanted, site)


def containers_are_replaced_and_no_request_fails(_):
    def launch_healthy(name):
        (FLAGS / name).touch()
        launch(name, Healthcheck=checked_by(name))

    launch_healthy("new-0")
    becomes("it is there", "new-0", says)
    failed, asked, is_over = [], [0], threading.Event()

    def load():
        while not is_over.is_set():
            text = says()
            asked[0] += 1
            if not text.startswith("new"):
                failed.append(text)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for number in range(5):
            launch_healthy(f"new-{number + 1}")
            becomes("both are there", 2, lambda: len(site()))
            # It says that it is to get no more work, and goes when that is heard.
            (FLAGS / f"new-{number}").unlink()
            becomes("it is out", {address(f"new-{number + 1}")}, site)
            remove(f"new-{number}")
    finally:
        is_over.set()
        loading.join()
    assert not failed, f"{len(failed)} of {asked[0]} failed: {failed[:5]}"
    return f"{asked[0]} requests"


def an_engine_that_is_killed_takes_nothing_and_a_new_one_is_followed(engine):
    launch("one")
    becomes("it is there", "one", says)
    where = address("one")
    engine.end()
    becomes("it is told", "away", lambda: provider()["state"])
    stays("nothing is taken", ({where}, "one"), lambda: (site(), says()))
    engine.start()
    becomes("it is up", "up", lambda: provider()["state"])
    stays("nothing is taken", ({where}, "one"), lambda: (site(), says()), 1)
    launch("two")
    becomes("it is followed", {where, address("two")}, site)
    # What ends while nobody tells it is found by the first list.
    pid = docker("GET", "/containers/two/json")["State"]["Pid"]
    engine.end()
    becomes("it is told", "away", lambda: provider()["state"])
    os.kill(pid, signal.SIGKILL)
    engine.start()
    becomes("it is followed", {where}, site)


def an_engine_that_goes_with_its_containers_comes_back_with_them(engine):
    engine.end(signal.SIGTERM)
    engine.start(is_lasting=False)
    launch("one", HostConfig={"RestartPolicy": {"Name": "always"}})
    becomes("it is there", "one", says)
    engine.end(signal.SIGTERM)
    becomes("it is told", "away", lambda: provider()["state"])
    engine.start()
    becomes("it is back", "one", says)
    becomes("it is up", "up", lambda: provider()["state"])


def an_engine_that_is_frozen_takes_nothing_and_is_told(engine):
    launch("one")
    becomes("it is there", "one", says)
    engine.process.send_signal(signal.SIGSTOP)
    try:
        becomes("it is told", "away", lambda: provider()["state"], 90)
        assert says() == "one", says()
    finally:
        engine.process.send_signal(signal.SIGCONT)
    launch("two")
    becomes("it is followed", {address("one"), address("two")}, site)


CASES = [
    a_container_comes_and_goes,
    an_engine_is_followed_by_tcp_too,
    only_containers_that_want_it_are_taken,
    the_name_that_compose_gives_is_the_key,
    the_name_of_a_container_is_the_key_and_follows_it,
    a_container_that_others_link_to_keeps_its_name,
    a_weight_is_read,
    one_that_is_paused_gets_no_work,
    health_is_followed_from_the_start_on,
    one_that_ends_by_itself_is_taken_when_it_runs_again,
    networks_are_chosen_or_told,
    one_of_the_host_is_on_this_machine,
    one_without_an_address_is_told,
    one_in_the_network_of_another_is_told,
    the_port_is_the_only_one_that_is_exposed_or_that_of_a_label,
    labels_bring_a_route_and_its_cluster,
    wrong_labels_hold_up_no_others,
    ten_changes_are_felt_one_by_one,
    twenty_that_come_at_once_are_taken_and_go_at_once,
    containers_are_replaced_and_no_request_fails,
    an_engine_that_is_killed_takes_nothing_and_a_new_one_is_followed,
    an_engine_that_goes_with_its_containers_comes_back_with_them,
    an_engine_that_is_frozen_takes_nothing_and_is_told,
]


def main():
    engine = Engine()
    try:
        engine.prepare()
        engine.start()
        engine.fill()
        PRODUCT.start(CONFIGURATION)
        run(CASES, engine, clean)
    finally:
        PRODUCT.end()
        engine.leave()


main()
