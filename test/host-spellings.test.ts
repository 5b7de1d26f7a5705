/**
 * Every part of the gateway that compares hosts decides alike for all spellings of one host.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectionReason } from "../src/admin/server/server.ts";
import { peerInput } from "../src/base/peer-inputs.ts";
import { publicOrigin } from "../src/core/public-origin.ts";
import { canonicalOrigin, createHostTable, hostOf, isLoopbackHost } from "../src/http/host.ts";
import { readRequestHead } from "../src/http/request-head.ts";
import { foreignOrigin } from "../src/identity/login/browser-flow.ts";
import { guardOrigin, trustedHosts } from "../src/mcp/client-side/http-request.ts";
import { createRouteTable, rejectMisdirected } from "../src/pipeline/route/match-route.ts";
import { compileOrigins } from "../src/policies/cors/policy.ts";
import { csrf } from "../src/policies/csrf/policy.ts";
import { anExchange, testEnv } from "./support/exchange.ts";
import { Random } from "./support/random.ts";

const HOSTS = [
  "a.test",
  "b_c.test",
  "localhost",
  "127.0.0.1",
  "[::1]",
  "xn--bcher-kva.test",
  "[2001:db8::1]",
  "evil.test",
];
const IPV6: Readonly<Record<string, readonly string[]>> = {
  "[::1]": ["[0:0:0:0:0:0:0:1]", "[0::1]", "[::0001]"],
  "[2001:db8::1]": ["[2001:DB8::1]", "[2001:0db8:0:0:0:0:0:1]"],
};
const SPELLINGS = 300;

function respelled(host: string, random: Random): string {
  const [name] = [random.pick([host, ...(IPV6[host] ?? [])])];
  const cased = [...name].map((char) => (random.oneIn(2) ? char.toUpperCase() : char)).join("");
  const dotted = !host.startsWith("[") && random.oneIn(3) ? `${cased}.` : cased;
  return random.oneIn(2) ? dotted : `${dotted}:${random.pick(["80", "0080", "15000"])}`;
}

function decided(action: () => unknown): unknown {
  try {
    return action() ?? null;
  } catch (error) {
    return (error as { readonly code?: string }).code ?? "an error";
  }
}

const routes = createRouteTable(
  ["a.test", "*.b_c.test", "b_c.test", "bücher.test", "::1", "[2001:db8::1]"].map(
    (hostname, i) => ({ name: `route${i}`, hostnames: [hostname], matches: [{ path: { pathPrefix: "/" } }] }) as never,
  ),
);
const trusted = trustedHosts(["A.test", "*.b_c.test", "2001:db8::1"]);
const parts = createHostTable([
  ["a.test", "a.test"],
  ["*.test", "*.test"],
]);

const ownPages = csrf.compile({ additionalOrigins: ["https://a.test", "https://[::1]"] }, testEnv);
const exactOrigins = compileOrigins(["https://A.test.", "https://[0::1]:443"]);
const wildcards = compileOrigins(["https://*.TEST"]);

function posted(host: string, headers: Readonly<Record<string, string>>) {
  return anExchange({ method: "POST", host, headers });
}

function withoutPort(authority: string): string {
  return authority.replace(/:\d+$/, "");
}

/** The decisions of all consumers about a request for this authority, as after the head was read. */
function decisions(authority: string): Readonly<Record<string, unknown>> {
  const { host } = readRequestHead(
    peerInput("client/http1-head"),
    {
      method: "GET",
      target: "/",
      version: "1.1",
      pairs: ["host", authority],
      fault: undefined,
      bytes: 0,
      expects: "nothing",
    },
    false,
    false,
  );
  const port = /:0*(\d+)$/.exec(authority.replace(/^\[.*?\]/, ""))?.[1];
  const exchange = anExchange({
    host,
    source: "127.0.0.1",
    headers: { origin: `http://a.test${port ? `:${port}` : ""}` },
  });
  const admin = (origin?: string): unknown =>
    rejectionReason({
      method: "GET",
      path: "/",
      host: authority,
      origin,
      fetchSite: undefined,
      fetchMode: undefined,
      localAddress: "::1",
    });
  return {
    host: host.replace(/:\d+$/, ""),
    route: routes.match(exchange.request)?.name,
    origin: decided(() => guardOrigin(exchange, trusted)),
    loopback: isLoopbackHost(hostOf(authority)),
    misdirected: decided(() =>
      rejectMisdirected(parts, { source: { address: "", port: 1, serverName: "a.test" }, request: exchange.request }),
    ),
    admin: decided(() => admin()),
    adminOrigin: decided(() => admin(`http://${host}`)),
    csrf: decided(() => ownPages.access?.head?.(posted(authority, { origin: `http://${host}` }))),
    csrfOfHost: decided(() =>
      ownPages.access?.head?.(posted("b.test", { origin: `https://${withoutPort(authority)}` })),
    ),
    cors: [exactOrigins, wildcards].map((one) => one.allows(`https://${withoutPort(authority)}`)),
    uiOrigin: foreignOrigin(
      posted(host, { origin: canonicalOrigin(`http://${host}`) ?? "" }).request,
      `http://${authority}`,
    ),
    publicOrigin: publicOrigin(
      posted("b.test", { "x-forwarded-host": withoutPort(authority), "x-forwarded-proto": "https" }),
    ),
  };
}

test("two spellings of one host get the same decisions everywhere", () => {
  const random = new Random(1);
  for (const host of HOSTS) {
    const expected = decisions(host);
    for (let i = 0; i < SPELLINGS; i++) {
      const other = respelled(host, random);
      assert.deepEqual(decisions(other), expected, other);
    }
  }
  assert.deepEqual(
    HOSTS.map((host) => decisions(host).route),
    ["route0", "route2", undefined, undefined, "route4", "route3", "route5", undefined],
  );
});
