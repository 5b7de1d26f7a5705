"""An external processor with grpcio: sets headers, masks a word in bodies, and rejects one path."""

import concurrent.futures
import os
import sys

import grpc
from grpc_tools import protoc

folder = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
assert protoc.main(["", f"-I{here}", f"--python_out={folder}", f"--grpc_python_out={folder}", "process.proto"]) == 0
sys.path.insert(0, folder)
import process_pb2 as pb  # noqa: E402
import process_pb2_grpc as rpc  # noqa: E402


def header(name, value):
    return pb.HeaderValueOption(header=pb.HeaderValue(key=name, raw_value=value.encode()))


class Processor(rpc.ExternalProcessorServicer):
    def Process(self, messages, context):
        for message in messages:
            kind = message.WhichOneof("request")
            common = pb.CommonResponse()
            if kind == "request_headers":
                fields = {one.key: one.raw_value.decode() for one in message.request_headers.headers.headers}
                if fields[":path"] == "/forbidden":
                    immediate = pb.ImmediateResponse(status=pb.HttpStatus(code=403), body=b"no entry")
                    yield pb.ProcessingResponse(immediate_response=immediate)
                    return
                common.header_mutation.set_headers.append(header("x-from", "python"))
            elif kind == "response_headers":
                common.header_mutation.set_headers.append(header("x-checked", "1"))
            else:
                part = getattr(message, kind)
                body = part.body.replace(b"secret", b"******")
                if kind == "response_body" and part.end_of_stream:
                    body += b" (checked)"
                common.body_mutation.body = body
            yield pb.ProcessingResponse(**{kind: pb.PartResponse(response=common)})


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
rpc.add_ExternalProcessorServicer_to_server(Processor(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
