"""The service's process: `python -m muster.local.service.daemon STATE SETTINGS`, SETTINGS in JSON.

It writes one line to its standard output: `ready` or, in JSON, why it could not start. Everything after that is in its
log.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import secrets
import signal
import socket
import sys
from pathlib import Path

from hypercorn.asyncio import serve
from starlette.types import ASGIApp

from muster.contract.training.clusters import Clusters
from muster.local.certificate_authority import ServerCertificates, bundle_in, ensure_certificates, listening, tls_config
from muster.local.cloud_settings import Settings
from muster.local.cloud_state import PORT_IN_USE, READY, CloudState, StateDirectory
from muster.local.counted_calls import CallLog
from muster.local.ministack.partition_source import read_for_region
from muster.local.process_environment import container_variables, endpoint_variables
from muster.local.processes.process_pool import ProcessPool
from muster.local.service.fault_book import FaultBook
from muster.local.service.option_services import Hosted, ServiceParts, option_services

HOST = "127.0.0.1"
_log = logging.getLogger("muster.local")


def main() -> int:
    """Serve until a signal stops it."""
    directory = StateDirectory(Path(sys.argv[1]))
    settings = Settings.model_validate_json(sys.argv[2])
    try:
        listener = listening(HOST, settings.port)
    except OSError as error:
        reason = PORT_IN_USE if error.errno == errno.EADDRINUSE else str(error)
        sys.stdout.write(json.dumps({"error": reason}) + "\n")
        return 1
    certificates = ensure_certificates(directory.certificates)
    state = _new_state(directory, settings, certificates, listener.getsockname()[1])
    os.environ.update(_ministack_variables(directory, settings, state))
    os.environ.update(endpoint_variables(state.endpoint, state.region, state.ca_file))
    _raise_file_limit()
    asyncio.run(_serve(directory, settings, state, certificates, listener))
    return 0


def _new_state(
    directory: StateDirectory, settings: Settings, certificates: ServerCertificates, port: int
) -> CloudState:
    access_key, secret = directory.root_credentials()
    return CloudState(
        # An address, not a name: SDKs then put the bucket into the path and need no DNS.
        endpoint=f"https://{HOST}:{port}",
        port=port,
        pid=os.getpid(),
        region=settings.region,
        account_id=settings.account_id,
        access_key_id=access_key,
        secret_access_key=secret,
        admin_token=secrets.token_urlsafe(32),
        ca_file=certificates.authority,
        bundle_file=bundle_in(directory.certificates),
    )


def _ministack_variables(directory: StateDirectory, settings: Settings, state: CloudState) -> dict[str, str]:
    """The configuration of MiniStack, which it reads from the environment while it is imported."""
    scratch = directory.scratch
    return {
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": state.access_key_id,
        "AWS_SECRET_ACCESS_KEY": state.secret_access_key,
        "MINISTACK_ACCOUNT_ID": settings.account_id,
        "MINISTACK_REGION": settings.region,
        "MINISTACK_HOST": "localhost",
        "GATEWAY_PORT": str(state.port),
        "BIND_HOST": HOST,
        "USE_SSL": "1",
        "MINISTACK_SSL_CERT": str(directory.certificates / "server.pem"),
        "MINISTACK_SSL_KEY": str(directory.certificates / "server.key"),
        "STATE_DIR": str(scratch / "state"),
        "S3_DATA_DIR": str(scratch / "s3"),
        # Lambda waits one minute, then two, before it invokes a function again: here seconds.
        "LAMBDA_ASYNC_RETRY_BASE_SECONDS": "1",
        "LAMBDA_ACCOUNT_CONCURRENCY": str(settings.lambda_concurrency),
        # Listeners that are not used here.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        # MiniStack must find no container runtime.
        "DOCKER_HOST": f"unix://{scratch / 'no-docker.sock'}",
        "LOG_LEVEL": "INFO",
    }


def _raise_file_limit() -> None:
    """Allow more open files: dozens of jobs and functions at once need more than some shells allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft < wanted:
        # macOS refuses more than a limit of its own, which can be below the hard one: then it stays as it was.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(
    directory: StateDirectory,
    settings: Settings,
    state: CloudState,
    certificates: ServerCertificates,
    listener: socket.socket,
) -> None:
    # Not before now: MiniStack reads the environment while it is imported.
    read_for_region(settings.region)
    from muster.local.ministack import adaptations  # noqa: PLC0415
    from muster.local.ministack.host import Account, Host  # noqa: PLC0415
    from muster.local.service.gateways import Gateways  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    processes = ProcessPool()
    adaptations.adapt(directory.scratch / "code", Account(settings.account_id, settings.region))
    faults, calls = FaultBook(), CallLog()
    adaptations.lose_object_events(faults)
    host = Host(Account(settings.account_id, settings.region), loop)
    variables, hosted, services = container_variables(state.endpoint, state.ca_file), list[Hosted](), option_services()
    gateways = Gateways(settings, directory, processes, faults, calls)
    for name, asked in settings.services.items():
        place = directory.scratch / name
        parts = ServiceParts(settings.code, host, processes, faults, calls, place, variables, state, gateways.of)
        hosted.append(services[name].host(parts, asked))
    clusters = Clusters(clusters=tuple(cluster for one in hosted for cluster in one.clusters.clusters))
    gateway = gateways.home(host, state.admin_token, hosted, variables)
    front: ASGIApp = gateway
    for one in hosted:
        front = one.front(gateway) or front
    stop = await _stopping(loop, with_parent=settings.end_with_parent)
    config = tls_config(listener, certificates)
    server = asyncio.create_task(serve(front, config, shutdown_trigger=asyncio.Event().wait))  # type: ignore[arg-type]
    places = {name: place for one in hosted for name, place in one.places.items()}
    directory.write(state.model_copy(update={"clusters": clusters, "places": places}))
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    # Ends the pipe for the process that waits for this line; what is printed later goes to the log.
    os.dup2(2, 1)
    # No graceful shutdown: all state is in memory, and clients keep their connections open.
    await asyncio.wait({server, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    directory.file.unlink(missing_ok=True)
    processes.end_all()
    adaptations.stop_functions()
    directory.clear()
    # Threads of jobs and functions still wait for processes that have ended: do not join them.
    logging.shutdown()
    os._exit(0)


async def _stopping(loop: asyncio.AbstractEventLoop, *, with_parent: bool) -> asyncio.Event:
    """What a signal sets; with `with_parent`, the end of the standard input does, too."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not with_parent:
        return stop
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def until_closed() -> None:
        await reader.read()
        stop.set()

    _background.add(asyncio.create_task(until_closed()))
    return stop


_background: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


if __name__ == "__main__":
    sys.exit(main())
