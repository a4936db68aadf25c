"""docker, kubectl and helm, as far as docs/installing.md uses them, for a test that runs its commands.

docker runs the image like tests/packaging/container.py, with all containers in the caller's network. kubectl and helm
check objects against Kubernetes' schemas, as a server would. Unknown words are errors.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.packaging import container

HERE = Path(__file__).resolve().parent

STATE = Path(os.environ.get("STAND_INS", "/nonexistent"))     # a folder for images, volumes, and running containers
OF_OTHERS = "alpine"            # an image that is not nsqc's: its commands are this machine's


class Parser(argparse.ArgumentParser):
    """Accepts no abbreviated flags, like these programs; parsers of sub-commands also use this class."""

    def __init__(self, **more: object):
        super().__init__(allow_abbrev=False, **more)


def install(folder: Path, state: Path) -> dict[str, str]:
    """Writes the programs into a folder. Returns the variables for them."""
    for name in ("docker", "kubectl", "helm"):
        (folder / name).write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(HERE.parent.parent)!r})\n"
                                   f"from tests.packaging.stand_ins import {name}\nsys.exit({name}(sys.argv[1:]))\n")
        (folder / name).chmod(0o755)
    state.mkdir()
    return {"PATH": f"{folder}:{os.environ['PATH']}", "STAND_INS": str(state)}


def tidy(state: Path) -> None:
    """Ends all containers."""
    for path in (state / "containers").glob("*.pid"):
        if is_running(pid := int(path.read_text())):
            os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------------- docker


def docker(words: list[str]) -> int:
    parser = Parser(prog="docker")
    commands = parser.add_subparsers(required=True)
    load = commands.add_parser("load")
    load.add_argument("--input", required=True)
    load.set_defaults(call=load_image)
    run = commands.add_parser("run")
    for flag in ("--detach", "--rm"):
        run.add_argument(flag, action="store_true")
    for flag in ("--publish", "--volume", "--env"):
        run.add_argument(flag, action="append", default=[])
    run.add_argument("--name", default="")
    run.add_argument("--user", default="")
    run.add_argument("image")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(call=run_container)
    execute = commands.add_parser("exec")
    execute.add_argument("name")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    execute.set_defaults(call=execute_in)
    stop = commands.add_parser("stop")
    stop.add_argument("--time", type=int, default=10)
    stop.add_argument("name")
    stop.set_defaults(call=stop_container)
    arguments = parser.parse_args(words)
    return arguments.call(arguments)


def load_image(arguments: argparse.Namespace) -> int:
    tag, = json.loads(container.parts(Path(arguments.input))["manifest.json"])[0]["RepoTags"]
    place = STATE / "images" / tag
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(container.unpack(Path(arguments.input), place).config))
    print(f"Loaded image: {tag}")
    return 0


def volume(name: str) -> Path:
    """A named volume; as with Docker, the owner of the image's folder owns it."""
    path = STATE / "volumes" / name
    if not path.exists():
        path.mkdir(parents=True)
        os.chown(path, container.USER, 0)
        path.chmod(0o775)
    return path


def run_container(arguments: argparse.Namespace) -> int:
    (STATE / "containers").mkdir(exist_ok=True)
    (name, place), = [one.split(":") for one in arguments.volume]
    assert place == "/data"
    assert all(one.split(":")[0] == one.split(":")[-1] for one in arguments.publish), "it has no network of its own"
    data = volume(name)
    if arguments.image == OF_OTHERS:
        assert arguments.user == "0"
        return subprocess.run([word.replace(place, str(data)) for word in arguments.command]).returncode
    folder = STATE / "images" / arguments.image
    image = container.Image(json.loads((folder / "config.json").read_text()), folder / "root")
    environment = image.environment(**dict(one.split("=", 1) for one in arguments.env))
    words = image.words(data, arguments.command, user=arguments.user)
    path = STATE / "containers" / arguments.name
    with path.with_suffix(".log").open("wb") as log:
        started = subprocess.Popen(words, env={"PATH": os.environ["PATH"], **environment}, stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
    path.with_suffix(".pid").write_text(str(started.pid))
    return 0 if arguments.detach else started.wait()


def outer(name: str) -> int:
    """The process outside that waits for a container."""
    return int((STATE / "containers" / f"{name}.pid").read_text())


def first(name: str) -> int:
    """Process 1 of a container."""
    pid = outer(name)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else sys.exit(f"{name} has not started yet")


def execute_in(arguments: argparse.Namespace) -> int:
    user = f"{container.USER}"
    words = ["nsenter", "--target", str(first(arguments.name)), "--mount", "--pid", "--root", "--wd", "--setgid", user, "--setuid", user]
    return subprocess.run([*words, *arguments.command], env={"PATH": "/usr/local/bin:/usr/bin:/bin"}).returncode


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stop_container(arguments: argparse.Namespace) -> int:
    pid = outer(arguments.name)
    os.kill(first(arguments.name), signal.SIGTERM)
    deadline = time.monotonic() + arguments.time
    while is_running(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return 1
        time.sleep(0.05)
    return 0


# ---------------------------------------------------------------------- Kubernetes


def checked(text: str) -> int:
    """Counts objects; exits if one does not fit its schema."""
    import yaml

    from tests.packaging import schemas

    things = [one for one in yaml.safe_load_all(text) if one]
    for thing in things:
        if problems := schemas.problems(thing):
            sys.exit(f"{thing['kind']} {thing['metadata']['name']}: {', '.join(problems)}")
    return len(things)


def kubectl(words: list[str]) -> int:
    parser = Parser(prog="kubectl")
    commands = parser.add_subparsers(required=True, dest="command")
    create = commands.add_parser("create").add_subparsers(required=True, dest="kind")
    create.add_parser("namespace").add_argument("name")
    secret = create.add_parser("secret").add_subparsers(required=True).add_parser("generic")
    secret.add_argument("name")
    secret.add_argument("--namespace")
    secret.add_argument("--from-file", action="append")
    apply = commands.add_parser("apply")
    apply.add_argument("--namespace")
    apply.add_argument("--filename", required=True)
    arguments = parser.parse_args(words)
    if arguments.command == "apply":
        print(checked(Path(arguments.filename).read_text()), "objects")
        return 0
    for name in getattr(arguments, "from_file", None) or []:
        if not Path(name).stat().st_size:
            sys.exit(f"{name} is empty")
    return 0


def helm(words: list[str]) -> int:
    sys.path.insert(0, str(HERE.parent.parent / "packaging"))
    import manifests

    parser = Parser(prog="helm")
    parser.add_argument("command", choices=("install", "upgrade"))
    parser.add_argument("name")
    parser.add_argument("chart", type=Path)
    parser.add_argument("--namespace")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--create-namespace", action="store_true")
    parser.add_argument("--reuse-values", action="store_true")
    arguments = parser.parse_args(words)
    path = STATE / f"{arguments.name}.json"
    values: dict = json.loads(path.read_text()) if arguments.reuse_values else {}
    for one in arguments.set:
        keys, _, value = one.partition("=")
        *above, last = keys.split(".")
        place = values
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    if arguments.chart.resolve() != manifests.CHART:
        sys.exit(f"{arguments.chart} is not the chart")
    text = manifests.rendered(values, name=arguments.name, namespace=arguments.namespace)
    missing = [value for value in (one.partition("=")[2] for one in arguments.set) if value not in text]
    if missing:
        sys.exit(f"{missing[0]} is in no object")
    path.write_text(json.dumps(values))
    print(checked(text), "objects")
    return 0
