"""An MCP policy service with grpcio: masks a word in arguments, rejects one tool, and hides it from lists."""

import concurrent.futures
import json
import os
import sys

import grpc
import grpc_tools
from grpc_tools import protoc

folder = sys.argv[1]
here = os.path.dirname(os.path.abspath(__file__))
well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
options = ["", f"-I{here}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
assert protoc.main([*options, "ext_mcp.proto"]) == 0
sys.path.insert(0, folder)
import ext_mcp_pb2 as pb  # noqa: E402
import ext_mcp_pb2_grpc as rpc  # noqa: E402


class Policy(rpc.ExtMcpServicer):
    def CheckRequest(self, request, context):
        if not request.HasField("mcp_request"):
            return pb.McpRequestResult(**{"pass": pb.Pass()})
        params = json.loads(request.mcp_request)
        if params.get("name") == "forbidden":
            error = pb.AuthorizationError(
                code=pb.AuthorizationError.PERMISSION_DENIED,
                reason="not for you",
                mcp_error=json.dumps({"tool": params["name"]}).encode(),
            )
            return pb.McpRequestResult(error=error)
        tenant = request.metadata_context["tenant"]
        roles = list(request.metadata_context["roles"])
        seen = {header.key: header.value.decode() for header in request.headers}
        params["arguments"] = {
            "message": params["arguments"]["message"].replace("secret", "******"),
            "from": f"{request.service_names[0]} {tenant} {roles} {seen.get('x-shown')} {seen.get('x-hidden')}",
        }
        changes = pb.HeaderMutation(set=[pb.McpHeader(key="x-policy", value=b"python")], remove=["x-shown"])
        return pb.McpRequestResult(mutated=json.dumps(params).encode(), header_mutation=changes)

    def CheckResponse(self, response, context):
        result = json.loads(response.mcp_response)
        if response.method == "tools/list":
            result["tools"] = [tool for tool in result["tools"] if not tool["name"].endswith("forbidden")]
            return pb.McpResponseResult(mutated=json.dumps(result).encode())
        if "leak" in response.mcp_response.decode():
            error = pb.AuthorizationError(code=pb.AuthorizationError.RESOURCE_EXHAUSTED, reason="leaks")
            return pb.McpResponseResult(error=error)
        return pb.McpResponseResult(**{"pass": pb.Pass()})


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
rpc.add_ExtMcpServicer_to_server(Policy(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
