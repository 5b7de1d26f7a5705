/**
 * `endpointPicker`: a picker over gRPC selects the server of a `service` backend. A selection outside of the backend is
 * rejected, and without the picker requests fail unless `failureMode` is `open`.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { type TestContext, test } from "node:test";
import { ServerCredentials } from "@grpc/grpc-js";
import { type ProcessorAnswer, pass, type ReceivedMessage, startProcessor } from "../support/ext-proc/service.ts";
import { startGateway } from "../support/gateway.ts";
import { backendFor, eventually, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

const PICKED = "x-gateway-destination-endpoint";

const setHeader = (key: string, value: string) => ({ header: { key, rawValue: Buffer.from(value) } });
const inMetadata = (endpoint: string) => ({
  fields: { "envoy.lb": { structValue: { fields: { [PICKED]: { stringValue: endpoint } } } } },
});
const picking = (endpoint: string, more: object = {}): Record<string, unknown> => ({
  requestHeaders: { response: { headerMutation: { setHeaders: [setHeader(PICKED, endpoint)] } } },
  dynamicMetadata: inMetadata(endpoint),
  ...more,
});

/** Selects the endpoint of the header `x-pick`, like the picker of the Inference Extension: after the whole body. */
function selecting(): (message: ReceivedMessage) => ProcessorAnswer {
  let wanted = "";
  return (message) => {
    if (message.kind === "requestHeaders") {
      wanted = message.headers["x-pick"] ?? "";
      return message.endOfStream ? picking(wanted) : "never";
    }
    if (message.kind === "requestBody" && message.endOfStream) return [picking(wanted), pass(message)];
    return pass(message);
  };
}

interface Received {
  readonly server: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Two servers of the backend, and a third that is not one of them. */
async function servers(t: TestContext) {
  const received: Received[] = [];
  const start = async (server: string): Promise<string> => {
    const { host } = await backendFor(t, async (request, response) => {
      let body = "";
      for await (const part of request) body += String(part);
      received.push({ server, headers: request.headers, body });
      response.end(`from ${server}`);
    });
    return host;
  };
  return { received, one: await start("one"), two: await start("two"), other: await start("other") };
}

interface StartOptions {
  readonly fields?: string;
  readonly policies?: string;
  readonly first?: string;
  readonly credentials?: ServerCredentials;
}

async function started(
  t: TestContext,
  answer: (message: ReceivedMessage) => ProcessorAnswer = selecting(),
  { fields = "", policies = "", first, credentials }: StartOptions = {},
) {
  const hosts = await servers(t);
  const picker = await startProcessor(answer, credentials);
  t.after(() => picker.close());
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { ${policies} }
    backends:
      - service: { name: models, endpoints: ["${first ?? hosts.one}", "${hosts.two}"] }
        policies: { endpointPicker: { host: "${picker.host}"${fields} } }
`,
  );
  const send = (pick: string, init: RequestInit = {}) =>
    fetch(gateway.url(), { ...init, headers: { "x-pick": pick, ...init.headers } });
  return { ...hosts, picker, gateway, send };
}

test("the picker selects the server, with and without a body, and gets the response", async (t) => {
  const { send, picker, one, two, received } = await started(t);
  for (const [pick, server] of [
    [one, "one"],
    [two, "two"],
    [`${two},${one}`, "two"],
    [`10.9.8.7:1, ${one}`, "one"],
  ] as const)
    for (const init of [{}, { method: "POST", body: "x".repeat(200_000) }]) {
      const response = await send(pick, init);
      assert.deepEqual([response.status, await response.text()], [200, `from ${server}`]);
      assert.equal(received.at(-1)?.body.length, init.body?.length ?? 0);
      assert.equal(received.at(-1)?.headers[PICKED], undefined);
      const served = picker.received.findLast(({ kind }) => kind === "responseHeaders")?.served;
      assert.equal(served, server === "one" ? one : two);
    }
  assert.deepEqual(picker.received[0]?.modes, { requestBodyMode: 4, responseBodyMode: 4 });
  await eventually("the streams are closed", () => picker.open() === 0);
});

test("the header alone or the metadata alone selects the server", async (t) => {
  const { one, two } = await servers(t);
  const answers = [picking(two, { dynamicMetadata: undefined }), { ...picking("-"), requestHeaders: { response: {} } }];
  for (const [i, answer] of answers.entries()) {
    const text = i === 0 ? answer : { ...answer, dynamicMetadata: inMetadata(two) };
    const picker = await startProcessor((message) => (message.kind === "requestHeaders" ? text : pass(message)));
    t.after(() => picker.close());
    const gateway = await gatewayFor(
      t,
      `gateways: { default: { port: 0 } }
routes: [{ backends: [{ service: { name: a, endpoints: ["${one}", "${two}"] }, policies: { endpointPicker: { host: "${picker.host}" } } }] }]
`,
    );
    assert.equal(await (await fetch(gateway.url())).text(), "from two");
  }
});

for (const mode of ["closed", "open"])
  test(`a selection outside of the backend is rejected (failureMode: ${mode})`, async (t) => {
    const { send, other, received } = await started(t, selecting(), { fields: `, failureMode: ${mode}` });
    for (const pick of [other, "169.254.169.254:80", "localhost:1", "not an address", `${other},127.0.0.1:1`]) {
      const response = await send(pick, { method: "POST", body: "hello" });
      assert.deepEqual([response.status, response.headers.get("x-gateway-error")], [503, "not_ready"]);
      assert.match(await response.text(), /selected no endpoint of the backend/);
    }
    assert.deepEqual(received, []);
  });

const failures: [name: string, answer: (message: ReceivedMessage) => ProcessorAnswer, fields?: string][] = [
  ["fails", () => "error"],
  ["ends the stream", () => "close"],
  ["does not respond", () => "never", ", timeout: 1ms"],
  ["selects nothing", ({ kind }) => ({ [kind]: { response: {} } })],
  ["sends an empty list", () => picking(" , ")],
];

for (const [name, answer, fields = ""] of failures)
  test(`a picker that ${name} closes the backend, or is skipped with failureMode: open`, async (t) => {
    const strict = await started(t, answer, { fields });
    const rejected = await strict.send("");
    assert.deepEqual([rejected.status, rejected.headers.get("x-gateway-error")], [503, "not_ready"]);
    assert.match(await rejected.text(), /the endpoint picker is not available/);
    assert.deepEqual(strict.received, []);
    const open = await started(t, answer, { fields: `${fields}, failureMode: open` });
    const served = await open.send("", { headers: { [PICKED]: open.other } });
    assert.match(await served.text(), /^from (?:one|two)$/);
    assert.equal(open.received[0]?.headers[PICKED], undefined);
    assert.match(await open.gateway.logged("the endpoint picker failed"), /failureMode=open/);
  });

test("a picker that cannot be reached closes the backend", async (t) => {
  const { send, picker, received } = await started(t);
  await picker.close();
  assert.equal((await send("")).status, 503);
  assert.deepEqual(received, []);
});

test("the picker rejects a request, and changes headers and the body", async (t) => {
  const rejecting = await started(t, () => ({
    immediateResponse: { status: { code: 429 }, body: Buffer.from("busy") },
  }));
  const rejected = await rejecting.send("", { method: "POST", body: "hello" });
  assert.deepEqual([rejected.status, await rejected.text()], [429, "busy"]);
  assert.deepEqual(rejecting.received, []);

  let endpoint = "";
  const { send, one, received } = await started(t, (message) => {
    if (message.kind === "requestHeaders") return "never";
    if (message.kind === "requestBody") {
      const body = { body: Buffer.from("changed"), endOfStream: true };
      return [
        {
          requestHeaders: {
            response: { headerMutation: { setHeaders: [setHeader("x-model", "m"), setHeader(PICKED, endpoint)] } },
          },
        },
        { requestBody: { response: { bodyMutation: { streamedResponse: body } } } },
      ];
    }
    if (message.kind === "responseHeaders")
      return {
        responseHeaders: {
          response: {
            headerMutation: {
              setHeaders: [setHeader("x-picker", "p"), setHeader("x-picker", "q"), setHeader("x-picker", "p")],
            },
          },
        },
      };
    return pass(message);
  });
  endpoint = one;
  const response = await send("", { method: "POST", body: "hello" });
  assert.deepEqual([response.status, response.headers.get("x-picker")], [200, "p, q"]);
  assert.deepEqual([received[0]?.body, received[0]?.headers["x-model"]], ["changed", "m"]);
  assert.equal(received[0]?.headers["content-length"], "7");
});

for (const kind of ["responseHeaders", "responseBody"])
  test(`a failure at ${kind} does not affect the response`, async (t) => {
    const select = selecting();
    const { send, one } = await started(t, (message) => (message.kind === kind ? "error" : select(message)));
    const response = await send(one);
    assert.deepEqual([response.status, await response.text()], [200, "from one"]);
  });

test("a response that the picker holds is sent when too much of it waits", async (t) => {
  const select = selecting();
  const { send, one } = await started(t, (message) => (message.kind === "responseBody" ? "never" : select(message)), {
    fields: ", maxBodyBytes: 4",
  });
  assert.equal(await (await send(one)).text(), "from one");
});

test("a retry goes on to the next endpoint of the list", async (t) => {
  const refusing = "127.0.0.1:1";
  const { send, two, picker } = await started(t, selecting(), { first: refusing, policies: "retry: { attempts: 1 }" });
  const response = await send(`${refusing},${two}`, { method: "POST", body: "hello" });
  assert.deepEqual([response.status, await response.text()], [200, "from two"]);
  assert.equal(picker.received.filter(({ kind }) => kind === "requestHeaders").length, 1);
  assert.equal(picker.received.find(({ kind }) => kind === "responseHeaders")?.served, two);
});

test("a request body above the limit is rejected", async (t) => {
  const { send, one, received, picker } = await started(t, selecting(), { fields: ", maxBodyBytes: 4" });
  assert.equal((await send(one, { method: "POST", body: "hello" })).status, 413);
  assert.deepEqual([received, picker.received], [[], []]);
});

test("a picker with TLS needs a trusted certificate, unless any is accepted", async (t) => {
  const { key, cert } = certificates.server;
  const pair = [{ private_key: Buffer.from(key), cert_chain: Buffer.from(cert) }];
  const credentials = ServerCredentials.createSsl(null, pair);
  const any = await started(t, selecting(), { credentials, fields: ", tls: { insecure: true, hostname: a.test }" });
  assert.equal(await (await any.send(any.one)).text(), "from one");
  const strict = await started(t, selecting(), { credentials, fields: ", tls: { hostname: localhost }" });
  assert.equal((await strict.send(strict.one)).status, 503);
  assert.deepEqual(strict.received, []);
});

test("a policy on another kind of backend, or without an address, is rejected", async () => {
  const yaml = (backend: string, picker: string): string => `gateways: { default: { port: 0 } }
routes: [{ backends: [{ ${backend}, policies: { endpointPicker: { ${picker} } } }] }]
`;
  await assert.rejects(
    startGateway(yaml('host: "127.0.0.1:1"', 'host: "127.0.0.1:2"')),
    /`endpointPicker` needs a `service` backend/,
  );
  await assert.rejects(
    startGateway(yaml('service: { name: a, endpoints: ["127.0.0.1:1"] }', "timeout: 1s")),
    /exactly one of `host` and `service` is required/,
  );
});
