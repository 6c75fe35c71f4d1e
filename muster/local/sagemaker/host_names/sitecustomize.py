"""In the containers of a job of several instances: Python finds the instances' names, as if a name server knew them."""

import importlib.machinery
import importlib.util
import os
import socket
import sys

_hosts = dict(entry.split("=") for entry in os.environ["MUSTER_LOCAL_HOSTS"].split(","))
_getaddrinfo, _gethostbyname = socket.getaddrinfo, socket.gethostbyname


def _known_getaddrinfo(host, *arguments, **options):  # type: ignore[no-untyped-def]
    return _getaddrinfo(_hosts.get(host, host), *arguments, **options)


def _known_gethostbyname(host):  # type: ignore[no-untyped-def]
    return _gethostbyname(_hosts.get(host, host))


socket.getaddrinfo = _known_getaddrinfo
socket.gethostbyname = _known_gethostbyname

# Another sitecustomize of the image or of the user comes after this one on the path.
_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - nothing is imported that is not needed
_others = [place for place in sys.path if os.path.abspath(place) != _here]  # noqa: PTH100
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
