/**
 * Clients that leave in the middle of a request: that is the client's doing, whoever reads the body at that moment, and
 * never counts as a defect of the gateway.
 */
import assert from "node:assert/strict";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { connect as connectSocket } from "node:net";
import type { TestContext } from "node:test";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { requestsUnderWay, roundTrip } from "../support/under-way.ts";

/** Each reads the body in another way: streamed, whole, peeked at, by a policy or by a backend. */
const PATHS = ["/host", "/small", "/mcp", "/ai/v1/chat/completions", "/a2a", "/rule", "/set", "/mirror"];
const PARTS = ["", '{"jsonrpc":"2.0",'];
const LENGTHS = [40, 100_000, undefined];

async function gatewayWithReaders(t: TestContext): Promise<TestGateway> {
  const backend = await backendFor(t);
  const route = (path: string, fields: object): object => ({
    name: path,
    matches: [{ path: { pathPrefix: `/${path}` } }],
    backends: [{ host: backend.host }],
    ...fields,
  });
  return gatewayFor(
    t,
    JSON.stringify({
      config: { logging: { level: "error" } },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        route("host", {}),
        route("small", { policies: { retry: { attempts: 1 } } }),
        route("mcp", { backends: [{ mcp: { targets: [oddTarget()] } }] }),
        route("ai", { backends: [{ ai: { name: "demo", provider: { demo: {} } } }] }),
        route("a2a", { backends: [{ a2a: { url: `http://${backend.host}/` } }] }),
        route("rule", { policies: { authorization: { rules: ['request.body != "no"'] } } }),
        route("set", { policies: { transformations: { request: { set: { "x-size": "size(request.body)" } } } } }),
        route("mirror", { policies: { requestMirror: [{ host: backend.host }] } }),
      ],
    }),
  );
}

async function assertNoDefect(gateway: TestGateway, what: string): Promise<void> {
  await eventually("the gateway has noticed that the client left", async () => (await requestsUnderWay(gateway)) === 0);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  const counted = metrics.split("\n").filter((line) => line.startsWith("gateway_unexpected_errors_total"));
  assert.ok(counted.length > 0);
  for (const line of counted) assert.match(line, / 0$/, what);
}

for (const [name, leave] of [
  ["closes its connection", "close"],
  ["resets its connection", "reset"],
  ["ends its half of the connection", "end"],
] as const) {
  test(`an HTTP/1.1 client that ${name} in the middle of a body is no defect`, async (t) => {
    const gateway = await gatewayWithReaders(t);
    for (const path of PATHS) {
      const clients = PARTS.flatMap((part) =>
        LENGTHS.map((length) => {
          const client = openRawClient(gateway.port());
          const framing = length === undefined ? "Transfer-Encoding: chunked" : `Content-Length: ${length}`;
          const accept = "Accept: application/json, text/event-stream";
          const head = `POST ${path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${accept}\r\n${framing}\r\n\r\n`;
          const chunk = part === "" ? "" : `${part.length.toString(16)}\r\n${part}\r\n`;
          client.write(head + (length === undefined ? chunk : part));
          return client;
        }),
      );
      await roundTrip(gateway);
      for (const client of clients) {
        if (leave === "close") client.close();
        else if (leave === "reset") client.reset();
        else client.socket.end();
      }
      await assertNoDefect(gateway, path);
      for (const client of clients) client.close();
    }
  });
}

for (const [name, leave] of [
  ["resets its stream", "stream"],
  ["closes its connection", "session"],
  ["drops its connection", "socket"],
] as const) {
  test(`an HTTP/2 client that ${name} in the middle of a body is no defect`, async (t) => {
    const gateway = await gatewayWithReaders(t);
    for (const path of PATHS) {
      const sessions: ClientHttp2Session[] = [];
      for (const part of PARTS)
        for (const length of LENGTHS) {
          const socket = connectSocket(gateway.port(), "127.0.0.1");
          const session = connect(`http://127.0.0.1:${gateway.port()}`, { createConnection: () => socket });
          session.on("error", () => undefined);
          const stream = session.request({
            ":method": "POST",
            ":path": path,
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            ...(length === undefined ? {} : { "content-length": length }),
          });
          stream.on("error", () => undefined);
          if (part !== "") stream.write(part);
          await new Promise<void>((resolve) => void session.ping(() => resolve()));
          sessions.push(session);
          if (leave === "stream") stream.close(constants.NGHTTP2_CANCEL);
          else if (leave === "session") session.destroy();
          else socket.resetAndDestroy();
        }
      await assertNoDefect(gateway, path);
      for (const session of sessions) session.destroy();
    }
  });
}
