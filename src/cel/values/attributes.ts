/**
 * The attributes that expressions can read. The analyzer and the generated reference both use this table. A field that
 * is not available yet, or never on a route, is absent: reading it is an error, and `has()` is false.
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
  /**
   * The path as written in an expression. `<name>` is a placeholder for a key that the operator or the peer chooses.
   */
  readonly path: string;
  readonly type: AttributeType;
  readonly doc: string;
  /** Describes which requests have the field and when it becomes available. */
  readonly when: string;
}

export interface Attribute {
  readonly name: string;
  readonly doc: string;
  readonly fields: readonly AttributeField[];
}

const ALWAYS = "always";
const RESPONSE = "once the response head has arrived";
const LLM_REQUEST = "LLM requests, once the body has been read; `authorization` waits for it";
const LLM_RESPONSE = "LLM requests, once the response has ended";
const A2A_REQUEST = "calls of A2A agents, once the body has been read; `authorization` and limits wait for it";
const MCP_REQUEST = "MCP requests, once the body has been read; `authorization` and limits wait for it";

export const ATTRIBUTES: readonly Attribute[] = [
  {
    name: "request",
    doc: "The request as the client sent it, with the changes that earlier policies made.",
    fields: [
      field("request.method", "string", "`GET`, `POST`, …", ALWAYS),
      field("request.uri", "string", "Scheme, host, canonical path and query.", ALWAYS),
      field("request.scheme", "string", "`http` or `https`.", ALWAYS),
      field("request.host", "string", "The host that the client asked for, with its port if it gave one.", ALWAYS),
      field(
        "request.path",
        "string",
        "The canonical path without the query: slashes merged, needless percent-encoding decoded.",
        ALWAYS,
      ),
      field("request.rawPath", "string", "The path as received. Do not use it in rules that deny.", ALWAYS),
      field("request.pathAndQuery", "string", "The canonical path with the query as received.", ALWAYS),
      field("request.version", "string", "`HTTP/1.1` or `HTTP/1.0`.", ALWAYS),
      field("request.headers", "map", "Names in any case; repeated headers are joined by `, `.", ALWAYS),
      field("request.headers.<name>", "string", 'One header, usually as `request.headers["x-id"]`.', ALWAYS),
      field(
        "request.body",
        "string",
        "The body as text, up to 2 MiB; reading it makes the gateway wait for it.",
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
      field("response.headers", "map", "Names in any case; repeated headers are joined by `, `.", RESPONSE),
      field("response.headers.<name>", "string", "One header.", RESPONSE),
      field("response.body", "string", "The body as text, up to 2 MiB; an error on event streams.", RESPONSE),
    ],
  },
  {
    name: "source",
    doc: "The peer of the connection.",
    fields: [
      field(
        "source.address",
        "string",
        "The IP address of the socket's peer: behind a proxy, that of the proxy.",
        ALWAYS,
      ),
      field("source.port", "int", "Its port.", ALWAYS),
      field(
        "source.identity",
        "string",
        "The subject of the verified client certificate, for example `CN=alice,O=Example`.",
        "the client showed a certificate",
      ),
    ],
  },
  {
    name: "client",
    doc: "The client, also behind proxies.",
    fields: [
      field(
        "client.address",
        "string",
        "The client's IP address: that of the socket's peer, or, if the peer is in `config.trustedProxies`, the last address in `x-forwarded-for` that is not a trusted proxy.",
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
        "a valid token came",
      ),
      field("jwt.iss", "string", "The issuer.", "a valid token came"),
      field("jwt.sub", "string", "The subject.", "a valid token came, and it has one"),
      field("jwt.aud", "dyn", "The audience: a string or a list of strings.", "a valid token came, and it has one"),
      field("jwt.exp", "int", "The expiry in seconds since 1970: `timestamp(jwt.exp)`.", "a valid token came"),
    ],
  },
  {
    name: "apiKey",
    doc: "The metadata of the API key that was accepted; never the key itself.",
    fields: [
      field("apiKey.user_id", "string", "Whom the key belongs to.", "an API key was accepted, and its entry says so"),
      field("apiKey.<name>", "dyn", "Whatever the key's entry holds beside it.", "an API key was accepted"),
    ],
  },
  {
    name: "basicAuth",
    doc: "The user of HTTP basic authentication.",
    fields: [field("basicAuth.username", "string", "The user's name.", "basic authentication succeeded")],
  },
  {
    name: "llm",
    doc: "What is known of a call to a language model.",
    fields: [
      field("llm.provider", "string", "The provider that answers.", "LLM requests, once it was chosen"),
      field("llm.requestModel", "string", "The model that the client asked for.", LLM_REQUEST),
      field("llm.responseModel", "string", "The model that answered.", LLM_RESPONSE),
      field("llm.streaming", "bool", "Whether the client asked for an event stream.", LLM_REQUEST),
      field("llm.inputTokens", "int", "Tokens of the prompt, cached ones included.", LLM_RESPONSE),
      field("llm.outputTokens", "int", "Tokens of the answer.", LLM_RESPONSE),
      field("llm.totalTokens", "int", "Both together.", LLM_RESPONSE),
      field("llm.cachedInputTokens", "int", "Tokens of the prompt that the provider had cached.", LLM_RESPONSE),
      field("llm.cacheCreationInputTokens", "int", "Tokens of the prompt that went into its cache.", LLM_RESPONSE),
      field("llm.reasoningTokens", "int", "Tokens that the model spent on reasoning.", LLM_RESPONSE),
      field("llm.cost", "double", "What the call cost, where a price list knows the model.", LLM_RESPONSE),
    ],
  },
  {
    name: "mcp",
    doc: "What is known of a message to an MCP server.",
    fields: [
      field("mcp.methodName", "string", "The JSON-RPC method, for example `tools/call`.", MCP_REQUEST),
      field("mcp.sessionId", "string", "The session that the client named.", "MCP requests within a session"),
      field("mcp.target", "string", "The target that is addressed.", "MCP requests that address one target"),
      field(
        "mcp.tool.name",
        "string",
        "The tool, without the target's prefix.",
        "`tools/call`, and each tool of a list",
      ),
      field(
        "mcp.tool.arguments.<name>",
        "dyn",
        "An argument of the call as the client sent it: up to 64 KiB, 5,000 values and 16 levels in all; reading more is an error.",
        "`tools/call`; not for tools of a list",
      ),
      field("mcp.tool.target", "string", "The tool's target.", "`tools/call`, and each tool of a list"),
      field(
        "mcp.prompt.name",
        "string",
        "The prompt, without the target's prefix.",
        "`prompts/get`, and each prompt of a list",
      ),
      field("mcp.prompt.target", "string", "The prompt's target.", "`prompts/get`, and each prompt of a list"),
      field("mcp.resource.uri", "string", "The resource.", "`resources/read`, and each resource of a list"),
      field("mcp.resource.target", "string", "The resource's target.", "`resources/read`, and each resource of a list"),
    ],
  },
  {
    name: "a2a",
    doc: "What is known of a call of an A2A agent.",
    fields: [
      field("a2a.method", "string", "The JSON-RPC method, for example `message/send`.", A2A_REQUEST),
      field("a2a.taskId", "string", "The task that is meant.", "A2A calls about a task"),
      field("a2a.contextId", "string", "The conversation that a message belongs to.", "A2A messages with one"),
      field("a2a.skill", "string", "The skill that `metadata.skillId` of the message names.", "A2A messages with one"),
      field("a2a.agent", "string", "The agent's name.", "agents with a card"),
      field("a2a.skills", "list", "The ids of the agent's skills.", "agents with a card"),
    ],
  },
  {
    name: "backend",
    doc: "The backend that was chosen.",
    fields: [
      field("backend.name", "string", "Its name.", "backend policies and later"),
      field("backend.type", "string", "`static`, `mcp`, `ai` or `internal`.", "backend policies and later"),
      field("backend.protocol", "string", "`http`, `mcp` or `llm`.", "backend policies and later"),
    ],
  },
  {
    name: "proxy",
    doc: "The gateway's own view of the request.",
    fields: [
      field("proxy.listener.name", "string", "The gateway that received it, by its name.", ALWAYS),
      field("proxy.route.name", "string", "The route that matched.", "route policies and later"),
    ],
  },
  {
    name: "env",
    doc: "Where the gateway runs. It has no fields in this version.",
    fields: [],
  },
];

export const ATTRIBUTE_NAMES: ReadonlySet<string> = new Set(ATTRIBUTES.map(({ name }) => name));

function field(path: string, type: AttributeType, doc: string, when: string): AttributeField {
  return { path, type, doc, when };
}
