"""The daemon as a whole: built, started, signalled, drained, closed. It alone knows every room."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop

from nsqc import version_line
from nsqc.broker import metadata, nsqc_dat
from nsqc.broker.broker import Broker
from nsqc.broker.health import WriteHealth
from nsqc.broker.timers import Timers
from nsqc.httpd import server as httpd
from nsqc.net import systemd, tls
from nsqc.net.accepting import Doors
from nsqc.net.limits import ConnectionLimits
from nsqc.options.declared import TLS_REQUIRED, Options, Settings
from nsqc.options.reload import Reloader, Reread
from nsqc.peers.peers import Peers
from nsqc.process import descriptors, later
from nsqc.process.terminal import Terminal
from nsqc.process.uncaught import Uncaught
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.guid import GuidFactory
from nsqc.tcp.connection import Connection, Hub
from nsqc.tcp.listener import Listener

WORKERS = 4  # threads for nsqd.dat and what else somebody waits for
SYNC_WORKERS = 4  # threads for fsync and unlink of queue files
IDS_EVERY_S = 5.0  # how often the ids' progress is noted
TICK_S = 0.1  # how often disk queues look at their sync deadlines
# When Python's collector looks for cycles. With the default a burst of new topics has all of them looked through again
# and again, for a quarter of a second each time; what goes here goes by reference counts.
COLLECT = (10_000, 20, 100)
LINGER_S = 1.0  # how long a stop waits for clients to take their last replies
ARRIVING_S = 0.5  # how long a client that has just come may take to publish what it has come with
FAREWELL_S = 0.1  # and for those that have taken all to confirm the end of TLS


class StartError(Exception):
    """The daemon cannot start; the text is one line for the operator."""


def run(options: Options, log: Any, reread: Reread) -> int:
    """Runs the daemon until SIGTERM or SIGINT. Returns the exit code: 0 after a clean stop, 1 where it fails.

    reread: how SIGHUP gets at the options anew.
    """
    # Modules stay for good, so the first collection, when clients may be here already, need not look through them.
    gc.disable()
    gc.freeze()
    uncaught = Uncaught(log)
    uncaught.install()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(uncaught.in_loop)
    try:
        return loop.run_until_complete(serve(loop, options, log, reread))
    except Exception as error:
        uncaught.report("the daemon fails", error)
        return 1
    finally:
        # The loop takes its handlers away; from here to the end of the process no signal may spoil the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
        loop.close()


async def serve(loop: asyncio.AbstractEventLoop, options: Options, log: Any, reread: Reread) -> int:
    """Startup, main loop, shutdown, in that order."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hangup = Hangup(loop)
    terminal: Terminal | None = None
    try:
        daemon = Daemon(loop, options, log, reread)
        await daemon.start()
        if daemon.can_reload:
            # Under nohup it goes on without its terminal, too.
            terminal = None if hangup.ignored else Terminal(loop)
            hangup.begin(lambda: stop.set() if terminal and terminal.has_just_closed() else daemon.reload())
        elif not hangup.ignored:
            hangup.begin(stop.set)
    except StartError as error:
        log.fatal("%s", error)
        return 1
    await stop.wait()
    hangup.end()
    if terminal is not None:
        terminal.close()
    return await daemon.stop()


class Hangup:
    """What SIGHUP does: nothing before begin(), which makes up for it, and nothing after end().

    Under nohup it comes ignored, and stays so unless it is for reading files again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._do: Callable[[], None] | None = None
        self._missed = False
        self.ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        loop.add_signal_handler(signal.SIGHUP, self._came)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def begin(self, do: Callable[[], None]) -> None:
        """Has do() called for each, also for one that has come already."""
        self._do = do
        if self._missed:
            do()

    def end(self) -> None:
        """They are ignored from now on."""
        self._do = None

    def _came(self) -> None:
        self._missed = True
        if self._do is not None:
            self._do()


class Daemon:
    """Every room of one running nsqc."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: Options, log: Any, reread: Reread):
        """Takes the data path and reads what lies there. Raises StartError."""
        self.loop = loop
        self.log = log
        try:
            self.settings = Settings(tls.settle(options))
            self.certificates = tls.Certificates(self.settings.now) if tls.is_offered(options) else None
            self.manager = systemd.Manager(log)
            self.inherited = systemd.inherited()
        except (tls.TlsError, systemd.HandoverError) as error:
            raise StartError(f"failed to instantiate nsqd - {error}") from None
        self.settings.on_change(self._settings_changed)
        self.data_path = os.path.join(os.getcwd(), options.data_path).rstrip("/") or "/"
        self.start_time = time.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._lock = lock(self.data_path)
        log.info("%s", version_line("nsqd"))
        log.info("ID: %d", options.node_id)
        self.workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="nsqc-worker")
        self.sync_workers = ThreadPoolExecutor(SYNC_WORKERS, thread_name_prefix="nsqc-sync")
        self.reloader = Reloader(loop, self.workers, self.settings, reread, self.certificates, log)
        self.listener = self._listen_tcp()
        self._build()
        self._load()

    def _listen_tcp(self) -> Listener:
        address = self.settings.now.tcp_address
        try:
            return Listener(address, self.log, self.inherited.get("tcp"))
        except (OSError, ValueError) as error:
            raise StartError(f"failed to instantiate nsqd - listen ({address}) failed - {error}") from None

    def _build(self) -> None:
        options = self.settings.now
        self.timers = Timers(self.loop)
        self.open_files = descriptors.raise_limit()
        self.disks = DiskQueues(options, self.data_path, self.loop, self.sync_workers, self.log)
        self.write_health = WriteHealth(self.loop, self.workers, self.data_path, self.log, self.disks.failing_sync)
        self.nsqc_dat = nsqc_dat.load(self.data_path, self.disks.index, self.log)
        self.guids = GuidFactory.make(options.node_id, self.nsqc_dat.reached_unit)
        self.broker = Broker(self.settings, self.log, self.timers, self.disks, self.write_health, self.guids,
                             self.loop)
        self.metadata = metadata.MetadataWriter(self.loop, self.workers, self.data_path, self.broker, self.log)
        self.broker.saver = self.metadata.save
        self.connection_limits = ConnectionLimits(options, self.log)
        self.doors = Doors(self.loop, self.log)
        self.hub = Hub(self.broker, self.settings, self.log, self.loop, self.connection_limits, self.certificates)
        if options.auth_http_address:
            self.hub.authority = self._make_authority()
        self._noted_unit = self.guids.reached

    def _make_authority(self) -> Any:
        from nsqc.peers.auth import Authority  # with its regular expressions, for those who have auth servers only

        try:
            return Authority(self.loop, self.workers, self.settings, self.log)
        except ValueError as error:
            raise StartError(f"--auth-http-address {error}") from None

    def _load(self) -> None:
        try:
            metadata.restore(self.broker, metadata.load(self.data_path, self.disks.index, self.log), self.log)
        except metadata.MetadataError as error:
            raise StartError(f"failed to load metadata - {error}") from None
        except OSError as error:
            raise StartError(f"failed to open a queue - {error}") from None
        self.disks.index.loaded()
        nsqc_dat.restore(self.broker, self.nsqc_dat)
        has_delays = bool(self.nsqc_dat.topics or self.nsqc_dat.channels)
        self.nsqc_dat = None
        try:
            self.metadata.write_missing()
            # Before any message moves: what nsqc.dat says, if anything, is true of this moment only.
            nsqc_dat.save_ids(self.data_path, nsqc_dat.Ids(self.guids.reached), durable=has_delays)
        except OSError as error:
            raise StartError(f"failed to persist metadata - {error}") from None

    # ------------------------------------------------------------------ start

    async def start(self) -> None:
        """Lets messages flow and clients come. Raises StartError."""
        self.broker.listeners.append(self.metadata.on_event)
        for topic in list(self.broker.topics.values()):
            topic.start()
        self._tick()
        self._note_ids()
        if self.certificates is not None:
            self.certificates.watch(self.loop, self.workers, self.log)
        await self._listen_http()
        await self.listener.start(self.loop, self.hub, self.doors)
        self.peers = Peers(self.loop, self.broker, self.settings, self.info, self.app.memory, self.log)
        self.peers.start()
        self._keep_descriptors()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        gc.enable()
        self._is_ready()
        self.manager.watch(self.loop)
        later.read_ahead()

    async def _listen_http(self) -> None:
        options = self.settings.now
        self.info = {"hostname": socket.gethostname(), "tcp_port": self.listener.port, "http_port": 0, "https_port": 0}
        self.app = httpd.App(broker=self.broker, settings=self.settings, log=self.log, sessions=self.hub.sessions,
                             info=self.info, start_time=self.start_time,
                             connection_limits=self.connection_limits, doors=self.doors)
        if "https" in self.inherited and self.certificates is None:
            raise StartError("an https socket is inherited, but there is no --tls-cert and --tls-key")
        if self.certificates is not None and self._is_wanted("https", options.https_address):
            https = await self._listen(options.https_address, name="HTTPS", certificates=self.certificates)
            self.info["https_port"] = https.port
        if self._is_wanted("http", options.http_address):
            http = await self._listen(options.http_address, tls_required=options.tls_required == TLS_REQUIRED)
            self.info["http_port"] = http.port

    def _is_wanted(self, name: str, address: str) -> bool:
        return bool(address) or name in self.inherited

    async def _listen(self, address: str, name: str = "HTTP", **more: Any) -> httpd.Server:
        try:
            return await httpd.listen(self.loop, address, self.app, name=name,
                                      inherited=self.inherited.get(name.lower()), **more)
        except (OSError, ValueError) as error:
            raise StartError(f"failed to instantiate nsqd - listen ({address}) failed - {error}") from None

    def _keep_descriptors(self) -> None:
        """Clients leave enough descriptors to files and peers, under the limit of now."""
        capacity = descriptors.for_clients(self.open_files, self.connection_limits.connections)
        if not 0 < self.settings.now.max_connections <= capacity:
            self.log.info("the limit of %d open files has room for %d connections", self.open_files, capacity)
        self.connection_limits.keep_within(capacity, self.doors)

    # ------------------------------------------------------------------ while it runs

    @property
    def can_reload(self) -> bool:
        """Whether there is anything to read again, or somebody who waits to hear that it was."""
        return self.certificates is not None or bool(self.settings.now.config) or self.manager.listens

    def reload(self) -> None:
        """Has the config file and the certificates read again."""
        self.reloader.begin(self.manager.reloading, self._is_ready)

    def _is_ready(self) -> None:
        places = [f"TCP {self.listener.address}", *(f"{server.name} {server.address}" for server in self.app.servers)]
        self.manager.ready(f"Listening on {', '.join(places)}")

    def _settings_changed(self, *_: Any) -> None:
        self.log.level = self.settings.now.log_level
        self.connection_limits.set_limits(self.settings.now)

    def _tick(self) -> None:
        self.disks.tick()
        if self.open_files != (now := descriptors.limit()):
            self.open_files = now
            self._keep_descriptors()
        self._timers["tick"] = self.loop.call_later(TICK_S, self._tick)

    def _ids_ahead(self) -> int:
        """How far ids may come until the next note, so that they rise even after a kill and a clock step."""
        return self.guids.reached + (int(2 * IDS_EVERY_S * 1e9) >> nsqc_dat.UNIT_BITS)

    def _note_ids(self) -> None:
        reached = self.guids.reached
        if reached != self._noted_unit:
            self._noted_unit = reached
            self.loop.run_in_executor(self.workers, self._save_ids, nsqc_dat.Ids(self._ids_ahead()))
        self._timers["ids"] = self.loop.call_later(IDS_EVERY_S, self._note_ids)

    def _save_ids(self, ids: nsqc_dat.Ids) -> None:
        try:
            nsqc_dat.save_ids(self.data_path, ids, durable=False)
        except OSError as error:
            self.log.error("NSQ: failed to write %s - %s", nsqc_dat.IDS_NAME, error)

    # ------------------------------------------------------------------ stop

    async def stop(self) -> int:
        """Lets the clients go, writes everything to disk, and gives the data path back.

        Returns the exit code: 1 where something could not be written.
        """
        self.reloader.close()
        self.manager.stopping()
        self.listener.close()
        await settled()
        self.hub.close(ARRIVING_S)
        for server in list(self.app.servers):
            await server.close()
        self.doors.stop()
        await self._linger()
        await self.peers.close()
        if self.hub.authority is not None:
            await self.hub.authority.close()
        for timer in self._timers.values():
            timer.cancel()
        if self.certificates is not None:
            self.certificates.close()
        self.timers.close()
        self.write_health.close()
        self.broker.closing = True
        await self.metadata.finish()
        self.broker.slicer.finish()
        await self.disks.quiet()
        lost = self._write_all()
        await self.disks.settle()
        if self.disks.failing_sync() is not None:
            lost += 1
        self.workers.shutdown()
        self.sync_workers.shutdown()
        if not lost:
            self._note_stop()
        os.close(self._lock)
        self.manager.close()
        self.log.info("NSQ: bye")
        return 1 if lost else 0

    async def _linger(self) -> None:
        """A moment for clients to take their last replies, and hardly one where nothing but the end of TLS is due.

        Those that have just come are let publish and go by themselves.
        """
        began = self.loop.time()
        while self.hub.connections:
            waited = self.loop.time() - began
            if waited >= LINGER_S or (waited >= FAREWELL_S and not any(map(is_busy, self.hub.connections))):
                break
            await asyncio.sleep(0.01)
            self.hub.close(ARRIVING_S)
        self.hub.close()

    def _write_all(self) -> int:
        """Writes out what is in memory; how many files and queues could not be written."""
        failed = 0
        try:
            self.metadata.write_all()
        except OSError as error:
            self.log.error("failed to persist metadata - %s", error)
            failed += 1
        self.log.info("NSQ: closing topics")
        delays, lost = self.broker.close()
        try:
            nsqc_dat.save(self.data_path, nsqc_dat.collect(self.guids.reached, delays))
        except OSError as error:
            self.log.error("NSQ: failed to write %s - %s", nsqc_dat.FILE_NAME, error)
            failed += 1
        return failed + lost

    def _note_stop(self) -> None:
        """The last word: everything is on disk, and what nsqc.dat says of it holds."""
        try:
            nsqc_dat.save_ids(self.data_path, nsqc_dat.Ids(self.guids.reached, stopped=True), durable=True)
        except OSError as error:
            self.log.error("NSQ: failed to write %s - %s", nsqc_dat.IDS_NAME, error)


def is_busy(connection: Connection) -> bool:
    """Whether a stop waits for this one."""
    return connection.unsent() > 0 or connection.arrives(ARRIVING_S)


async def settled() -> None:
    """Returns when the loop has called for everybody who was accepted, and has read once more."""
    for _ in range(2):
        await asyncio.sleep(0)


def lock(data_path: str) -> int:
    """Takes the data path for this process; the lock goes with it. Returns a descriptor, raises StartError."""
    try:
        descriptor = os.open(data_path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StartError(f"failed to instantiate nsqd - failed to lock data-path: open {data_path}: "
                         f"{error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StartError(f"failed to instantiate nsqd - failed to lock data-path: cannot flock directory {data_path} - "
                         f"{error.strerror} (possibly in use by another instance of nsqd)") from None
    return descriptor
