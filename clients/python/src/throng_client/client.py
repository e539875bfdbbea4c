"""Commands, queries and event streams over HTTP, on the standard library."""

import http.client
import json
import math
import socket
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypedDict
from urllib.parse import quote, urlencode, urlsplit

from .retry import Cancel, Problem, Unreachable, is_final, pause, retrying
from .socket import Socket

# Seconds without a sign of life, after which a stream is opened anew; the service gives one each 15 s.
SILENCE = 45.0
# Connections that are kept for later requests.
IDLE_MAX = 16

Token = str | Callable[[], str] | None


class Options(TypedDict, total=False):
    """What a method that a service's own client has for a query takes."""

    timeout: float | None
    cancel: Cancel | None


class CommandOptions(Options, total=False):
    """The same for a command."""

    key: str | None
    traceparent: str | None


class Client:
    """A client of one service. Threads may share it.

    `token` is shown as `Authorization: Bearer`; a function is asked for each attempt. `timeout`: seconds until a request fails, with all its
    attempts. `context`: of TLS.
    """

    def __init__(self, url: str, *, token: Token = None, timeout: float = 30.0, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"{url!r} is no URL of a service; expected http:// or https://, and a host")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._parts = parts
        self._token = token
        self._context = context
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def command(
        self, kind: str, id: str, command: str, body: Any = None, *, key: str | None = "", timeout: float | None = None,
        cancel: Cancel | None = None, traceparent: str | None = None,
    ) -> Any:
        """Runs a command; returns its reply.

        Under one `key` a command takes effect once. A key is made unless one is given, and kept over all attempts. `None`: no key, for actors
        and for routes without one; then nothing is sent again that may have taken effect. `timeout`: seconds; the service is told of it.
        """
        path = f"/api/{kind}/{part(id)}/{part(command)}"
        return self.request("POST", path, body, key=key, timeout=timeout, cancel=cancel, traceparent=traceparent)

    def query(
        self, kind: str, id: str, query: str = "view", arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Any:
        """Asks a query; without a name, the view."""
        name = "" if query == "view" else f"/{part(query)}"
        return self.request("GET", f"/api/{kind}/{part(id)}{name}{search(arguments or {})}", timeout=timeout, cancel=cancel)

    def history(self, kind: str, id: str, *, after: int | None = None, limit: int | None = None, timeout: float | None = None) -> Any:
        """A page of an entity's events, after a sequence number."""
        return self.request("GET", f"/api/{kind}/{part(id)}/events{search({'after': after, 'limit': limit})}", timeout=timeout)

    def list(self, kind: str, *, after: str | None = None, limit: int | None = None, timeout: float | None = None) -> Any:
        """A page of the entities of a kind, in the order of their ids."""
        return self.request("GET", f"/api/{kind}{search({'after': after, 'limit': limit})}", timeout=timeout)

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = "", timeout: float | None = None,
        cancel: Cancel | None = None, traceparent: str | None = None,
    ) -> Any:
        """Any route of the service: its answer as JSON. A `GET` has no body and no key."""
        reads = method == "GET"
        headers = {} if reads else {"Content-Type": "application/json"}
        if not reads and key is not None:
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        if traceparent is not None:
            headers["traceparent"] = traceparent
        content = None if reads else json.dumps({} if body is None else body).encode()
        cancel = cancel or Cancel()
        once = reads or key is not None

        def attempt(left: float) -> Any:
            if timeout is not None:
                headers["Request-Timeout"] = f"{max(1, math.ceil(left * 1000))}ms"
            connection = self._connection(max(left, 0.001), once)
            end = closer(connection)
            cancel.add(end)
            try:
                response = self._send(connection, method, path, content, headers)
                read = whole(response)
            except BaseException:
                connection.close()
                raise
            finally:
                cancel.remove(end)
            self._keep(connection, response)
            if response.status >= 300:
                raise Problem.of(response.status, read, response.headers.get("Retry-After"))
            return json.loads(read)

        within = self.timeout if timeout is None else timeout
        return retrying(within, cancel, once, attempt)

    def events(self, kind: str, id: str, *, after: str | int | None = None, cancel: Cancel | None = None) -> Iterator[Any]:
        """What happens to an entity, after a cursor, the sequence number of an event, or from its first.

        It goes on forever, over restarts of the service, each event once. Leave the loop, or `cancel` it from another thread, to end it.
        """
        last = None if after is None else str(after)
        path = f"/api/{kind}/{part(id)}/events"
        cancel = cancel or Cancel()
        in_vain = 0
        while True:
            error: Exception | None = None
            end: Callable[[], None] | None = None
            try:
                connection = self._connection(SILENCE, False)
                end = closer(connection)
                cancel.add(end)
                headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
                response = self._send(connection, "GET", path, None, headers)
                if response.status != 200:
                    raise Problem.of(response.status, whole(response), response.headers.get("Retry-After"))
                for cursor, data in messages(response):
                    in_vain = 0
                    last = cursor
                    yield {**json.loads(data), "cursor": cursor}
            except Exception as failed:
                cancel.check()
                if is_final(failed):
                    raise
                error = failed
            finally:
                if end is not None:
                    cancel.remove(end)
                    connection.close()
            cancel.wait(pause(error, in_vain))
            in_vain += 1

    def socket(self) -> Socket:
        """A WebSocket for many commands at a time, and for what happens to a whole kind: a context manager."""
        return Socket("ws" + self.url[len("http"):] + "/api/ws", self.token, self.timeout, self._context)

    def token(self) -> str | None:
        """The token to show now."""
        return self._token() if callable(self._token) else self._token

    def _connection(self, timeout: float, may_be_stale: bool) -> http.client.HTTPConnection:
        """One that is kept, which the service may have closed since; or a new one."""
        with self._lock:
            connection = self._idle.pop() if self._idle and may_be_stale else None
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(timeout)
            return connection
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            # Now, so that there is something to close for who cancels.
            connection.connect()
        except OSError as error:
            raise Unreachable(f"{self.url}: {error or type(error).__name__}") from error
        return connection

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        token = self.token()
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {self.url}{path}: {error or type(error).__name__}") from error

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX and not response.will_close:
                self._idle.append(connection)
                return
        connection.close()


def whole(response: http.client.HTTPResponse) -> bytes:
    """The body, to its end."""
    try:
        return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"The answer was cut off: {error}") from error


def closer(connection: http.client.HTTPConnection) -> Callable[[], None]:
    """Has a read of it end at once, in another thread."""

    def close() -> None:
        sock = connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    return close


def part(text: str) -> str:
    """A part of a path."""
    return quote(text, safe="")


def search(fields: Mapping[str, Any]) -> str:
    """Fields as a query string, if there are any."""
    given = {name: written(value) for name, value in fields.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def written(value: Any) -> str:
    """As JSON has it, where it is no text."""
    return value if isinstance(value, str) else json.dumps(value)


def messages(response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """The server-sent events of a body that have an id: each with its data."""
    fields: dict[str, str] = {}
    while True:
        try:
            line = response.readline().decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"The stream was cut off: {error}") from error
        if line == "":
            return
        line = line.rstrip("\r\n")
        if line == "":
            if "id" in fields and "data" in fields:
                yield fields["id"], fields["data"]
            fields = {}
        else:
            name, _, value = line.partition(": ")
            fields[name] = value
