"""A FastAPI application that reports what it received. Prints its port when it listens."""
import json
import socket

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()
KEPT = ("x-user", "x-tenant")


@app.post("/{operation}/{segment}")
async def report(operation: str, segment: str, request: Request):
    kind = request.headers.get("content-type", "").split(";")[0]
    body = await request.body()
    reading = {
        "segment": segment,
        "query": request.query_params.multi_items(),
        "headers": [(name, value) for name, value in request.headers.items() if name in KEPT],
        "cookies": request.cookies,
        "form": None,
        "text": None,
    }
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        reading["form"] = (await request.form()).multi_items()
    elif kind == "application/json":
        reading["json"] = await request.json()
    elif kind == "text/plain":
        reading["text"] = body.decode()
    # Surrogates without a partner can be reported only as escapes.
    return Response(json.dumps(reading), media_type="application/json")


listening = socket.socket()
listening.bind(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, timeout_keep_alive=3600))
server.run(sockets=[listening])
