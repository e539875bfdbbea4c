"""nghttp, which prints frames: `use_nghttp.py`"""

import re
import subprocess
import tempfile

from driver import answer, serve

TIME = re.compile(rb"\[ *\d+\.\d{3}\] ")


def command(ask, body, *more):
    line = ["nghttp", "-v", "--timeout=60", f"-H:method: {ask.method}", *more]
    for name, value in ask.headers.items():
        line.append(f"-H{name}: {value}")
    if "Accept-Encoding" not in ask.headers:
        # It asks for gzip by itself, and prints what comes as it is.
        line.append("-Haccept-encoding: identity")
    if ask.body is not None:
        body.write(ask.body)
        body.flush()
        line.append(f"-d{body.name}")
    return line


def frames(output):
    """The header fields of each stream, what DATA frames carried of them together, and errors."""
    heads, data, wrong = {}, b"", []
    for piece in TIME.split(output):
        first, _, rest = piece.partition(b"\n")
        if said := re.match(rb"recv \(stream_id=(\d+)\) ([^\n]*)", first):
            name, _, value = said[2].decode("latin-1").lstrip(":").partition(": ")
            heads.setdefault(int(said[1]), []).append((name, value))
        elif re.match(rb"recv (RST_STREAM|GOAWAY) frame", first) and b"NO_ERROR" not in rest:
            wrong.append(piece.decode().strip())
        # The body stands behind the lines of a frame, wherever nghttp wrote it.
        body = b"" if first == b"Connected" else rest if first.startswith((b"send", b"recv")) else piece
        data += b"\n".join(line for line in body.splitlines() if not line.startswith(b"          "))
    return heads, data, wrong


def run(ask, *more):
    with tempfile.NamedTemporaryFile() as body:
        ran = subprocess.run([*command(ask, body, *more), *ask.urls], capture_output=True)
    heads, data, wrong = frames(ran.stdout)
    if wrong or ran.returncode != 0:
        raise OSError("; ".join(wrong) or ran.stderr.decode().strip())
    if not heads:
        raise OSError(f"no answer: {ran.stdout[-300:]}")
    return heads, data


def ask(ask):
    heads, data = run(ask, f"-m{ask.times}")
    different = {dict(head)["status"] for head in heads.values()}
    if len(heads) != ask.times:
        raise OSError(f"{len(heads)} answers of {ask.times}")
    last = list(heads.values())[-1]
    length = int(dict(last).get("content-length", len(data)))
    body = data[-length:] if ask.times > 1 and length else data
    return answer(",".join(sorted(different)), last, body, "2", connections=1)


def together(ask):
    heads, _ = run(ask, "-n")
    return {"status": [dict(head)["status"] for head in heads.values()], "body": [""] * len(heads)}


def stream(ask):
    with tempfile.NamedTemporaryFile() as body, \
            subprocess.Popen([*command(ask, body), ask.url], stdout=subprocess.PIPE, bufsize=0) as nghttp:
        seen = b""
        while piece := nghttp.stdout.read(65536):
            seen += piece
            if ask.until and ask.until.encode() in seen:
                nghttp.kill()
    heads, data, wrong = frames(seen)
    if wrong:
        raise OSError("; ".join(wrong))
    return answer(dict(list(heads.values())[0])["status"], (), data, "2")


serve(ask=ask, together=together, stream=stream)
