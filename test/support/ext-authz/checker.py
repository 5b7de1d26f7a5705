"""An authorization service with grpcio: denies without the right token, and sets headers on the request."""

import concurrent.futures
import os
import sys

import grpc
from grpc_tools import protoc

folder = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
assert protoc.main(["", f"-I{here}", f"--python_out={folder}", f"--grpc_python_out={folder}", "check.proto"]) == 0
sys.path.insert(0, folder)
import check_pb2 as pb  # noqa: E402
import check_pb2_grpc as rpc  # noqa: E402


def header(name, value):
    return pb.HeaderValueOption(header=pb.HeaderValue(key=name, value=value))


class Checker(rpc.AuthorizationServicer):
    def Check(self, request, context):
        http = request.attributes.request.http
        fields = {one.key: one.value for one in http.headers}
        if fields.get("x-token") != "right":
            denied = pb.DeniedHttpResponse(status=pb.HttpStatus(code=402), body="pay first")
            denied.headers.append(header("x-reason", "token"))
            return pb.CheckResponse(status=pb.Status(code=7), denied_response=denied)
        allowed = pb.OkHttpResponse()
        allowed.headers.append(header("x-user", f"{http.method} {http.path}"))
        return pb.CheckResponse(status=pb.Status(code=0), ok_response=allowed)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
rpc.add_AuthorizationServicer_to_server(Checker(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
