/**
 * Each attempt of a retry or a failover is recorded once: the access log, `/debug/requests`, its story, and the trace
 * show the same attempts, with provider, status or error, and reason.
 */
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import type { RecordedAttempt, RequestDetail } from "../../src/record/trace/record.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

type Shown = Pick<RecordedAttempt, "target" | "provider" | "status" | "error" | "retryReason">;

interface Case {
  readonly name: string;
  /** The status of each call of the backend, in turn. 0 closes the connection without a response. */
  readonly statuses: readonly number[];
  route(host: string, closed: string): string;
  readonly kind: "retry" | "failover";
  attempts(host: string, closed: string): readonly Shown[];
}

const failed = (status: number): Pick<Shown, "status" | "retryReason"> => ({ status, retryReason: `status ${status}` });

const cases: readonly Case[] = [
  {
    name: "a retried status",
    statuses: [503, 503, 200],
    route: (host) =>
      `{ backends: [{ host: "${host}" }], policies: { retry: { attempts: 3, codes: [503], backoff: 1ms } } }`,
    kind: "retry",
    attempts: (target) => [
      { target, ...failed(503) },
      { target, ...failed(503) },
      { target, status: 200 },
    ],
  },
  {
    name: "a connection that is closed",
    statuses: [0, 200],
    route: (host) => `{ backends: [{ host: "${host}" }], policies: { retry: { attempts: 1, backoff: 1ms } } }`,
    kind: "retry",
    attempts: (target) => [
      {
        target,
        status: null,
        error: "the connection was closed before a response",
        retryReason: "the connection was closed before a response",
      },
      { target, status: 200 },
    ],
  },
  {
    name: "another endpoint of a service",
    statuses: [200],
    route: (host, closed) => `{ backends: [{ service: { name: s, endpoints: ["${host}", "${closed}"] } }] }`,
    kind: "retry",
    attempts: (target, closed) => [
      {
        target: closed,
        status: null,
        error: `connect ECONNREFUSED ${closed}`,
        retryReason: `connect ECONNREFUSED ${closed}`,
      },
      { target, status: 200 },
    ],
  },
  {
    name: "an LLM failover",
    statuses: [429, 200],
    route: (host, closed) =>
      `{ backends: [{ ai: { groups: [${[closed, host, host]
        .map(
          (one, i) =>
            `{ providers: [{ provider: { ${i === 1 ? "anthropic" : "openAI"}: { model: m${i} } }, auth: { key: k }, hostOverride: "${one}" }] }`,
        )
        .join(", ")}] } }] }`,
    kind: "failover",
    attempts: (target, closed) => [
      {
        target: closed,
        provider: "openai",
        status: null,
        error: `connect ECONNREFUSED ${closed}`,
        retryReason: `connect ECONNREFUSED ${closed}`,
      },
      { target, provider: "anthropic", ...failed(429) },
      { target, provider: "openai", status: 200 },
    ],
  },
];

async function closedPort(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return `127.0.0.1:${port}`;
}

async function send(t: TestContext, { statuses, route }: Case) {
  let calls = 0;
  const backend = await backendFor(t, (req, res) => {
    req.resume().on("end", () => {
      const status = statuses[calls] ?? 200;
      calls += 1;
      if (status === 0) req.socket.destroy();
      else res.writeHead(status, { "content-type": "application/json" }).end("{}");
    });
  });
  const closed = await closedPort();
  const gateway = await gatewayFor(
    t,
    `config: { logging: { format: json } }\ngateways: { default: { port: 0 } }\nroutes: [${route(backend.host, closed)}]\n`,
  );
  const post = () =>
    fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "x-request-id": "one", "content-type": "application/json" },
      body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    }).then((response) => response.text());
  const get = () => fetch(gateway.url(), { headers: { "x-request-id": "one" } }).then((response) => response.text());
  return { gateway, host: backend.host, closed, send: route(backend.host, closed).includes("ai:") ? post : get };
}

const shown = ({ target, provider, status, error, retryReason }: Shown): Shown =>
  JSON.parse(JSON.stringify({ target, provider, status, error, retryReason }));

for (const one of cases)
  test(`attempts: ${one.name}`, async (t) => {
    const run = await send(t, one);
    const { gateway, host, closed } = run;
    const events = await traceOf(gateway, run.send);
    const expected = one.attempts(host, closed);
    const details = (await (await fetch(`${gateway.adminUrl}/debug/requests?id=one`)).json()) as {
      readonly requests: readonly RequestDetail[];
    };
    const [record] = details.requests;
    assert.ok(record?.attempts);
    assert.deepEqual(record.attempts.map(shown), expected);
    assert.ok(record.attempts.every(({ durationMs }) => durationMs !== null && durationMs >= 0));
    assert.equal(record.story.filter((line) => line.startsWith("Attempt ")).length, expected.length);

    const line = JSON.parse(await gateway.logged('"attempts"'));
    const parts = String(line.attempts).split("; ");
    assert.equal(parts.length, expected.length);
    for (const [i, { target, provider, status, error }] of expected.entries())
      assert.match(
        parts[i] ?? "",
        new RegExp(`^${provider === undefined ? "" : `${provider} `}${target}: ${error ?? status} after [0-9.]+ ms$`),
      );

    const replaced = messagesOf(events, "policyEvent").filter(({ kind }) => kind === one.kind);
    assert.deepEqual(
      replaced.map(({ details }) => shown(details as unknown as Shown)),
      expected.slice(0, -1),
    );
    assert.equal(messagesOf(events, "backendCallStart").length, expected.length);
  });

test("attempts: a request with one attempt shows none", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `config: { logging: { format: json } }\ngateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`,
  );
  await fetch(gateway.url(), { headers: { "x-request-id": "one" } }).then((response) => response.text());
  const line = JSON.parse(await gateway.logged('"id":"one"'));
  assert.equal(line.attempts, undefined);
});
