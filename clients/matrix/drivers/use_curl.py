"""curl: `use_curl.py OPTION...`, as --http1.1"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from driver import answer, serve

# curl's exit code for a fault of a stream.
HTTP2_STREAM = 92


def command(ask, *more):
    line = ["curl", "--silent", "--show-error", "--insecure", "--globoff", "--path-as-is", "--max-time", "60", *sys.argv[1:], *more]
    line += ["--head"] if ask.method == "HEAD" else ["--request", ask.method]
    for name, value in ask.headers.items():
        line += ["--header", f"{name}: {value}"]
    if "gzip" in ask.headers.get("Accept-Encoding", ""):
        line += ["--compressed"]
    return line


def run(ask, directory, urls, *more):
    """Asks for the URLs in one process; what curl says of each."""
    line = command(ask, "--dump-header", f"{directory}/head", "--write-out", "%{http_code} %{http_version} %{num_connects}\n", *more)
    if ask.body is not None:
        Path(directory, "body").write_bytes(ask.body)
        line += ["--data-binary", f"@{directory}/body"]
    for number, url in enumerate(urls):
        line += ["--output", f"{directory}/{number}", url]
    # curl 7.88 may take a RST_STREAM of NO_ERROR behind an answer, which came before the body was read, for a failure.
    for _ in range(5):
        ran = subprocess.run(line, capture_output=True, text=True)
        if ran.returncode != HTTP2_STREAM:
            break
    if ran.returncode != 0:
        raise OSError(f"curl ended with {ran.returncode}: {ran.stderr.strip()}")
    return [said.split() for said in ran.stdout.splitlines()]


def read(path):
    return path.read_bytes() if path.exists() else b""


def ask(ask):
    with tempfile.TemporaryDirectory() as directory:
        more = ["--rate", f"{60 / ask.pause:.0f}/m"] if ask.pause else []
        said = run(ask, directory, ask.urls * ask.times, *more)
        different = {status for status, *_ in said}
        heads = Path(directory, "head").read_text("latin-1").replace("\r", "").strip().split("\n\n")
        headers = re.findall(r"^([^:\n]+): *(.*)$", heads[-1], re.M)
        body = b"" if ask.method == "HEAD" else read(Path(directory, str(ask.times - 1)))
        return answer(said[-1][0] if len(different) == 1 else ",".join(sorted(different)), headers, body, said[-1][1],
                      connections=sum(int(one[2]) for one in said))


def together(ask):
    with tempfile.TemporaryDirectory() as directory:
        said = run(ask, directory, ask.urls, "--parallel", "--parallel-max", str(len(ask.urls)))
        bodies = [read(Path(directory, str(number))).decode() for number in range(len(ask.urls))]
        return {"status": [one[0] for one in said], "body": bodies}


def stream(ask):
    with subprocess.Popen([*command(ask, "--no-buffer", "--include"), ask.url], stdout=subprocess.PIPE) as curl:
        seen = b""
        while piece := curl.stdout.read1(65536):
            seen += piece
            if ask.until and ask.until.encode() in seen:
                curl.kill()
        if curl.wait() > 0:
            raise OSError(f"curl ended with {curl.returncode}")
    head, _, body = seen.replace(b"\r", b"").partition(b"\n\n")
    version, status = head.split()[:2]
    return answer(int(status), (), body, version.decode().removeprefix("HTTP/"))


serve(ask=ask, together=together, stream=stream)
