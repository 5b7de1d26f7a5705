/**
 * A proxy on the gateway's machine connects over loopback for clients elsewhere: the UI without a policy serves clients on
 * the machine itself only, and the host guard of MCP servers judges forwarded requests too.
 */
import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { test } from "node:test";
import { formatProxyHeader } from "../../src/http/proxy-protocol.ts";
import { gatewayFor } from "../support/scenario.ts";

const LOCAL_V2 = Buffer.from("0d0a0d0a000d0a515549540a20000000", "hex");
const from = (address: string) =>
  formatProxyHeader({ source: { address, port: 4711 }, destination: { address: "127.0.0.1", port: 80 } });

const PROXY_HEADERS: readonly [name: string, bytes: Buffer][] = [
  ["version 1 of another machine", Buffer.from("PROXY TCP4 203.0.113.9 127.0.0.1 4711 80\r\n")],
  ["version 1 of a loopback address", Buffer.from("PROXY TCP4 127.0.0.1 127.0.0.1 4711 80\r\n")],
  ["version 1 of an IPv6 loopback address", Buffer.from("PROXY TCP6 ::1 ::1 4711 80\r\n")],
  ["version 1 without addresses", Buffer.from("PROXY UNKNOWN\r\n")],
  ["version 2 of another machine", from("203.0.113.9")],
  ["version 2 of a loopback address", from("127.0.0.1")],
  ["version 2 of an unknown client", formatProxyHeader(undefined)],
  ["version 2 of the proxy itself", LOCAL_V2],
];
const FORWARDING_LINES = [
  "X-Forwarded-For: 203.0.113.9",
  "X-Forwarded-For: 127.0.0.1",
  "X-Forwarded-For: ::1",
  "X-Forwarded-For: ",
  "X-Forwarded-For: unknown",
  "X-Forwarded-Host: shop.example.com",
  "X-Forwarded-Proto: http",
  "X-Forwarded-Port: 80",
  "X-Forwarded-Server: proxy",
  "X-Real-IP: 203.0.113.9",
  "X-Real-IP: 127.0.0.1",
  "Forwarded: for=203.0.113.9",
  "Forwarded: for=127.0.0.1",
  "Via: 1.1 proxy",
  "Connection: x-forwarded-for\r\nX-Forwarded-For: 203.0.113.9",
];
const HOSTS = ["localhost", "127.0.0.1", "[::1]:3000"];
const TRUSTED = ["[198.51.100.1]", "[127.0.0.1]", "[127.0.0.1, 203.0.113.9]"];

async function statusOf(
  port: number,
  preface: Buffer | undefined,
  host: string,
  lines: readonly string[],
  path: string,
) {
  const socket = connect(port, "127.0.0.1");
  if (preface) socket.write(preface);
  socket.write([`GET ${path} HTTP/1.1`, `Host: ${host}`, "Connection: close", ...lines, "", ""].join("\r\n"));
  let text = "";
  for await (const chunk of socket) text += String(chunk);
  return Number(text.split(" ")[1]);
}

async function statusOverHttp2(port: number, headers: Record<string, string>): Promise<number> {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  try {
    return await new Promise<number>((resolve, reject) => {
      const stream = session.request({ ":path": "/ui/api/about", ":authority": "localhost", ...headers });
      stream.on("response", (head) => resolve(Number(head[":status"])));
      stream.on("error", reject);
      session.on("error", reject);
    });
  } finally {
    session.destroy();
  }
}

for (const trusted of TRUSTED)
  test(`the UI serves no forwarded request, with the trusted proxies ${trusted}`, async (t) => {
    const gateway = await gatewayFor(
      t,
      `config: { trustedProxies: ${trusted} }
gateways: { plain: { port: 0, address: 127.0.0.1 }, proxied: { port: 0, address: 127.0.0.1, proxyProtocol: {} } }
ui: { gateways: [plain, proxied] }
`,
    );
    const path = "/ui/api/about";
    const plain = gateway.port("plain");
    for (const host of HOSTS) {
      assert.equal(await statusOf(plain, undefined, host, [], path), 200, host);
      for (const line of FORWARDING_LINES)
        assert.equal(await statusOf(plain, undefined, host, [line], path), 403, line);
    }
    assert.equal(await statusOverHttp2(plain, {}), 200);
    for (const line of FORWARDING_LINES) {
      const [name = "", value = ""] = line.split(": ");
      if (name !== "Connection") assert.equal(await statusOverHttp2(plain, { [name.toLowerCase()]: value }), 403, line);
    }
    // Only trusted peers may send PROXY headers, and their connections must begin with one.
    if (!trusted.includes("127.0.0.1")) return;
    for (const [name, preface] of PROXY_HEADERS)
      for (const host of HOSTS)
        assert.equal(await statusOf(gateway.port("proxied"), preface, host, [], path), 403, `${name} ${host}`);
  });

test("forwarding headers do not switch off the host guard of MCP servers", async (t) => {
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - { backends: [{ mcp: { targets: [{ name: demo, mcp: { url: "http://127.0.0.1:1/mcp" } }] } }] }
`,
  );
  for (const lines of [[], ...FORWARDING_LINES.map((line) => [line])])
    assert.equal(await statusOf(gateway.port(), undefined, "evil.example", lines, "/mcp"), 403, lines.join());
});
