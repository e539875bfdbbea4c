#!/usr/bin/env python3
"""The service that the cases run against: a program of Throng behind a proxy that fails on demand, and the place to demand it.

    harness.py PROGRAM COMMAND...    runs a command with THRONG_URL and THRONG_CONTROL set, against PROGRAM serve

What POST to THRONG_CONTROL demands, as JSON:
    {"do": "faults", "faults": [F, ...]}  of the next requests, one each:
        null                              none
        {"answer": STATUS, "headers": {}, "body": TEXT}   answered by the proxy; the service sees nothing
        "drop"                            the connection is cut; the service sees nothing
        "lose"                            the service answers, and the connection is cut before the client sees it
        "kill"                            the same, and the service is killed and started anew
        "hold"                            nothing is answered until the client goes
    {"do": "cut"}                         cuts all connections
    {"do": "cut-next"}                    cuts a stream or socket in the middle of what the service says next on it
    {"do": "kill"}, {"do": "stop"}        ends the service, at once or when it has drained
    {"do": "start"}                       starts it again
    {"do": "held"}                        waits until a request was held, answered by the proxy, or found no service
    {"do": "came"}                        waits until there was a request
    {"do": "log"}                         what was asked since the last "log" or "faults"; "apart": so many milliseconds between requests?
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Ports that differ: each is held until all are found."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@dataclass
class Log:
    requests: list = field(default_factory=list)
    frames: int = 0

    def summary(self, apart: int) -> dict:
        heads = [head for _, head in self.requests]
        times = [at for at, _ in self.requests]
        values = lambda name: [head["headers"][name] for head in heads if name in head["headers"]]
        return {
            "requests": len(heads), "frames": self.frames, "keys": len(set(values("idempotency-key"))),
            "keyless": sum("idempotency-key" not in head["headers"] for head in heads),
            "apart": all((after - before) * 1000 >= apart for before, after in zip(times, times[1:])),
            "timeouts": len(values("request-timeout")), "resumed": len(values("last-event-id")), "tokens": values("authorization"),
            "traces": values("traceparent"),
        }


class Service:
    """The program, on one port and one directory over all its lives."""

    def __init__(self, program: str, directory: str) -> None:
        self.port, self.admin = free_ports(2)
        self.arguments = [program, "serve", "--listen", f"127.0.0.1:{self.port}", "--admin-listen", f"127.0.0.1:{self.admin}",
                          "--data", f"{directory}/data"]
        self.output = open(f"{directory}/service.log", "ab")
        self.process = None

    async def start(self) -> None:
        if self.process is not None:
            return
        self.process = await asyncio.create_subprocess_exec(*self.arguments, stdout=self.output, stderr=self.output)
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            except OSError:
                if self.process.returncode is not None:
                    raise SystemExit(f"the service ended with {self.process.returncode}; see {self.output.name}")
                await asyncio.sleep(0.02)

    async def end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.send_signal(number)
            await process.wait()


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, dict] | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return raw, {"first": first, "headers": headers}


class Proxy:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.log = Log()
        self.faults: list = []
        self.open: set = set()
        self.cut_next = False
        self.held = asyncio.Event()
        self.came = asyncio.Event()

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        upstream = None
        try:
            while (read := await read_head(reader)) is not None:
                raw, head = read
                body = await reader.readexactly(int(head["headers"].get("content-length", 0)))
                self.log.requests.append((time.monotonic(), head))
                self.came.set()
                fault = self.faults.pop(0) if self.faults else None
                if fault == "drop":
                    return
                if fault == "hold":
                    self.held.set()
                    await reader.read()
                    return
                if isinstance(fault, dict):
                    answer = fault.get("body", "").encode()
                    fields = {"content-type": "application/problem+json", **fault.get("headers", {}), "content-length": len(answer)}
                    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                    writer.write(f"HTTP/1.1 {fault['answer']} X\r\n{lines}\r\n".encode() + answer)
                    self.held.set()
                    continue
                if upstream is None:
                    upstream = await asyncio.open_connection("127.0.0.1", self.service.port)
                if not await self.exchange(raw, head, body, fault, (reader, writer), upstream):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.held.set()
        finally:
            self.open.discard(writer)
            writer.close()
            if upstream is not None:
                upstream[1].close()

    async def exchange(self, raw: bytes, head: dict, body: bytes, fault: object, client: tuple, upstream: tuple) -> bool:
        """One request and its answer; false: the connection is over."""
        (reader, writer), (service, to_service) = client, upstream
        to_service.write(raw + body)
        read = await read_head(service)
        if read is None:
            return False
        raw, answer = read
        length = answer["headers"].get("content-length")
        if length is None:
            writer.write(raw)
            frames = self.count(reader, to_service)
            await self.race(frames, self.pipe(service, writer))
            return False
        content = await service.readexactly(int(length))
        if fault == "kill":
            await self.service.end(signal.SIGKILL)
            await self.service.start()
        if fault in ("lose", "kill"):
            return False
        writer.write(raw + content)
        return answer["headers"].get("connection") != "close"

    async def race(self, *pipes) -> None:
        tasks = [asyncio.ensure_future(pipe) for pipe in pipes]
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        for task in done:
            task.exception()

    async def pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while read := await reader.read(65536):
            if self.cut_next and b": alive" not in read:
                self.cut_next = False
                writer.write(read[: len(read) // 2])
                return
            writer.write(read)

    async def count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes a client's frames on, and counts those of text."""
        while True:
            head = await reader.readexactly(2)
            length = head[1] & 127
            more = await reader.readexactly({126: 2, 127: 8}.get(length, 0))
            if more:
                length = int.from_bytes(more, "big")
            self.log.frames += head[0] & 15 == 1
            writer.write(head + more + await reader.readexactly(length + 4))

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, head = await read_head(reader)
        demand = json.loads(await reader.readexactly(int(head["headers"]["content-length"])))
        done = json.dumps(await self.obey(demand) or {}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(done) + done)
        writer.close()

    async def obey(self, demand: dict) -> dict | None:
        match demand["do"]:
            case "faults":
                self.faults, self.log = list(demand["faults"]), Log()
                self.held.clear()
                self.came.clear()
            case "cut":
                for writer in self.open:
                    writer.transport.abort()
            case "cut-next":
                self.cut_next = True
            case "kill":
                await self.service.end(signal.SIGKILL)
            case "stop":
                await self.service.end(signal.SIGTERM)
            case "start":
                await self.service.start()
            case "held":
                await asyncio.wait_for(self.held.wait(), 30)
            case "came":
                await asyncio.wait_for(self.came.wait(), 30)
            case "log":
                log, self.log = self.log, Log()
                return log.summary(demand.get("apart", 0))
            case other:
                raise SystemExit(f"there is no {other!r}; see --help of harness.py")
        return None


async def main(program: str, command: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        service = Service(program, directory)
        await service.start()
        proxy = Proxy(service)
        servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for serve in (proxy.client, proxy.control)]
        url, control = (f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
        try:
            environment = {**os.environ, "THRONG_URL": url, "THRONG_CONTROL": control, "THRONG_DIRECT": f"http://127.0.0.1:{service.port}",
                           "THRONG_ADMIN": f"http://127.0.0.1:{service.admin}"}
            run = await asyncio.create_subprocess_exec(*command, env=environment)
            code = await run.wait()
            if code != 0:
                sys.stderr.write(Path(service.output.name).read_text()[-2000:])
            return code
        finally:
            await service.end(signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2:])))
