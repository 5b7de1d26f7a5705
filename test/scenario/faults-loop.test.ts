/**
 * Hostile and very large inputs through a running gateway (rows R34 and R43 of the threat table): however they are
 * answered, the loop keeps turning for everybody else.
 */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { watchTurns } from "../support/loop-turns.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { gatewayFor } from "../support/scenario.ts";

const MAX_TURN_MS = 100;
const MIB = 1024 * 1024;

/** What a guard finds everywhere costs it most. */
const addresses = "me@example.org or ab12 ".repeat(16_000);
const guardedAnswer = JSON.stringify({ choices: [{ message: { role: "assistant", content: addresses } }] });
const masksAddresses = '{ regex: { action: mask, rules: [{ builtin: email }, { pattern: "[a-z]+[0-9]+x" }] } }';

let backend: Server;
let gateway: TestGateway;
before(async () => {
  backend = createServer((req, res) => {
    const answer = req.url?.startsWith("/v1/chat") && req.headers["x-guarded"] ? guardedAnswer : "{}";
    req.resume().once("end", () => res.writeHead(200, { "content-type": "application/json" }).end(answer));
  });
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${(backend.address() as AddressInfo).port}`;
  const ai = (provider: string) =>
    `backends: [{ ai: { provider: { ${provider}: {} }, auth: { key: k }, hostOverride: "${host}" } }]`;
  const rateLimit = "rateLimit: { local: [{ tokens: 1000000000, unit: Hours }] }";
  gateway = await startGateway(`
config: { logging: { level: "error" } }
gateways: { default: { port: 0 } }
routes:
  - { name: native, matches: [{ path: { pathPrefix: /native } }], ${ai("openAI")}, policies: { ${rateLimit} } }
  - { name: translated, matches: [{ path: { pathPrefix: /translated } }], ${ai("anthropic")}, policies: { ${rateLimit} } }
  - { name: guarded, matches: [{ path: { pathPrefix: /guarded } }], ${ai("openAI")},
      policies: { ai: { promptGuard: { request: [${masksAddresses}], response: [${masksAddresses}] } } } }
  - { name: plain, matches: [{ path: { pathPrefix: /plain } }], backends: [{ host: "${host}" }], policies: { ${rateLimit} } }
  - { name: cel, matches: [{ path: { pathPrefix: /cel } }], backends: [{ host: "${host}" }],
      policies: { authorization: { rules: ['!request.body.matches("(a+)+$") && !request.path.matches("^(a|a)*$")'] } } }
  - { name: tools, matches: [{ path: { exact: /mcp } }], backends: [{ mcp: { targets: [${JSON.stringify(oddTarget())}] } }] }
  - { name: regex, matches: [{ path: { regex: "/regex/(a+)+" } }], backends: [{ host: "${host}" }] }
`);
});
after(async () => {
  await gateway?.close();
  backend.close();
  backend.closeAllConnections();
});

const chat = (member: string) => `{"model":"m","messages":[{"role":"user","content":"hi"}],${member}}`;
const keys = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}":${i}`).join(",");
const objects = (count: number) => Array.from({ length: count }, (_, i) => `{"k${i}":1}`).join(",");
/** Fact 3 of the threat table, in sizes up to what each route buffers and beyond. */
const bodies: [name: string, text: string][] = [
  ["1 MiB of one string", chat(`"x":"${"x".repeat(MIB)}"`)],
  ["2 MB of small numbers", chat(`"x":[${"1,".repeat(MIB - 1000)}1]`)],
  ["10 MB of small numbers", chat(`"x":[${"1,".repeat(5 * MIB)}1]`)],
  ["31 MB of small objects", chat(`"x":[${"{},".repeat(10 * MIB)}{}]`)],
  ["2 MB of empty objects", chat(`"x":[${"{},".repeat(600_000)}{}]`)],
  ["14,000 objects, each with a name of its own", chat(`"x":[${objects(14_000)}]`)],
  ["19,000 keys", chat(keys(19_000))],
  ["150,000 keys", chat(keys(150_000))],
  ["nesting of a million", chat(`"x":${"[".repeat(1_000_000)}${"]".repeat(1_000_000)}`)],
  ["nesting of objects without an end", `{"a":`.repeat(400_000)],
  ["escapes only", chat(`"x":"${"\\u0061".repeat(300_000)}"`)],
  ["a long run for a regular expression", `${"a".repeat(MIB)}!`],
];
const paths = ["/native/v1/chat/completions", "/translated/v1/chat/completions", "/plain", "/cel", "/mcp"];
for (const [name, text] of bodies) {
  test(`${name}: no route holds the loop for ${MAX_TURN_MS} ms [R34]`, { timeout: 600_000 }, async () => {
    const body = Buffer.from(text);
    for (const path of paths) {
      let status = 0;
      const longestMs = await longestTurnMs(async () => {
        status = await send("POST", path, body);
      });
      assert.ok(longestMs < MAX_TURN_MS, `${path}: ${longestMs} ms`);
      assert.ok(status !== 500, `${path}: ${status}`);
    }
  });
}

test(`texts full of what guards look for do not hold the loop for ${MAX_TURN_MS} ms [R34]`, {
  timeout: 600_000,
}, async () => {
  const body = Buffer.from(`{"model":"m","messages":[{"role":"user","content":"${addresses}"}]}`);
  let status = 0;
  const longestMs = await longestTurnMs(async () => {
    status = await send("POST", "/guarded/v1/chat/completions", body, { "x-guarded": "1" });
  });
  assert.ok(longestMs < MAX_TURN_MS, `${longestMs} ms`);
  assert.equal(status, 200);
});

test("heads that want to be expensive are not [R34] [V10]", async () => {
  const long = "a".repeat(7_000);
  const cookies = { cookie: "a=b;".repeat(3_000) };
  const lists = Object.fromEntries(Array.from({ length: 90 }, (_, i) => [`x-${i}`, "a, ".repeat(40)]));
  const longestMs = await longestTurnMs(async () => {
    for (const path of [`/regex/${long}!`, `/cel/${long}!`, `/${"/".repeat(7_000)}`, `/${"%61".repeat(2_500)}`])
      await send("GET", path);
    for (const headers of [cookies, lists]) await send("GET", "/cel", undefined, headers);
  });
  assert.ok(longestMs < MAX_TURN_MS, `${longestMs} ms`);
});

test(`the configuration dump of 5,000 routes does not hold the loop for ${MAX_TURN_MS} ms [R43]`, {
  timeout: 600_000,
}, async (t) => {
  const routes = Array.from({ length: 5_000 }, (_, i) => ({
    name: `route-${i}`,
    hostnames: [`h${i}.example`],
    matches: [{ path: { pathPrefix: `/p${i}` } }],
    backends: [{ host: "127.0.0.1:1" }],
    policies: { requestHeaderModifier: { set: { "x-route": `r${i}` } } },
  }));
  const large = await gatewayFor(
    t,
    `config: { logging: { level: "error" } }\ngateways: { default: { port: 0 } }\nroutes:\n${routes.map((route) => `  - ${JSON.stringify(route)}\n`).join("")}`,
  );
  let text = "";
  const longestMs = await longestTurnMs(async () => {
    text = await (await fetch(`${large.adminUrl}/config_dump`)).text();
  });
  const dump = JSON.parse(text) as { routes: { name: string }[]; backends: unknown[]; policies: unknown[] };
  assert.deepEqual([dump.routes.length, dump.backends.length, dump.policies.length], [5_000, 5_000, 5_000]);
  assert.equal(dump.routes[4_999]?.name, "route-4999");
  assert.ok(longestMs < MAX_TURN_MS, `${longestMs} ms`);
});

/** The best of some: what really blocks does so each time, the compiler, the collector and other programs do not. */
async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  const rounds: number[] = [];
  for (let round = 0; round < 30 && !(Math.min(...rounds) < MAX_TURN_MS); round++) {
    const turns = watchTurns();
    await work();
    rounds.push(turns.longestMs());
    turns.stop();
  }
  return Math.min(...rounds);
}

/** In pieces, so that the test itself does not block; resolves with the status, 0 if the gateway broke off. */
function send(method: string, path: string, body?: Buffer, headers: Record<string, string> = {}): Promise<number> {
  return new Promise((resolve) => {
    const outgoing = request(
      {
        port: gateway.port(),
        host: "127.0.0.1",
        method,
        path,
        agent: false,
        headers: {
          "content-type": "application/json",
          accept: "application/json, text/event-stream",
          ...(body ? { "content-length": body.length } : {}),
          ...headers,
        },
      },
      (res: IncomingMessage) => {
        res.resume().once("close", () => resolve(res.statusCode ?? 0));
      },
    );
    outgoing.once("error", () => resolve(0));
    let sent = 0;
    const more = (): void => {
      if (outgoing.destroyed) return;
      if (body === undefined || sent >= body.length) {
        outgoing.end();
        return;
      }
      const piece = body.subarray(sent, sent + 65_536);
      sent += piece.length;
      if (outgoing.write(piece)) setImmediate(more);
      else outgoing.once("drain", more);
    };
    more();
  });
}
