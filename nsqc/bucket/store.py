"""Objects of a bucket, and what is known after each call.

A bucket is a URI: `s3://`, `gs://` and `az://` by obstore, `file:///` by this file. Objects are created, never
replaced, so a repeated call is harmless. A call either succeeds or raises one of

- Exists: an object of this name is there; which one, the caller has to read.
- Missing: no such object.
- Gone: the store refuses us, or has no such bucket: credentials, names, redirects. People have to do something.
- Unclear: no answer, or one that says nothing. The call may have happened, and may still happen.

`Bucket.create` turns these into the answers that a writer needs. Errors are one line, without addresses or credentials.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from nsqc.store.files import sync_folder

CALL_SECONDS = 20.0             # of one attempt; a put of a data object of 8 MiB at 0.5 MB/s
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
SCHEMES = ("s3", "gs", "az", "file")
MOST_OBJECT = 256 << 20         # bytes of an object that is read as a whole
T = TypeVar("T")
Data: TypeAlias = bytes | memoryview             # of an object


class BucketError(Exception):
    """A call failed; the text is one line for people."""


class Exists(BucketError):
    pass


class Missing(BucketError):
    pass


class Gone(BucketError):
    pass


class Unclear(BucketError):
    pass


class Entry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int                   # bytes
    modified: float             # by the store's clock, seconds since 1970


class Store(Protocol):
    """One attempt each. Raises Exists, Missing, Gone or Unclear."""

    def create(self, name: str, data: Data) -> None: ...

    def get(self, name: str, most: int) -> bytes:
        """All of an object. Raises BucketError if it has more than `most` bytes."""

    def get_part(self, name: str, at: int, length: int) -> bytes: ...

    def delete(self, name: str) -> None:
        """No error if nothing is there."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All objects below a prefix, in any order. A prefix ends with a slash, or is empty."""

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders right below a prefix."""


# ====================================================================== a bucket


class Bucket:
    """The objects below a URI, or below a folder of it. Calls repeat what is unclear until `patience` seconds have
    passed, or `stopping` is set; thread-safe."""

    def __init__(self, store: Store, uri: str, folder: str = "", patience: float = 30.0,
                 stopping: threading.Event | None = None) -> None:
        self.store = store
        self.uri = uri
        self.folder = folder
        self.patience = patience
        self.stopping = stopping or threading.Event()
        self.on_error: Callable[[BucketError], object] | None = None        # called for each failed attempt

    def below(self, folder: str) -> Bucket:
        """The objects of a folder."""
        uri = f"{self.uri.rstrip('/')}/{folder}"
        inner = Bucket(self.store, uri, f"{self.folder}{folder}/", self.patience, self.stopping)
        inner.on_error = self.on_error
        return inner

    def patient(self, seconds: float) -> Bucket:
        """The same objects, with another patience."""
        same = self.below("")
        same.uri, same.folder, same.patience = self.uri, self.folder, seconds
        return same

    def create(self, name: str, data: Data) -> bytes | None:
        """Creates an object, for certain. Returns None if it is there with this data, by this or an earlier attempt;
        else the data that is there.

        The data has to be the same whenever the call is repeated for a name: a put that seemed lost may land later.
        Raises Gone, or Unclear when out of patience.
        """
        def attempt() -> bytes | None:
            try:
                self.store.create(self.folder + name, data)
                return None
            except Exists:
                # Stores also say so while two puts compete; then nothing may be there.
                try:
                    found = self.store.get(self.folder + name, max(len(data), MOST_OBJECT))
                except Missing as error:
                    raise Unclear(f"{name}: exists, but cannot be read") from error
                return None if found == data else found

        return self.repeat(attempt)

    def get(self, name: str, most: int = MOST_OBJECT) -> bytes:
        """Raises Missing, Gone, Unclear, or BucketError if it is larger than `most` bytes."""
        return self.repeat(lambda: self.store.get(self.folder + name, most))

    def get_part(self, name: str, at: int, length: int) -> bytes:
        """`length` bytes from a position on. Raises Missing, also if the object is shorter; Gone or Unclear."""
        data = self.repeat(lambda: self.store.get_part(self.folder + name, at, length))
        if len(data) != length:
            raise Missing(f"{name}: ends before byte {at + length:,}")
        return data

    def delete(self, name: str) -> None:
        self.repeat(lambda: self.store.delete(self.folder + name))

    def entries(self, prefix: str = "") -> list[Entry]:
        """All objects below a prefix, sorted by name."""
        skip = len(self.folder)
        found = self.repeat(lambda: list(self.store.entries(self.folder + prefix)))
        return sorted(entry._replace(name=entry.name[skip:]) for entry in found)

    def folders(self) -> list[str]:
        """Sorted names of the folders right below."""
        return sorted(self.repeat(lambda: self.store.folders(self.folder)))

    def repeat(self, attempt: Callable[[], T]) -> T:
        end = time.monotonic() + self.patience
        pause = FIRST_PAUSE
        while True:
            try:
                return attempt()
            except Unclear as error:
                if self.on_error is not None:
                    self.on_error(error)
                left = end - time.monotonic()
                if left <= 0 or self.stopping.wait(min(pause * (0.5 + secrets.randbelow(1000) / 1000), left)):
                    raise
                pause = min(pause * 2, LONGEST_PAUSE)


def settle(answer: Future[T], call: Callable[[], T]) -> None:
    """Makes the result of a call, or what it raises, the answer."""
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Runs a call on a thread that does not keep the process from ending."""
    answer: Future[T] = Future()
    threading.Thread(target=settle, args=(answer, call), name="bucket", daemon=True).start()
    return answer


def open_bucket(uri: str, patience: float = 30.0, stopping: threading.Event | None = None) -> Bucket:
    """Raises ValueError for a URI that cannot be one, and Gone if a library is missing."""
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{uri}: expected a URI such as s3://BUCKET/PREFIX, gs://, az:// or file:///PATH")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{parts.scheme}://{parts.hostname or ''}{parts.path}: a bucket's URI has no user, query or "
                         "fragment; credentials come from the environment or the instance")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.strip("/"):
            raise ValueError(f"{uri}: expected file:///PATH")
        return Bucket(FileStore(unquote(parts.path)), uri, patience=patience, stopping=stopping)
    if not parts.netloc:
        raise ValueError(f"{uri}: expected {parts.scheme}://BUCKET/PREFIX")
    return Bucket(CloudStore(uri), uri, patience=patience, stopping=stopping)


# ====================================================================== the probe


def probe(bucket: Bucket) -> str:
    """Proves that a store creates objects only if absent; returns the id of the cluster of nodes below the URI, made by
    the first of them. Raises BucketError."""
    name, mine, other = f"probe/{secrets.token_hex(16)}", b"first", b"second"
    refusal = f"{bucket.uri}: this store cannot be used: it "
    if bucket.create(name, mine) is not None:
        raise BucketError(refusal + "has an object that was never created")
    if bucket.create(name, other) != mine:
        raise BucketError(refusal + "replaces objects, despite `If-None-Match: *`; conditional puts are needed")
    bucket.delete(name)
    with ThreadPoolExecutor(2) as threads:
        outcomes = [*threads.map(lambda data: bucket.create(name, data), (mine, other))]
    if outcomes.count(None) != 1 or bucket.get(name) != (mine, other)[outcomes.index(None)]:
        raise BucketError(refusal + "lets both of two puts at once create one object; conditional puts are needed")
    bucket.delete(name)
    with contextlib.suppress(Missing):
        bucket.get(name)
        raise BucketError(refusal + "shows an object after its deletion")
    made = secrets.token_hex(16).encode()
    cluster = bucket.create("cluster", made) or made
    if not re.fullmatch(rb"[0-9a-f]{32}", cluster):
        raise BucketError(f"{bucket.uri}: `cluster` has no id of a cluster, so these are not the objects of nsqc")
    return cluster.decode()


# ====================================================================== clouds

# Answers of S3, Google and Azure that stay the same, however often we ask.
REFUSED = ("301", "307", "308", "400", "401", "403", "404")
STATUS = re.compile(r"status code: (\d{3})")
REASON = re.compile(r"<Code>(\w{1,60})</Code>")
NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>")


class CloudStore:
    """S3, Google Cloud Storage, Azure. Credentials: the environment, a profile, the instance's role."""

    def __init__(self, uri: str) -> None:
        try:
            import obstore
            import obstore.store
        except ImportError as error:
            raise Gone(f"{uri} needs the package obstore: pip install 'nsqc[bucket]'") from error
        options: dict[str, object] = {"timeout": f"{CALL_SECONDS}s", "connect_timeout": "5s"}
        if os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true"):
            options["allow_http"] = True
        self.library: ModuleType = obstore
        try:
            # Repeats are ours: only we know which are harmless.
            self.objects = self.library.store.from_url(uri, client_options=options, retry_config={"max_retries": 0})
        except obstore.exceptions.BaseError as error:
            raise Gone(f"{uri}: {outline(str(error))}") from None

    def call(self, name: str, action: Callable[[], T]) -> T:
        exceptions = self.library.exceptions
        try:
            return action()
        except (exceptions.BaseError, OSError) as error:
            # Not from this error: a traceback would have its text, with addresses.
            raise kind_of(error, str(error))(f"{name}: {outline(str(error))}") from None

    def create(self, name: str, data: Data) -> None:
        def put() -> None:
            try:
                self.library.put(self.objects, name, data, mode="create", use_multipart=False)
            except self.library.exceptions.AlreadyExistsError:          # or 409, while others try the same
                raise Exists(f"{name}: exists") from None

        try:
            self.call(name, put)
        except Missing as error:        # a put finds everything but its bucket
            raise Gone(f"{name}: the bucket does not exist") from error

    def get(self, name: str, most: int) -> bytes:
        def read() -> bytes:
            found = self.library.get(self.objects, name)
            if found.meta["size"] > most:
                raise BucketError(f"{name}: has {found.meta['size']:,} bytes, more than the expected {most:,}")
            return bytes(found.bytes())

        return self.call(name, read)

    def get_part(self, name: str, at: int, length: int) -> bytes:
        return self.call(name, lambda: bytes(self.library.get_range(self.objects, name, start=at, length=length)))

    def delete(self, name: str) -> None:
        with contextlib.suppress(Missing):
            self.call(name, lambda: self.library.delete(self.objects, name))

    def entries(self, prefix: str) -> Iterator[Entry]:
        def read() -> list[Entry]:
            return [Entry(found["path"], found["size"], found["last_modified"].timestamp())
                    for page in self.library.list(self.objects, prefix or None) for found in page]

        yield from self.call(prefix or "the listing", read)

    def folders(self, prefix: str) -> list[str]:
        def read() -> list[str]:
            found = self.library.list_with_delimiter(self.objects, prefix or None)
            return [folder.rstrip("/").rpartition("/")[2] for folder in found["common_prefixes"]]

        return self.call(prefix or "the listing", read)


# Words in a library's error, and their meaning.
MEANINGS = {"BareRedirect": "the bucket is in another region", "redential": "no usable credentials",
            "Timeout": "no answer in time", "TimedOut": "no answer in time", "Connect": "cannot connect",
            "Decode": "the answer was cut off", "Body": "the answer was cut off"}


def kind_of(error: Exception, text: str) -> type[BucketError]:
    """What the error of a library means for us."""
    status = STATUS.search(text)
    if isinstance(error, FileNotFoundError) and not NO_BUCKET.search(text):
        return Missing
    if status and status[1] in REFUSED:
        return Unclear if "<Code>RequestTimeout<" in text else Gone
    return Gone if "BareRedirect" in text or "redential" in text else Unclear


def outline(text: str) -> str:
    """What people need of it: neither addresses nor headers, which may have credentials."""
    status, reason = STATUS.search(text), REASON.search(text)
    if status:
        return f"the store answered {status[1]}{' ' + reason[1] if reason else ''}"
    return next((meaning for word, meaning in MEANINGS.items() if word in text), "no usable answer")


# ====================================================================== folders


def private(path: str, flags: int) -> int:
    """Opens a file that only its owner can read, as those of the data path."""
    return os.open(path, flags, 0o600)


class FileStore:
    """A folder as a bucket, for one machine or a shared file system with hard links. A created object is synced.

    A folder that has disappeared is not recreated: if it was removed or its file system unmounted, a chain must not
    continue without its beginning.
    """

    def __init__(self, folder: str) -> None:
        self.root = folder
        self.known: set[str] = set()        # folders that were there

    def path(self, name: str) -> str:
        if ".." in name.split("/") or name.startswith("/"):
            raise Gone(f"{name}: not the name of an object")
        return os.path.join(self.root, name)

    @contextlib.contextmanager
    def errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise Missing(f"{name}: not found") from error
        except FileExistsError as error:
            raise Exists(f"{name}: exists") from error
        except OSError as error:
            kind = Gone if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else Unclear
            raise kind(f"{os.path.join(self.root, name)}: {error.strerror}") from error

    def create(self, name: str, data: Data) -> None:
        path = self.path(name)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f".{secrets.token_hex(16)}.tmp")
        with self.errors(name):
            self.make(folder)
            try:
                with open(temporary, "xb", opener=private) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)        # unlike a rename, never replaces
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                sync_folder(folder)            # also if it exists: an earlier attempt may have failed here

    def make(self, folder: str) -> None:
        """Makes a folder, durably. Raises Gone if it was there before."""
        if not os.path.isdir(folder):
            if folder in self.known or os.path.lexists(folder):
                raise Gone(f"{folder}: {'not a folder' if os.path.lexists(folder) else 'the folder was removed'}")
            self.make(os.path.dirname(folder))
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            sync_folder(os.path.dirname(folder))
        self.known.add(folder)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, int]]:
        """(descriptor, size) of an object."""
        with self.errors(name):
            file = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise BucketError(f"{os.path.join(self.root, name)}: not a file")
                yield file, status.st_size
            finally:
                os.close(file)

    def get(self, name: str, most: int) -> bytes:
        with self.opened(name) as (file, size):
            if size > most:
                raise BucketError(f"{name}: has {size:,} bytes, more than the expected {most:,}")
            return os.pread(file, size, 0)

    def get_part(self, name: str, at: int, length: int) -> bytes:
        with self.opened(name) as (file, size):
            return os.pread(file, max(0, min(length, size - at)), at)

    def delete(self, name: str) -> None:
        with contextlib.suppress(Missing), self.errors(name):
            os.unlink(self.path(name))

    def entries(self, prefix: str) -> Iterator[Entry]:
        top = os.path.join(self.root, prefix)
        with self.errors(prefix):
            for folder, _, files in os.walk(top):
                for file in files:
                    path = os.path.join(folder, file)
                    if file.endswith(".tmp"):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        found = os.lstat(path)
                        yield Entry(os.path.relpath(path, self.root), found.st_size, found.st_mtime)

    def folders(self, prefix: str) -> list[str]:
        with self.errors(prefix), contextlib.suppress(FileNotFoundError):
            # Like a cloud's, a folder exists as long as it has an object.
            return [entry.name for entry in os.scandir(os.path.join(self.root, prefix))
                    if entry.is_dir() and any(files for _, _, files in os.walk(entry.path))]
        return []
