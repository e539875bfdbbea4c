"""The WebSocket (`throng.v1`); it needs the package `websockets`."""

import base64
import json
import queue
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .retry import Cancel, Problem, Unreachable, is_final, pause, retrying

# Of a frame at most: the service takes 2 MiB and 10,000 messages.
FRAME_LETTERS = 300_000
FRAME_MESSAGES = 1_000


@dataclass(frozen=True)
class Call:
    """A command of a batch. A key is made unless one is given; `None`: no key."""

    kind: str
    id: str
    command: str
    body: Any = None
    key: str | None = ""


class Socket:
    """Commands, queries and events over one connection. It opens with the first request, and again when it was cut. Threads may share it."""

    def __init__(self, url: str, token: Callable[[], str | None], timeout: float, context: ssl.SSLContext | None) -> None:
        self._url, self._token, self._timeout, self._context = url, token, timeout, context
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._is_closed = False

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; what waits for an answer fails."""
        with self._lock:
            self._is_closed = True
            if self._link is not None:
                self._link.connection.close()

    def command(
        self, kind: str, id: str, command: str, body: Any = None, *, key: str | None = "", timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Any:
        """Runs a command; returns its reply."""
        [outcome] = self.batch([Call(kind, id, command, body, key)], timeout=timeout, cancel=cancel)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def batch(self, calls: Sequence[Call], *, timeout: float | None = None, cancel: Cancel | None = None) -> list[Any]:
        """Runs commands in their order, many in a frame. Each has its reply, or the exception it would raise."""
        asked = [
            {
                "type": "command", "kind": call.kind, "entity": call.id, "command": call.command,
                "body": {} if call.body is None else call.body,
            }
            | ({} if call.key is None else {"key": call.key or str(uuid.uuid4())})
            for call in calls
        ]
        return self._ask(asked, timeout, cancel, all(call.key is not None for call in calls))

    def query(
        self, kind: str, id: str, query: str = "view", arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Any:
        """Asks a query; without a name, the view. It shows all commands sent before it."""
        asked = {"type": "query", "kind": kind, "entity": id, "query": query, "arguments": dict(arguments or {})}
        [outcome] = self._ask([asked], timeout, cancel, True)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def follow(
        self, kind: str, id: str | None = None, *, after: str | int | None = None, credit: int = 100, cancel: Cancel | None = None,
    ) -> Iterator[Any]:
        """What happens to an entity or to all of a kind, forever, over cuts of the connection.

        Each event has a `cursor`, where a later call goes on. Without `after` an entity's events begin at its first, a kind's at the present.
        """
        last = after
        cancel = cancel or Cancel()
        in_vain = 0
        while True:
            error: Exception
            try:
                subscription = {"type": "subscribe", "kind": kind, "credit": credit}
                subscription |= {} if id is None else {"entity": id}
                subscription |= {} if last is None else {"after": last}
                for message in self._open(SILENT_OPEN).follow(subscription, credit, cancel):
                    in_vain = 0
                    events = message["events"]
                    for at, event in enumerate(events, 1):
                        # Of a kind, several events may have one cursor: that before them begins no later than after each but the last.
                        of_kind = message["cursor"] if at == len(events) else last
                        yield {**event, "cursor": of_kind if id is None else f"{event['seq']}@{event['position']}"}
                    last = message["cursor"]
                return
            except Exception as failed:
                cancel.check()
                if is_final(failed) and not (isinstance(failed, Problem) and failed.code == "slow-reader"):
                    raise
                error = failed
            cancel.wait(pause(error, in_vain))
            in_vain += 1

    def _ask(self, asked: list[dict[str, Any]], timeout: float | None, cancel: Cancel | None, once: bool) -> list[Any]:
        """Asks until each has an outcome that asking again would not change."""
        outcomes: list[Any] = [None] * len(asked)
        left_over = list(range(len(asked)))

        def attempt(left: float) -> list[Any]:
            limit = {} if timeout is None else {"timeout_ms": max(1, int(left * 1000))}
            link = self._open(left)
            answers = link.ask([asked[at] | limit for at in left_over], left, cancel or Cancel())
            again: Exception | None = None
            for at, answer in zip(list(left_over), answers):
                outcomes[at] = answer
                if isinstance(answer, Exception) and not is_final(answer):
                    again = answer
                else:
                    left_over.remove(at)
            if again is not None:
                raise again
            return outcomes

        return retrying(self._timeout if timeout is None else timeout, cancel or Cancel(), once, attempt)

    def _open(self, timeout: float) -> "_Link":
        with self._lock:
            if self._is_closed:
                raise RuntimeError("The socket was closed.")
            if self._link is None or self._link.is_over:
                self._link = _Link(self._url, self._token(), timeout, self._context)
            return self._link


# Seconds a socket may take to open, for those who follow.
SILENT_OPEN = 30.0
_CUT: dict[str, Any] = {"type": "cut"}


class _Link:
    """One connection, read by a thread of its own."""

    def __init__(self, url: str, token: str | None, timeout: float, context: ssl.SSLContext | None) -> None:
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import connect
        from websockets.typing import Subprotocol

        protocols = [Subprotocol("throng.v1")]
        if token is not None:
            protocols.append(Subprotocol("throng.bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")))
        try:
            self.connection = connect(url, subprotocols=protocols, open_timeout=timeout, max_size=None, ssl=context, proxy=None)
        except InvalidStatus as error:
            response = error.response
            raise Problem.of(response.status_code, bytes(response.body or b""), response.headers.get("Retry-After")) from error
        except Exception as error:
            raise Unreachable(f"{url}: {error or type(error).__name__}") from error
        self._lock = threading.Lock()
        self._next = 1
        self._told: dict[int, queue.SimpleQueue[Any]] = {}
        self.is_over = False
        threading.Thread(target=self._read, name="throng-client", daemon=True).start()

    def ask(self, messages: list[dict[str, Any]], timeout: float, cancel: Cancel) -> list[Any]:
        """Their answers: bodies, or exceptions."""
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        first = self._name(told, len(messages))
        end = lambda: told.put(_CUT)  # noqa: E731
        cancel.add(end)
        answers: dict[int, Any] = {}
        message: dict[str, Any]
        try:
            self._send([asked | {"id": first + at} for at, asked in enumerate(messages)])
            while len(answers) < len(messages):
                try:
                    message = told.get(timeout=max(timeout, 0.001))
                except queue.Empty:
                    message = _CUT
                if message is _CUT:
                    cut = Unreachable("There was no answer over the socket.")
                    return [answers.get(first + at, cut) for at in range(len(messages))]
                is_reply = message["type"] == "reply"
                answers[message["id"]] = message["body"] if is_reply else Problem.read(message["problem"])
            return [answers[first + at] for at in range(len(messages))]
        finally:
            cancel.remove(end)
            self._forget(first, len(messages))

    def follow(self, subscription: dict[str, Any], credit: int, cancel: Cancel) -> Iterator[Any]:
        """The messages with events of a subscription, which grants credit as they are taken."""
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        id = self._name(told, 1)
        end = lambda: told.put(_CUT)  # noqa: E731
        cancel.add(end)
        is_open, taken = True, 0
        try:
            self._send([subscription | {"id": id}])
            while True:
                message = told.get()
                cancel.check()
                if message["type"] == "events":
                    yield message
                    taken += len(message["events"])
                    if taken >= credit / 2:
                        self._send([{"type": "credit", "id": id, "credit": taken}])
                        taken = 0
                elif message is _CUT or "problem" in message:
                    is_open = False
                    raise Problem.read(message["problem"]) if "problem" in message else Unreachable("The socket was cut.")
                elif message["type"] == "ended":
                    is_open = False
                    return
        finally:
            cancel.remove(end)
            self._forget(id, 1)
            if is_open and not self.is_over:
                self._send([{"type": "unsubscribe", "id": id}])

    def _name(self, told: "queue.SimpleQueue[Any]", count: int) -> int:
        with self._lock:
            first = self._next
            self._next += count
            for id in range(first, first + count):
                self._told[id] = told
            if self.is_over:
                told.put(_CUT)
            return first

    def _forget(self, first: int, count: int) -> None:
        with self._lock:
            for id in range(first, first + count):
                self._told.pop(id, None)

    def _send(self, messages: list[dict[str, Any]]) -> None:
        frame: list[str] = []
        letters = 0
        for text in map(json.dumps, messages):
            if letters + len(text) > FRAME_LETTERS or len(frame) == FRAME_MESSAGES:
                self._flush(frame)
                frame, letters = [], 0
            frame.append(text)
            letters += len(text)
        self._flush(frame)

    def _flush(self, frame: list[str]) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self.connection.send(f"[{','.join(frame)}]")
        except ConnectionClosed as error:
            raise Unreachable(f"The socket was closed: {error}") from error

    def _read(self) -> None:
        try:
            for text in self.connection:
                frame = json.loads(text)
                for message in frame if isinstance(frame, list) else [frame]:
                    with self._lock:
                        told = self._told.get(message.get("id"))
                    if told is not None:
                        told.put(message)
        except Exception:  # The connection is over, however it ended.
            pass
        with self._lock:
            self.is_over = True
            for told in set(self._told.values()):
                told.put(_CUT)
        self.connection.close()
