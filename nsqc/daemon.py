"""The daemon as a whole: construction, start, main loop, shutdown. Only this module knows every room."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nsqc import version_line
from nsqc.access.needs import GRANTS, NOTHING, Need
from nsqc.broker import metadata, nsqc_dat, refusals
from nsqc.broker.broker import Broker
from nsqc.broker.drain import Drain
from nsqc.broker.health import Retention, SpaceWatch, WritableProbe, WriteHealth
from nsqc.broker.nsqc_dat import SavedIds
from nsqc.broker.stats import Timers
from nsqc.httpd import router
from nsqc.httpd.app import App, BucketState, NodeInfo, Watched
from nsqc.httpd.gate import Gate
from nsqc.httpd.routing import Mounted
from nsqc.httpd.server import Server
from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.loop.uv import BusyPoll, span_began, span_ended
from nsqc.metrics.durations import LoopLag
from nsqc.net import tls
from nsqc.net.address import is_loopback
from nsqc.net.listener import Acceptor, ConnectionLimits, Listener, Listeners
from nsqc.options.declared import OptionError, Options, Settings
from nsqc.options.option import TLS_NOT_REQUIRED, TLS_REQUIRED
from nsqc.options.reload import Reloader, Reread, offered
from nsqc.options.rules import ChannelRules, TopicRules
from nsqc.peers.peers import Peers
from nsqc.process import machine, running
from nsqc.process.lifecycle import LockError, check_writable, lock
from nsqc.process.machine import EnvironmentVariableError, Workers
from nsqc.process.running import Hangup, InheritError, ServiceManager, inherited
from nsqc.store.disk import fileio
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.files import METADATA, MetadataError
from nsqc.store.log.manager import Logs
from nsqc.store.message import GuidFactory
from nsqc.store.work import DiskSpace
from nsqc.tcp.connection import Connection
from nsqc.tcp.identify import ARRIVING_S, accepted, farewell
from nsqc.tcp.intake import Hub
from nsqc.wire.codecs import LIBRARIES

if TYPE_CHECKING:
    from nsqc.access.authority import Authority
    from nsqc.bucket.node import Node
    from nsqc.guarding import Guarding
    from nsqc.peers.auth import AuthServers

WORKERS = 4  # threads for nsqd.dat and other work with a waiting caller
SYNC_WORKERS = 4  # threads for fsync and unlink of queue files
LOGS_SHARE = 32  # logs keep open at most 1/32 of the permitted files
TICK_S = 0.1  # how often disk queues check their sync deadlines
# When Python's collector looks for cycles. By default a burst of new topics makes it traverse all of them again and
# again, for 250 ms each time; objects here are freed by reference counts. Young objects are traversed in one loop
# iteration: 10,000 objects take some 10 ms.
COLLECT = (2_000, 5, 2_000)
POLLING_PROCESSORS = 2  # fewer leave none for the clients while the loop polls
SWITCH_S = 0.0005  # the loop waits so long for a worker thread that runs Python; 5 ms by default


GIVE_UP_S = 0.25  # how often publishes that wait for the bucket are looked at
SHIP_S = 30.0  # patience of a stop with the bucket


class StartError(Exception):
    """The daemon cannot start; the text is one line for the operator."""


def run(options: Options, log: Log, reread: Reread) -> int:
    """Runs the daemon until SIGTERM or SIGINT. Returns the exit code: 0 after a clean stop, 1 if it fails.

    reread: reads the options again, for SIGHUP.
    """
    return running.run("daemon", log, lambda loop, slow: serve(loop, options, log, reread, slow))


async def serve(loop: asyncio.AbstractEventLoop, options: Options, log: Log, reread: Reread, slow: SlowLoop) -> int:
    """Startup, main loop, shutdown, in that order."""
    stop = asyncio.Event()
    # Until there is something to drain, SIGUSR1 is a stop like the others.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        loop.add_signal_handler(number, stop.set)
    hangup = Hangup(loop)
    try:
        daemon = Daemon(loop, options, log, reread, slow, stop.set)
        if options.bucket and not await daemon.take_over(stop):
            return 0
        await daemon.start()
        loop.add_signal_handler(signal.SIGUSR1, daemon.drain.begin, None, False)
        hangup.begin(stop.set, daemon.reload if daemon.can_reload else None)
    except StartError as error:
        log.fatal("%s", error)
        return 1
    await stop.wait()
    hangup.end()
    return await daemon.stop()


class Daemon:
    """One running nsqc. The constructor builds everything except parts that need a running loop: see start()."""

    info: NodeInfo
    app: App
    peers: Peers
    _ticking: asyncio.Handle

    # ------------------------------------------------------------------ build

    def __init__(self, loop: asyncio.AbstractEventLoop, options: Options, log: Log, reread: Reread,
                 slow: SlowLoop, stop: Callable[[], None]):
        """Locks the data path and restores its contents. stop: has stop() called. Raises StartError."""
        self.loop = loop
        self._stop = stop
        self.slow = slow
        self.busy_poll: BusyPoll | None = None
        self.log = log
        try:
            self.settings = Settings(options.settled())
            given = offered(options)
            self.certificates = None if given is None else tls.Certificates(given)
            self.manager = ServiceManager(log)
            self.inherited = inherited()
        except (OptionError, tls.TlsError, EnvironmentVariableError, InheritError) as error:
            raise StartError(f"failed to instantiate nsqd - {error}") from None
        self.settings.on_change(self._settings_changed)
        self.data_path = absolute(options.data_path)
        self.start_time = time.time()
        self.servers: list[Server] = []
        try:
            self._lock = lock(self.data_path)
            check_writable(self.data_path)
        except LockError as error:
            raise StartError(f"failed to instantiate nsqd - {error}") from None
        log.info("%s", version_line("nsqd"))
        log.info("ID: %d", options.node_id)
        try:
            self.workers = Workers(WORKERS, "nsqc-worker")
            self.sync_workers = Workers(SYNC_WORKERS, "nsqc-sync")
        except RuntimeError as error:
            raise StartError(f"failed to start threads - {error}; raise the limit of processes "
                             "(ulimit -u, pids.max), or of memory (ulimit -v)") from None
        self.reloader = Reloader(loop, self.workers, self.settings, reread, self.certificates, log)
        self.listener = self._bind("TCP", self.settings.now.tcp_address)
        self.node: Node | None = None
        self.fence = ""         # why another node owns ours in the bucket

    def _bind(self, name: str, address: str) -> Listener:
        try:
            return Listener(name, address, self.log, self.inherited.get(name.lower()))
        except (OSError, ValueError) as error:
            raise cannot_listen(address, error) from None

    def _build(self) -> None:
        options = self.settings.now
        self.timers = Timers(self.loop)
        self.open_files = machine.raise_limit()
        self.disks = DiskQueues(self.data_path, self.loop, self.sync_workers, self.log, *options.disk_limits)
        self.space = DiskSpace()
        self.space_watch = SpaceWatch(self.loop, self.data_path, self.space, options.min_free_disk, self.log)
        self.write_health = WriteHealth(self.loop, self.workers, self.data_path, self.log, self.disks.failing_sync,
                                        lambda: self.fence or self.space_watch.reason())
        self.rules, self.channel_rules = self._read_rules()
        ids = nsqc_dat.load_ids(self.data_path, self.log)
        self.saved = nsqc_dat.load(self.data_path, self.disks.index, ids, self.log)
        self.logs = Logs(self.data_path, self.disks, nsqc_dat.power_failed(ids), options.max_bytes_per_file, self.loop,
                         self.sync_workers, self.log, options.max_req_timeout, ids.stopped)
        if self.node is not None:
            self.logs.shipping = self.node.logs
        self.guids = GuidFactory.make(options.node_id, self.saved.reached_unit)
        self.broker = Broker(self.settings, self.log, self.timers, self.disks, self.write_health, self.guids,
                             self.loop, self.rules, self.space, self.logs, self.channel_rules)
        self.metadata = metadata.MetadataWriter(self.loop, self.workers, self.data_path, self.broker, self.log)
        self.broker.saver = self.metadata.save
        self.broker.folds_channels = not options.metrics_per_channel
        self.connection_limits = ConnectionLimits(self.log, *options.connection_limits)
        self.listeners = Listeners(self.loop, self.log)
        self.auth_servers = self._make_auth_servers() if options.auth_http_address else None
        self.guarding = self._make_guarding()
        self.hub = Hub(self.broker, self.settings, self.log, self.loop, self.connection_limits, self.certificates,
                       self._make_authority(), None if self.guarding is None else self.guarding.audit)
        self.drain = Drain(self.loop, self.broker, lambda: self.settings.now.msg_timeout, self._drain_changed,
                           self._stop, self.log)
        self.saved_ids = SavedIds(self.loop, self.workers, self.data_path, self.guids, self.log)

    def _read_rules(self) -> tuple[TopicRules, ChannelRules]:
        given = self.loop, self.workers, self.data_path, self.settings, self.log
        try:
            topics = TopicRules(*given)
            return topics, ChannelRules(*given, topics)
        except OSError as error:
            raise StartError(f"failed to read the rules of topics and channels - {error}") from None

    def _make_auth_servers(self) -> AuthServers:
        from nsqc.peers.auth import AuthServers  # here: only daemons with auth servers need its regular expressions

        try:
            return AuthServers(self.loop, self.workers, self.settings, self.log)
        except ValueError as error:
            raise StartError(f"--auth-http-address {error}") from None

    def _make_guarding(self) -> Guarding | None:
        options = self.settings.now
        if not options.access_file and not options.audit_file:
            return None
        from nsqc.guarding import Guarding, GuardingError  # here: most daemons have neither

        try:
            return Guarding(self.loop, self.workers, self.log, options.access_file, options.audit_file,
                            options.audit_level, servers=self.auth_servers,
                            trusts_certificates=options.tls_client_auth_policy == "require-verify")
        except GuardingError as error:
            raise StartError(str(error)) from None

    def _make_authority(self) -> Authority | None:
        access = None if self.guarding is None else self.guarding.access
        if access is None and self.auth_servers is None:
            return None
        from nsqc.access.authority import Authority  # here: most daemons have neither

        return Authority(self.loop, self.log, access, self.auth_servers)

    def _restore(self) -> None:
        """Topics, channels, and the delays of messages, as saved by the last shutdown."""
        try:
            loaded = metadata.load(self.data_path, self.disks.index, self.logs.names(), self.log)
            self.logs.look(topic.name for topic in loaded.topics or ())
            metadata.restore(self.broker, loaded, self.log)
        except MetadataError as error:
            raise StartError(f"failed to load metadata - {error}") from None
        except OSError as error:
            raise StartError(f"failed to open a queue - {error}") from None
        self.disks.index.loaded()
        nsqc_dat.restore(self.broker, self.saved)
        del self.saved
        try:
            self.metadata.write_missing()
            self.saved_ids.begin()
        except OSError as error:
            raise StartError(f"failed to persist metadata - {error}") from None

    # ------------------------------------------------------------------ the bucket

    async def take_over(self, stop: asyncio.Event) -> bool:
        """Claims the node in the bucket, and restores what the data path lacks; False: stopped meanwhile. Raises
        StartError."""
        from nsqc.bucket.node import Node, NodeLogs  # here: most daemons have no bucket
        from nsqc.bucket.store import BucketError

        options = self.settings.now
        ids = nsqc_dat.read(os.path.join(self.data_path, nsqc_dat.IDS_NAME), nsqc_dat.Ids, nsqc_dat.decode_ids,
                            self.log)
        try:
            self.node = Node(options.bucket, options.node_name or socket.gethostname(), self.data_path,
                             socket.gethostname(), lambda text: self.log.info("BUCKET: %s", text))
            self.node.logs = NodeLogs(self.loop.call_soon_threadsafe, self.data_path,
                                      (METADATA, TopicRules.scope.file, ChannelRules.scope.file),
                                      self._fenced, self.node.say, options.bucket_cache_bytes)
            claimed = self.loop.run_in_executor(self.workers, self.node.take_over, options.bucket_take_over,
                                                nsqc_dat.power_failed(ids), metadata.topics_in)
            stopped = self.loop.create_task(stop.wait())
            both: list[asyncio.Future[Any]] = [claimed, stopped]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                self.node.stopping.set()
            stopped.cancel()
            await asyncio.wait(both)      # else a task that is left is reported after the end of the log
            head = claimed.result()
            if not self.node.owned.had_files and not ids.reached_unit:
                nsqc_dat.after_loss(self.data_path, head.time_ns)
        except (BucketError, OSError, ValueError) as error:
            if not stop.is_set():
                raise StartError(f"--bucket: {error}") from None
        return not stop.is_set()

    def _ship(self, node: Node) -> None:
        node.ship(self.settings.now.bucket_linger / 1e9, self.settings.now.bucket_timeout / 1e9)
        self.metadata.written = self._changed
        self.rules.on_change(self._changed)
        self.channel_rules.on_change(self._changed)
        self._give_up()

    def _bucket_state(self) -> BucketState | None:
        if self.node is None:
            return None
        status, owned, history = self.node.status(), self.node.owned, self.node.logs.history
        return BucketState(self.node.name, self.node.epoch, round(status.waiting_seconds, 3), status.waiting_bytes,
                           status.commits, status.bytes, status.errors, status.error, status.checkpoint_time,
                           int(owned.since), owned.taken_from, history.size, history.fetches, history.failures,
                           status.fenced)

    def _changed(self, *_: object) -> None:
        if self.node is not None:
            self.node.logs.wake(0)

    def _give_up(self) -> None:
        """Fails the publishes and changes for which the bucket takes too long."""
        if self.node is None or self.fence:
            return
        seconds = self.settings.now.bucket_timeout / 1e9
        status = self.node.status()
        refusals.not_shipped = (f"the bucket has not confirmed it within {seconds:g} s (--bucket-timeout), so it may "
                                f"still appear: {status.error or 'the bucket is slow'}")
        if status.waiting_seconds > seconds:
            self.node.logs.give_up(refusals.NOT_SHIPPED, seconds)
        self.loop.call_later(GIVE_UP_S, self._give_up)

    def _fenced(self, reason: str) -> None:
        """Another process owns the node: refuses publishes, delivers no more, and stops."""
        if self.node is None or self.fence:
            return
        self.fence = refusals.fenced = refusals.not_shipped = reason
        self.log.fatal("BUCKET: %s", reason)
        self.broker.draining = True     # until it ends
        for _ in self.broker.halt([]):
            pass
        self.node.logs.refuse(refusals.NOT_SHIPPED)
        self._stop()

    # ------------------------------------------------------------------ start

    async def start(self) -> None:
        """Restores the data path, starts delivery and accepts clients. Raises StartError."""
        self._build()
        self._restore()
        self.broker.listeners.append(self.metadata.on_event)
        self.space_watch.start()
        for topic in list(self.broker.topics.values()):
            topic.start()
        self.retention = Retention(self.loop, self.broker, self.log)
        self.rules.on_change(self.retention.rule_changed)
        self.channel_rules.on_change(self.retention.channel_rule_changed)
        self._tick()
        if self.node is not None:
            self._ship(self.node)
        if self.certificates is not None:
            self.certificates.watch(self.loop, self.workers, self.log)
        await self._listen_http()
        await self._listen_tcp()
        self._warn_of_open_http()
        self.peers = Peers(self.loop, self.broker, self.settings, self.info, self.app.memory, self.log)
        self.peers.start()
        self._reserve_descriptors()
        if self.guarding is not None:
            self.guarding.watch(lambda: [session.rules_changed for session in self.hub.sessions()], self.app.servers)
        self.app.started = True
        gc.freeze()     # without a collection, which would look at all topics: a start leaves little garbage
        gc.set_threshold(*COLLECT)
        gc.enable()
        sys.setswitchinterval(SWITCH_S)
        self._notify_ready()
        self.manager.watch(self.loop)
        self.slow.set_limit(self.settings.now.slow_loop)
        self._begin_polling()
        self.hub.begin()
        machine.read_ahead(LIBRARIES)

    async def _listen_http(self) -> None:
        options = self.settings.now
        self.info = {"hostname": socket.gethostname(), "tcp_port": self.listener.port, "http_port": 0, "https_port": 0}
        self.lag = LoopLag(self.loop)
        self.mounted = Mounted("/ui", "nsqc.admin.local", Need(GRANTS, NOTHING, own=True, local=True), router.resolve)
        watched = Watched(self.lag.lags, self.connection_limits, self.disks.syncer, self.space_watch,
                          lambda: (connection.held_bytes() for connection in list(self.hub.connections)),
                          lambda: [] if self.certificates is None else self.certificates.dates, self._bucket_state)
        self.app = App(broker=self.broker, settings=self.settings, rules=self.rules,
                       channel_rules=self.channel_rules, log=self.log,
                       sessions=self.hub.sessions, info=self.info, start_time=self.start_time, threads=self.workers,
                       resolve=self.mounted.resolve, limits=self.connection_limits, listeners=self.listeners,
                       writable=WritableProbe(self.loop, self.data_path), drain=self.drain,
                       slow=self.slow, watched=watched, gate=self._make_gate(),
                       history=None if self.node is None else self.node.logs.history)
        if "https" in self.inherited and self.certificates is None:
            raise StartError("an https socket is inherited, but there is no --tls-cert and --tls-key")
        if self.certificates is not None and self._is_wanted("https", options.https_address):
            https = await self._serve_http("HTTPS", options.https_address, certificates=self.certificates)
            self.info["https_port"] = https.port
        if self._is_wanted("http", options.http_address):
            http = await self._serve_http("HTTP", options.http_address,
                                          tls_required=options.tls_required == TLS_REQUIRED)
            self.info["http_port"] = http.port

    def _make_gate(self) -> Gate:
        options, guarding = self.settings.now, self.guarding
        return Gate(options) if guarding is None else Gate(options, guarding.permits, guarding.recorder)

    def _warn_of_open_http(self) -> None:
        """Warns of listeners that take secrets without TLS, and of HTTP that auth servers do not guard."""
        options = self.settings.now
        if not options.auth_http_address and not options.access_file:
            return
        from nsqc.guarding import warn_of_clear_tokens  # here: most daemons have neither

        remedy = "--tls-required" if options.offers_tls else "--tls-cert, --tls-key and --tls-required"
        if options.tls_required == TLS_NOT_REQUIRED:
            warn_of_clear_tokens(self.log, "TCP", self.listener.address, remedy)
        if options.access_file:
            for server in self.servers:
                if not (server.state.tls or server.state.tls_required):
                    warn_of_clear_tokens(self.log, server.name, server.address, remedy)
            return
        for server in self.servers:
            if server.port >= 0 and not is_loopback(server.address):
                self.log.warn(
                    "%s: %s is open to every client that reaches it: --auth-http-address guards TCP only. Use "
                    "--access-file, or listen on 127.0.0.1", server.name, server.address)

    def _is_wanted(self, name: str, address: str) -> bool:
        return bool(address) or name in self.inherited

    async def _serve_http(self, name: str, address: str, *, certificates: tls.Certificates | None = None,
                          tls_required: bool = False) -> Server:
        server = Server(self.loop, self.app, self._bind(name, address), limits=self.connection_limits,
                        listeners=self.listeners, certificates=certificates, tls_required=tls_required)
        try:
            await server.start()
        except OSError as error:
            raise cannot_listen(address, error) from None
        self.servers.append(server)
        return server

    async def _listen_tcp(self) -> None:
        acceptor = Acceptor(self.loop, self.listener.sock, lambda: Connection(self.hub), self.log)
        try:
            await self.listener.start(acceptor, self.listeners)
        except OSError as error:
            raise cannot_listen(self.settings.now.tcp_address, error) from None

    def _reserve_descriptors(self) -> None:
        """Limits clients by the current limit of open files, leaving enough for queues and peers."""
        capacity = machine.for_clients(self.open_files, self.connection_limits.connections)
        if not 0 < self.settings.now.max_connections <= capacity:
            self.log.info("the limit of %d open files allows %d connections", self.open_files, capacity)
        self.connection_limits.keep_within(capacity, self.listeners)
        fileio.limit_to(self.open_files // LOGS_SHARE)

    # ------------------------------------------------------------------ run

    @property
    def can_reload(self) -> bool:
        """Whether there is anything to read again, or a service manager that waits for the end of a reload."""
        return (self.certificates is not None or bool(self.settings.now.config) or self.manager.listens
                or self.guarding is not None)

    def reload(self) -> None:
        """Reads the config file, the certificates and the access file again, and reopens the audit log."""
        if self.guarding is not None:
            self.guarding.reload()
        self.reloader.begin(self.manager.reloading, self._notify_ready)

    def _notify_ready(self) -> None:
        places = [f"TCP {self.listener.address}", *(f"{server.name} {server.address}" for server in self.servers)]
        self.manager.ready(f"Listening on {', '.join(places)}")

    def _drain_changed(self, draining: bool) -> None:
        self.peers.drain(draining)
        if draining:
            self.manager.status("Draining")
        else:
            self._notify_ready()

    def _settings_changed(self, options: Options) -> None:
        self.log.level = options.log_level
        self.connection_limits.set_limits(*options.connection_limits)
        self.space_watch.set_limit(options.min_free_disk)
        self.slow.set_limit(options.slow_loop)
        if self.busy_poll is not None:
            self.busy_poll.set_limit(options.busy_poll)

    def _begin_polling(self) -> None:
        if machine.available() < POLLING_PROCESSORS:
            return      # the clients that it polls for may need the only one
        try:
            self.busy_poll = BusyPoll(self.loop, self.settings.now.busy_poll)
        except OSError as error:
            self.log.warn("LOOP: --busy-poll has no effect - %s", error)

    def _tick(self) -> None:
        began = span_began()
        more = self.disks.tick()
        self.saved_ids.tick()
        span_ended(began, "deadlines of syncs")
        if self.open_files != (now := machine.limit()):
            self.open_files = now
            self._reserve_descriptors()
        self._ticking = self.loop.call_soon(self._tick) if more else self.loop.call_later(TICK_S, self._tick)

    # ------------------------------------------------------------------ stop

    async def stop(self) -> int:
        """Lets clients finish, writes everything to disk, and unlocks the data path.

        Returns the exit code: 1 if anything could not be written.
        """
        if self.busy_poll is not None:
            self.busy_poll.close()
        self.slow.close()       # a shutdown takes the time it needs
        self.drain.close()
        self.reloader.close()
        self.manager.stopping("Writing everything to disk")
        self.mounted.close()
        self.listener.close()
        await accepted()
        self.hub.close(ARRIVING_S)
        for server in self.servers:
            await server.close()
        self.listeners.stop()
        await farewell(self.loop, self.hub)
        await self.peers.close()
        if self.guarding is not None:
            await self.guarding.close()
        if self.auth_servers is not None:
            await self.auth_servers.close()
        self._ticking.cancel()
        if self.certificates is not None:
            self.certificates.close()
        self.lag.close()
        self.timers.close()
        self.retention.close()
        self.write_health.close()
        self.space_watch.close()
        self.broker.closing = True
        await self.metadata.finish()
        await self.rules.written()
        await self.channel_rules.written()
        self.broker.slicer.finish()
        await self.disks.quiet()
        lost = self._write_all()
        await self.disks.settle()
        if self.disks.failing_sync() is not None:
            lost += 1
        if self.node is not None:
            self.node.logs.change_all()
            if not await self.loop.run_in_executor(self.workers, self.node.stop, SHIP_S):
                self.log.error("BUCKET: stopped before everything was in the bucket; it is on this disk - %s",
                               self.fence or self.node.status().error)
                lost += 1
        self.workers.shutdown()
        self.sync_workers.shutdown()
        if not lost:
            self.saved_ids.write_stopped()
        os.close(self._lock)
        self.manager.close()
        self.log.info("NSQ: bye")
        return 1 if lost else 0

    def _write_all(self) -> int:
        """Writes everything in memory to disk; returns the number of files and queues that could not be written."""
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


def absolute(data_path: str) -> str:
    """The data path, valid as long as the process runs. Raises StartError if it depends on a folder that is gone."""
    try:
        folder = "" if os.path.isabs(data_path) else os.getcwd()
    except OSError as error:
        raise StartError(f"failed to instantiate nsqd - the working folder is gone ({error.strerror}), so --data-path "
                         f"has to be absolute, not {data_path!r}") from None
    return os.path.join(folder, data_path).rstrip("/") or "/"


def cannot_listen(address: str, error: Exception) -> StartError:
    """An error with nsqd's text."""
    return StartError(f"failed to instantiate nsqd - listen ({address}) failed - {error}")
