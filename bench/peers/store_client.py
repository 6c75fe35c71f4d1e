"""One S3 client in a process of its own: `python -m bench.peers.store_client CLIENT MIB`.

For each line of standard input it sends so many MiB to a new object, reads that object, and answers with what each took
(see `bench/usage.py`). The server is that of the environment.

The server speaks HTTP, so the clients are configured as they are over HTTPS, where TLS protects the bodies: none signs
the hash of a body. What each does by default for the integrity of the values is as it is: boto3 sends a CRC-32, Muster
has the checksums of its records, obstore and awscrt have none. The server returns no checksums, so none but Muster
verifies what it reads.
"""

from __future__ import annotations

import io
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import boto3
import numpy as np
import obstore
from botocore import UNSIGNED
from botocore.config import Config
from obstore.store import S3Store

from bench.rounds.group import BUCKET
from bench.usage import Usage, answer_lines, used
from muster.replica.codecs.base import Floats, Payload
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.wire.binary_format import Encoding, Records, byte_range, encode_records
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.stream_decoder import ByteStream, decoded_stream

_MIB = 2**20
_BUFFER_BYTES = 2**20
_TIMEOUT_SECONDS = 60.0


class Client(ABC):
    """Sends `values` to an object and reads it, as its users would."""

    def __init__(self, values: Floats) -> None:
        self._values = values
        self._body = values.view(np.uint8).data
        self._url = os.environ["AWS_ENDPOINT_URL_S3"]

    @abstractmethod
    def send(self, key: str) -> None:
        """Store the values."""

    @abstractmethod
    def receive(self, key: str) -> int:
        """Read the object; the number of bytes of its values."""


class Socket(Client):
    """No client at all: one kept connection, the requests as text. What is left is the kernel's."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        host, _, port = self._url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def send(self, key: str) -> None:
        """A PUT."""
        head = f"PUT /{BUCKET}/{key} HTTP/1.1\r\nHost: s3\r\nContent-Length: {len(self._body)}\r\n\r\n"
        self._socket.sendall(head.encode())
        self._socket.sendall(self._body)
        assert self._answer() == (0, 0)

    def receive(self, key: str) -> int:
        """A GET, always into the same memory."""
        self._socket.sendall(f"GET /{BUCKET}/{key} HTTP/1.1\r\nHost: s3\r\n\r\n".encode())
        length, received = self._answer()
        while received < length:
            received += self._socket.recv_into(self._buffer)
        return received

    def _answer(self) -> tuple[int, int]:
        """The length of a body, and how many bytes of it came with its head."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(_BUFFER_BYTES)
        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return int(length.partition(b":")[2]), len(rest)


class MusterClient(Client):
    """As a round does it: encode and checksum, then send; read and verify piece by piece, in the cache.

    The values are not kept: a round adds them as they are verified.
    """

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self._store = S3ObjectStore(BUCKET, "")
        self._blocks = Blocks(values.size)
        self._room: Payload | None = None

    def send(self, key: str) -> None:
        """Parallel parts, as a contribution."""
        self._store.upload(key, self._encoded(key))

    def receive(self, key: str) -> int:
        """One ranged GET, as of a shard."""
        which, size = range(self._blocks.number), self._blocks.stream_bytes
        pieces = ByteStream(self._store.stream(key, *byte_range(self._blocks, which), sizes=(size, size)))
        runs = decoded_stream(key, pieces, self._blocks, which)
        return sum(values.nbytes for _, values in runs)

    def _encoded(self, key: str) -> memoryview:
        records = Records(key, self._blocks, range(self._blocks.number))
        encoding = Encoding(room=self._reused)
        return encode_records(records, self._values, encoding)[0]

    def _reused(self, size: int) -> Payload:
        """The memory of the object before, as in a round."""
        if self._room is None:
            self._room = np.empty(size, np.uint8)
        return self._room


class MusterPut(MusterClient):
    """The same with one PUT, as a shard of the mean is stored."""

    def send(self, key: str) -> None:
        """One PUT."""
        self._store.create(key, self._encoded(key))


class Obstore(Client):
    """obstore by itself, with its defaults: parts of 5 MiB, 12 at once; the whole body as one piece of memory."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self._store = S3Store(BUCKET, endpoint=self._url, client_options={"allow_http": True}, unsigned_payload=True)

    def send(self, key: str) -> None:
        """`put`."""
        obstore.put(self._store, key, self._body)

    def receive(self, key: str) -> int:
        """`get`, then `bytes`."""
        return len(memoryview(obstore.get(self._store, key).bytes()))


class Botocore(Client):
    """boto3's calls of single requests."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self._bytes = bytes(self._body)  # of `bytes`, BytesIO makes no copy
        # Over HTTP botocore hashes the body to sign it; over HTTPS it does not.
        self._s3: Any = boto3.client("s3", endpoint_url=self._url, config=Config(signature_version=UNSIGNED))

    def send(self, key: str) -> None:
        """`put_object`."""
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=io.BytesIO(self._bytes))

    def receive(self, key: str) -> int:
        """`get_object`, the body read at once."""
        return len(self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())


class S3Transfer(Botocore):
    """boto3's managed transfers, with the default TransferConfig: parts of 8 MiB, ten threads."""

    def send(self, key: str) -> None:
        """`upload_fileobj`."""
        self._s3.upload_fileobj(io.BytesIO(self._bytes), BUCKET, key)

    def receive(self, key: str) -> int:
        """`download_fileobj`."""
        target = io.BytesIO()
        self._s3.download_fileobj(BUCKET, key, target)
        return target.getbuffer().nbytes


class AwsCrt(Client):
    """The S3 client of AWS's common runtime, with its defaults; without credentials it signs nothing."""

    def __init__(self, values: Floats) -> None:
        # Only the environment of this client has it.
        from awscrt import http, s3  # noqa: PLC0415

        super().__init__(values)
        self._http, self._s3 = http, s3
        self._client = s3.S3Client(region="us-east-1", tls_mode=s3.S3RequestTlsMode.DISABLED)
        self._bytes = bytes(self._body)
        self._target = bytearray(len(self._bytes))

    def send(self, key: str) -> None:
        """A PUT_OBJECT request, which it cuts into parts."""
        length = ("Content-Length", str(len(self._bytes)))
        self._done(self._s3.S3RequestType.PUT_OBJECT, "PUT", key, [length], io.BytesIO(self._bytes))

    def receive(self, key: str) -> int:
        """A GET_OBJECT request, which it cuts into ranges; each piece is copied to its place."""
        received = 0

        def take(chunk: bytes, offset: int, **_: object) -> None:
            nonlocal received
            self._target[offset : offset + len(chunk)] = chunk
            received += len(chunk)

        self._done(self._s3.S3RequestType.GET_OBJECT, "GET", key, [], None, on_body=take)
        return received

    def _done(self, kind: Any, method: str, key: str, more: list[tuple[str, str]], body: Any, **options: Any) -> None:
        headers = self._http.HttpHeaders([("Host", self._url.removeprefix("http://")), *more])
        request = self._http.HttpRequest(method, f"/{BUCKET}/{key}", headers, body)
        running = self._client.make_request(type=kind, request=request, **options)
        running.finished_future.result(_TIMEOUT_SECONDS)


CLIENTS: dict[str, Callable[[Floats], Client]] = {
    "socket": Socket,
    "muster": MusterClient,
    "muster-one-put": MusterPut,
    "obstore": Obstore,
    "awscrt": AwsCrt,
    "s3transfer": S3Transfer,
    "boto3": Botocore,
}


def main(name: str, mib: int) -> None:
    """Send and receive, once for each line of standard input."""
    values = np.random.default_rng(0).standard_normal(mib * _MIB // 4, np.float32)
    client = CLIENTS[name](values)

    def turn(number: int) -> dict[str, Usage | str]:
        key, received = f"clients/{name}/{number}", 0

        def receive() -> None:
            nonlocal received
            received = client.receive(key)

        sent = used(lambda: client.send(key))
        taken = used(receive)
        assert received == values.nbytes, received
        return {"sent": sent, "received": taken}

    answer_lines(turn)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
