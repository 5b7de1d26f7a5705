/**
 * Reports about a configuration or a request quote neither the configuration's secrets nor the request's credentials:
 * the check of an edited text, what-if, and the policy events of a trace.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { rawRequest } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

const KEY = "Provider-Key-XYZ-98765";
const SHORT = "hunter2";

/** Ways to put a placeholder where a message or a report would show its value. */
const EDITS: readonly (readonly [string, (text: string, mark: string) => string])[] = [
  ["an unknown field", (text, mark) => text.replace("routes:", `routes:\n  - { name: leak, "${mark}": 1 }`)],
  ["an unknown field, plain", (text, mark) => text.replace("routes:", `routes:\n  - name: leak\n    ${mark}: 1`)],
  ["a part of a name", (text, mark) => text.replace("routes:", `"x${mark}y": 1\nroutes:`)],
  ["the name of a gateway", (text, mark) => text.replace("gateways:", `gateways:\n  "${mark}": { port: 0 }`)],
  [
    "the name of a header",
    (text, mark) =>
      text.replace("routes:", `routes:\n  - policies: { requestHeaderModifier: { set: { "${mark}": [] } } }`),
  ],
  ["an anchor", (text, mark) => text.replace("routes:", `routes:\n  - &${mark} { name: a }\n  - *${mark}`)],
  ["an alias", (text, mark) => text.replace("routes:", `routes:\n  - *${mark}`)],
  ["a tag", (text, mark) => text.replace("routes:", `routes:\n  - !${mark} { name: a }`)],
  ["a verbatim tag", (text, mark) => text.replace("routes:", `routes:\n  - !<tag:${mark}> { name: a }`)],
  ["a directive", (text, mark) => `%${mark} 1\n---\n${text}`],
  ["a text that does not parse", (text, mark) => `${text}\n  ${mark}: [}\n`],
  ["a repeated name", (text, mark) => text.replace("routes:", `"${mark}": 1\n"${mark}": 2\nroutes:`)],
  ["the name of a route", (text, mark) => text.replace("routes:", `routes:\n  - { name: "${mark}", backends: [] }`)],
  [
    "a value of the wrong type",
    (text, mark) => text.replace("routes:", `routes:\n  - { name: a, matches: "${mark}" }`),
  ],
  [
    "an expression",
    (text, mark) =>
      text.replace("routes:", `routes:\n  - { name: a, policies: { authorization: { rules: ["${mark} =="] } } }`),
  ],
  ["a path", (text, mark) => text.replace("routes:", `routes:\n  - { matches: [{ path: { exact: "${mark}" } }] }`)],
  ["an address", (text, mark) => text.replace("routes:", `routes:\n  - { backends: [{ host: "${mark} x" }] }`)],
  ["a kind", (text, mark) => `${text}\n---\nkind: ${mark}\n`],
];

test("the check of an edited text quotes no secret, wherever its placeholder stands", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - name: a
    policies:
      basicAuth: { htpasswd: "${KEY}" }
      directResponse: { status: 200 }
  - name: b
    matches: [{ path: { pathPrefix: /b } }]
    policies:
      apiKey: { keys: [{ key: "${SHORT}" }] }
      directResponse: { status: 200 }
`
      .replace(`htpasswd: "${KEY}"`, `htpasswd: "user:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc="`)
      .replace(
        "gateways:",
        `llm: { port: 0, models: [{ name: m, provider: openAI, params: { apiKey: "${KEY}" } }] }\ngateways:`,
      ),
  );
  const { files } = (await (await fetch(`${gateway.adminUrl}/ui/api/config-text`)).json()) as {
    files: { file: string; base: string; text: string }[];
  };
  const [file] = files;
  assert.ok(file);
  const marks = [...new Set(file.text.match(/<redacted:\d+>/g))];
  assert.ok(marks.length >= 3, file.text);
  const validate = async (text: string): Promise<string> => {
    const body = JSON.stringify({ file: file.file, base: file.base, text });
    return (await fetch(`${gateway.adminUrl}/ui/api/validate`, { method: "POST", body })).text();
  };
  assert.deepEqual(JSON.parse(await validate(file.text)).problems, []);
  for (const [name, edit] of EDITS)
    for (const mark of marks) {
      const text = edit(file.text, mark);
      assert.notEqual(text, file.text, name);
      const report = await validate(text);
      for (const secret of [KEY, SHORT, "0DPiKuNIrrVmD8IUCuw1hQxNqZc="])
        assert.ok(!report.toLowerCase().includes(secret.toLowerCase()), `${name}: ${report}`);
    }
});

test("what-if hides copies of the request's credentials in everything that it reports", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `config: { sensitiveHeaders: [x-corp-thing] }
gateways: { default: { port: 0 } }
routes:
  - backends: [{ host: "${backend.host}" }]
    policies:
      transformations:
        request: { set: { x-sent: 'request.headers["x-corp-thing"]' } }
        response: { set: { x-echo: 'request.headers["x-corp-thing"]', x-part: '"is " + request.headers["x-corp-thing"]' } }
`,
  );
  const request = { url: "/", headers: { "x-corp-thing": "copied-value-1234" } };
  const response = await fetch(`${gateway.adminUrl}/debug/what-if`, {
    method: "POST",
    body: JSON.stringify({ request }),
  });
  const report = await response.text();
  assert.equal(response.status, 200, report);
  assert.ok(!report.includes("copied-value-1234"), report);
  assert.equal(JSON.parse(report).request.headers["x-sent"], "<redacted>");
});

test("a trace shows the first characters of an MCP session ID, and no event contains the whole", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
`,
  );
  const post = (body: object, session?: string): Promise<Response> =>
    fetch(`${gateway.url()}/mcp`, {
      method: "POST",
      headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        ...(session === undefined ? {} : { "mcp-session-id": session }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...body }),
    });
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "c", version: "1" } };
  const opened = await post({ method: "initialize", params });
  await opened.text();
  const session = opened.headers.get("mcp-session-id") ?? "";
  assert.ok(session.length > 16);
  const events = await traceOf(gateway, async () => (await post({ method: "tools/list" }, session)).text());
  const mcp = messagesOf(events, "policyEvent").find(({ kind }) => kind === "mcp");
  assert.equal((mcp?.details as { sessionId?: string } | undefined)?.sessionId, `${session.slice(0, 8)}…`);
  assert.ok(!JSON.stringify(events).includes(session));
});

test("with `sensitiveHeaders: [host]` no output has the host of a request", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `config:
  sensitiveHeaders: [Host]
  logging: { access: { fields: { where: request.host, whole: request.uri } } }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - hostnames: ["*.hidden.test"]
    policies:
      authorization: { rules: ['request.host != "x"', 'request.uri.size() > 0'] }
      transformations:
        request: { set: { x-tenant: request.host, x-name: 'request.host.split(".")[0]' } }
        response: { add: { x-tenant: request.host, x-shown: 'request.headers["host"].split(".")[0]' } }
    backends: [{ host: "${backend.host}" }]
  - { hostnames: ["*.denied.test"], policies: { authorization: { rules: ['request.host == "x"'] } }, backends: [{ host: "${backend.host}" }] }
`,
  );
  const names = ["tenant-7.hidden.test", "tenant-7.denied.test", "tenant-7.nowhere.test"];
  const seen: string[] = [];
  for (const name of names) {
    const events = await traceOf(gateway, () =>
      rawRequest(gateway.port(), `GET /x?a=1 HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`),
    );
    seen.push(JSON.stringify(events));
    const body = JSON.stringify({ request: { url: `http://${name}/x` } });
    seen.push(await (await fetch(`${gateway.adminUrl}/debug/what-if`, { method: "POST", body })).text());
  }
  const requests = await (await fetch(`${gateway.adminUrl}/debug/requests`)).text();
  const { requests: list } = JSON.parse(requests) as { requests: { id: string; host: string }[] };
  assert.ok(list.length >= names.length, requests);
  assert.deepEqual([...new Set(list.map(({ host }) => host))], ["<redacted>"]);
  for (const { id } of list) seen.push(await (await fetch(`${gateway.adminUrl}/debug/requests/${id}`)).text());
  seen.push(requests, ...gateway.log());
  assert.equal(backend.received.at(0)?.headers.host, names[0]);
  for (const text of seen) assert.doesNotMatch(text, /tenant-7/);
  assert.ok(seen.some((text) => text.includes("<redacted>")));
});
