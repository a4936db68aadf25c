"""Type checkers see real types in an application, the stubs match the compiled modules, and all are packaged."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
APP = Path(__file__).parent / "typed" / "app.py"
STUBS = sorted(path.relative_to(ROOT) for path in (ROOT / "nsqc").rglob("*.pyi"))
BY_HAND = [path for path in STUBS if path.parts[1] == "client"]     # packaging/stubs.py makes the others from the modules
# Added by Cython, or invisible for C types below Python 3.12; Codec and Snappy have no arguments to show.
NOT_IN_STUBS = r""".*\.__test__
.*\.__pyx_capi__
.*\.__buffer__
.*\.__release_buffer__
.*\.Snappy\.__init__
"""


def run(*words: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, "MYPY_FORCE_COLOR": "0", "NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_an_application_in_strict_mode(cache):
    """The client's own modules are checked along with it."""
    said = run("mypy", "--strict", "--no-pretty", "--hide-error-context", "--config-file=", f"--cache-dir={cache}", APP, "nsqc/client")
    revealed = {int(line): re.sub(r"\b(?:\w+\.)+(\w)", r"\1", kind)
                for line, kind in re.findall(r'app\.py:(\d+): note: Revealed type is "(.*)"', said)}
    wanted = {number: line.rpartition("# ")[2] for number, line in enumerate(APP.read_text().splitlines(), 1)
              if "reveal_type(" in line}
    assert revealed == wanted and len(wanted) > 25


def test_every_compiled_module_within_reach_has_a_stub():
    reached = set()
    waiting = [path for room in ("client", "spark") for path in (ROOT / "nsqc" / room).rglob("*.py*")]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix not in (".py", ".pyx"):
            continue
        reached.add(path)
        for name in re.findall(r"^\s*from (nsqc\.[\w.]+) import", path.read_text(), re.MULTILINE):
            waiting += [found for found in ROOT.glob(name.replace(".", "/") + ".py*") if found.suffix in (".py", ".pyx")]
    compiled = {path.with_suffix(".pyi").relative_to(ROOT) for path in reached if path.suffix == ".pyx"}
    # Internal to the codecs; crc32c exports nothing to Python.
    assert compiled - set(STUBS) <= {Path("nsqc/wire/codecs.pyi"), Path("nsqc/wire/parser.pyi")}


def test_stubs_agree_with_the_compiled_modules(tmp_path, cache):
    """Slow: mypy checks the client and all that it imports."""
    allowed = tmp_path / "allowed"
    allowed.write_text(NOT_IN_STUBS)
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\ncache_dir = {cache}\nignore_missing_imports = true\n")
    run("mypy.stubtest", "--concise", "--ignore-disjoint-bases", "--ignore-missing-stub", "--ignore-unused-allowlist",
        f"--allowlist={allowed}", f"--mypy-config-file={config}", "nsqc.client")


def test_parameters_of_stubs():
    """stubtest cannot inspect compiled functions; Cython's signatures show names and defaults."""
    compared = 0
    for path in BY_HAND:
        module = __import__(".".join(path.with_suffix("").parts), fromlist=["_"])
        tree = ast.parse((ROOT / path).read_text())
        for owner, node in [(module, node) for node in tree.body] + [
                (getattr(module, one.name), node) for one in tree.body if isinstance(one, ast.ClassDef) for node in one.body]:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("__") or node.decorator_list:
                continue
            signature = (getattr(owner, node.name).__doc__ or "").partition("\n")[0]
            inside = re.fullmatch(r"[\w.]+\((.*)\)(?: -> .*)?", signature)
            assert inside, (path, node.name, signature)
            told = [re.sub(r" not None|unsigned |const |\[::1\]", "", word).strip() for word in inside[1].split(", ")]
            told = [re.sub(r"^(\w+) (?=\w)|: \w+", "", word).replace(" ", "") for word in told if word and word != "self"]
            stub = [argument.arg for argument in node.args.args if argument.arg != "self"]
            defaults = [ast.unparse(value) for value in node.args.defaults]
            for at, value in enumerate(reversed(defaults), 1):
                stub[-at] += f"={value}"
            assert told == stub, (path, node.name, signature)
            compared += 1
    assert compared > 10


def test_stubs_are_packaged():
    code = ("from setuptools import Distribution; d = Distribution(); d.parse_config_files(['pyproject.toml']);"
            "c = d.get_command_obj('build_py'); c.finalize_options();"
            "print(*(f'{folder}/{name}' for _, folder, _, names in c.data_files for name in names), sep='\\n')")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert {str(path) for path in STUBS} | {"nsqc/py.typed"} <= set(found.stdout.splitlines()), found.stderr
