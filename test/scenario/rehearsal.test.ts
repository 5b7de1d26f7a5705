/**
 * Rehearsals: what a new configuration would do to requests that were seen, with names and numbers, and nothing is sent.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parseRecording } from "../../src/app/rehearsal/recording-file.ts";
import { rehearsalCode, rehearsalText } from "../../src/app/rehearsal/rehearsal-report.ts";
import { rehearse } from "../../src/app/rehearsal/rehearse.ts";
import { systemClock } from "../../src/base/clock.ts";
import { createTasks } from "../../src/base/tasks.ts";
import { openDryConfig } from "../../src/config/dry-config.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import { openRlsClient } from "../../src/policies/rate-limit/rls-client.ts";
import { eventually } from "../support/eventually.ts";
import { ALICE, ask, configOf, type Parts, seen, tokenOf } from "../support/rehearsal.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

test("a lock-out by a typo is shown with the names of those it denies, and nothing is sent", async (t) => {
  const { gateway, host, calls } = await seen(t);
  const before = calls();
  const same = await ask(gateway, configOf(host));
  assert.deepEqual([same.requests, same.unchanged, rehearsalCode(same, true)], [8, 8, 0], JSON.stringify(same));

  const typo = '"admin" in jwt.roles || "usr" in jwt.roles';
  const report = await ask(gateway, configOf(host, { rules: [typo] }));
  assert.deepEqual(
    report.denied.map(({ subject, name, requests, reasons }) => [subject, name, requests, reasons[0]?.reason]),
    [["bob", "bob@example.com", 3, typo]],
  );
  assert.deepEqual([report.requests, report.unchanged, report.admitted.length], [8, 5, 0]);
  assert.equal(rehearsalCode(report, false), 1);
  assert.match(
    rehearsalText(report),
    /newly denied: 1 subject, 3 requests\n {2}bob@example.com \(bob\): 3 requests: auth/,
  );
  assert.equal(calls(), before);
});

test("services that a configuration names are not connected to when it is only looked at", async (t) => {
  const listen = async (): Promise<{ port: number; connections(): number }> => {
    let connections = 0;
    const server = createServer((socket) => {
      connections += 1;
      socket.on("error", () => undefined).resume();
      socket.write("seen");
      t.after(() => void socket.destroy());
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    t.after(() => void server.close());
    return { port: (server.address() as AddressInfo).port, connections: () => connections };
  };
  const [named, other] = [await listen(), await listen()];
  const host = `127.0.0.1:${named.port}`;
  const descriptors = [{ entries: [{ key: "k", value: '"v"' }], type: "requests" }];
  const policies = { extAuthz: { host }, rateLimit: { global: { host, domain: "d", descriptors } } };
  const text = JSON.stringify({
    gateways: { default: { port: 0 } },
    routes: [{ name: "r", policies: { ...policies, directResponse: { status: 200 } } }],
  });
  const { prepared, close } = openDryConfig([{ file: "<test>", text }], { environment: {}, clock: systemClock });
  t.after(close);
  assert.ok(prepared.ok);
  // A client that is really opened, after it, connects ahead of its first request.
  const client = openRlsClient(
    `127.0.0.1:${other.port}`,
    systemClock,
    createTasks(systemClock),
    EgressGuard.for("configuration"),
  );
  t.after(() => client.close());
  await eventually("the other client has connected", () => other.connections() === 1);
  const socket = connect(named.port, "127.0.0.1");
  await once(socket, "data");
  socket.destroy();
  assert.equal(named.connections(), 1);
});

test("a rehearsal of more requests than fit into one slice of its process ends too", async (t) => {
  const { gateway, host } = await seen(t);
  const headers = { authorization: tokenOf("bob", ["user"]) };
  const recorded = async (): Promise<number> =>
    (await (await fetch(`${gateway.adminUrl}/debug/recording`)).text()).split("\n").length;
  // The gateway records a sample of the requests that a fast machine sends at once.
  while ((await recorded()) <= 300)
    await Promise.all(
      Array.from({ length: 40 }, async () => (await fetch(`${gateway.url()}/people/1`, { headers })).arrayBuffer()),
    );
  const { requests, unchanged } = await ask(gateway, configOf(host));
  assert.ok(requests >= 300, `${requests}`);
  assert.equal(unchanged, requests);
});

test("what else changes: audience, keys, admitted, limits, routes, headers", async (t) => {
  const { gateway, host } = await seen(t);
  const audience = await ask(gateway, configOf(host, { audiences: ["other"] }));
  // Eve was refused before, for another reason.
  assert.deepEqual(audience.denied.map(({ subject, requests }) => [subject, requests]).sort(), [
    ["alice", 1],
    ["bob", 3],
  ]);
  assert.equal(audience.denied[0]?.reasons[0]?.code, "invalid_token");

  const keys = await ask(gateway, configOf(host, { keys: [ALICE] }));
  assert.deepEqual(
    keys.denied.map(({ subject, reasons }) => [subject, reasons[0]?.reason]),
    [["bob-key", "the API key is not one of the configured keys"]],
  );

  const open = await ask(gateway, configOf(host, { rules: ["true"] }));
  assert.deepEqual(
    open.admitted.map(({ subject }) => subject),
    ["eve"],
  );
  assert.equal(rehearsalCode(open, false), 1);

  const limited = await ask(gateway, configOf(host, { limit: { requests: 1, unit: "Hours", key: "jwt.sub" } }));
  assert.deepEqual(limited.limits, [
    { route: "people", limit: "1 request per hour", refused: 2, subjects: [{ subject: "bob", requests: 2 }] },
  ]);
  assert.deepEqual([limited.denied.length, rehearsalCode(limited, false)], [0, 1]);

  const moved = await ask(gateway, configOf(host, { prefix: "/persons" }));
  assert.deepEqual(
    moved.routes.map(({ from, to, requests }) => [from, to, requests]),
    [["people", null, 6]],
  );

  const header = await ask(gateway, configOf(host, { header: "x-new" }));
  assert.deepEqual(header.headers, [{ side: "request", name: "x-new", change: "added", route: "people", requests: 4 }]);
  assert.deepEqual([rehearsalCode(header, false), rehearsalCode(header, true)], [0, 1]);
});

test("requests are judged as they came, whatever the policies made of their headers", async (t) => {
  const backend = await backendFor(t, (_, response) => response.end("ok"));
  const configured = (modifier: object): string =>
    JSON.stringify({
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          name: "all",
          backends: [{ host: backend.host }],
          policies: {
            authorization: { rules: ['request.headers["x-tenant"] == "one"'] },
            requestHeaderModifier: modifier,
          },
        },
      ],
    });
  const gateway = await gatewayFor(t, configured({ remove: ["x-tenant"], set: { "x-inner": "value-of-the-gateway" } }));
  assert.equal((await fetch(gateway.url(), { headers: { "x-tenant": "one" } })).status, 200);
  const recording = await (await fetch(`${gateway.adminUrl}/debug/recording`)).text();
  assert.match(recording, /"x-tenant","one"/);
  assert.doesNotMatch(recording, /x-inner|value-of-the-gateway/);
  const { denied, headers } = await ask(gateway, configured({ remove: ["x-tenant"] }));
  assert.deepEqual([denied, headers.map(({ name, change }) => `${name} ${change}`)], [[], ["x-inner removed"]]);
});

test("an invalid configuration is rejected with its problems", async (t) => {
  const { gateway } = await seen(t);
  for (const [body, status, said] of [
    ["routes: [{ nam: x }]", 422, /nam/],
    ["", 400, /send the text/],
  ] as const) {
    const answer = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body });
    assert.equal(answer.status, status);
    assert.match(await answer.text(), said);
  }
});

test("a recording is rehearsed without a gateway, against a configuration or what was recorded", async (t) => {
  const { gateway, host } = await seen(t);
  const folder = mkdtempSync(join(tmpdir(), "rehearsal-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "traffic.jsonl");
  writeFileSync(file, await (await fetch(`${gateway.adminUrl}/debug/recording`)).text());
  const text = readFileSync(file, "utf8");
  assert.doesNotMatch(text, /Bearer|key-of-|eyJ/);
  const requests = parseRecording(text);
  const sources = (parts: Parts) => [{ file: "c.yaml", text: configOf(host, parts) }];
  const typo = { rules: ['"admin" in jwt.roles'] };
  for (const before of [sources({}), undefined]) {
    const found = await rehearse({ before, after: sources(typo), environment: {} }, requests, systemClock);
    assert.ok(found.ok, JSON.stringify(found));
    assert.deepEqual(
      found.report.denied.map(({ subject, requests: of }) => [subject, of]),
      [["bob", 3]],
      JSON.stringify(found.report),
    );
  }
  const [line = ""] = text.split("\n");
  const edited = JSON.stringify({ ...JSON.parse(line), subject: "\u001b[2Jbob\nnewly denied: nobody" });
  const judged = await rehearse(
    { before: undefined, after: sources({ rules: ["false"] }), environment: {} },
    parseRecording(edited),
    systemClock,
  );
  assert.ok(judged.ok);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is the point.
  assert.doesNotMatch(rehearsalText(judged.report), /\u001b|\nnewly denied: nobody/);
  const nothing = await rehearse(
    { before: undefined, after: sources({}), environment: {} },
    parseRecording(""),
    systemClock,
  );
  assert.ok(nothing.ok);
  assert.equal(rehearsalCode(nothing.report, false), 2);
  assert.throws(() => parseRecording(line.replace(/"at":\d+/, '"at":1e300')), /line 1: at: /);
  assert.throws(() => parseRecording('{"id": 1}\n'), /line 1: /);
  assert.throws(() => parseRecording("{}\nno\n"), /line 1: /);
});

test("a rehearsal does not tell what variables of the environment hold", async (t) => {
  const environment = { NAMED: "Secret-that-is-named", UNNAMED: "Secret-that-is-not" };
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, namedConfig(backend.host, "r", '"${NAMED}" != ""'), { environment });
  await (await fetch(`${gateway.url()}/x`)).arrayBuffer();
  const padding = " || false".repeat(41);
  for (const [name, rule] of [
    ["r-${NAMED}", 'request.path == "${NAMED}"'],
    ["r-${UNNAMED}", 'request.path == "${UNNAMED}"'],
    ["r", `false${padding} || request.path == "\${NAMED}"`],
  ] as const) {
    const text = namedConfig(backend.host, name, rule);
    const answer = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body: text });
    const said = await answer.text();
    assert.equal(answer.status, 200, said);
    assert.match(said, /"code": "authorization_denied"/);
    assert.doesNotMatch(said, /secret/i);
    assert.equal(said.includes("stand for their values: UNNAMED"), name === "r-${UNNAMED}", said);
  }
  const wrong = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body: "gateways: ${NAMED}" });
  assert.deepEqual([wrong.status, /secret/i.test(await wrong.text())], [422, false]);
});

function namedConfig(host: string, name: string, rule: string): string {
  return `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: "${name}"
    backends: [{ host: "${host}" }]
    policies: { authorization: { rules: ['${rule}'] }, requestHeaderModifier: { set: { "x-\${NAMED}": "1" } } }
`;
}

test("a configuration that is too large is refused with 413, and the gateway goes on", async (t) => {
  const { gateway, host } = await seen(t);
  const body = Buffer.alloc(17 * 1024 * 1024, "#");
  const answer = await fetch(`${gateway.adminUrl}/debug/rehearse`, { method: "POST", body });
  assert.deepEqual([answer.status, await answer.text()], [413, "the body is larger than 16777216 bytes\n"]);
  // Larger than what other endpoints take.
  const large = `${configOf(host)}\n${`#${"x".repeat(99)}\n`.repeat(20_000)}`;
  assert.equal((await ask(gateway, large)).unchanged, 8);
});
