import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { compileOrigins, cors } from "./policy.ts";

const ORIGIN = "https://app.example.com";

function compile(config: Record<string, unknown>) {
  return cors.compile(cors.schema.parse(config), testEnv);
}

const originCases: [allowed: string, origin: string, allows: boolean][] = [
  [ORIGIN, ORIGIN, true],
  ["HTTPS://APP.Example.com", ORIGIN, true],
  [`${ORIGIN}:443`, ORIGIN, true],
  [`${ORIGIN}/`, ORIGIN, true],
  [ORIGIN, `${ORIGIN}:8443`, false],
  [ORIGIN, "http://app.example.com", false],
  [ORIGIN, `${ORIGIN}.evil.test`, false],
  [ORIGIN, "https://evil.test/https://app.example.com", false],
  [ORIGIN, "null", false],
  [ORIGIN, "", false],
  ["null", "null", false],
  ["https://*.example.com", ORIGIN, true],
  ["https://*.example.com", "https://a.b.example.com", true],
  ["https://*.example.com", "https://example.com", false],
  ["https://*.example.com", "https://evilexample.com", false],
  ["https://*.example.com", "https://app.example.com.evil.test", false],
  ["https://*.example.com", "http://app.example.com", false],
  ["https://*.example.com", "https://app.example.com:8443", false],
  ["https://*.example.com:*", "https://app.example.com:8443", true],
  ["http://[::1]:3000", "http://[::1]:3000", true],
  ["http://[::1]:3000", "http://[::1].evil.test:3000", false],
  ["https://*", "https://a.b.example.com", true],
  ["https://*", "http://app.example.com", false],
  ["https://*", `${ORIGIN}:8443`, false],
  ["https://*:8443", `${ORIGIN}:8443`, true],
  ["https://*", "null", false],
  ["*", "null", true],
];
for (const [allowed, origin, allows] of originCases) {
  test(`${allowed} ${allows ? "allows" : "does not allow"} the origin ${JSON.stringify(origin)} [L8]`, () => {
    assert.equal(compileOrigins([allowed]).allows(origin), allows);
  });
}

function preflight(config: Record<string, unknown>, origin = ORIGIN, headers: Record<string, string> = {}): Reply {
  const exchange = anExchange({
    method: "OPTIONS",
    headers: { origin, "access-control-request-method": "PUT", ...headers },
  });
  return compile(config).access?.head?.(exchange) as Reply;
}

test("a preflight response lists what the configuration allows", () => {
  const reply = preflight({
    allowOrigins: [ORIGIN],
    allowMethods: ["GET", "PUT"],
    allowHeaders: ["X-A", "x-b"],
    allowCredentials: true,
    maxAge: "10m",
  });
  assert.equal(reply.status, 204);
  assert.deepEqual(
    { ...reply.headers.toObject() },
    {
      "access-control-allow-origin": ORIGIN,
      "access-control-allow-credentials": "true",
      "access-control-allow-methods": "GET, PUT",
      "access-control-allow-headers": "X-A, x-b",
      "access-control-max-age": "600",
      vary: "origin, access-control-request-headers",
    },
  );
});

test("wildcards echo the requested values and never allow credentials [L8] [S2.1-18]", () => {
  const reply = preflight({ allowOrigins: ["*"], allowMethods: ["*"], allowHeaders: ["*"] }, ORIGIN, {
    "access-control-request-headers": "x-any",
  });
  assert.equal(reply.headers.get("access-control-allow-origin"), "*");
  assert.equal(reply.headers.get("access-control-allow-methods"), "PUT");
  assert.equal(reply.headers.get("access-control-allow-headers"), "x-any");
  assert.equal(reply.headers.get("access-control-allow-credentials"), undefined);
});

test("with credentials no header of the response contains a wildcard", () => {
  const config = { allowOrigins: [ORIGIN], allowHeaders: ["*"], exposeHeaders: ["*"], allowCredentials: true };
  const reply = preflight(config);
  assert.equal(reply.headers.get("access-control-allow-headers"), undefined);
  assert.equal(reply.headers.get("access-control-expose-headers"), undefined);
  const exchange = anAnsweredExchange({ headers: { origin: ORIGIN }, responseHeaders: {} });
  void compile(config).response?.head(exchange);
  assert.equal(exchange.response?.headers.get("access-control-expose-headers"), undefined);
});

test("a preflight from another origin gets no permission", () => {
  const reply = preflight({ allowOrigins: [ORIGIN] }, "https://evil.test");
  assert.equal(reply.status, 204);
  assert.deepEqual([...reply.headers.names()], ["vary"]);
});

test("OPTIONS without access-control-request-method is not a preflight", () => {
  const exchange = anExchange({ method: "OPTIONS", headers: { origin: ORIGIN } });
  assert.equal(compile({ allowOrigins: [ORIGIN] }).access?.head?.(exchange), undefined);
});

const responses: [
  name: string,
  origin: string | undefined,
  before: Record<string, string>,
  after: Record<string, string>,
][] = [
  [
    "an allowed origin may read",
    ORIGIN,
    {},
    { vary: "origin", "access-control-allow-origin": ORIGIN, "access-control-expose-headers": "Mcp-Session-Id" },
  ],
  ["another origin may not", "https://evil.test", {}, { vary: "origin" }],
  ["no origin, no permission", undefined, {}, { vary: "origin" }],
  [
    "the backend's own permission is replaced",
    "https://evil.test",
    { "access-control-allow-origin": "*", "access-control-allow-credentials": "true" },
    { vary: "origin" },
  ],
  ["vary is extended", undefined, { vary: "accept" }, { vary: "accept, origin" }],
  ["vary that covers it stays", undefined, { vary: "accept, Origin" }, { vary: "accept, Origin" }],
];
for (const [name, origin, before, after] of responses) {
  test(`on responses: ${name} [L8]`, () => {
    const exchange = anAnsweredExchange({ headers: origin === undefined ? {} : { origin }, responseHeaders: before });
    void compile({ allowOrigins: [ORIGIN], exposeHeaders: ["Mcp-Session-Id"] }).response?.head(exchange);
    assert.deepEqual({ ...exchange.response?.headers.toObject() }, after);
  });
}

for (const config of [
  {},
  { allowOrigins: [] },
  { allowOrigins: ["*"], allowCredentials: true },
  { allowOrigins: ["https://*"], allowCredentials: true },
  { allowOrigins: ["https://*:*"], allowCredentials: true },
  { allowOrigins: ["*"], maxAge: 10 },
  { allowOrigins: "*" },
  { allowOrigins: ["*"], allowHeaders: ["x\r\ny: z"] },
  { allowOrigins: ["*"], exposeHeaders: ["x y"] },
  { allowOrigins: ["*"], allowMethods: ["GET,\r\n"] },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(cors.schema.safeParse(config).success, false);
  });
}

test("warns about an origin that can never match", () => {
  const warnings: string[] = [];
  cors.compile(cors.schema.parse({ allowOrigins: ["example.com", ORIGIN] }), {
    ...testEnv,
    warn: (text) => void warnings.push(text),
  });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /example\.com.*https:\/\//);
});
