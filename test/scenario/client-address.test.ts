/**
 * `client.address`: the client's address behind trusted proxies, wherever clients are told apart by it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall } from "../support/mcp/modern-client.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const TRUSTED = { trustedProxies: ["127.0.0.0/8"], logging: { level: "info" } };

for (const isTrusted of [true, false]) {
  const peer = isTrusted ? "a trusted proxy" : "any other client";
  test(`CEL, limits and records read the address that ${peer} ${isTrusted ? "reports" : "comes from"} [L20]`, async (t) => {
    const backend = await backendFor(t);
    const gateway = await gatewayFor(
      t,
      JSON.stringify({
        config: isTrusted ? TRUSTED : { logging: { level: "info" } },
        gateways: { default: { port: 0, address: "127.0.0.1" } },
        routes: [
          {
            backends: [{ host: backend.host }],
            policies: {
              transformations: { request: { set: { "x-client": "client.address", "x-peer": "source.address" } } },
              rateLimit: { local: [{ requests: 2, unit: "Hours", key: "client.address" }] },
            },
          },
        ],
      }),
    );
    const send = async (forwardedFor: string, id: string): Promise<number> =>
      (await fetch(gateway.url(), { headers: { "x-forwarded-for": forwardedFor, "x-request-id": id } })).status;
    const statuses: number[] = [];
    for (const [i, address] of ["7.7.7.7", "6.6.6.6, 7.7.7.7", "7.7.7.7", "8.8.8.8", "not an address"].entries())
      statuses.push(await send(address, `one-${i}`));
    const seen = backend.received.map(({ headers }) => [headers["x-client"], headers["x-peer"]]);
    const peerOnly = ["127.0.0.1", "127.0.0.1"];
    if (isTrusted) {
      assert.deepEqual(statuses, [200, 200, 429, 200, 200]);
      const client = (address: string): string[] => [address, "127.0.0.1"];
      assert.deepEqual(seen, [client("7.7.7.7"), client("7.7.7.7"), client("8.8.8.8"), peerOnly]);
    } else {
      assert.deepEqual(statuses, [200, 200, 429, 429, 429]);
      assert.deepEqual(seen, [peerOnly, peerOnly]);
    }

    const client = isTrusted ? "7.7.7.7" : "127.0.0.1";
    const shown = await (await fetch(`${gateway.adminUrl}/debug/requests?id=one-0`)).text();
    const { source, requestState, story } = JSON.parse(shown).requests?.[0] ?? JSON.parse(shown);
    assert.deepEqual([source.address, source.client ?? source.address], ["127.0.0.1", client]);
    assert.deepEqual(requestState.client, { address: client });
    assert.match(JSON.stringify(story), new RegExp(`from ${client}`));
    const recording = await (await fetch(`${gateway.adminUrl}/debug/recording`)).text();
    const line = recording
      .split("\n")
      .filter((text) => text !== "")
      .map((text) => JSON.parse(text))
      .find(({ id }) => id === "one-0");
    assert.deepEqual([line?.source, line?.client ?? line?.source], ["127.0.0.1", client]);
    await gateway.logged(isTrusted ? "client=7.7.7.7" : "src=127.0.0.1");
  });
}

test("clients without a credential share a server process only with their own address, behind a proxy too [L20]", async (t) => {
  const gateway = await gatewayFor(
    t,
    JSON.stringify({ ...JSON.parse(mcpConfig([oddTarget()])), config: { trustedProxies: ["127.0.0.0/8"] } }),
  );
  const pidOf = async (address: string): Promise<number> => {
    const text = await modernCall(`${gateway.url()}/mcp`, "state", {}, { headers: { "x-forwarded-for": address } });
    return JSON.parse(text).pid as number;
  };
  const first = await pidOf("7.7.7.7");
  assert.equal(await pidOf("6.6.6.6, 7.7.7.7"), first, "the same client, whatever it says before the proxy's entry");
  assert.notEqual(await pidOf("8.8.8.8"), first);
});

test("a described request has the client's address that a real one would have [L20]", async (t) => {
  const gateway = await gatewayFor(
    t,
    JSON.stringify({
      config: { trustedProxies: ["10.0.0.0/8"] },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          policies: {
            authorization: { rules: ['client.address == "7.7.7.7"'] },
            directResponse: { status: 200, body: "in" },
          },
        },
      ],
    }),
  );
  const statusOf = async (source: string, forwardedFor: string): Promise<unknown> => {
    const request = { url: "/", source, headers: { "x-forwarded-for": forwardedFor } };
    const answer = await fetch(`${gateway.adminUrl}/debug/what-if`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ request }),
    });
    return ((await answer.json()) as { status?: unknown }).status;
  };
  assert.equal(await statusOf("10.1.1.1", "6.6.6.6, 7.7.7.7"), 200);
  assert.equal(await statusOf("10.1.1.1", "7.7.7.7, 6.6.6.6"), 403);
  assert.equal(await statusOf("192.0.2.1", "7.7.7.7"), 403, "the peer is not trusted");
  assert.equal(await statusOf("7.7.7.7", "6.6.6.6"), 200);
});

const node = threadingNode();
test("the thread that serves a request knows the client's address that the accepting thread saw [L20]", {
  skip: node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false,
}, async (t) => {
  // MCP routes belong to one thread each: with a route for each of several names some requests are forwarded.
  const names = ["a", "b", "c", "d"];
  const routes = names.map((name) => ({
    name: `mcp-${name}`,
    gateways: ["main"],
    matches: [{ path: { pathPrefix: `/${name}` } }],
    policies: { authorization: { rules: ['client.address == "7.7.7.7" && source.address == "127.0.0.1"'] } },
    backends: [{ mcp: { targets: [oddTarget()] } }],
  }));
  const config = threadedConfig(2, routes.map((route) => `  - ${JSON.stringify(route)}`).join("\n"));
  const trusting = config.replace("config:\n", "config:\n  trustedProxies: [127.0.0.0/8]\n");
  const gateway = await startThreaded(t, trusting, node ?? "");
  const statusOf = async (name: string, address: string): Promise<number> => {
    const answer = await fetch(`${gateway.url}/${name}`, {
      headers: { "x-forwarded-for": address, connection: "close", accept: "text/event-stream" },
    });
    await answer.body?.cancel();
    return answer.status;
  };
  for (const name of names) {
    assert.equal(await statusOf(name, "8.8.8.8"), 403, name);
    assert.notEqual(await statusOf(name, "6.6.6.6, 7.7.7.7"), 403, name);
  }
});
