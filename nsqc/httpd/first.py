"""Handlers whose modules are imported at their first request, since many programs never get one.

An import takes milliseconds, or longer on a slow disk. So a thread imports the module while the loop continues, and the
request is answered afterwards. It is not a pool thread: those may be waiting for a disk that hangs.
"""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from types import ModuleType
from typing import Any

from nsqc.httpd.request import Handler, Request

_loaded: dict[str, ModuleType] = {}


def at_first(module: str, name: str) -> Handler:
    """The handler of this name in a module of this package, or in a module with a full name."""
    module = module if "." in module else f"nsqc.httpd.{module}"

    # Any: a site of any program
    def handler(site: Any, request: Request) -> object:
        there = _loaded.get(module)
        if there is None:
            return _import_and_call(module, name, site, request)
        call: Handler = getattr(there, name)
        return call(site, request)

    return handler


# Any: as above
async def _import_and_call(module: str, name: str, site: Any, request: Request) -> object:
    there = _loaded[module] = await imported(module)
    call: Handler = getattr(there, name)
    data = call(site, request)
    return await data if hasattr(data, "__await__") else data


async def imported(module: str) -> ModuleType:
    """A module, imported by a thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ModuleType] = loop.create_future()

    def settle(there: ModuleType | None, error: Exception | None) -> None:
        if done.done():
            return
        if there is not None:
            done.set_result(there)
        else:
            done.set_exception(error or ImportError(module))

    def work() -> None:
        there, failure = None, None
        try:
            there = import_module(module)
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, there, failure)
        except RuntimeError:
            return  # the loop has ended meanwhile

    threading.Thread(target=work, name=f"import {module}", daemon=True).start()
    return await done
