"""h2load, which counts classes of statuses and shows no answer: `use_h2load.py`"""

import re
import subprocess
import tempfile

from driver import serve


def ask(ask):
    times = max(ask.times, len(ask.urls))
    line = ["h2load", f"-n{times}", "-c1", "-m1" if ask.do == "ask" else f"-m{times}", "-T60", f"-H:method: {ask.method}"]
    if ask.pause:
        line.append(f"--rps={1 / ask.pause}")
    for name, value in ask.headers.items():
        line.append(f"-H{name}: {value}")
    with tempfile.NamedTemporaryFile() as body:
        if ask.body is not None:
            body.write(ask.body)
            body.flush()
            line.append(f"-d{body.name}")
        said = subprocess.run([*line, *ask.urls], capture_output=True, text=True).stdout
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) ([2345]xx)", said)}
    bytes_in = int(re.search(r"\((\d+)\) data", said)[1])
    failed = int(re.search(r"(\d+) errored", said)[1])
    classes = [kind for kind, count in counts.items() if count]
    if failed or not classes:
        return {"error": f"{failed} errored of {times}"}
    return {"class": ",".join(classes), "bytes": bytes_in // times, "connections": 1}


serve(ask=ask, together=ask)
