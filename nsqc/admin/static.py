"""The files of the page, read once and compressed once. Their path has their hash, so browsers keep them for good."""

from __future__ import annotations

import gzip
import hashlib
from html import escape
from pathlib import Path
from typing import NamedTuple

from nsqc.admin.packing import VARY, coding_of
from nsqc.httpd.reply import HTML, ApiError, Reply
from nsqc.httpd.request import Request

FOLDER = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": HTML,
         ".svg": "image/svg+xml"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "base-uri 'self'; form-action 'none'; frame-ancestors 'none'")
GUARDS = (f"Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
          "Cross-Origin-Opener-Policy: same-origin\r\n")
FOR_GOOD = "Cache-Control: public, max-age=31536000, immutable\r\n"
EACH_TIME = "Cache-Control: no-cache\r\n"
INDEX = "index.html"


class File(NamedTuple):
    """A file, as it is and compressed."""

    kind: str
    plain: bytes
    packed: bytes


class Page:
    """All files. Raises OSError."""

    def __init__(self, folder: str = "", base: str = "") -> None:
        """folder: in place of those inside nsqc; base: path before that of the page, without a slash at its end."""
        self._base = base
        self._fresh = Path(folder) if folder else None      # read for each request
        self._files = read(self._fresh or FOLDER)
        digest = hashlib.blake2b(digest_size=8)
        for name, file in sorted(self._files.items()):
            digest.update(name.encode() + file.plain)
        self._key = digest.hexdigest()
        self._index = self._made_index()

    def _made_index(self) -> File:
        text = self._files[INDEX].plain.decode()
        text = text.replace("{base}", escape(self._base + "/")).replace("{files}", f"static/{self._key}/")
        plain = text.encode()
        return File(HTML, plain, gzip.compress(plain, 9, mtime=0))

    def index(self, request: Request) -> Reply:
        """The page. It says where its files are."""
        if self._fresh is not None:
            self.__init__(str(self._fresh), self._base)  # type: ignore[misc]
        return served(request, self._index, EACH_TIME)

    def file(self, request: Request) -> Reply:
        """A file: HASH/NAME, or NAME alone."""
        key, slash, name = request.param.rpartition("/")
        file = self._files.get(name)
        if file is None or name == INDEX or (slash and key != self._key):
            raise ApiError(404, "NOT_FOUND")
        return served(request, file, FOR_GOOD if slash else EACH_TIME)


def read(folder: Path) -> dict[str, File]:
    """All files of a folder by name. Raises OSError."""
    return {path.name: File(TYPES[path.suffix], data := path.read_bytes(), gzip.compress(data, 9, mtime=0))
            for path in sorted(folder.iterdir()) if path.suffix in TYPES}


def served(request: Request, file: File, caching: str) -> Reply:
    """A file for a browser."""
    packed = bool(coding_of(request, ("gzip",)))
    extra = GUARDS + caching + VARY + ("Content-Encoding: gzip\r\n" if packed else "")
    return Reply(200, file.packed if packed else file.plain, file.kind, extra=extra)
