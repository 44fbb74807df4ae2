#!/usr/bin/env python3
"""Equipoise beside a real Consul: what its catalog, its store and its access control lists do to endpoints and routes.

    consul.py CONSUL EQUIPOISE FOLDER

Starts a Consul in memory, three origins and the product, whose provider watches that Consul, all on 127.0.0.1. Prints a line for
each case: verdict, name and reason, with tabs between them.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import threading
import time

from beside import Product, becomes, call, free, run, stays

CONSUL, EQUIPOISE, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
MANAGER = "5ca1ab1e-0000-4000-8000-000000000001"
POLICY = 'service_prefix "" { policy = "read" } node_prefix "" { policy = "read" } key_prefix "equipoise/" { policy = "read" }'

HTTP, RPC, LAN, WAN = free(4)
PRODUCT = Product(EQUIPOISE, FOLDER)
api, provider, says = PRODUCT.api, PRODUCT.provider, PRODUCT.says


def consul(method, path, body=None):
    """Asks Consul as its operator, who is refused nothing."""
    status, text = call(method, f"http://127.0.0.1:{HTTP}/v1/{path}", body, {"x-consul-token": MANAGER})
    assert status == 200, f"Consul answers {status} to {method} {path}: {text}"
    return json.loads(text) if text.strip() else None


def endpoints():
    """Weights by ports."""
    return {name.rsplit(":", 1)[1]: weight for name, weight in PRODUCT.endpoints().items()}


class Origin:
    """Says its name."""

    def __init__(self, name):
        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send_response(200)
                self.send_header("content-length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


ONE, TWO, THREE = Origin("one"), Origin("two"), Origin("three")


def register(name, origin, **more):
    body = {"ID": name, "Name": "web", "Address": "127.0.0.1", "Port": origin.port, **more}
    consul("PUT", "agent/service/register", body)


def leave(name):
    consul("PUT", f"agent/service/deregister/{name}")


def put(key, value):
    consul("PUT", f"kv/equipoise/{key}", value.encode())


class Place:
    """A Consul, and what the product is told of it."""

    def __init__(self):
        self.consul = None
        self.token = ""

    def start_consul(self, acl=False):
        ports = {"-http-port": HTTP, "-server-port": RPC, "-serf-lan-port": LAN, "-serf-wan-port": WAN}
        ports.update({"-dns-port": -1, "-grpc-port": -1, "-grpc-tls-port": -1})
        command = [CONSUL, "agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1", "-log-level", "warn"]
        command += [str(part) for pair in ports.items() for part in pair]
        if acl:
            tokens = f'initial_management = "{MANAGER}" agent = "{MANAGER}"'
            text = 'acl { enabled = true default_policy = "deny" tokens { %s } }\n'
            (FOLDER / "acl.hcl").write_text(text % tokens)
            command += ["-config-file", str(FOLDER / "acl.hcl")]
        self.consul = subprocess.Popen(command, stdout=open(FOLDER / "consul.log", "a"), stderr=subprocess.STDOUT)
        leader = lambda: ":" in call("GET", f"http://127.0.0.1:{HTTP}/v1/status/leader")[1]
        becomes("it has a leader", True, leader)
        becomes("it knows itself", True, lambda: bool(consul("GET", "catalog/nodes")))

    def kill_consul(self):
        self.consul.kill()
        self.consul.wait()

    def configuration(self):
        token = f"token: {self.token}, " if self.token else ""
        return f"""version: 1
listeners: {{ web: {{ bind: "127.0.0.1:{PRODUCT.web}" }} }}
routes:
  - {{ match: {{ path: {{ prefix: /canary }} }}, cluster: canary }}
  - {{ cluster: site }}
clusters:
  site: {{ endpoints: {{ from: mesh, key: web }} }}
  canary: {{ endpoints: {{ from: mesh, key: canary.web }} }}
providers:
  mesh: {{ consul: {{ url: "http://127.0.0.1:{HTTP}", {token}prefix: equipoise/, wait: 5s }} }}
admin: {{ bind: "127.0.0.1:{PRODUCT.admin}" }}
"""

    def use(self, token):
        """Has the product ask with this token."""
        self.token = token
        PRODUCT.reload(self.configuration())

    def end(self):
        PRODUCT.end()
        if self.consul:
            self.kill_consul()


def an_instance_comes_and_goes(_):
    becomes("nothing is there", "503", says)
    register("w1", ONE)
    becomes("it is there", "one", says)
    register("w2", TWO)
    becomes("both are there", {str(ONE.port), str(TWO.port)}, lambda: set(endpoints()))
    leave("w1")
    becomes("the other is there", {str(TWO.port)}, lambda: set(endpoints()))
    leave("w2")
    becomes("nobody is there", "503", says)


def a_tag_chooses_instances(_):
    register("w1", ONE, Tags=["canary"])
    register("w2", TWO)
    becomes("one has the tag", "one", lambda: says("/canary"))
    register("w1", ONE)
    register("w2", TWO, Tags=["canary"])
    becomes("the other has it", "two", lambda: says("/canary"))


def weights_follow_checks(_):
    check = {"CheckID": "w1-check", "TTL": "10m", "Status": "passing"}
    register("w1", ONE, Weights={"Passing": 10, "Warning": 2}, Check=check)
    becomes("it passes", {str(ONE.port): 10}, endpoints)
    consul("PUT", "agent/check/warn/w1-check")
    becomes("it warns", {str(ONE.port): 2}, endpoints)
    consul("PUT", "agent/check/fail/w1-check")
    becomes("it fails", {}, endpoints)
    consul("PUT", "agent/check/pass/w1-check")
    becomes("it passes again", {str(ONE.port): 10}, endpoints)


def maintenance_takes_an_instance_out(_):
    register("w1", ONE)
    becomes("it is there", "one", says)
    consul("PUT", "agent/service/maintenance/w1?enable=true&reason=work")
    becomes("it is out", "503", says)
    consul("PUT", "agent/service/maintenance/w1?enable=false")
    becomes("it is back", "one", says)


def maintenance_takes_a_node_out(_):
    register("w1", ONE)
    becomes("it is there", "one", says)
    consul("PUT", "agent/maintenance?enable=true")
    becomes("it is out", "503", says)
    consul("PUT", "agent/maintenance?enable=false")
    becomes("it is back", "one", says)


def an_instance_without_an_address_is_at_its_node(_):
    register("w1", THREE, Address="")
    becomes("it is there", "three", says)


def the_store_brings_a_route_and_its_cluster(_):
    put("config/shop", "routes: [{ name: shop, match: { path: { prefix: /shop } }, cluster: shop }]\n"
                       "clusters: { shop: { endpoints: { from: mesh, key: shop } } }")
    put("endpoints/shop/a", f"127.0.0.1:{TWO.port}")
    becomes("it is there", "two", lambda: says("/shop"))
    put("endpoints/shop/a", json.dumps({"address": f"127.0.0.1:{THREE.port}", "weight": 3}))
    becomes("it is elsewhere", "three", lambda: says("/shop"))
    register("w1", ONE)
    consul("DELETE", "kv/equipoise/?recurse=true")
    becomes("the route is gone", "one", lambda: says("/shop"))


def a_wrong_key_holds_up_no_others(_):
    put("endpoints/web/b", "nonsense")
    becomes("it is told", 1, lambda: len(provider()["left_out"]))
    put("endpoints/web/a", f"127.0.0.1:{ONE.port}")
    becomes("the other is there", "one", says)
    consul("DELETE", "kv/equipoise/endpoints/web/b")
    becomes("nothing is left out", [], lambda: provider()["left_out"])


def folders_and_names_in_the_store_are_read(_):
    put("endpoints/", "")
    put("endpoints/web/a%20b", f"127.0.0.1:{TWO.port}")
    becomes("it is there", "two", says)


def ten_changes_are_felt_one_by_one(_):
    slowest = 0
    for number in range(10):
        origin, name = [(ONE, "one"), (TWO, "two")][number % 2]
        begun = time.monotonic()
        register("w1", origin)
        becomes("it is felt", name, says)
        slowest = max(slowest, time.monotonic() - begun)
    return f"the slowest after {1000 * slowest:.0f} ms"


def a_consul_that_is_killed_takes_nothing_and_a_new_one_is_followed(place):
    register("w1", ONE)
    becomes("it is there", "one", says)
    place.kill_consul()
    becomes("it is told", "away", lambda: provider()["state"])
    stays("nothing is taken", "one", says)
    # It knows nothing, and its indexes begin anew.
    place.start_consul()
    register("w1", TWO)
    becomes("it is followed", "two", says)
    becomes("it is up", "up", lambda: provider()["state"])


def with_lists(place):
    """A Consul with access control lists, and a token of it for the product."""
    place.kill_consul()
    place.start_consul(acl=True)
    rules = {"Name": "equipoise", "Rules": POLICY}
    policy = consul("PUT", "acl/policy", rules)["ID"]
    token = consul("PUT", "acl/token", {"Policies": [{"ID": policy}]})
    place.use(token["SecretID"])
    return policy, token["AccessorID"]


def a_token_that_may_see_nothing_takes_nothing(place):
    policy, _ = with_lists(place)
    register("w1", ONE)
    becomes("it is there", "one", says)
    put("config/shop", "routes: [{ name: shop, match: { path: { prefix: /shop } }, respond: { body: shop } }]")
    becomes("a route is there", "shop", lambda: says("/shop"))
    for rules in ['key_prefix "equipoise/" { policy = "read" }', 'key_prefix "other/" { policy = "read" }']:
        consul("PUT", f"acl/policy/{policy}", {"Name": "equipoise", "Rules": rules})
        becomes("it is told", "away", lambda: provider()["state"])
        stays("nothing is taken", ("one", "shop"), lambda: (says(), says("/shop")), 8)
    consul("PUT", f"acl/policy/{policy}", {"Name": "equipoise", "Rules": POLICY})
    becomes("it is up", "up", lambda: provider()["state"])
    register("w1", TWO)
    becomes("it is followed", "two", says)


def a_token_that_is_deleted_takes_nothing(place):
    _, accessor = with_lists(place)
    register("w1", ONE)
    becomes("it is there", "one", says)
    consul("DELETE", f"acl/token/{accessor}")
    becomes("it is told", "away", lambda: provider()["state"])
    stays("nothing is taken", "one", says)
    assert "ACL not found" in provider()["reason"], provider()["reason"]
    place.use(MANAGER)


CASES = [
    an_instance_comes_and_goes,
    a_tag_chooses_instances,
    weights_follow_checks,
    maintenance_takes_an_instance_out,
    maintenance_takes_a_node_out,
    an_instance_without_an_address_is_at_its_node,
    the_store_brings_a_route_and_its_cluster,
    a_wrong_key_holds_up_no_others,
    folders_and_names_in_the_store_are_read,
    ten_changes_are_felt_one_by_one,
    a_consul_that_is_killed_takes_nothing_and_a_new_one_is_followed,
    a_token_that_may_see_nothing_takes_nothing,
    a_token_that_is_deleted_takes_nothing,
]


def clean():
    """Leaves nothing of a case to the next one."""
    for name in list(consul("GET", "agent/services")):
        leave(name)
    consul("DELETE", "kv/equipoise/?recurse=true")
    becomes("nothing is left of it", "503", says)


def main():
    place = Place()
    try:
        place.start_consul()
        PRODUCT.start(place.configuration())
        run(CASES, place, clean)
    finally:
        place.end()


main()
