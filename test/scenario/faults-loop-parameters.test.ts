/**
 * The largest accepted value in every parameter that a client controls: headers, paths, queries, credentials, form fields,
 * and members of MCP, A2A and LLM bodies. However the gateway answers, no turn of its loop uses more than 50 ms of CPU, so no
 * client can stall the others. The gateway has its own process, so that only its own work counts.
 *
 * Each parameter gets one or two of the shapes below; `STALL_SHAPES=all` sends every shape in every parameter.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { configFile } from "../support/config-file.ts";
import { type GatewayProcess, startGatewayProcess } from "../support/gateway-process.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { longestTurnMs, turnsOf, WATCHED_TURNS } from "../support/process-turns.ts";

const MAX_TURN_MS = 50;
/** What the limits leave for one value. */
const HEADER_CHARS = 15_000;
const QUERY_CHARS = 8_000;
const FORM_CHARS = 60_000;
const MCP_CHARS = 4_000_000;
const LLM_CHARS = 2_000_000;
const ALL_SHAPES = process.env.STALL_SHAPES === "all";

/** What makes splitting, matching, trimming, sorting or escaping expensive. Each is cut to the length that is asked for. */
const SHAPES: Readonly<Record<string, (chars: number) => string>> = {
  "one run": (chars) => "a".repeat(chars),
  "distinct words": (chars) => Array.from({ length: chars / 5 }, (_, i) => i.toString(36).padStart(4, "w")).join(" "),
  commas: (chars) => "a,".repeat(chars / 2),
  "parameters of lists": (chars) => "a;q=0.5,".repeat(chars / 8),
  pairs: (chars) => "k=v; ".repeat(chars / 5),
  "query pairs": (chars) => "k=v&".repeat(chars / 4),
  slashes: (chars) => "/".repeat(chars),
  dots: (chars) => "a.".repeat(chars / 2),
  escapes: (chars) => "%41".repeat(chars / 3),
  "inner blanks": (chars) => `x${" ".repeat(chars - 2)}x`,
  quotes: (chars) => "'\"".repeat(chars / 2),
  digits: (chars) => "9".repeat(chars),
  brackets: (chars) => "([{".repeat(chars / 3),
  "camel case": (chars) => "aB".repeat(chars / 2),
};
const names = Object.keys(SHAPES);

function shaped(shape: string, chars: number): string {
  return (SHAPES[shape]?.(chars) ?? "").slice(0, chars);
}

interface Request {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

interface Parameter {
  readonly name: string;
  readonly chars: number;
  readonly request: (value: string) => Request;
}

const HTPASSWD = `
apr:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0
bob:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm
sha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=
`;
/** Every function that splits, matches or rewrites a text, on what the client sends. */
const EXPRESSIONS = ["request.headers['x-custom']", "request.path", "request.pathAndQuery", "request.headers['cookie']"]
  .flatMap((text) => [
    `${text}.matches("(a|b|ab)*[0-9]+c$")`,
    `${text}.split(",").size() > 3 && ${text}.split("").size() < 3`,
    `${text}.lowerAscii().trim().replace("a", "bb").contains("zz")`,
    `${text}.regexReplace("(a+)+", "$1$1").endsWith("zz")`,
    `url.decode(${text}).size() == 1`,
    `toJson(${text}.split(" ")).contains("zz")`,
    `base64.decode(${text}).size() == 1 || sha256.encode(${text}) == "x"`,
    `json(${text}) == 1`,
  ])
  .map((deny) => ({ deny }));

function configOf({ host }: TestBackend): object {
  const at = (path: string) => ({ name: path.slice(1), matches: [{ path: { pathPrefix: path } }] });
  const toBackend = { backends: [{ host }] };
  const provider = (kind: string) => ({ ai: { provider: { [kind]: {} }, auth: { key: "k" }, hostOverride: host } });
  const guard = { regex: { action: "mask", rules: [{ builtin: "email" }, { pattern: "[a-z]+[0-9]+x" }] } };
  const limits = {
    rateLimit: { local: [{ requests: 1_000_000, unit: "Hours", key: "request.headers['x-custom'] + request.path" }] },
  };
  const issuer = `http://${host}/issuer`;
  return {
    config: { adminAddr: "off", logging: { level: "info,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      { ...at("/passwords"), ...toBackend, policies: { basicAuth: { htpasswd: HTPASSWD, failureLimit: false } } },
      {
        ...at("/plain"),
        ...toBackend,
        policies: {
          cors: { allowOrigins: ["https://a.example"], allowMethods: ["PUT"], allowHeaders: ["x-a"] },
          ...limits,
        },
      },
      { ...at("/cel"), ...toBackend, policies: { authorization: { rules: EXPRESSIONS } } },
      { ...at("/keys"), ...toBackend, policies: { apiKey: { keys: [{ key: "key-of-alice-12345" }] } } },
      {
        ...at("/query-key"),
        ...toBackend,
        policies: { apiKey: { keys: [{ key: "key-of-alice-12345" }], location: { queryParameter: { name: "key" } } } },
      },
      {
        ...at("/signed-in"),
        ...toBackend,
        policies: { oidc: { issuer, clientId: "ui", redirectUri: "http://127.0.0.1/signed-in/callback" } },
      },
      {
        ...at("/transformed"),
        ...toBackend,
        policies: { transformations: { request: { set: { "x-path": "request.path + request.headers['x-custom']" } } } },
      },
      {
        ...at("/rewritten"),
        ...toBackend,
        policies: { urlRewrite: { path: { prefix: "/other" } } },
      },
      { ...at("/mcp"), backends: [{ mcp: { targets: [oddTarget()] } }] },
      {
        ...at("/many"),
        policies: { mcpAuthorization: { rules: ['mcp.tool.name != "crash" && mcp.tool.arguments.size() < 100'] } },
        backends: [{ mcp: { targets: [oddTarget("one"), oddTarget("two")] } }],
      },
      { ...at("/search"), backends: [{ mcp: { toolMode: "search", targets: [oddTarget()] } }] },
      { ...at("/agent"), backends: [{ a2a: { url: `http://${host}/agent` } }] },
      {
        ...at("/protected"),
        policies: {
          mcpAuthentication: {
            issuer,
            audiences: ["a"],
            resourceMetadata: { resource: "http://127.0.0.1/protected" },
          },
        },
        backends: [{ mcp: { targets: [oddTarget()] } }],
      },
      { ...at("/connect"), backends: [{ mcpLogins: {} }] },
      {
        ...at("/native"),
        policies: { ai: { promptGuard: { request: [guard] } }, ...limits },
        backends: [provider("openAI")],
      },
      { ...at("/translated"), policies: limits, backends: [provider("anthropic")] },
    ],
    ui: { policies: { apiKey: { keys: [{ key: "key-of-alice-12345" }] } }, operator: "true" },
  };
}

/** Each header at the route that reads it. */
const HEADERS: Readonly<Record<string, readonly string[]>> = {
  "/plain": [
    ..."accept accept-encoding accept-language user-agent referer via te prefer range if-none-match baggage".split(" "),
    ..."forwarded x-forwarded-for x-forwarded-proto x-forwarded-host x-request-id traceparent tracestate".split(" "),
    ..."origin sec-fetch-site connection upgrade expect content-encoding www-authenticate x-custom".split(" "),
    ..."access-control-request-method access-control-request-headers sec-websocket-protocol".split(" "),
  ],
  "/cel": ["x-custom", "cookie"],
  "/transformed": ["x-custom"],
  "/keys": ["authorization", "x-api-key", "api-key", "x-goog-api-key"],
  "/passwords": ["authorization"],
  "/protected": ["authorization"],
  "/signed-in": ["cookie", "accept", "origin"],
  "/ui/": ["accept-encoding", "cookie", "origin", "if-none-match"],
  "/connect/start": ["cookie", "origin"],
  "/mcp": [
    "accept",
    "content-type",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-name",
    "mcp-method",
    "last-event-id",
  ],
  "/native/v1/chat/completions": ["content-type", "openai-organization", "openai-beta", "accept"],
  "/translated/v1/messages": ["content-type", "anthropic-version", "anthropic-beta", "x-api-key"],
};

const chat = (members: object): string =>
  JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }], ...members });

const headerParameters: Parameter[] = Object.entries(HEADERS).flatMap(([path, all]) =>
  all.map((header) => ({
    name: `${header} at ${path}`,
    chars: HEADER_CHARS,
    request: (value: string): Request => {
      const isPost = /mcp|completions|messages/.test(path);
      const scheme = header !== "authorization" ? "" : path === "/passwords" ? "Basic " : "Bearer ";
      const headers = { "content-type": "application/json", [header]: scheme + value };
      if (isPost) return { method: "POST", path, headers, body: chat({}) };
      return { method: header.startsWith("access-control") ? "OPTIONS" : "GET", path, headers };
    },
  })),
);

const QUERIES = [
  "/plain?{}",
  "/plain?a={}",
  "/cel?{}",
  "/query-key?key={}",
  "/query-key?{}",
  "/connect/start?ticket={}",
  "/connect/callback?state={}",
  "/connect/callback?{}",
  "/signed-in/callback?state={}&code=1",
  "/signed-in?{}",
  "/ui/api/debug/requests?{}",
  "/ui/api/debug/requests?before={}",
  "/ui/api/debug/limits?key={}",
  "/ui/api/debug/budgets?key={}",
  "/ui/api/logging?level={}",
  "/ui/{}",
  "/plain/{}",
  "/cel/{}",
  "/rewritten/{}",
  "/native/v1/{}",
  "/native/v1/models/{}",
  "/translated/v1/messages?{}",
  "/.well-known/oauth-protected-resource/{}",
  "/{}",
];
const queryParameters: Parameter[] = QUERIES.map((target) => ({
  name: target,
  chars: QUERY_CHARS,
  request: (value) => ({
    path: target.replace("{}", value.replaceAll(/[^\x21-\x7e]|#/g, "+")).slice(0, 8_190),
    headers: { accept: "text/html", authorization: "Bearer key-of-alice-12345" },
  }),
}));

const FORM_FIELDS =
  "grant_type code redirect_uri client_id client_secret code_verifier resource scope refresh_token".split(" ");
const formParameters: Parameter[] = [
  ...FORM_FIELDS.map((field) => ({
    name: `form field ${field}`,
    chars: FORM_CHARS,
    request: (value: string): Request => ({
      method: "POST",
      path: "/.well-known/oauth-authorization-server/protected/token",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: new URLSearchParams({ grant_type: "authorization_code", [field]: value }).toString(),
    }),
  })),
  ...["redirect_uris", "client_name", "scope", "software_statement"].map((field) => ({
    name: `registration ${field}`,
    chars: FORM_CHARS,
    request: (value: string): Request => ({
      method: "POST",
      path: "/.well-known/oauth-authorization-server/protected/client-registration",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ [field]: field === "redirect_uris" ? value.split(" ") : value }),
    }),
  })),
  ...["model", "language", "file"].map((field) => ({
    name: `multipart field ${field}`,
    chars: LLM_CHARS,
    request: (value: string): Request => ({
      method: "POST",
      path: "/native/v1/audio/transcriptions",
      headers: { "content-type": "multipart/form-data; boundary=b" },
      body: `--b\r\nContent-Disposition: form-data; name="${field}"\r\n\r\n${value}\r\n--b--\r\n`,
    }),
  })),
  {
    name: "multipart boundary",
    chars: 14_000,
    request: (value) => ({
      method: "POST",
      path: "/native/v1/audio/transcriptions",
      headers: { "content-type": `multipart/form-data; boundary="${value.replaceAll(/[^\w ]/g, "-")}"` },
      body: "-".repeat(1_000_000),
    }),
  },
];

type Message = (value: string) => object;
const MESSAGES: Readonly<Record<string, Message>> = {
  method: (value) => ({ method: value }),
  id: (value) => ({ id: value, method: "ping" }),
  "tool name": (value) => ({ method: "tools/call", params: { name: value, arguments: {} } }),
  "tool argument": (value) => ({ method: "tools/call", params: { name: "echo", arguments: { text: value } } }),
  "tool argument's name": (value) => ({ method: "tools/call", params: { name: "echo", arguments: { [value]: 1 } } }),
  "progress token": (value) => ({ method: "tools/call", params: { name: "echo", _meta: { progressToken: value } } }),
  cursor: (value) => ({ method: "tools/list", params: { cursor: value } }),
  "resource URI": (value) => ({ method: "resources/read", params: { uri: value } }),
  "URI to subscribe": (value) => ({ method: "resources/subscribe", params: { uri: value } }),
  "prompt name": (value) => ({ method: "prompts/get", params: { name: value } }),
  completion: (value) => ({
    method: "completion/complete",
    params: { ref: { type: "ref/prompt", name: value }, argument: { name: value.slice(0, 1_000), value: "a" } },
  }),
  "log level": (value) => ({ method: "logging/setLevel", params: { level: value } }),
  "cancelled request": (value) => ({ method: "notifications/cancelled", params: { requestId: value } }),
};
const SEARCHES: Readonly<Record<string, Message>> = {
  "query of find_tools": (value) => ({
    method: "tools/call",
    params: { name: "find_tools", arguments: { query: value } },
  }),
  "limit of find_tools": (value) => ({
    method: "tools/call",
    params: { name: "find_tools", arguments: { limit: value } },
  }),
  "name of describe_tool": (value) => ({
    method: "tools/call",
    params: { name: "describe_tool", arguments: { name: value } },
  }),
  "list as name of describe_tool": (value) => ({
    method: "tools/call",
    params: { name: "describe_tool", arguments: { name: value.split(" ") } },
  }),
  "name of call_tool": (value) => ({ method: "tools/call", params: { name: "call_tool", arguments: { name: value } } }),
};
const INITIALIZE: Message = (value) => ({
  method: "initialize",
  params: {
    protocolVersion: value.slice(0, 100_000),
    capabilities: {},
    clientInfo: { name: value.slice(0, 100_000), version: "1" },
  },
});

const sessions = new Map<string, string>();
function mcpParameters(path: string, messages: Readonly<Record<string, Message>>): Parameter[] {
  return Object.entries(messages).map(([name, message]) => ({
    name: `${name} at ${path}`,
    chars: MCP_CHARS - 2_000,
    request: (value) => ({
      method: "POST",
      path,
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
        "mcp-session-id": sessions.get(path) ?? "",
      },
      body: shortened(value, (text) => JSON.stringify({ jsonrpc: "2.0", id: 1, ...message(text) }), MCP_CHARS),
    }),
  }));
}

/** Escapes make a value longer: it is cut so that the body fits. */
function shortened(value: string, write: (text: string) => string, chars: number): string {
  const body = write(value);
  return body.length <= chars ? body : write(value.slice(0, Math.floor((value.length * chars) / body.length) - 1_000));
}

const agentParameters: Parameter[] = ["method", "id", "text"].map((name) => ({
  name: `${name} at /agent`,
  chars: MCP_CHARS - 2_000,
  request: (value) => ({
    method: "POST",
    path: "/agent",
    headers: { "content-type": "application/json" },
    body: shortened(
      value,
      (text) =>
        JSON.stringify({
          jsonrpc: "2.0",
          id: name === "id" ? text : 1,
          method: name === "method" ? text : "message/send",
          params: {
            message: { role: "user", messageId: "1", parts: [{ kind: "text", text: name === "text" ? text : "" }] },
          },
        }),
      MCP_CHARS,
    ),
  }),
}));

const LLM_MEMBERS: Readonly<Record<string, (value: string) => object>> = {
  model: (value) => ({ model: value }),
  content: (value) => ({ messages: [{ role: "user", content: value }] }),
  "text part": (value) => ({ messages: [{ role: "user", content: [{ type: "text", text: value }] }] }),
  "image URL": (value) => ({
    messages: [
      { role: "user", content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${value}` } }] },
    ],
  }),
  role: (value) => ({ messages: [{ role: value, content: "hi" }] }),
  "tool call": (value) => ({
    messages: [
      { role: "user", content: "hi" },
      { role: "assistant", tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: value } }] },
      { role: "tool", tool_call_id: "1", content: "x" },
    ],
  }),
  "tool name": (value) => ({ tools: [{ type: "function", function: { name: value, parameters: {} } }] }),
  "tool description": (value) => ({ tools: [{ type: "function", function: { name: "f", description: value } }] }),
  stop: (value) => ({ stop: value.split(" ") }),
  user: (value) => ({ user: value }),
  "response format": (value) => ({ response_format: { type: value } }),
  "reasoning effort": (value) => ({ reasoning_effort: value }),
  "unknown member": (value) => ({ [value]: value.length }),
};
const llmParameters: Parameter[] = ["/native/v1/chat/completions", "/translated/v1/chat/completions"].flatMap((path) =>
  Object.entries(LLM_MEMBERS).map(([name, members]) => ({
    name: `${name} at ${path}`,
    chars: LLM_CHARS - 2_000,
    request: (value: string): Request => ({
      method: "POST",
      path,
      headers: { "content-type": "application/json" },
      body: shortened(value, (text) => chat(members(text)), LLM_CHARS),
    }),
  })),
);

interface Answer {
  readonly status: number;
  readonly session: string | undefined;
  readonly text: string;
}

let backend: TestBackend;
let gateway: GatewayProcess;
let port: number;
let watch: () => Promise<number>;
const cleanups: (() => void)[] = [];
before(async () => {
  backend = await startBackend((req, res) => {
    req.resume().once("end", () => res.writeHead(200, { "content-type": "application/json" }).end("{}"));
  });
  const t = { after: (cleanup: () => void) => void cleanups.push(cleanup) } as unknown as TestContext;
  gateway = startGatewayProcess(t, ["-f", configFile(t, JSON.stringify(configOf(backend)))], {
    compiled: true,
    nodeFlags: WATCHED_TURNS,
  });
  port = await gateway.port();
  watch = turnsOf(gateway);
  for (const path of ["/mcp", "/many", "/search"]) {
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "c", version: "1" } };
    const { session, text } = await send({
      method: "POST",
      path,
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params }),
    });
    assert.ok(session, text);
    sessions.set(path, session);
  }
});
after(async () => {
  for (const cleanup of cleanups) cleanup();
  await backend?.close();
});

function send({ method = "GET", path, headers = {}, body }: Request): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = { port, host: "127.0.0.1", path, method, headers: { ...headers }, agent: false, timeout: 60_000 };
    const outgoing = request(options, (res) => {
      let text = "";
      res.setEncoding("utf8").on("data", (chunk: string) => {
        if (text.length < 10_000) text += chunk;
      });
      res.once("error", reject);
      res.once("end", () =>
        resolve({ status: res.statusCode ?? 0, session: res.headers["mcp-session-id"] as string | undefined, text }),
      );
    });
    outgoing.once("timeout", () => outgoing.destroy(new Error(`no answer from ${path.slice(0, 100)}`)));
    // A request that is rejected before its body was read may end with a closed connection.
    outgoing.once("error", (error: NodeJS.ErrnoException) =>
      /ECONNRESET|EPIPE/.test(error.code ?? "") ? resolve({ status: 0, session: undefined, text: "" }) : reject(error),
    );
    outgoing.end(body);
  });
}

interface Case {
  readonly name: string;
  readonly run: () => Promise<Answer>;
}

/** Shapes go round, so that each parameter gets `count` of them and each shape is used. */
function casesOf(parameters: readonly Parameter[], count: number): Case[] {
  return parameters.flatMap(({ name, chars, request: write }, i) => {
    const picked = ALL_SHAPES
      ? names
      : names.filter((_, j) => (j - i * count + names.length * i) % names.length < count);
    return picked.map((shape) => ({
      name: `${name}: ${shape}`,
      run: () => send(write(shaped(shape, chars))),
    }));
  });
}

const groups: [name: string, cases: Case[]][] = [
  ["headers", casesOf(headerParameters, 2)],
  ["paths and queries", casesOf(queryParameters, 3)],
  ["form fields", casesOf(formParameters, 1)],
  ["members of MCP messages", casesOf([...mcpParameters("/mcp", MESSAGES), ...mcpParameters("/many", MESSAGES)], 1)],
  ["tools that search", casesOf(mcpParameters("/search", SEARCHES), 3)],
  ["members of initialize", casesOf(mcpParameters("/mcp", { "clientInfo and version": INITIALIZE }), 3)],
  ["members of A2A messages", casesOf(agentParameters, 1)],
  ["members of LLM requests", casesOf(llmParameters, 1)],
];
for (const [name, cases] of groups)
  test(`the largest ${name}: no turn uses ${MAX_TURN_MS} ms of CPU (${cases.length} cases) [R71]`, {
    timeout: 600_000,
  }, async () => {
    const defects: string[] = [];
    await watch();
    for (const one of cases) {
      const { status, text } = await one.run();
      if (status === 500) defects.push(`${one.name}: 500 ${text}`);
    }
    const together = await watch();
    assert.deepEqual(defects, []);
    if (together < MAX_TURN_MS) return;
    // Names the ones that block.
    const slow: string[] = [];
    for (const one of cases) {
      const longestMs = await longestTurnMs(watch, MAX_TURN_MS, one.run);
      if (longestMs >= MAX_TURN_MS) slow.push(`${one.name}: ${longestMs} ms`);
    }
    assert.deepEqual(slow, []);
  });

const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;
for (const user of ["apr", "bob", "sha", "nobody"])
  for (const length of [8, 1_024, 11_000])
    test(`100 passwords of ${length} bytes for ${user} do not hold the loop [R70] [R71]`, async () => {
      const statuses = new Set<number>();
      const longestMs = await longestTurnMs(watch, MAX_TURN_MS, async () => {
        const checks = Array.from({ length: 100 }, (_, i) =>
          send({ path: "/passwords", headers: { authorization: basic(user, `${i}`.padEnd(length, "x")) } }),
        );
        for (const { status } of await Promise.all(checks)) statuses.add(status);
      });
      assert.ok(longestMs < MAX_TURN_MS, `${longestMs} ms`);
      assert.deepEqual(
        [...statuses].filter((status) => status !== 401 && status !== 503),
        [],
      );
    });
