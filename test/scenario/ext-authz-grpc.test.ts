/**
 * `extAuthz` over gRPC with a real service: each header action of Envoy's protocol against what the backend receives,
 * the request that the service sees against the one that the backend gets, and responses that decide nothing.
 */
import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { createServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { foldHeaderName } from "../../src/http/header-rules.ts";
import { type AuthService, startAuthService } from "../support/ext-authz/service.ts";
import { closing } from "../support/rate-limit-service/closing.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

type Line = readonly [name: string, value: string];
type Answer = ReturnType<AuthService["answer"]>;

interface Received {
  readonly url: string;
  readonly lines: Line[];
}

interface Setup {
  readonly service: AuthService;
  /** Sends the lines as they are. */
  send(path: string, lines: readonly Line[]): Promise<{ status: number; headers: IncomingMessage["headers"] }>;
  /** What the backend got last. */
  received(): Received | undefined;
}

async function setUp(
  t: TestContext,
  { host, timeout = "30s", settings = "" }: { host?: string; timeout?: string; settings?: string } = {},
): Promise<Setup> {
  const onEnd = closing(t);
  const service = await startAuthService(() => OK);
  onEnd(service.close);
  let last: Received | undefined;
  const backend = await backendFor(t, (request, response) => {
    last = { url: request.url ?? "", lines: linesOf(request.rawHeaders) };
    response.setHeader("x-both", "backend");
    response.end("ok");
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ name: r, backends: [{ host: "${backend.host}" }], policies: { extAuthz: { host: "${host ?? service.host}", timeout: ${timeout}${settings} } } }]
`,
  );
  const { port } = new URL(gateway.url());
  return {
    service,
    received: () => last,
    send: (path, lines) =>
      new Promise((resolve, reject) => {
        last = undefined;
        const sent = httpRequest({
          port,
          host: "127.0.0.1",
          path,
          headers: ["host", "a.test", ...lines.flat()] as unknown as Record<string, string>,
        });
        sent.on("response", (response) => {
          response.resume().on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers }));
        });
        sent.on("error", reject).end();
      }),
  };
}

const OK: Answer = { status: { code: 0 }, okResponse: {} };
const allow = (okResponse: object): Answer => ({ status: { code: 0 }, okResponse });

function linesOf(raw: readonly string[]): Line[] {
  const lines: Line[] = [];
  for (let i = 0; i < raw.length; i += 2) lines.push([(raw[i] as string).toLowerCase(), raw[i + 1] as string]);
  return lines;
}

const bytesOf = (text: string): string => Buffer.from(text).toString("latin1");
const isSendable = (value: string): boolean => !/[\0\r\n\x7f]/.test(value);

/** By how it appears in the protocol: what the backend gets of one header. */
const ACTIONS: Record<
  string,
  { option: object; expected: (client: Line[], name: string, values: string[]) => string[] }
> = {
  unset: { option: {}, expected: (_client, _name, values) => values.filter(isSendable) },
  "append: true": {
    option: { append: { value: true } },
    expected: (client, name, values) => [...exact(client, name), ...values.filter(isSendable)],
  },
  "append: false": { option: { append: { value: false } }, expected: (_client, _name, values) => lastOf(values) },
  ADD_IF_ABSENT: {
    option: { appendAction: 1 },
    expected: (client, name, values) => {
      const own = exact(client, name);
      return own.length > 0 ? own : values.filter(isSendable).slice(0, 1);
    },
  },
  OVERWRITE_IF_EXISTS_OR_ADD: { option: { appendAction: 2 }, expected: (_client, _name, values) => lastOf(values) },
  OVERWRITE_IF_EXISTS: {
    option: { appendAction: 3 },
    expected: (client, _name, values) =>
      // The first value that cannot be sent removes the header, so that nothing is left to overwrite.
      client.length === 0 || !values.every(isSendable) ? [] : lastOf(values),
  },
};

function exact(client: readonly Line[], name: string): string[] {
  return client.filter(([sent]) => sent === name).map(([, value]) => value);
}

function lastOf(values: readonly string[]): string[] {
  return values.slice(-1).filter(isSendable);
}

const value = fc.constantFrom("alice", "", "Łukasz", "é", "a,b", "tab\there", "cr\rlf\n", "nul\0", "del\x7f", "語");
const spelling = fc.constantFrom("x-user", "x_user", "x.user", "X-USER");

test("every header action gives the backend the service's values, and no spelling of a replaced one [L18]", async (t) => {
  const { service, send, received } = await setUp(t);
  for (const [action, { option, expected }] of Object.entries(ACTIONS))
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(spelling, fc.constantFrom("forged", "root")), { maxLength: 3 }),
        fc.array(value, { minLength: 1, maxLength: 3 }),
        fc.boolean(),
        async (client, values, isRaw) => {
          service.answer = () =>
            allow({
              headers: values.map((text) => ({
                header: isRaw ? { key: "X-User", rawValue: Buffer.from(text) } : { key: "X-User", value: text },
                ...option,
              })),
            });
          assert.equal((await send("/", client)).status, 200);
          const got = received()?.lines.filter(([name]) => foldHeaderName(name) === "x-user") ?? [];
          const sent = client.map(([name, text]): Line => [name.toLowerCase(), text]);
          const want = expected(sent, "x-user", values).map((text) => bytesOf(text));
          assert.deepEqual(
            got,
            want.map((text): Line => ["x-user", text]),
            action,
          );
        },
      ),
      { seed: 1, numRuns: 25 },
    );
});

test("the service sees the headers, the path and the query that the backend receives [L18]", async (t) => {
  const { service, send, received } = await setUp(t);
  const name = fc.constantFrom("__proto__", "constructor", "x-a", "x_a", "cookie", "to-string", "hasownproperty");
  const text = fc.constantFrom("a", "", "\xe9\xff", bytesOf("Łukasz"), "a, b", '"q"');
  const path = fc.constantFrom("/", "//a", "/%61", "/a?b=%2e%2E&c", "/a?b=/../", "/%e9", "/a?__proto__=1");
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(name, text), { maxLength: 6 }), path, async (lines, target) => {
      const { status } = await send(target, lines);
      assert.equal(status, 200);
      const { http } = service.checks.at(-1)?.attributes.request ?? {};
      const got = received() as Received;
      assert.equal(http?.path, got.url);
      for (const key of new Set(lines.map(([one]) => one))) {
        const values = got.lines.filter(([one]) => one === key).map(([, one]) => one);
        const seen: unknown = Object.getOwnPropertyDescriptor(http?.headers ?? {}, key)?.value;
        assert.equal(seen, Buffer.from(values.join(", "), "latin1").toString("utf8"), key);
      }
    }),
    { seed: 1, numRuns: 80 },
  );
});

test("responses that decide nothing, or ask for what is not supported, admit nobody", async (t) => {
  const { service, send, received } = await setUp(t);
  const header = (key: string) => ({ header: { key, value: "1" } });
  const many = (count: number) => Array.from({ length: count }, (_, index) => header(`x-${index}`));
  const cases: [string, Answer][] = [
    ...[4, 5, 99, -1, 2 ** 31 - 1].map((action): [string, Answer] => [
      `append_action ${action}`,
      allow({ headers: [{ ...header("x-user"), appendAction: action }] }),
    ]),
    ["query_parameters_to_set", allow({ queryParametersToSet: [{ key: "a", value: "b" }] })],
    ["query_parameters_to_remove", allow({ queryParametersToRemove: ["a"] })],
    ["an error response with status 0", { status: { code: 0 }, errorResponse: {} }],
    ["no status", { okResponse: {} }],
    ["too many headers", allow({ headers: many(101) })],
    ["far too many headers", allow({ headers: many(10_000) })],
    ["too many headers to remove", allow({ headersToRemove: many(101).map(({ header: { key } }) => key) })],
    ["too many response headers", allow({ responseHeadersToAdd: many(101) })],
    ["too many headers of a denial", { status: { code: 7 }, deniedResponse: { headers: many(101) } }],
    ["a response that is too large", allow({ headers: [{ header: { key: "x-a", value: "a".repeat(300_000) } }] })],
  ];
  for (const [what, answer] of cases) {
    service.answer = () => answer;
    assert.deepEqual([(await send("/", [])).status, received()], [503, undefined], what);
  }
  service.answer = () => allow({ headers: many(100) });
  assert.equal((await send("/", [])).status, 200);
});

test("a denial has an error status, its own headers once, and none that frame the response", async (t) => {
  const { service, send, received } = await setUp(t);
  for (const code of [0, 1, 100, 101, 199, 200, 204, 299, 300, 302, 401, 599, 600, 1000, -1, 2 ** 31 - 1])
    for (const deniedStatus of [0, 7]) {
      const headers = [
        ...["content-length", "transfer-encoding", "connection", ":status", "X_Gateway_Error", "x-gateway-error"],
        ...["content-type", "content-type", "set-cookie", "set-cookie", "bad\r\nname"],
      ].map((key, index) => ({ header: { key, value: `${index}` } }));
      service.answer = () => ({
        status: { code: deniedStatus },
        deniedResponse: { status: { code }, headers, body: "no" },
      });
      const { status, headers: got } = await send("/", []);
      assert.deepEqual([status, received()], [code >= 300 && code <= 599 ? code : 403, undefined], `${code}`);
      assert.equal(got["x-gateway-error"], "authorization_denied");
      assert.deepEqual([got["content-length"], got.connection !== "2"], ["2", true]);
      assert.deepEqual(got["set-cookie"], ["8", "9"]);
    }
});

test("headers for the response are added to those of the backend, unless an action replaces them", async (t) => {
  const { service, send } = await setUp(t);
  for (const [option, expected] of [
    [{}, "backend, service"],
    [{ append: { value: true } }, "backend, service"],
    [{ append: { value: false } }, "service"],
    [{ appendAction: 1 }, "backend"],
    [{ appendAction: 2 }, "service"],
    [{ appendAction: 3 }, "service"],
  ] as const) {
    service.answer = () =>
      allow({ responseHeadersToAdd: [{ header: { key: "X-Both", value: "service" }, ...option }] });
    assert.equal((await send("/", [])).headers["x-both"], expected, JSON.stringify(option));
  }
});

test("headers of `accept` are removed in every spelling, whatever the service sets [L18]", async (t) => {
  const { service, send, received } = await setUp(t, { settings: ", accept: [x-user, x-team]" });
  for (const { option } of Object.values(ACTIONS)) {
    service.answer = () => allow({ headers: [{ header: { key: "x-user", value: "alice" }, ...option }] });
    const forged = ["x-user", "X_User", "x.user", "x-team", "x_team"].map((name): Line => [name, "forged"]);
    assert.equal((await send("/", forged)).status, 200);
    const got = received()?.lines.filter(([, value]) => ["forged", "alice"].includes(value));
    const isConditional = "appendAction" in option && option.appendAction === 3;
    assert.deepEqual(got, isConditional ? [] : [["x-user", "alice"]], JSON.stringify(option));
  }
});

const GRPC_HEAD = { ":status": 200, "content-type": "application/grpc" };
/** An empty message: no status, and so no verdict. */
const EMPTY_MESSAGE = Buffer.from([0, 0, 0, 0, 0]);

const BROKEN: Record<string, (stream: ServerHttp2Stream) => void> = {
  "trailers only, with status OK": (stream) =>
    stream.respond({ ...GRPC_HEAD, "grpc-status": "0" }, { endStream: true }),
  "trailers only, denied by gRPC": (stream) =>
    stream.respond({ ...GRPC_HEAD, "grpc-status": "7" }, { endStream: true }),
  "no trailers": (stream) => {
    stream.respond(GRPC_HEAD);
    stream.end(EMPTY_MESSAGE);
  },
  "an empty message with status OK": (stream) => {
    stream.respond(GRPC_HEAD, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(EMPTY_MESSAGE);
  },
  "half a message": (stream) => {
    stream.respond(GRPC_HEAD, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(Buffer.from([0, 0, 0, 1, 0, 10]));
  },
  "no protobuf": (stream) => {
    stream.respond(GRPC_HEAD, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, 4]), Buffer.from("\xff\xff\xff\xff", "latin1")]));
  },
  "another content type": (stream) => {
    stream.respond({ ":status": 200, "content-type": "text/html" });
    stream.end("<html>");
  },
  "HTTP status 204": (stream) => stream.respond({ ":status": 204 }, { endStream: true }),
  "a reset": (stream) => stream.close(2),
  "a head and then silence": (stream) => stream.respond(GRPC_HEAD),
};

test("a service that breaks the protocol, hangs or ends early admits nobody", async (t) => {
  let respond: (stream: ServerHttp2Stream) => void = () => undefined;
  const server = createHttp2Server();
  server.on("stream", (stream: ServerHttp2Stream) => {
    stream.on("error", () => undefined);
    respond(stream);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const sessions = new Set<{ destroy(): void }>();
  server.on("session", (session) => sessions.add(session));
  t.after(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const patient = await setUp(t, { host });
  const hasty = await setUp(t, { host, timeout: "100ms" });
  for (const [what, broken] of Object.entries(BROKEN)) {
    respond = broken;
    const { send, received } = what.includes("silence") ? hasty : patient;
    assert.deepEqual([(await send("/", [])).status, received()], [503, undefined], what);
  }
});
