"""
Sends the connections of a Python program to the stand-in at GATEWAY_STAND_IN_PORT, except those to 127.0.0.1. Python
loads this file at its start if its folder is in PYTHONPATH.
"""
import asyncio
import os
import socket
import sys

REDIRECTED = "127.1.2.3"
port = int(os.environ.get("GATEWAY_STAND_IN_PORT", "0"))
getaddrinfo = socket.getaddrinfo
connect = socket.socket.connect


def resolve(host, service, *args, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if not port or name in (None, "", "127.0.0.1", "0.0.0.0", "::"):
        return getaddrinfo(host, service, *args, **options)
    return getaddrinfo(REDIRECTED, service, *args, **options)


def redirect(self, address):
    return connect(self, ("127.0.0.1", port) if address[0] == REDIRECTED else address)


socket.getaddrinfo = resolve
socket.socket.connect = redirect
# uvloop connects without these functions.
sys.modules["uvloop"] = asyncio
