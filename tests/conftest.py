"""What tests share: a real Redis, one lab per test, the functions behind HTTP without a socket."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

import httpx
import hypothesis
import pytest
import uvloop
from hypothesis import HealthCheck
from redis import Redis
from starlette.applications import Starlette
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.running import GARBAGE
from state.embedded import EmbeddedRedis
from state.errors import NightjarError
from state.private import read_key
from state.settings import Settings
from triggers.http.routes import make_app
from triggers.ports import free_port
from triggers.sse import broadcasting
from triggers.web import WebServer, server_config

gc.set_threshold(GARBAGE)  # what collecting tests makes stays

ROOT = Path(__file__).parents[1]
AUTHORITY = ROOT / "tests" / "data" / "authority.pem"
"""The only one that tests trust, unless they are `trusting_others`."""
OTHERS = "AUTHORITIES_OF_THE_SHELL"
"""Variable with what `SSL_CERT_FILE` was before; empty: the system's."""


def pytest_configure() -> None:
    # The tests' own settings stand in their code; what the developer's shell exports must not change them.
    for name in [n for n in os.environ if n.startswith("NIGHTJAR_") and n != "NIGHTJAR_REDIS_SERVER"]:
        del os.environ[name]
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        os.environ.pop(name, None)  # no test may ask a real model
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # as in the processes: see `functions.kernel.process.running.run`
    # Each HTTP client reads the certificates of all authorities, and no server of the tests' has one of theirs.
    os.environ.setdefault(OTHERS, os.environ.get("SSL_CERT_FILE", ""))  # not again in a worker of xdist
    os.environ["SSL_CERT_FILE"] = str(AUTHORITY)
    heed_signals()
    # In CI the examples are the same each time; a laptop's are others in each run. The profile deep draws many.
    # A slow machine is no fault: no test of a rule has a deadline, and drawing its examples may take long.
    hypothesis.settings.register_profile(
        "nightjar",
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        max_examples=30,
        suppress_health_check=[HealthCheck.too_slow],
    )
    deep = hypothesis.settings.get_profile("nightjar")
    hypothesis.settings.register_profile("deep", deep, max_examples=10_000, derandomize=False)
    hypothesis.settings.load_profile("nightjar")


@contextmanager
def trusting_others() -> Iterator[None]:
    """Around what asks servers of the world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE")
        if others := os.environ[OTHERS]:
            patch.setenv("SSL_CERT_FILE", others)
        yield


SUPERVISING = (
    *(
        "tests/examples/",
        "tests/functions/kernel/test_supervision.py",
        "tests/triggers/test_keeping_agents.py",
    ),
    *("tests/triggers/test_lab.py", "tests/triggers/test_web.py", "tests/workers/"),
)
"""Tests that start processes. uvloop forks for that: in a process of 600 MB, as ours is, it takes 40 ms of CPU."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the event loop of the processes that run what they test: see
    `functions.kernel.process.running.run`.
    """
    is_supervising = item.nodeid.startswith(SUPERVISING)
    return {"loop": asyncio.new_event_loop if is_supervising else uvloop.new_event_loop}


SHARING, STARTING = 0.5, 0.8
"""Shares of the tests among which those are that share something, and those that start processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix what starts processes, and mostly waits for them, with what computes, so that no core is idle.

    Neither it nor what goes to one worker together comes last, and of both those come first that may take longest: no
    worker is left alone with one at the end.
    """
    for item in items:
        if item.nodeid.startswith(JOURNEYS):
            item.add_marker(pytest.mark.process)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(JOURNEY_S))
    sharing = sorted((item for item in items if shares(item.nodeid)), key=lambda item: scope_of(item.nodeid))
    sharing.sort(key=allowed_s, reverse=True)
    starting = sorted(
        (item for item in items if item.get_closest_marker("process")), key=allowed_s, reverse=True
    )
    place = dict[pytest.Item, float]()
    for some, among in ((items, 1.0), (starting, STARTING), (sharing, SHARING)):
        place |= {item: among * nth / len(some) for nth, item in enumerate(some)}
    items.sort(key=lambda item: place[item])


def allowed_s(item: pytest.Item) -> float:
    """The seconds that a test may take, where its file says so; 0: no longer than any."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0.0


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, not among the tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Sharing(config, log)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives tests that share something to one worker, all others one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


JOURNEYS, JOURNEY_S = ("tests/journeys/", "tests/page/"), 600.0
"""Folders whose tests all start processes, and how many seconds each test may take that asks for no more."""
TOGETHER = ("tests/page/", "tests/workers/author/", "tests/journeys/shared/")
"""The tests of each folder are for one worker: they share a browser and a lab, or imports of five seconds."""


def scope_of(nodeid: str) -> str:
    """The file or folder whose tests share something, or the test itself."""
    folder = next((each for each in TOGETHER if nodeid.startswith(each)), None)
    return folder or (nodeid.partition("::")[0] if shares(nodeid) else nodeid)


def shares(nodeid: str) -> bool:
    """Whether a test shares with others what is not to be made by each worker: a fixture of its file or folder."""
    return nodeid.startswith(TOGETHER) or _has_module_fixture(nodeid.partition("::")[0])


@cache
def _has_module_fixture(path: str) -> bool:
    return 'scope="module"' in (ROOT / path).read_text()


def heed_signals() -> None:
    """Stop ignoring signals: a background shell ignores some, and the processes of the tests would inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def nobody_s_configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What stands in the developer's own settings file changes no test either."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A private Redis for the whole run: a skip on a laptop without one, a failure in CI."""
    data = tmp_path_factory.mktemp("redis")
    try:
        server = EmbeddedRedis.start(Settings.model_validate({"data": data}))
    except NightjarError as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{problem.detail}: {problem.hint}")
    with server:
        yield server


@pytest.fixture(scope="session")
def defaults(redis_server: EmbeddedRedis) -> Settings:
    """Settings of any lab on the private Redis."""
    return Settings.model_validate({"redis_url": redis_server.url})


@pytest.fixture
def settings(defaults: Settings, tmp_path: Path, redis_client: Redis) -> Iterator[Settings]:
    """Settings of a lab of its own; its keys are removed after the test."""
    lab = f"t{uuid.uuid4().hex[:12]}"
    yield defaults.model_copy(update={"lab": lab, "data": tmp_path / "data"})
    if keys := [*redis_client.scan_iter(f"*{lab}*", count=10_000)]:
        redis_client.unlink(
            *keys
        )  # those of thousands of tests would slow every SCAN of the tests that follow


@pytest.fixture(scope="session")
def redis_client(redis_server: EmbeddedRedis) -> Iterator[Redis]:
    """A client of the private Redis."""
    with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    """The stores and functions of a web process."""
    async with opened("web", settings) as running:
        yield running


@pytest.fixture
async def operator(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP to the web application, without a socket, by the operator's key."""
    async with http_client(process) as found:
        yield found


@pytest.fixture
def client(operator: httpx.AsyncClient) -> httpx.AsyncClient:
    """Whoever a file's tests are about; the operator, unless the file says otherwise."""
    return operator


@pytest.fixture
async def local(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """The same without a token, as curl on the lab's machine."""
    async with http_client(process, by_key=False) as found:
        yield found


class ByKey(httpx.Auth):
    """Sends the operator's key of a lab, unless the request shows something else."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if not {"authorization", "x-worker-token", "cookie"} & request.headers.keys():
            request.headers["authorization"] = f"Bearer {read_key(self._settings)}"
        yield request


@asynccontextmanager
async def http_client(process: Process, *, by_key: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP to the functions that a process calls, as its operator; or, not `by_key`, without a token."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield

    app = make_app(dict(process.invoker.table), process.settings, lifespan)
    app.state.process = process
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        broadcasting(process) as app.state.broadcast,
        httpx.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1:3111",
            auth=ByKey(process.settings) if by_key else None,
        ) as http,
    ):
        yield http


@asynccontextmanager
async def served_client(process: Process, *, by_key: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """`http_client` over a socket, as a stream that does not end needs it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.process = process
        async with broadcasting(process) as app.state.broadcast:
            yield

    app = make_app(dict(process.invoker.table), process.settings, lifespan)
    port = free_port(0)
    here = process.settings.model_copy(update={"port": port})
    stop = asyncio.Event()
    serving = asyncio.create_task(WebServer(server_config(app, here)).serve_until(stop))
    patient = httpx.AsyncHTTPTransport(retries=10)  # the server may not listen yet
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        timeout=60,
        transport=patient,
        auth=ByKey(process.settings) if by_key else None,
    ) as http:
        await http.get("/healthz")
        try:
            yield http
        finally:
            stop.set()
    await serving
