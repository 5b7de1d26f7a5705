"""fastmcp's client with its own login: calls the tool `echo` at the URL given and prints the answer."""

import asyncio
import sys

from fastmcp import Client


async def main():
    async with Client(sys.argv[1], auth="oauth") as client:
        result = await client.call_tool("echo", {"message": "hello from fastmcp"})
        print(result.content[0].text)


asyncio.run(main())
