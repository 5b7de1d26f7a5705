import assert from "node:assert/strict";
import { test } from "node:test";
import { Exchange, NO_BODY } from "../../core/exchange.ts";
import { HeaderList } from "../../http/headers.ts";
import { ANY_HOST, guardOrigin, trustedHosts } from "./http-request.ts";

function exchange(parts: { host: string; origin?: string; peer?: string; originAllowed?: boolean }): Exchange {
  const made = new Exchange({
    id: "x",
    listener: "l",
    source: { address: parts.peer ?? "127.0.0.1", port: 1 },
    startedAt: 0,
    startedMs: 0,
    request: {
      method: "POST",
      scheme: "http",
      namesHttps: false,
      host: parts.host,
      path: "/mcp",
      rawPath: "/mcp",
      query: "",
      version: "1.1",
      headers: HeaderList.of(parts.origin === undefined ? {} : { origin: parts.origin }),
      body: NO_BODY,
    },
  });
  made.originAllowed = parts.originAllowed;
  return made;
}

const trusted = trustedHosts(["mcp.example.com", "*.internal.test"]);

const allowed = [
  { name: "a loopback name", host: "localhost:3000" },
  { name: "a loopback address", host: "127.0.0.1:3000" },
  { name: "the other loopback address", host: "[::1]:3000" },
  { name: "a loopback name in capitals, with a dot", host: "LOCALHOST.:3000" },
  { name: "a name that the configuration trusts", host: "mcp.example.com" },
  { name: "a name below one that the configuration trusts", host: "a.b.internal.test:80" },
  { name: "any name over the network", host: "anything.example", peer: "192.0.2.7" },
  { name: "its own origin", host: "mcp.example.com", origin: "https://mcp.example.com", peer: "192.0.2.7" },
  { name: "a loopback origin", host: "localhost:3000", origin: "http://localhost:6274" },
  {
    name: "an origin that cors allows",
    host: "localhost:3000",
    origin: "https://app.example.com",
    originAllowed: true,
  },
];
for (const { name, ...parts } of allowed) {
  test(`lets ${name} pass [L7]`, () => guardOrigin(exchange(parts), trusted));
}

test("any host passes where a credential is required, but a foreign origin does not", () => {
  guardOrigin(exchange({ host: "gw.example.com" }), ANY_HOST);
  assert.throws(() => guardOrigin(exchange({ host: "gw.example.com", origin: "https://evil.example" }), ANY_HOST));
});

const denied = [
  { name: "a foreign name over loopback", host: "evil.example", setting: /allowedHosts/ },
  {
    name: "a foreign name over the mapped loopback address",
    host: "evil.example",
    peer: "::ffff:127.0.0.1",
    setting: /allowedHosts/,
  },
  { name: "a name that only looks like loopback", host: "127.0.0.1.evil.example", setting: /allowedHosts/ },
  { name: "a name that only ends like a trusted one", host: "evilinternal.test", setting: /allowedHosts/ },
  { name: "the parent of a trusted wildcard", host: "internal.test", setting: /allowedHosts/ },
  { name: "an empty name", host: "", setting: /allowedHosts/ },
  { name: "a foreign origin", host: "localhost:3000", origin: "https://evil.example", setting: /cors\.allowOrigins/ },
  { name: "an opaque origin", host: "localhost:3000", origin: "null", setting: /cors\.allowOrigins/ },
  {
    name: "an origin that only begins like loopback",
    host: "localhost:3000",
    origin: "http://localhost.evil.example",
    setting: /cors/,
  },
  { name: "an origin with a bracket trick", host: "localhost:3000", origin: "http://[::1].evil", setting: /cors/ },
  {
    name: "an origin of another scheme",
    host: "localhost:3000",
    origin: "chrome-extension://localhost",
    setting: /cors/,
  },
  {
    name: "an origin that cors does not allow",
    host: "localhost:3000",
    origin: "https://x.example",
    originAllowed: false,
    setting: /cors/,
  },
  {
    name: "a rebound name with its own origin",
    host: "evil.example",
    origin: "http://evil.example",
    setting: /allowedHosts/,
  },
];
for (const { name, setting, ...parts } of denied) {
  test(`refuses ${name} and says which setting would allow it [L7] [V7]`, () => {
    assert.throws(() => guardOrigin(exchange(parts), trusted), {
      code: "origin_denied",
      status: 403,
      message: setting,
    });
  });
}
