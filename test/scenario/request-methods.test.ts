/**
 * A rule for a method holds over every version of HTTP: another spelling of the method is rejected, and never forwarded
 * to a backend that would convert it to uppercase.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, files, session, TLS } from "../support/http2/peers.ts";
import { Random } from "../support/random.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const KNOWN = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "M-SEARCH"];
const ODD = ["delete", "Delete", "dELETE", "DELETEX", "DELETE1", "DELETE-", "trace", "connect", "foo", "FOO", "GET!"];
const SPELLINGS = 100;

function spellings(): string[] {
  const random = new Random(1);
  const cased = (letter: string): string => (random.oneIn(2) ? letter.toLowerCase() : letter);
  const generated = Array.from({ length: SPELLINGS }, () => {
    const method = [...random.pick(KNOWN)].map(cased).join("");
    return random.oneIn(4) ? `${method}${random.pick(["-", "X", "_", "0", "~"])}` : method;
  });
  return [...new Set([...KNOWN, ...ODD, ...generated])];
}

test("HTTP/1.1 and HTTP/2 accept and reject the same methods, with the same response", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `
config: { logging: { level: "warn,access=off" } }
gateways: { plain: { port: 0 }, tls: { port: 0, ${TLS} } }
routes:
  - { gateways: [plain, tls], matches: [{ method: DELETE }], policies: { apiKey: { keys: [{ key: secret-1 }] } }, backends: [{ host: "${backend.host}" }] }
  - gateways: [plain, tls]
    policies: { authorization: { rules: [{ deny: 'request.method == "PATCH"' }] } }
    backends: [{ host: "${backend.host}" }]
`,
    { files },
  );
  const h2c = session(t, gateway.port("plain"));
  const h2 = session(t, gateway.port("tls"), "https");
  for (const method of spellings()) {
    const expected = method === "DELETE" ? 401 : method === "PATCH" ? 403 : KNOWN.includes(method) ? 200 : 400;
    const head = requestText(`${method} /r HTTP/1.1`);
    const h1 = await rawRequest(gateway.port("plain"), head);
    assert.equal(h1.status, expected, method);
    for (const client of [h2c, h2]) {
      const answer = await ask(client, { ":method": method, ":path": "/r" });
      assert.equal(answer.status, expected, method);
      if (expected === 400) assert.match(answer.body, /the method is not known/, method);
    }
  }
  assert.deepEqual(
    [...new Set(backend.received.map(({ method }) => method))].sort(),
    KNOWN.filter((method) => method !== "DELETE" && method !== "PATCH").sort(),
  );
});
