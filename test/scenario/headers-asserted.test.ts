/**
 * Headers that the gateway asserts: whatever a client sends under any spelling of such a name, a server that folds
 * names into variables (CGI, WSGI, PHP) reads the asserted value or nothing.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { Agent, request } from "node:http";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const SEED = Number(process.env.FAST_CHECK_SEED ?? 1);
const LISTS_PER_CASE = 8;

const CALLERS = [
  { name: "with the claim", key: "key-of-alice-12345", value: "alice" },
  { name: "without the claim", key: "key-of-nobody-1234", value: undefined },
  { name: "anonymous", key: undefined, value: undefined },
] as const;

/** The same name as a client may write it: other cases, and other punctuation in place of each `-`. */
function spellingOf(name: string): fc.Arbitrary<string> {
  const letters = [...name].map((letter) =>
    letter === "-"
      ? fc.constantFrom("-", "_", "_", ".", "~", "!")
      : fc.boolean().map((isUpper) => (isUpper ? letter.toUpperCase() : letter)),
  );
  return fc.tuple(...letters).map((parts) => parts.join(""));
}

/** Lines of a client that claims to be an administrator, among others. */
function forgedLines(name: string): fc.Arbitrary<[string, string][]> {
  const forged = fc.tuple(spellingOf(name), fc.constantFrom("admin", "root", ""));
  const other = fc.constantFrom<[string, string]>(
    ["x-other", "1"],
    ["accept", "*/*"],
    ["x-use", "2"],
    ["x-user-id", "3"],
  );
  return fc.array(fc.oneof({ weight: 3, arbitrary: forged }, { weight: 1, arbitrary: other }), {
    minLength: 1,
    maxLength: 5,
  });
}

/** What WSGI and CGI make of a list of lines: names in upper case with underscores, repeats joined. */
function folded(rawHeaders: readonly string[], name: string): string | undefined {
  const variable = (text: string): string => text.toUpperCase().replace(/[^A-Z0-9]/g, "_");
  const values: string[] = [];
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (variable(rawHeaders[i] as string) === variable(name)) values.push(rawHeaders[i + 1] as string);
  return values.length === 0 ? undefined : values.join(",");
}

async function send(
  gateway: TestGateway,
  agent: Agent,
  path: string,
  lines: readonly [string, string][],
  key?: string,
  body?: string,
) {
  const { host, port } = new URL(gateway.url());
  const headers = ["host", host, ...lines.flat(), ...(key === undefined ? [] : ["authorization", `Bearer ${key}`])];
  const method = body === undefined ? "GET" : "POST";
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    const sent = request({ agent, host: "127.0.0.1", port, path, headers, method }, (answer) => {
      let text = "";
      answer.on("data", (chunk) => {
        text += chunk;
      });
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, body: text }));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

const API_KEYS = {
  mode: "optional",
  keys: [
    { key: "key-of-alice-12345", metadata: { user_id: "alice", name: "alice" } },
    { key: "key-of-nobody-1234", metadata: { user_id: "nobody" } },
  ],
};

/** What asserts `x-user` on a route, and what a backend may read for a caller. */
const ASSERTIONS: readonly {
  name: string;
  policies(service: string): object;
  expected(value: string | undefined): string | undefined;
}[] = [
  {
    name: "transformations set",
    policies: () => ({ transformations: { request: { set: { "x-user": "apiKey.name" } } } }),
    expected: (value) => value,
  },
  {
    name: "transformations remove",
    policies: () => ({ transformations: { request: { remove: ["x-user"] } } }),
    expected: () => undefined,
  },
  {
    name: "requestHeaderModifier set",
    policies: () => ({ requestHeaderModifier: { set: { "X-User": "gateway" } } }),
    expected: () => "gateway",
  },
  {
    name: "requestHeaderModifier remove",
    policies: () => ({ requestHeaderModifier: { remove: ["x-user"] } }),
    expected: () => undefined,
  },
  {
    name: "extAuthz accept",
    policies: (service) => ({ extAuthz: { url: service, accept: ["x-user"], timeout: "30s" } }),
    expected: (value) => value,
  },
  {
    name: "backendAuth",
    policies: () => ({ backendAuth: { key: "BACKENDKEY", header: { name: "x-user" } } }),
    expected: () => "BACKENDKEY",
  },
];

for (const { name, policies, expected } of ASSERTIONS) {
  test(`a folding backend reads the value of ${name} or nothing [L18]`, async (t) => {
    const agent = new Agent({ keepAlive: true });
    t.after(() => agent.destroy());
    const service = await backendFor(t, (req, res) => {
      const isAlice = req.headers.authorization === "Bearer key-of-alice-12345";
      res.writeHead(200, isAlice ? { "x-user": "alice" } : {}).end();
    });
    const backend = await backendFor(t);
    const gateway = await gatewayFor(
      t,
      JSON.stringify({
        gateways: { default: { port: 0, address: "127.0.0.1" } },
        routes: [
          {
            backends: [{ host: backend.host }],
            policies: { apiKey: API_KEYS, ...policies(`http://${service.host}/`) },
          },
        ],
      }),
    );
    for (const caller of CALLERS)
      for (const lines of fc.sample(forgedLines("x-user"), { seed: SEED, numRuns: LISTS_PER_CASE })) {
        const { status, body } = await send(gateway, agent, "/", lines, caller.key);
        assert.equal(status, 200, body);
        const seen = folded((JSON.parse(body) as { rawHeaders: string[] }).rawHeaders, "x-user");
        assert.equal(seen, expected(caller.value), `${caller.name}: ${JSON.stringify(lines)}`);
      }
  });
}

test("an authorization service over HTTP reads each context value or nothing under its name [L18]", async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const service = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          policies: {
            apiKey: API_KEYS,
            extAuthz: { url: `http://${service.host}/`, context: { "X-Tenant": "apiKey.name" }, timeout: "30s" },
            directResponse: { status: 204 },
          },
        },
      ],
    }),
  );
  for (const caller of CALLERS)
    for (const lines of fc.sample(forgedLines("x-tenant"), { seed: SEED, numRuns: LISTS_PER_CASE })) {
      const { status } = await send(gateway, agent, "/", lines, caller.key);
      assert.equal(status, 204);
      const seen = folded(service.received.at(-1)?.rawHeaders ?? [], "x-tenant");
      assert.equal(seen, caller.value, `${caller.name}: ${JSON.stringify(lines)}`);
    }
});

test("an LLM provider reads the gateway's key alone [L18]", async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const provider = await backendFor(t);
  const azure = {
    name: "azure",
    provider: { azure: { resourceName: "r" } },
    hostOverride: provider.host,
    auth: { key: "PROVIDERKEY" },
  };
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [{ backends: [{ ai: azure }] }],
    }),
  );
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }] });
  const framing: [string, string][] = [
    ["content-type", "application/json"],
    ["content-length", String(body.length)],
  ];
  for (const lines of fc.sample(forgedLines("api-key"), { seed: SEED, numRuns: LISTS_PER_CASE })) {
    await send(gateway, agent, "/v1/chat/completions", [...lines, ...framing], undefined, body);
    assert.equal(folded(provider.received.at(-1)?.rawHeaders ?? [], "api-key"), "PROVIDERKEY", JSON.stringify(lines));
  }
  assert.equal(provider.received.length, LISTS_PER_CASE);
});

test("`add` appends to what the client sent under that name and drops other spellings [L18]", async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          matches: [{ path: { pathPrefix: "/computed" } }],
          backends: [{ host: backend.host }],
          policies: { apiKey: API_KEYS, transformations: { request: { add: { "x-user": "apiKey.name" } } } },
        },
        { backends: [{ host: backend.host }], policies: { requestHeaderModifier: { add: { "x-user": "gateway" } } } },
      ],
    }),
  );
  const forged: [string, string][] = [
    ["x_user", "evil"],
    ["X-User", "mine"],
    ["x.user", "evil"],
  ];
  const seen = async (path: string, key?: string): Promise<string | undefined> => {
    const { body } = await send(gateway, agent, path, forged, key);
    return folded((JSON.parse(body) as { rawHeaders: string[] }).rawHeaders, "x-user");
  };
  assert.equal(await seen("/"), "mine,gateway");
  assert.equal(await seen("/computed", "key-of-alice-12345"), "mine,alice");
  assert.equal(await seen("/computed"), "mine");
});

const WSGI_PROGRAM = `
import json
from wsgiref.simple_server import make_server, WSGIRequestHandler
class Quiet(WSGIRequestHandler):
    def log_message(self, *args): pass
def app(environ, start):
    start("200 OK", [("content-type", "application/json")])
    return [json.dumps({k: v for k, v in environ.items() if k.startswith("HTTP_")}).encode()]
server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
`;
const hasPython = spawnSync("python3", ["-c", "import wsgiref"]).status === 0;

async function startWsgi(t: TestContext): Promise<number> {
  const child: ChildProcess = spawn("python3", ["-c", WSGI_PROGRAM], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const { stdout } = child;
  assert.ok(stdout);
  for await (const line of createInterface({ input: stdout })) return Number(line);
  throw new Error("the WSGI server did not start");
}

test("a WSGI application reads the asserted values", { skip: hasPython ? false : "python3 is missing" }, async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const port = await startWsgi(t);
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          backends: [{ host: `127.0.0.1:${port}` }],
          policies: {
            apiKey: API_KEYS,
            transformations: { request: { set: { "x-user": "apiKey.name" } } },
            requestHeaderModifier: { set: { "x-env": "prod" } },
          },
        },
      ],
    }),
  );
  for (const caller of CALLERS)
    for (const spelling of ["x-user", "x_user", "X_User"]) {
      const lines: [string, string][] = [
        [spelling, "admin"],
        [spelling, "root"],
        ["x_env", "test"],
      ];
      const { status, body } = await send(gateway, agent, "/", lines, caller.key);
      assert.equal(status, 200, body);
      const environ = JSON.parse(body) as Record<string, string>;
      assert.deepEqual([environ.HTTP_X_USER, environ.HTTP_X_ENV], [caller.value, "prod"], `${caller.name} ${spelling}`);
    }
});

test("a header that chooses the route is refused if it is repeated or has another spelling [L19]", async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.after(() => agent.destroy());
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          name: "protected",
          matches: [{ path: { pathPrefix: "/" }, headers: [{ name: "x-tenant", exact: "blue" }] }],
          backends: [{ host: backend.host }],
          policies: { authorization: { rules: ["false"] } },
        },
        { name: "open", backends: [{ host: backend.host }] },
      ],
    }),
  );
  const statusOf = async (...lines: [string, string][]): Promise<number> =>
    (await send(gateway, agent, "/", lines)).status;
  assert.equal(await statusOf(["x-tenant", "blue"]), 403);
  assert.equal(await statusOf(["x-tenant", "blue"], ["x-tenant", "x"]), 400);
  assert.equal(await statusOf(["x-tenant", "x"], ["X-Tenant", "blue"]), 400);
  assert.equal(await statusOf(["x_tenant", "blue"]), 400);
  assert.equal(await statusOf(["x-tenant", "x"]), 200);
  assert.equal(backend.received.length, 1);
});
