"""One container of a job of several instances: `instances meet | fail HOST CODE | wait | clash`."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

PORT = 29500
ROOT = Path(os.environ["SAGEMAKER_BASE_DIR"])
CONFIG = json.loads((ROOT / "input" / "config" / "resourceconfig.json").read_text())
HOST = CONFIG["current_host"]


def meet() -> None:
    """The first host says hello to each of the others, by name and on the same port of every host."""
    others = [host for host in CONFIG["hosts"] if host != HOST]
    if HOST == "algo-1":
        for other in others:
            with connection_to(other) as connection:
                connection.sendall(b"hello " + other.encode())
    else:
        address = socket.getaddrinfo(HOST, PORT)[0][4][:2]
        with socket.create_server(address) as server, server.accept()[0] as connection:
            print(connection.recv(100).decode(), flush=True)
    (ROOT / "model" / HOST).write_text("weights")
    (ROOT / "output" / "data" / f"{HOST}.json").write_text(json.dumps(CONFIG))


def connection_to(host: str) -> socket.socket:
    over = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, PORT))
        except OSError:
            if time.monotonic() > over:
                raise
            time.sleep(0.02)


def fail(host: str, code: str) -> None:
    """One host fails, the others would go on for ever."""
    print(os.getpid(), flush=True)
    if host == HOST:
        (ROOT / "output" / "failure").write_text(f"{HOST} has no data")
        sys.exit(int(code))
    time.sleep(600)


def wait() -> None:
    """Wait for SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: (print(f"stopped {HOST}", flush=True), sys.exit(0)))
    print("up", flush=True)
    time.sleep(600)


def clash() -> None:
    """All hosts write the same name."""
    (ROOT / "model" / "weights").write_text(HOST)


if __name__ == "__main__":
    {"meet": meet, "fail": fail, "wait": wait, "clash": clash}[sys.argv[1]](*sys.argv[2:])
