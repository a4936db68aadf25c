"""TLS contexts for connections to nsqd."""

from __future__ import annotations

import os
import ssl
import weakref
from typing import NamedTuple

from nsqc.client.errors import BadTlsFile


class Files(NamedTuple):
    """The files that a context was made from, for errors."""

    ca_file: str | None = None
    cert_file: str | None = None


_files: weakref.WeakKeyDictionary[ssl.SSLContext, Files] = weakref.WeakKeyDictionary()


def tls(ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None,
        verify: bool = True) -> ssl.SSLContext:
    """ca_file: authorities, PEM; by default the system's. cert_file, key_file: the client's certificate, if nsqd
    requires one. verify=False accepts any server. Raises BadTlsFile with the name of the file."""
    for name in (ca_file, cert_file, key_file):
        if name is not None:
            try:
                with open(name, "rb"):      # ssl's own errors name no file
                    pass
            except OSError as error:
                raise BadTlsFile(f"{name}: {error.strerror or error}") from None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise BadTlsFile(f"{ca_file}: no certificate in PEM format") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert_file:
        try:
            context.load_cert_chain(cert_file, key_file)
        except ssl.SSLError as error:
            files = cert_file if key_file is None else f"{cert_file} and {key_file}"
            cause = ("the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH"
                     else "not a certificate and its key in PEM format")
            raise BadTlsFile(f"{files}: {cause}") from None
    _files[context] = Files(ca_file and os.path.abspath(ca_file), cert_file and os.path.abspath(cert_file))
    return context


def files_of(context: ssl.SSLContext | None) -> Files:
    """The files of a context; none for one not created by tls()."""
    return Files() if context is None else _files.get(context, Files())
