"""
Records where LiteLLM sends the call and the key of a model, by provider prefix and api_base:

    python record-litellm.py > litellm-requests.json

Needs `pip install litellm`. No request leaves the machine: this program is every server and the proxy of all others.
"""
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-recorded"
seen = []


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        keys = sorted(name.lower() for name, value in self.headers.items() if KEY in value)
        try:
            model = json.loads(body).get("model")
        except ValueError:
            model = None
        seen.append({"path": self.path, "keys": keys, **({"model": model} if model else {})})
        self.reply(401, b'{"error":{"message":"no","type":"x","code":"x"}}')

    do_GET = do_POST

    def do_CONNECT(self):
        seen.append({"host": self.path.removesuffix(":443")})
        self.reply(502, b"")

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
os.environ.update(
    HTTPS_PROXY=address,
    https_proxy=address,
    NO_PROXY="127.0.0.1",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    AWS_ACCESS_KEY_ID="AKIARECORDED00000000",
    AWS_SECRET_ACCESS_KEY="recorded",
    AWS_REGION="us-east-1",
)
import litellm  # noqa: E402

litellm.suppress_debug_info = True
BASES = [None, "", "/", "/v1", "/v1/", "/sub", "/openai/v1", "/v1/messages", "/v1/chat/completions"]
PREFIXES = """openai anthropic gemini vertex_ai bedrock azure azure_ai baseten cerebras cohere cohere_chat deepinfra
deepseek fireworks_ai groq huggingface mistral ollama ollama_chat openrouter together_ai xai hosted_vllm lm_studio
llamafile custom_openai perplexity nvidia_nim litellm_proxy github sambanova moonshot dashscope nebius novita hyperbolic
replicate watsonx databricks cloudflare sagemaker snowflake ai21 friendliai featherless_ai lambda_ai v0 meta_llama
codestral volcengine zai minimax meta-llama qwen unknown""".split()
BARE = """gpt-4o gpt-4o-mini gpt-5.2 gpt-6-sol o3 o4-mini ft:gpt-4o-2024-08-06 text-embedding-3-small gpt-oss-120b whisper-1
claude-sonnet-4-5 claude-opus-4-1-20250805 claude-future-9 claude-sonnet-4-5@20250929 gemini-2.5-flash gemini-flash-latest
command-r-08-2024 command-nightly embed-v4.0 mistral-large-latest deepseek-chat grok-4 llama3 my-model text-embedding-004
anthropic.claude-3-5-sonnet-20241022-v2:0 us.anthropic.claude-sonnet-4-5-20250929-v1:0 meta.llama3-70b-instruct-v1:0
amazon.nova-lite-v1:0 *""".split()
CUSTOM = [("my-model", "openai"), ("my-model", "anthropic"), ("claude-sonnet-4-5", "openai"), ("m", "hosted_vllm")]

recorded = []
for model, provider in [*((f"{p}/m", None) for p in PREFIXES), *((b, None) for b in BARE), *CUSTOM]:
    for base in BASES:
        seen.clear()
        options = {"vertex_project": "p", "vertex_location": "us-central1"} if model.startswith("vertex") else {}
        if provider:
            options["custom_llm_provider"] = provider
        if base is not None:
            options["api_base"] = address + base
        if model.startswith("azure/"):
            options["api_version"] = "2024-06-01"
        try:
            litellm.completion(
                model=model,
                messages=[{"role": "user", "content": "x"}],
                api_key=KEY,
                max_retries=0,
                timeout=3,
                **options,
            )
        except Exception:  # every answer is a refusal
            pass
        entry = {"written": model, **({"provider": provider} if provider else {}), **({} if base is None else {"base": base})}
        recorded.append({**entry, "sent": seen[0] if seen else None})
    print(model, file=sys.stderr)
lines = ",\n".join(json.dumps(entry) for entry in recorded)
print(f"[\n{lines}\n]")
os._exit(0)
