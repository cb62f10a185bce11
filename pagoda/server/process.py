"""The HTTP process: listens for clients on one side and for the engine on the other.

    python -m pagoda.server.process SETTINGS

SETTINGS is a `ProcessSettings` as JSON. SIGTERM lets what is under way finish, a second one does not. SIGUSR1 says that
no engine will come any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import uvicorn

from pagoda.core.environment import api_key
from pagoda.core.errors import PagodaError
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.core.version import own_version
from pagoda.engine.orphans import die_with_parent
from pagoda.engine.remote import RemoteEngine
from pagoda.observability.json_log import set_up_logging
from pagoda.server.admission import Admission
from pagoda.server.app import App
from pagoda.server.config import NO_ENGINE, ProcessSettings
from pagoda.server.connection import Connection
from pagoda.server.keys import KeyRing
from pagoda.server.observer import RequestObserver
from pagoda.server.openapi import document, page
from pagoda.server.route_table import route_table
from pagoda.server.routes import RouteTable
from pagoda.server.service import Service
from pagoda.server.tracing import make_tracer
from pagoda.text.loading import load_tokenizer
from pagoda.weights.checkpoint import Checkpoint, open_checkpoint
from pagoda.weights.description import describe_checkpoint
from pagoda.weights.sampling_defaults import read_sampling_defaults

logger = logging.getLogger("pagoda.server")
DRAIN_LOOK_SECONDS = 0.02
LAST_SECONDS = 0.5
EXIT_SETTINGS, EXIT_ADDRESS = 2, 3
UNKNOWN_CONTEXT = 4096
ROWS_BEFORE_THE_ENGINE_SAYS = 64


class QuietServer(uvicorn.Server):
    """uvicorn without its own signal handlers: ours drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_service(settings: ProcessSettings, routes: RouteTable) -> Service:
    path = Path(settings.model_path)
    with open_checkpoint(path) as checkpoint:
        tokenizer = load_tokenizer(checkpoint, path)
        context = describe_checkpoint(checkpoint).context_length or UNKNOWN_CONTEXT
        defaults = sampling_defaults(settings, checkpoint)
    observer = RequestObserver()
    model_name = settings.model_name
    return Service(
        engine=RemoteEngine(tokenizer, observer.take, settings.server.queue.load_stall_seconds),
        tokenizer=tokenizer,
        model_name=model_name,
        context=settings.engine.max_model_len or context,
        created=int(time.time()),
        keys=KeyRing.load(settings.server.api_keys_file, api_key()),
        admission=Admission(settings.server.queue, settings.engine.max_num_seqs or ROWS_BEFORE_THE_ENGINE_SAYS),
        limits=settings.server.limits,
        observer=observer,
        sampling_defaults=defaults,
        request_timeout=settings.server.queue.request_timeout,
        openapi=document(routes.routes, own_version()),
        docs_page=page(routes.routes, own_version()),
        log_prompts=settings.server.log.log_prompts,
        tracer=make_tracer(settings.server.log.trace_endpoint, model_name),
    )


def sampling_defaults(settings: ProcessSettings, checkpoint: Checkpoint) -> SamplingDefaults:
    if settings.engine.generation_config == "none":
        return SamplingDefaults()
    defaults = read_sampling_defaults(checkpoint)
    if defaults != SamplingDefaults():
        logger.info("as the model's files recommend, requests that say nothing else draw with %s", defaults)
    return defaults


class HttpProcess:
    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        routes = route_table()
        self._service = make_service(settings, routes)
        listen = settings.server.listen
        config = uvicorn.Config(
            App(self._service, routes, listen),
            host=listen.host,
            port=listen.port,
            http=partial(  # type: ignore[arg-type]
                Connection,
                limits=settings.server.limits,
                send_buffer_bytes=listen.send_buffer_bytes,
                slow_reader_seconds=settings.server.queue.slow_reader_seconds,
            ),
            loop="uvloop",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            proxy_headers=False,  # nothing here depends on what a proxy says of its client
            timeout_keep_alive=30,
            ssl_certfile=listen.tls_certificate,
            ssl_keyfile=listen.tls_key,
        )
        self._server = QuietServer(config)
        self._service.unsent_bytes = self._unsent_bytes
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        # A Ctrl-C in the terminal goes to all processes at once; what counts is what the supervisor makes of it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_stop)
        loop.add_signal_handler(NO_ENGINE, self._left_without_engine)
        await self._service.engine.listen(Path(self._settings.engine_socket))
        history = asyncio.ensure_future(self._service.history.keep())
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.01)
        if self._server.started:
            self._announce()
        try:
            await serving
        except SystemExit:  # uvicorn leaves in this way when it cannot have its address
            return EXIT_ADDRESS
        finally:
            history.cancel()
            await self._service.engine.close()
            if self._service.tracer is not None:
                self._service.tracer.close()
        return 0 if self._server.started else EXIT_ADDRESS

    def _announce(self) -> None:
        listen = self._settings.server.listen
        port = self._server.servers[0].sockets[0].getsockname()[1]
        scheme = "https" if listen.tls_certificate else "http"
        name = f"[{listen.host}]" if ":" in listen.host else listen.host
        print(f"pagoda: listening on {scheme}://{name}:{port}", file=sys.stderr, flush=True)

    def _unsent_bytes(self) -> int:
        connections = self._server.server_state.connections
        return sum(one.unsent_bytes() for one in connections if isinstance(one, Connection))

    def _asked_to_stop(self) -> None:
        if self._draining is not None:  # asked twice: now
            self._server.force_exit = True
            self._server.should_exit = True
            return
        self._service.admission.is_draining = True
        self._draining = asyncio.ensure_future(self._drain())

    def _left_without_engine(self) -> None:
        """The supervisor starts no engine again. Requests end in an error that says so, and then the server does."""
        self._service.engine.give_up()
        if self._draining is None:
            self._asked_to_stop()

    async def _drain(self) -> None:
        """What is under way may finish; nothing new is taken."""
        deadline = time.monotonic() + self._settings.server.queue.drain_seconds
        while self._service.admission.num_open and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        if self._service.admission.num_open:
            logger.warning("%d requests did not finish in time", self._service.admission.num_open)
            await self._service.engine.close()  # they end in an error
            await asyncio.sleep(5 * DRAIN_LOOK_SECONDS)
        self._server.should_exit = True
        # Clients may still read what is left of their answers, or send what nobody will read: they have as long.
        await asyncio.sleep(max(LAST_SECONDS, deadline - time.monotonic()))
        self._server.force_exit = True


def allow_many_connections() -> None:
    """Each is an open file, of which a process may have few unless it asks."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(arguments: list[str]) -> int:
    settings = msgspec.json.decode(arguments[0], type=ProcessSettings)
    die_with_parent(settings.supervisor_pid)
    set_up_logging(settings.server.log.log_level)
    allow_many_connections()
    try:
        process = HttpProcess(settings)
    except PagodaError as error:
        print(f"pagoda: error: {error}", file=sys.stderr)
        return EXIT_SETTINGS
    import uvloop

    return uvloop.run(process.run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
