"""The files that start servers: they agree with the flags, paths and limits of `longsum serve`."""

import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import pytest
import yaml

from longsum_jax.commands import serve

LAUNCH = Path(__file__).parents[2] / "launch"


def image():
    """The instructions of the Dockerfile in order, pairs of name and value."""
    text = (LAUNCH / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def entrypoint():
    return json.loads(dict(image())["ENTRYPOINT"])


def flags_of(argv):
    args, unknown = serve._parser().parse_known_args(argv)
    assert unknown == []
    return args


def test_the_image_serves_without_root():
    instructions = image()
    names = [name for name, _ in instructions]
    users = re.findall(r"--uid (\d+) .*", dict(instructions)["RUN"])
    assert dict(instructions)["USER"] == users[0] != "0"
    assert names.index("USER") < names.index("ENTRYPOINT")
    command, name, *argv = entrypoint()  # a list: signals reach the server, not a shell
    assert (command, name) == ("longsum", "serve")
    args = flags_of(argv)
    assert args.host == "0.0.0.0"  # of the container
    assert str(args.port) == dict(instructions)["EXPOSE"]
    assert f"http://127.0.0.1:{args.port}/health/live" in dict(instructions)["HEALTHCHECK"]


def test_the_image_has_all_that_the_package_is_built_from():
    copied = [source for name, value in image() if name == "COPY" for source in value.split()[:-1]]
    assert all((LAUNCH.parent / source).exists() for source in copied)
    assert {"pyproject.toml", "setup.py", "configs", "longsum_plan", "longsum_jax"} <= {*copied}
    extras = dict(image())["ARG"].removeprefix("EXTRAS=").split(",")
    project = (LAUNCH.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)


@pytest.fixture(scope="module")
def manifest():
    text = (LAUNCH / "kubernetes.yaml").read_text(encoding="utf-8")
    return {item["kind"]: item for item in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(manifest):
    return manifest["Deployment"]["spec"]["template"]["spec"]


def test_pods_answer_where_they_are_asked(manifest, pod):
    from longsum_jax.serving.app import make_app
    from longsum_jax.serving.engine import Engine

    [container] = pod["containers"]
    args = flags_of([*entrypoint()[2:], *container["args"]])
    [port] = container["ports"]
    assert port["containerPort"] == args.port
    [service] = manifest["Service"]["spec"]["ports"]
    engine = Engine()
    paths = {route.path for route in make_app(engine).routes}
    engine.close()
    for probe, path in (("startup", "live"), ("liveness", "live"), ("readiness", "ready")):
        request = container[f"{probe}Probe"]["httpGet"]
        assert request == {"path": f"/health/{path}", "port": port["name"]}
        assert request["path"] in paths
    assert service["targetPort"] == port["name"]
    labels = manifest["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifest["Service"]["spec"]["selector"] == labels
    assert manifest["Deployment"]["spec"]["selector"]["matchLabels"] == labels


def test_pods_finish_their_requests(pod):
    [container] = pod["containers"]
    name, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    longest = flags_of(container["args"]).max_request_seconds + 1  # as the command waits
    assert name == "sleep"
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + longest


def test_pods_have_keys_and_no_rights(pod):
    [container] = pod["containers"]
    args = flags_of(container["args"])
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert args.api_keys == f"{mounts['keys']['mountPath']}/keys.txt"
    assert volumes["keys"]["secret"] == {"secretName": "longsum-keys", "defaultMode": 0o440}
    [model] = args.model
    assert model.startswith(mounts["models"]["mountPath"])
    assert pod["securityContext"]["runAsUser"] == int(dict(image())["USER"])
    assert pod["securityContext"]["runAsNonRoot"]
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}


def test_containers_are_stopped_by_a_flag_of_every_docker():
    """Docker 28 renamed --time to --timeout; the short form is in all versions."""
    longest = flags_of(entrypoint()[2:]).max_request_seconds
    for page in (LAUNCH / "README.md", LAUNCH.parent / "docs" / "guide" / "serve.md"):
        [seconds] = re.findall(r"docker stop -t (\d+) ID", page.read_text(encoding="utf-8"))
        assert int(seconds) > longest


class Recorder(types.ModuleType):
    """The part of ``ray.serve`` that the application calls."""

    Application = object

    def deployment(self, **options):
        self.options = options
        return lambda replica: types.SimpleNamespace(bind=lambda: replica)

    def ingress(self, make):
        return lambda: make


@pytest.fixture
def on_ray(monkeypatch):
    """The module, and a recorder in place of ``ray.serve``."""
    ray, recorder = types.ModuleType("ray"), Recorder("ray.serve")
    ray.serve = recorder
    monkeypatch.setitem(sys.modules, "ray", ray)
    spec = importlib.util.spec_from_file_location("ray_serve", LAUNCH / "ray_serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, recorder


def test_replicas_on_ray_are_the_application_of_the_command(on_ray, tmp_path):
    from starlette.testclient import TestClient

    module, recorder = on_ray
    keys = tmp_path / "two keys.txt"
    keys.write_text("first\nsecond\n")
    arguments = {"flags": f"--api_keys='{keys}' --max_queue=3", "replicas": "2", "gpus": "0.5"}
    make_replica = module.application(arguments)
    assert recorder.options["num_replicas"] == 2
    assert recorder.options["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0.5}
    # Ray must neither queue what the application refuses nor end what it finishes.
    assert recorder.options["max_ongoing_requests"] > 2 * flags_of([]).max_queue
    longest = flags_of([]).max_request_seconds
    assert recorder.options["graceful_shutdown_timeout_s"] > longest
    with TestClient(make_replica()) as client:
        body = {"text": "The council met. It raised the budget."}
        assert client.post("/v1/summaries", json=body).status_code == 401
        headers = {"Authorization": "Bearer second"}
        assert client.post("/v1/summaries", json=body, headers=headers).status_code == 200


def test_other_arguments_on_ray(on_ray):
    with pytest.raises(SystemExit, match="model must be one of flags, replicas, cpus, gpus"):
        on_ray[0].application({"model": "x"})
