"""What can go wrong, and what is sent again."""

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# The service did nothing, and may do it later.
NOTHING_DONE = {"overloaded", "unavailable", "too-many-requests", "storage-full", "expired", "request-timeout", "status/429"}
# Of answers without such a code: statuses of proxies behind which anything may have happened.
UNKNOWN = {502, 503, 504}
BACK_OFF_FIRST = 0.05
BACK_OFF_MAX = 2.0


class Problem(Exception):
    """The service said no. Match on `code`."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(f"{problem.get('title')}: {problem.get('detail')}")
        self.problem = problem
        self.status: int = problem.get("status", 0)
        # The last part of its type: `unknown-entity`, or the code of an entity's rejection.
        self.code: str = problem["type"].rpartition("/problems/")[2]

    @staticmethod
    def read(problem: dict[str, Any]) -> "Problem":
        """Problem details as such, or a rejection."""
        return Rejection(problem) if "rejection" in problem else Problem(problem)

    @staticmethod
    def of(status: int, body: bytes, retry_after: str | None) -> "Problem":
        """What stands in an answer that is none. A proxy before the service says no in words of its own."""
        text = body.decode(errors="replace")
        try:
            problem = json.loads(text)
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or not isinstance(problem.get("type"), str):
            problem = {"type": f"status/{status}", "title": f"Status {status}", "detail": text[:200]}
        problem.setdefault("status", status)
        if retry_after is not None and retry_after.isdigit():
            problem.setdefault("retry_after_s", int(retry_after))
        return Problem.read(problem)


class Rejection(Problem):
    """An entity said no, in its own words; nothing was done."""

    @property
    def rejection(self) -> Any:
        return self.problem["rejection"]


class Unreachable(Exception):
    """There was no answer: the service cannot be reached, or the connection was cut."""


class Deadline(Exception):
    """The time was over before an answer came. `__cause__` is what the last attempt met."""

    def __init__(self, may_have_happened: bool) -> None:
        outcome = "it may have taken effect" if may_have_happened else "nothing was done"
        super().__init__(f"The time was over before there was an answer; {outcome}.")
        # An attempt may have taken effect, and it is not known.
        self.may_have_happened = may_have_happened


class Cancelled(Exception):
    """The caller ended it. What was sent may take effect all the same."""


class Cancel:
    """Ends what it was given to, from another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Ends all it was given to; they raise `Cancelled`."""
        with self._lock:
            self._event.set()
            ends, self._ends = self._ends, []
        for end in ends:
            end()

    def check(self) -> None:
        """Raises `Cancelled` once it was cancelled."""
        if self._event.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Waits so long, or raises `Cancelled` before."""
        self._event.wait(seconds)
        self.check()

    def add(self, end: Callable[[], None]) -> None:
        """Has this called at the end."""
        with self._lock:
            if not self._event.is_set():
                self._ends.append(end)
                return
        end()

    def remove(self, end: Callable[[], None]) -> None:
        """Takes it back."""
        with self._lock:
            if end in self._ends:
                self._ends.remove(end)


def is_final(error: Exception) -> bool:
    """Asking again would get the same answer."""
    if isinstance(error, Problem):
        return error.code not in NOTHING_DONE and not is_unknown(error)
    return not isinstance(error, Unreachable)


def is_unknown(error: Exception) -> bool:
    """It may have taken effect."""
    if isinstance(error, Problem):
        return error.code not in NOTHING_DONE and error.status in UNKNOWN
    return True


def pause(error: Exception | None, attempts: int) -> float:
    """What the service asks for and a little more, so that its clients do not come at once; or twice as long each time."""
    after = error.problem.get("retry_after_s") if isinstance(error, Problem) else None
    if after is not None:
        return float(after) + random.random() * 0.1
    return min(BACK_OFF_MAX, BACK_OFF_FIRST * 2.0 ** min(attempts, 10)) * (0.5 + random.random() / 2)


def retrying(timeout: float, cancel: Cancel, once: bool, attempt: Callable[[float], T]) -> T:
    """Attempts until one is answered, the answer is final, or the time is over. `once`: one that may have happened can be sent again."""
    end = time.monotonic() + timeout
    may_have_happened = False
    attempts = 0
    while True:
        cancel.check()
        try:
            return attempt(end - time.monotonic())
        except Exception as error:
            cancel.check()
            if is_final(error):
                raise
            ended = time.monotonic() >= end
            may_have_happened = may_have_happened or is_unknown(error)
            if may_have_happened and not once and not ended:
                raise
            wait = pause(error, attempts)
            if time.monotonic() + wait >= end:
                raise Deadline(may_have_happened) from error
            cancel.wait(wait)
            attempts += 1
