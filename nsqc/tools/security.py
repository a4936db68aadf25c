"""TLS, authentication and compression, from the options of a command line."""

from __future__ import annotations

import codecs
import ssl

from nsqc.client.options import ConnectionOptions
from nsqc.tools.declare import Values
from nsqc.tools.errors import UsageError

GO_NSQ_VERSION = "1.1.0"    # of NSQ 1.3.0's tools
NAMES = ("tls", "tls-ca", "tls-cert", "tls-key", "tls-insecure", "auth-secret", "deflate", "snappy")


def user_agent(tool: str, version: str) -> str:
    """A user agent in the form of NSQ's own tools, which dashboards and auth servers use to tell clients apart."""
    return f"{tool}/{version} go-nsq/{GO_NSQ_VERSION}"


class Security:
    """From family.TLS, AUTH and COMPRESSION. prefix: of these options' names, for a second side. has_urls: there are
    https URLs, to which the TLS options also apply. Raises UsageError."""

    def __init__(self, values: Values, tool: str, prefix: str = "", has_urls: bool = False):
        self._values, self._tool, self._prefix, self._has_urls = values, tool, prefix, has_urls
        self._tls: ssl.SSLContext | None = None

    def is_given(self) -> bool:
        """Whether the command line has any of them."""
        return any(self._values.given(self._prefix + name) for name in NAMES)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for TLS and HTTPS; None without --tls. Raises UsageError."""
        if not self._flag("tls"):
            for name in ("tls-ca", "tls-cert", "tls-key", "tls-insecure"):
                if self._values.given(self._prefix + name) and not self._has_urls:
                    raise UsageError(f"--{self._prefix}{name} needs --{self._prefix}tls", self._tool)
            return None
        return self.context

    @property
    def context(self) -> ssl.SSLContext:
        """The context for TLS, wherever it is used. Raises UsageError."""
        if self._tls is None:
            from nsqc.client.tls import tls

            text = self._text
            try:
                self._tls = tls(text("tls-ca") or None, text("tls-cert") or None, text("tls-key") or None,
                                not self._flag("tls-insecure"))
            except (OSError, ValueError) as error:     # an SSLError is an OSError
                place = f"--{self._prefix}tls" if self._prefix else "TLS"
                file = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
                raise UsageError(f"{place}: {file}{getattr(error, 'strerror', None) or error}", self._tool) from None
        return self._tls

    def connection_options(self) -> ConnectionOptions:
        """The options for nsqc.client. Raises UsageError."""
        from nsqc import __version__

        deflate, snappy = self._values.number(f"{self._prefix}deflate"), self._flag("snappy")
        if deflate and snappy:
            raise UsageError(f"--{self._prefix}deflate and --{self._prefix}snappy exclude each other", self._tool)
        return {"tls": self.tls, "auth_secret": self.secret(), "deflate": deflate, "snappy": snappy,
                "user_agent": user_agent(self._tool.replace(" ", "-"), __version__)}

    def secret(self) -> bytes | None:
        """The secret for AUTH and HTTP. Raises UsageError."""
        text = self._text("auth-secret")
        if not text.startswith("@"):
            return text.encode() or None
        try:
            with open(text[1:], "rb") as file:
                return file.read(1 << 16).removeprefix(codecs.BOM_UTF8).strip()
        except OSError as error:
            raise UsageError(f"--{self._prefix}auth-secret: {text[1:]}: {error.strerror}", self._tool) from None

    def _flag(self, name: str) -> bool:
        return self._values.flag(self._prefix + name)

    def _text(self, name: str) -> str:
        return self._values.text(self._prefix + name)
