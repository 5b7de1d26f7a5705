"""The official Python SDK as its example uses it: logs in at the URL given, calls the tool `echo`, prints the answer.

Works with both generations (1.x and 2.x). The browser is whatever BROWSER names.
"""

import asyncio
import sys
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlparse

from mcp.client.auth import OAuthClientProvider
from mcp.client.session import ClientSession
from mcp.shared.auth import OAuthClientMetadata

url = sys.argv[1]
callback = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        callback.update({key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Storage:
    def __init__(self):
        self.tokens = None
        self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def open_browser(address):
    webbrowser.open(address)


async def wait_for_callback():
    while not callback:
        await asyncio.sleep(0.05)
    if "error" in callback:
        raise RuntimeError(f"the login failed: {callback}")
    try:
        from mcp.client.auth import AuthorizationCodeResult
    except ImportError:
        return callback["code"], callback.get("state")
    return AuthorizationCodeResult(code=callback["code"], state=callback.get("state"), iss=callback.get("iss"))


async def use(streams):
    async with ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        result = await session.call_tool("echo", {"message": "hello from Python"})
        print(result.content[0].text)


async def main():
    server = HTTPServer(("localhost", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    metadata = {
        "client_name": "Python client",
        "redirect_uris": [f"http://localhost:{server.server_port}/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    }
    auth = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata.model_validate(metadata),
        storage=Storage(),
        redirect_handler=open_browser,
        callback_handler=wait_for_callback,
    )
    try:
        import httpx2
    except ImportError:
        from mcp.client.streamable_http import streamablehttp_client

        async with streamablehttp_client(url, auth=auth) as streams:
            await use(streams)
        return
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(auth=auth, timeout=60) as client:
        async with streamable_http_client(url=url, http_client=client) as streams:
            await use(streams)


asyncio.run(main())
