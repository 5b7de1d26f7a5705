/**
 * Lists the attributes that expressions can read. A field that is not available yet, or never on a route, is absent:
 * reading it is an error, and `has()` is false.
 */
export type AttributeType =
  | "bool"
  | "bytes"
  | "double"
  | "duration"
  | "dyn"
  | "int"
  | "list"
  | "map"
  | "string"
  | "timestamp";

export interface AttributeField {
  /** In a path, `<name>` is a placeholder for a key that the operator or the peer chooses. */
  readonly path: string;
  readonly type: AttributeType;
  readonly doc: string;
  readonly when: string;
}

export interface Attribute {
  readonly name: string;
  readonly doc: string;
  readonly fields: readonly AttributeField[];
}

const ALWAYS = "always";
const RESPONSE = "once the response headers have arrived";
const LLM_REQUEST = "LLM requests, once the body has been read; `authorization` waits for it";
const LLM_RESPONSE = "LLM requests, once the response has ended";
const LLM_RECORD =
  "LLM requests, in `config.logging.access` and `config.telemetry.otlp.attributes`, once the response has ended";
const A2A_REQUEST = "calls to A2A agents, once the body has been read; `authorization` and limits wait for it";
const MCP_REQUEST = "MCP requests, once the body has been read; `authorization` and limits wait for it";

export const ATTRIBUTES: readonly Attribute[] = [
  {
    name: "request",
    doc: "The request as the client sent it, with the changes that earlier policies made.",
    fields: [
      field("request.method", "string", "`GET`, `POST`, …", ALWAYS),
      field("request.uri", "string", "Scheme, host, canonical path and query.", ALWAYS),
      field("request.scheme", "string", "`http` or `https`.", ALWAYS),
      field(
        "request.host",
        "string",
        "The host of the request in lowercase and without a trailing dot, with the port if the client sent one.",
        ALWAYS,
      ),
      field(
        "request.path",
        "string",
        "The canonical path without the query: slashes merged, needless percent-encoding decoded.",
        ALWAYS,
      ),
      field("request.rawPath", "string", "The path as received. Do not use it in rules that deny.", ALWAYS),
      field("request.pathAndQuery", "string", "The canonical path with the query as received.", ALWAYS),
      field("request.version", "string", "`HTTP/1.1` or `HTTP/1.0`.", ALWAYS),
      field(
        "request.headers",
        "map",
        "All headers. Names are case-insensitive, and repeated headers are joined with `, `.",
        ALWAYS,
      ),
      field("request.headers.<name>", "string", 'One header, usually as `request.headers["x-id"]`.', ALWAYS),
      field(
        "request.body",
        "string",
        "The body as a string, up to 2 MiB. The gateway buffers the body if an expression reads it.",
        ALWAYS,
      ),
      field("request.startTime", "timestamp", "When the request arrived.", ALWAYS),
    ],
  },
  {
    name: "response",
    doc: "The response as it came from the backend, with the changes that earlier policies made.",
    fields: [
      field("response.code", "int", "The status code.", RESPONSE),
      field(
        "response.headers",
        "map",
        "All headers. Names are case-insensitive, and repeated headers are joined with `, `.",
        RESPONSE,
      ),
      field("response.headers.<name>", "string", "One header.", RESPONSE),
      field(
        "response.body",
        "string",
        "The body as a string, up to 2 MiB. Reading it is an error on event streams.",
        RESPONSE,
      ),
    ],
  },
  {
    name: "source",
    doc: "The peer of the connection.",
    fields: [
      field(
        "source.address",
        "string",
        "The IP address of the connection's peer. Behind a proxy, this is the address of the proxy.",
        ALWAYS,
      ),
      field("source.port", "int", "The port of the connection's peer.", ALWAYS),
      field(
        "source.identity",
        "string",
        "The subject of the verified client certificate, for example `CN=alice,O=Example`.",
        "the client presented a certificate",
      ),
    ],
  },
  {
    name: "client",
    doc: "The client, even behind trusted proxies.",
    fields: [
      field(
        "client.address",
        "string",
        "The client's IP address: the address of the connection's peer or, if the peer is in `config.trustedProxies`, the last address in `x-forwarded-for` that is not a trusted proxy.",
        ALWAYS,
      ),
    ],
  },
  {
    name: "jwt",
    doc: "The claims of the validated token. Whole numbers are ints.",
    fields: [
      field(
        "jwt.<claim>",
        "dyn",
        "Any claim, for example `jwt.sub` or `jwt.realm_access.roles`.",
        "requests with a valid token",
      ),
      field("jwt.iss", "string", "The issuer.", "requests with a valid token"),
      field("jwt.sub", "string", "The subject.", "requests with a valid token that has this claim"),
      field(
        "jwt.aud",
        "dyn",
        "The audience: a string or a list of strings.",
        "requests with a valid token that has this claim",
      ),
      field("jwt.exp", "int", "The expiry in seconds since 1970: `timestamp(jwt.exp)`.", "requests with a valid token"),
    ],
  },
  {
    name: "apiKey",
    doc: "The metadata of the accepted API key, without the key itself.",
    fields: [
      field("apiKey.user_id", "string", "The user that owns the key.", "an API key with this metadata was accepted"),
      field("apiKey.<name>", "dyn", "Any other metadata of the key.", "an API key was accepted"),
    ],
  },
  {
    name: "basicAuth",
    doc: "The user of HTTP basic authentication.",
    fields: [field("basicAuth.username", "string", "The user's name.", "basic authentication succeeded")],
  },
  {
    name: "extauthz",
    doc: "Values that an external authorization service returned.",
    fields: [
      field(
        "extauthz.<name>",
        "dyn",
        "A value of `extAuthz.metadata`.",
        "requests that a service of `extAuthz` with this metadata allowed",
      ),
    ],
  },
  {
    name: "mcpGuardrails",
    doc: "Values that services of `mcpGuardrails` returned.",
    fields: [
      field(
        "mcpGuardrails.<name>",
        "dyn",
        "A value of the `metadata` that a service returned for the request. The last service wins.",
        "MCP requests that a service of `mcpGuardrails` let pass, except batches",
      ),
    ],
  },
  {
    name: "llmRequest",
    doc: "The body of the client's LLM request.",
    fields: [field("llmRequest.<name>", "dyn", "A member of the body, as the client sent it.", "`ai.transformations`")],
  },
  {
    name: "llm",
    doc: "A call to a language model.",
    fields: [
      field(
        "llm.provider",
        "string",
        "The provider that handles the call.",
        "LLM requests, once the provider was chosen",
      ),
      field("llm.requestModel", "string", "The model that the client requested.", LLM_REQUEST),
      field("llm.responseModel", "string", "The model that produced the response.", LLM_RESPONSE),
      field("llm.streaming", "bool", "Whether the client requested an event stream.", LLM_REQUEST),
      field("llm.inputTokens", "int", "Tokens of the prompt, including cached tokens.", LLM_RESPONSE),
      field("llm.outputTokens", "int", "Tokens of the response.", LLM_RESPONSE),
      field("llm.totalTokens", "int", "The sum of input and output tokens.", LLM_RESPONSE),
      field(
        "llm.cachedInputTokens",
        "int",
        "Tokens of the prompt that the provider read from its cache.",
        LLM_RESPONSE,
      ),
      field(
        "llm.cacheCreationInputTokens",
        "int",
        "Tokens of the prompt that the provider wrote to its cache.",
        LLM_RESPONSE,
      ),
      field("llm.reasoningTokens", "int", "Tokens that the model spent on reasoning.", LLM_RESPONSE),
      field("llm.cost", "double", "The cost of the call, if a price list contains the model.", LLM_RESPONSE),
      field(
        "llm.prompt",
        "list",
        "The messages of the request as the client sent them, up to 2 MiB: maps with `role` and `content`.",
        LLM_RECORD,
      ),
      field(
        "llm.completion",
        "list",
        "One string: the text of the response, including reasoning and arguments of tools, up to 65,536 characters.",
        LLM_RECORD,
      ),
    ],
  },
  {
    name: "mcp",
    doc: "A message to an MCP server.",
    fields: [
      field("mcp.methodName", "string", "The JSON-RPC method, for example `tools/call`.", MCP_REQUEST),
      field("mcp.sessionId", "string", "The ID of the session.", "MCP requests within a session"),
      field("mcp.target", "string", "The target of the request.", "MCP requests that address one target"),
      field(
        "mcp.tool.name",
        "string",
        "The name of the tool, without the target's prefix.",
        "`tools/call`, and each tool in a list",
      ),
      field(
        "mcp.tool.arguments.<name>",
        "dyn",
        "An argument of the call as the client sent it. Reading it is an error if the arguments exceed 64 KiB, 5,000 values, or 16 levels in total.",
        "`tools/call`, but not for tools in a list",
      ),
      field("mcp.tool.target", "string", "The tool's target.", "`tools/call`, and each tool in a list"),
      field(
        "mcp.prompt.name",
        "string",
        "The name of the prompt, without the target's prefix.",
        "`prompts/get`, and each prompt in a list",
      ),
      field("mcp.prompt.target", "string", "The prompt's target.", "`prompts/get`, and each prompt in a list"),
      field("mcp.resource.uri", "string", "The URI of the resource.", "`resources/read`, and each resource in a list"),
      field("mcp.resource.target", "string", "The resource's target.", "`resources/read`, and each resource in a list"),
    ],
  },
  {
    name: "a2a",
    doc: "A call to an A2A agent.",
    fields: [
      field("a2a.method", "string", "The JSON-RPC method, for example `message/send`.", A2A_REQUEST),
      field("a2a.taskId", "string", "The ID of the task.", "A2A calls about a task"),
      field("a2a.contextId", "string", "The ID of the conversation.", "A2A messages with this field"),
      field("a2a.skill", "string", "The skill in `metadata.skillId` of the message.", "A2A messages with this field"),
      field("a2a.agent", "string", "The agent's name.", "agents with a card"),
      field("a2a.skills", "list", "The IDs of the agent's skills.", "agents with a card"),
    ],
  },
  {
    name: "backend",
    doc: "The selected backend.",
    fields: [
      field("backend.name", "string", "The name of the backend.", "backend policies and later"),
      field("backend.type", "string", "`static`, `mcp`, `ai` or `internal`.", "backend policies and later"),
      field("backend.protocol", "string", "`http`, `mcp` or `llm`.", "backend policies and later"),
    ],
  },
  {
    name: "proxy",
    doc: "The listener and the route of the request.",
    fields: [
      field("proxy.listener.name", "string", "The name of the gateway that received the request.", ALWAYS),
      field("proxy.route.name", "string", "The name of the route that matched.", "route policies and later"),
    ],
  },
  {
    name: "env",
    doc: "The environment of the gateway. It has no fields in this version.",
    fields: [],
  },
];

export const ATTRIBUTE_NAMES: ReadonlySet<string> = new Set(ATTRIBUTES.map(({ name }) => name));

function field(path: string, type: AttributeType, doc: string, when: string): AttributeField {
  return { path, type, doc, when };
}
