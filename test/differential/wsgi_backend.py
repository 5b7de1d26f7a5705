"""Answers each request with what a WSGI application of Python's standard library reads of it. Prints its port first."""
import json
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 256


class Handler(WSGIRequestHandler):
    def log_message(self, *_arguments):
        pass


def model_of(environ):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    try:
        # Detects UTF-8, UTF-16 and UTF-32, with and without a byte order mark.
        value = json.loads(body)
    except ValueError:
        return None
    model = value.get("model") if isinstance(value, dict) else None
    return model if isinstance(model, str) else None


def application(environ, start_response):
    report = json.dumps({
        "method": environ["REQUEST_METHOD"],
        "path": environ["PATH_INFO"],
        "query": environ["QUERY_STRING"],
        "host": environ.get("HTTP_HOST"),
        "role": environ.get("HTTP_X_ROLE"),
        "user": environ.get("HTTP_X_USER"),
        "model": model_of(environ),
        "credential": environ.get("HTTP_AUTHORIZATION"),
        "apiKey": environ.get("HTTP_X_API_KEY"),
    }).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(report)))])
    return [report]


server = make_server("127.0.0.1", 0, application, Server, Handler)
print(server.server_port, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
