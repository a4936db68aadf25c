"""The Helm chart, by Helm itself and against Kubernetes' schemas; and its pods, run from the image as a cluster
would."""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch

import pytest
import yaml

from nsqc import __version__
from tests.packaging import container
from tests.packaging.conftest import ROOT
from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS

pytest.importorskip("helm_python", reason="the extra `delivery` is not here (make package-test installs it)")
sys.path.insert(0, str(ROOT / "packaging"))

from helm_python import lint
from helm_python.errors import HelmError
from manifests import CHART, PLAIN, plain, rendered

from tests.packaging import schemas

ALL = {
    "image": {"repository": "registry.example/nsqc", "tag": "x", "pullSecrets": ["registry"]},
    "clusterDomain": "cluster.local",
    "nsqc": {"replicas": 5, "config": "max_rdy_count = 9\n[topics.\"a.*\"]\nstorage = \"log\"\n", "env": {"NSQC_MEM_QUEUE_SIZE": 1000, "NSQC_SNAPPY": False},
             "storage": {"className": "fast", "size": "1Ti"}, "nodeSelector": {"disk": "ssd"}, "maxUnavailable": "20%",
             "tolerations": [{"key": "nsq", "operator": "Exists"}], "podAnnotations": {"a": "b"},
             "affinity": {"nodeAffinity": {}}},
    "lookupd": {"replicas": 3, "podAnnotations": {"a": "b"}, "env": {"NSQC_LOG_FORMAT": "json"}},
    "admin": {"env": {"NSQC_LOG_FORMAT": "json"}},
    "access": {"secretName": "nsqc-access"}, "tls": {"secretName": "nsqc-tls"},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "tokenSecret": {"name": "t"}},
                "prometheusRule": {"enabled": True, "runbookBase": "https://wiki.example/runbook"}},
}
VARIANTS = {"defaults": {}, "everything": ALL, "in memory": {"nsqc": {"storage": {"persistent": False}}, "admin": {"enabled": False}},
            "one of each": {"nsqc": {"replicas": 1}, "lookupd": {"replicas": 1}},
            "a bucket": yaml.safe_load((CHART.parent / "bucket-values.yaml").read_text())}


def objects(values=None, **more) -> dict[tuple[str, str], dict]:
    """By kind and name."""
    found = [one for one in yaml.safe_load_all(rendered(values, **more)) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(by_name) == len(found), "two objects have one name"
    return by_name


def pod(found, kind, name):
    spec = found[kind, name]["spec"]["template"]["spec"]
    first, = spec["containers"]
    return spec, first


def env_of(first) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in first["env"]}


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("kube", ["v1.27.0", "v1.33.0"])
def test_helm_lint_finds_nothing(values, kube):
    report = lint(CHART, values, strict=True, kube_version=kube)
    assert report["errors"] == []
    assert [one["error"] for one in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_every_object_fits_its_schema(values):
    for key, thing in objects(values).items():
        assert schemas.problems(thing) == [], key


def test_the_schemas_would_find_something():
    thing = objects()["StatefulSet", "nsqc"]
    first = thing["spec"]["template"]["spec"]["containers"][0]
    first["ports"][0]["containerPort"] = "4150"
    first["livenesProbe"] = {}
    del thing["spec"]["selector"]
    found = " ".join(schemas.problems(thing))
    assert "'4150' is not int" in found and "unknown field livenesProbe" in found and "field selector is missing" in found


@pytest.mark.parametrize("values", [{"nscq": {}}, {"nsqc": {"replicas": 0}}, {"image": {"pullPolicy": "always"}},
                                    {"nsqc": {"drainTimeout": "60"}}])
def test_wrong_values_are_refused(values):
    with pytest.raises(HelmError):
        rendered(values)


def test_the_plain_manifests_are_the_charts():
    assert PLAIN.read_text() == plain(), "run packaging/manifests.py plain"


def test_the_chart_has_nsqcs_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_what_belongs_together_does(values):
    """Selectors select the pods, services name existing ports, and every claim and volume is mounted and vice versa."""
    found = objects(values)
    pods = {one["metadata"]["name"]: one["spec"]["template"] for (kind, _), one in found.items() if kind in ("StatefulSet", "Deployment")}
    for (kind, name), one in found.items():
        selector = one["spec"]["selector"] if kind == "Service" else one.get("spec", {}).get("selector", {}).get("matchLabels")
        if kind in ("Service", "PodDisruptionBudget"):
            chosen = [template for template in pods.values() if selector.items() <= template["metadata"]["labels"].items()]
            assert len(chosen) == 1, (kind, name)
        if kind == "Service":
            ports = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports
        if kind == "StatefulSet":
            assert one["spec"]["selector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
            assert ("Service", one["spec"]["serviceName"]) in found
            headless = found["Service", one["spec"]["serviceName"]]["spec"]
            assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
            spec, first = pod(found, kind, name)
            volumes = [volume["name"] for volume in spec.get("volumes", [])]
            volumes += [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])]
            assert sorted(volumes) == sorted(mount["name"] for mount in first.get("volumeMounts", []))
    for template in pods.values():
        assert template["spec"]["enableServiceLinks"] is False
        assert template["spec"]["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_names_that_nodes_announce():
    _, first = pod(objects(namespace="queues"), "StatefulSet", "nsqc")
    assert env_of(first)["NSQC_BROADCAST_ADDRESS"] == "$(POD_NAME).nsqc-nodes.$(POD_NAMESPACE).svc"
    assert env_of(first)["NSQC_LOOKUPD_TCP_ADDRESS"] == (
        "nsqc-lookupd-0.nsqc-lookupd-nodes:4160,nsqc-lookupd-1.nsqc-lookupd-nodes:4160")
    found = objects(ALL, name="prod", namespace="queues")
    env = env_of(pod(found, "StatefulSet", "prod-nsqc")[1])
    assert env["NSQC_BROADCAST_ADDRESS"] == "$(POD_NAME).prod-nsqc-nodes.$(POD_NAMESPACE).svc.cluster.local"
    assert env["NSQC_LOOKUPD_TCP_ADDRESS"].split(",")[2] == "prod-nsqc-lookupd-2.prod-nsqc-lookupd-nodes.queues.svc.cluster.local:4160"
    assert "--lookupd-http-address=prod-nsqc-lookupd-0.prod-nsqc-lookupd-nodes.queues.svc.cluster.local:4161" in pod(found, "Deployment", "prod-nsqc-admin")[1]["args"]


def test_there_is_time_for_a_drain():
    spec, first = pod(objects(), "StatefulSet", "nsqc")
    words = first["lifecycle"]["preStop"]["exec"]["command"]
    assert words == ["/usr/bin/nsqc", "drain", "--keep", "--drain-timeout=60s"]
    assert spec["terminationGracePeriodSeconds"] >= 60 + 60
    words = pod(objects(ALL), "StatefulSet", "nsqc")[1]["lifecycle"]["preStop"]["exec"]["command"]
    assert words[-1] == "--auth-secret=@/etc/nsqc/access/drain-token"


def test_the_page_has_the_access_file_and_a_token_for_the_nodes():
    for values, name in ((ALL, "nsqc-admin"), ({"access": {"secretName": "s"}}, "nsqc-admin")):
        spec, first = pod(objects(values), "Deployment", name)
        env = env_of(first)
        assert env["NSQC_ACCESS_FILE"] == "/etc/nsqc/access/access.toml"
        assert env["NSQC_NODE_AUTH_SECRET"] == "@/etc/nsqc/access/page-token"
        assert first["volumeMounts"][0]["mountPath"] == "/etc/nsqc/access" and spec["volumes"][0]["secret"]["secretName"]
        node = env_of(pod(objects(values), "StatefulSet", "nsqc")[1])
        assert fnmatch(node["NSQC_BROADCAST_ADDRESS"].replace("$(POD_NAMESPACE)", "default"), env["NSQC_NODE_ADDRESSES"])
        assert node["NSQC_LOOKUPD_TOKEN_FILE"] == "/etc/nsqc/access/drain-token"
    assert "env" not in pod(objects(), "Deployment", "nsqc-admin")[1]


def test_alerts_of_the_chart():
    rule = objects(ALL)["PrometheusRule", "nsqc"]
    source = yaml.safe_load((ROOT / "packaging/prometheus/nsqc.rules.yml").read_text())
    assert [group["name"] for group in rule["spec"]["groups"]] == [group["name"] for group in source["groups"]]
    urls = [one["annotations"]["runbook_url"] for group in rule["spec"]["groups"] for one in group["rules"]]
    assert all(re.fullmatch(r"https://wiki\.example/runbook#nsqc\w+", url) for url in urls)


# ---------------------------------------------------------------------- as a cluster runs it


def expanded(first, **values) -> dict[str, str]:
    """The environment, with the pod's fields and $(NAME) expanded."""
    env = {one["name"]: one.get("value", values.get(one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath"), ""))
           for one in first["env"]}
    return {name: re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], value) for name, value in env.items()}


@container.needs_root
def test_a_pod_of_the_plain_manifests(image, data, tmp_path):
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(PLAIN.read_text()) if one}
    spec, first = pod(found, "StatefulSet", "nsqc")
    assert spec["securityContext"]["runAsUser"] == 65532
    server = LookupServer(tmp_path / "lookupd.log")
    config = image.root / "etc/nsqc"
    config.mkdir(exist_ok=True)
    (config / "nsqc.cfg").write_text(found["ConfigMap", "nsqc"]["data"]["nsqc.cfg"])
    env = expanded(first, **{"metadata.name": "nsqc-0", "metadata.namespace": "queues"})
    env["NSQC_LOOKUPD_TCP_ADDRESS"] = f"127.0.0.1:{server.tcp_port}"       # no cluster DNS here
    node = container.Contained(image, data, command=first["args"], **env)
    try:
        node.connect().pub("t", b"x")
        assert wait_until(lambda: server.found("t"), "the registration") == ["nsqc-0.nsqc-nodes.queues.svc"]
        for probe, status in (("startupProbe", 200), ("livenessProbe", 200), ("readinessProbe", 200)):
            assert node.http("GET", first[probe]["httpGet"]["path"])[0] == status
        words = first["lifecycle"]["preStop"]["exec"]["command"]
        assert words[0] == "/usr/bin/nsqc"
        drained = container.run(image, data, *words[1:], f"--nsqd=127.0.0.1:{node.tcp_port}", f"--http=127.0.0.1:{node.http_port}")
        assert drained.returncode == 0, drained.stderr
        assert node.http("GET", first["livenessProbe"]["httpGet"]["path"])[0] == 200, "it is alive until it is stopped"
        assert node.http("GET", first["readinessProbe"]["httpGet"]["path"])[0] == 503
        assert node.stop() == 0
    finally:
        node.close()
        server.close()


# ---------------------------------------------------------------------- Compose


COMPOSE = ROOT / "packaging/compose/compose.yaml"
# Of the Compose specification.
SERVICE_KEYS = {"image", "restart", "read_only", "cap_drop", "security_opt", "hostname", "command", "ports", "healthcheck",
                "depends_on", "environment", "volumes", "stop_grace_period"}


def test_the_compose_file():
    compose = yaml.safe_load(COMPOSE.read_text())
    services = compose["services"]
    for name, service in services.items():
        assert service.keys() <= SERVICE_KEYS
        assert service["image"] == f"nsqc:${{NSQC_VERSION:-{__version__}}}"
        assert service["hostname"] == name, "the host name is announced, and the service's name is what resolves"
        assert service["read_only"] is True
        assert set(service.get("depends_on", {})) <= set(services)
        for mount in service.get("volumes", []):
            assert mount.split(":")[0] in compose["volumes"]
    for target in re.findall(r"--\S+-address=(\w+):\d+", COMPOSE.read_text()):
        assert target in services


@container.needs_root
def test_the_services_of_the_compose_file(image, data, tmp_path):
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    words = image.words(data, services["nsqlookupd"]["command"].split())
    server = LookupServer(tmp_path / "log", command=words, env={"PATH": os.environ["PATH"], **image.environment()})
    service = services["nsqd"]
    command = service["command"].replace("nsqlookupd:4160", f"127.0.0.1:{server.tcp_port}").split()
    node = container.Contained(image, data, f"--broadcast-address={service['hostname']}", command=command, **service["environment"])
    try:
        node.connect().pub("t", b"x")
        assert wait_until(lambda: server.found("t"), "the registration") == ["nsqd"]
        for own, port in ((services["nsqlookupd"], server.http_port), (service, node.http_port)):
            kind, program, *words = own["healthcheck"]["test"]
            assert (kind, program) == ("CMD", "/usr/bin/nsqc")
            done = subprocess.run(image.words(data, [words[0], f"127.0.0.1:{port}"]), env=image.environment(PATH=os.environ["PATH"]),
                                  capture_output=True, text=True, timeout=WAIT_SECONDS)
            assert (done.returncode, done.stdout) == (0, "OK\n")
        assert node.stop() == 0
    finally:
        node.close()
        os.kill(container.first_process(server.process), 15)
        server.process.wait(WAIT_SECONDS)
        server.close()
