"""Modules of rare pages are imported off the loop."""

import ast
import asyncio
import itertools
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from nsqc.httpd import router, routing
from nsqc.lookupd import views as lookup_router
from tests.support.patience import WAIT_SECONDS

ROOM = Path(routing.__file__).parent
# Modules that handlers and their helpers import on the loop: small, or loaded with TLS before the server listens.
ON_THE_LOOP = {"nsqc.httpd.logs", "nsqc.net.tls", "nsqc.store.memory"}
numbers = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """module(source) makes a module and returns its name; `gate` is an event that the module may wait for."""
    monkeypatch.syspath_prepend(str(tmp_path))
    gate = threading.Event()
    monkeypatch.setattr(routing, "gate", gate, raising=False)

    def make(source: str) -> str:
        name = f"first_page{next(numbers)}.page"
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "page.py").write_text(textwrap.dedent(source))
        return name

    make.gate = gate
    return make


def test_a_thread_imports_and_the_loop_goes_on(module):
    handler = routing.at_first(module("""
        import threading
        from nsqc.httpd import routing
        importer = threading.current_thread()
        assert routing.gate.wait(30)

        def page(site, request):
            return importer, site, request

        async def later(site, request):
            return request
    """), "page")

    async def ask():
        asked = asyncio.ensure_future(handler("site", "request"))
        # Only a loop that is not importing gets here.
        asyncio.get_running_loop().call_later(0.05, module.gate.set)
        return await asyncio.wait_for(asked, WAIT_SECONDS)

    importer, site, request = asyncio.run(ask())
    assert importer is not threading.main_thread() and (site, request) == ("site", "request")
    assert handler("site", 2)[2] == 2       # already imported: no coroutine


def test_handlers_that_wait_are_waited_for(module):
    handler = routing.at_first(module("""
        async def page(site, request):
            return request
    """), "page")
    assert [asyncio.run(handler(None, number)) for number in range(2)] == [0, 1]


def test_requests_that_come_during_the_import_are_all_answered(module):
    handler = routing.at_first(module("""
        from nsqc.httpd import routing
        assert routing.gate.wait(30)

        def page(site, request):
            return request
    """), "page")

    async def ask():
        asked = [asyncio.ensure_future(handler(None, number)) for number in range(5)]
        asyncio.get_running_loop().call_later(0.05, module.gate.set)
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == list(range(5))


def test_an_import_that_fails_fails_its_request_and_is_tried_again(module):
    name = module("raise OSError(24, 'no file')")
    handler = routing.at_first(name, "page")
    with pytest.raises(OSError, match="no file"):
        asyncio.run(handler(None, None))
    path = Path(sys.modules[name.partition(".")[0]].__file__).parent / "page.py"
    path.write_text("def page(site, request): return 'there'\n# longer, so that no old byte code is taken\n")
    assert asyncio.run(handler(None, None)) == "there"


def test_a_client_that_leaves_during_the_import_harms_nobody(module):
    handler = routing.at_first(module("""
        from nsqc.httpd import routing
        assert routing.gate.wait(30)

        def page(site, request):
            return request
    """), "page")

    async def ask():
        asked = asyncio.ensure_future(handler(None, 1))
        await asyncio.sleep(0)
        asked.cancel()
        module.gate.set()
        return await handler(None, 2)

    assert asyncio.run(ask()) == 2


@pytest.mark.parametrize("routes", [router.ROUTES, lookup_router.ROUTES])
def test_every_page_that_is_imported_at_first_exists(routes):
    pages = [cell.cell_contents for table in routes.values() for route in table.values()
             for cell in route.handler.__closure__ or () if isinstance(cell.cell_contents, str)]
    for module, name in itertools.pairwise(pages):
        if module.startswith("nsqc.") and not name.startswith("nsqc."):
            assert callable(getattr(routing.import_module(module), name))
    assert any(page.startswith("nsqc.") for page in pages)


def test_nothing_large_is_imported_by_a_handler_on_the_loop():
    found = set()
    for path in ROOM.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        found |= {f"{node.module}.{alias.name}" if node.module in ("nsqc.store", "nsqc.httpd") else
                                  node.module for alias in node.names}
                    elif isinstance(node, ast.Import):
                        found |= {alias.name for alias in node.names}
    assert found == ON_THE_LOOP
