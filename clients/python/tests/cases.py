"""Runs clients/cases.json, whose first lines say what a step is, against THRONG_URL. Arguments: a part of a case's name."""

import itertools
import json
import os
import queue
import sys
import threading
import urllib.request
from pathlib import Path

from throng_client import Call, Cancel, Cancelled, Client, Deadline, Problem, Rejection

PATIENCE = 60


def control(demand):
    request = urllib.request.Request(os.environ["THRONG_CONTROL"], json.dumps(demand).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def named(error):
    """An outcome as the cases name it."""
    match error:
        case Rejection():
            return {"problem": error.code, "status": error.status, "rejection": error.rejection}
        case Problem():
            return {"problem": error.code, "status": error.status}
        case Deadline():
            return {"error": "Deadline", "may_have_happened": error.may_have_happened}
        case Exception():
            return {"error": type(error).__name__, "message": str(error)}
        case reply:
            return {"reply": reply}


def outcome(ask):
    try:
        return named(ask())
    except Exception as error:
        return named(error)


def differs(found, expected, at=""):
    """Each part of `expected` is in `found`; lists are as long."""
    if isinstance(expected, dict) and "integer" in expected:
        parts = [differs(str(found), expected["integer"], at)]
    elif isinstance(expected, dict) and isinstance(found, dict):
        parts = (differs(found.get(name), value, f"{at}.{name}") for name, value in expected.items())
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        parts = (differs(*both, f"{at}.{number}") for number, both in enumerate(zip(found, expected)))
    else:
        return None if found == expected else f"{at}: {found!r}, not {expected!r}"
    return next(filter(None, parts), None)


def check(found, expected):
    difference = None if expected is None else differs(found, expected)
    if difference is not None:
        raise AssertionError(difference)


class Case:
    def __init__(self, number):
        count = itertools.count(1)
        self.client = Client(os.environ["THRONG_URL"], token=lambda: f"token-{next(count)}")
        self.socket = self.client.socket()
        self.own = f"case-{number}"
        self.running = {}
        self.cancels = {}

    def ask(self, step, cancel):
        kind, id = step.get("kind", "account"), step.get("id", self.own)
        to = self.socket if step.get("socket") else self.client
        options = {name: step[name] for name in ("key", "traceparent") if name in step} | {"cancel": cancel}
        if "timeout" in step:
            options["timeout"] = step["timeout"] / 1000
        if "command" in step:
            return to.command(kind, id, step["command"], step.get("body"), **options)
        if "query" in step:
            return to.query(kind, id, step["query"], step.get("arguments"), **options)
        if "history" in step:
            return self.client.history(kind, id, **step["history"])
        if "list" in step:
            return self.client.list(kind, **step["list"])
        if "get" in step:
            return self.client.request("GET", step["get"], **options)
        if "batch" in step:
            calls = [Call(kind, call.get("id", id), call["command"], call.get("body")) for call in step["batch"] * step.get("times", 1)]
            return [named(answer) for answer in to.batch(calls, cancel=cancel)]
        raise AssertionError(f"a step of no kind: {step}")

    def step(self, step):
        cancel, expected = Cancel(), step.get("expect")
        match step:
            case {"control": demand}:
                check(control(demand), expected)
            case {"follow": what, "as": name}:
                kind, id = what.get("kind", "account"), what.get("id", self.own)
                options = {"after": what.get("after"), "cancel": cancel}
                self.cancels[name] = cancel
                if step.get("socket"):
                    self.running[name] = self.socket.follow(kind, None if step.get("of_kind") else id, credit=step.get("credit", 100), **options)
                else:
                    self.running[name] = self.client.events(kind, id, **options)
            case {"take": name, "count": count}:
                # Of those who follow a kind: the case's own.
                own = (event for event in self.running[name] if event.get("entity", self.own) == self.own)
                events = list(itertools.islice(own, count))
                check([event["name"] for event in events], step.get("names"))
                check([event["seq"] for event in events], step.get("seqs"))
                check(events, step.get("events"))
            case {"fails": name, "as": answer}:
                self.begin(answer, lambda: {"value": next(self.running[name])})
            case {"fails": name}:
                check(outcome(lambda: next(self.running[name])), expected)
            case {"leave": name}:
                self.running[name].close()
            case {"cancel": name}:
                self.cancels[name].cancel()
            case {"await": name}:
                check(self.running[name].get(timeout=PATIENCE), expected)
            case {"as": name}:
                self.cancels[name] = cancel
                self.begin(name, lambda: self.ask(step, cancel))
            case _:
                check(outcome(lambda: self.ask(step, cancel)), expected)

    def begin(self, name, ask):
        self.running[name] = answer = queue.SimpleQueue()
        threading.Thread(target=lambda: answer.put(outcome(ask)), daemon=True).start()

    def run(self, steps):
        try:
            for step in steps:
                self.step(step)
        finally:
            for cancel in self.cancels.values():
                cancel.cancel()
            self.socket.close()
            control({"do": "start"})
            control({"do": "faults", "faults": []})


def main():
    cases = json.loads((Path(__file__).parents[2] / "cases.json").read_text())["cases"]
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    passed = failed = 0
    for number, case in enumerate(cases):
        if wanted not in case["name"]:
            continue
        done = queue.SimpleQueue()

        def run():
            try:
                Case(number).run(case["steps"])
                done.put(None)
            except BaseException as error:
                done.put(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            error = done.get(timeout=PATIENCE)
        except queue.Empty:
            error = TimeoutError("took too long")
        if error is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {case['name']}\n    {type(error).__name__}: {error}", flush=True)
    print(f"python: {passed} passed, {failed} failed", flush=True)
    os._exit(0 if failed == 0 and passed > 0 else 1)


main()
