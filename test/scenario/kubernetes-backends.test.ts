/**
 * Backends of a cluster's documents in a data plane: models answer, and nothing that a document names is this machine,
 * whether by address, by name, as an MCP server, as a provider or as a URL that a policy fetches.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubernetesObject } from "../../src/config/documents/cluster.ts";
import { dataPlane } from "../support/kubernetes/data-plane.ts";
import { backendFor } from "../support/scenario.ts";

function documents(backends: Readonly<Record<string, object>>): KubernetesObject[] {
  const at = (name: string) => ({ name, namespace: "shop" });
  const gateway = {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "Gateway",
    metadata: at("edge"),
    spec: { listeners: [{ name: "http", port: 0, protocol: "HTTP" }] },
  };
  const route = {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    metadata: at("all"),
    spec: {
      parentRefs: [{ name: "edge" }],
      rules: Object.keys(backends).map((name) => ({
        matches: [{ path: { type: "PathPrefix", value: `/${name}` } }],
        backendRefs: [{ group: "policy.gateway.internal", kind: "Backend", name }],
      })),
    },
  };
  const own = Object.entries(backends).map(([name, spec]) => ({
    apiVersion: "policy.gateway.internal/v1alpha1",
    kind: "Backend",
    metadata: at(name),
    spec,
  }));
  return [gateway, route, ...own];
}

test("a Backend serves models, and no Backend reaches this machine", async (t) => {
  const local = await backendFor(t, (_req, res) => void res.end("of this machine"));
  const { port: localPort } = new URL(`http://${local.host}`);
  const provider = { openAICompatible: { baseUrl: `http://localhost:${localPort}/v1` } };
  const backends = {
    demo: { ai: { provider: { demo: {} } } },
    address: { host: `127.0.0.1:${localPort}` },
    mapped: { host: `[::ffff:127.0.0.1]:${localPort}` },
    name: { host: `localhost:${localPort}` },
    number: { host: `2130706433:${localPort}` },
    model: { ai: { provider } },
    override: { ai: { provider: { openAI: {} }, hostOverride: `127.1:${localPort}` } },
    tools: { mcp: { targets: [{ name: "a", mcp: { url: `http://localhost:${localPort}/mcp` } }] } },
    api: {
      mcp: {
        targets: [
          {
            name: "a",
            openapi: {
              url: `http://localhost:${localPort}/openapi.json`,
              server: `http://localhost:${localPort}`,
            },
          },
        ],
      },
    },
    socket: { host: "unix:/run/anything.sock" },
    process: { mcp: { targets: [{ name: "a", stdio: { cmd: "sh" } }] } },
  };
  const { port } = await dataPlane(t, documents(backends), {});
  const json = { "content-type": "application/json", accept: "application/json, text/event-stream" };
  const post = (path: string, body: object) =>
    fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", headers: json, body: JSON.stringify(body) });
  const chat = { model: "m", messages: [{ role: "user", content: "hello" }] };
  const initialize = {
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  };

  assert.equal((await post("/demo/v1/chat/completions", chat)).status, 200);
  // Addresses and names of this machine are refused when the document is read, so nothing is connected.
  for (const name of ["address", "mapped", "name", "number"]) {
    const answer = await fetch(`http://127.0.0.1:${port}/${name}`);
    assert.deepEqual([answer.status, answer.headers.get("x-gateway-error")], [500, "policy_invalid"], name);
  }
  for (const name of ["model", "override"])
    assert.equal(
      (await post(`/${name}/v1/chat/completions`, chat)).headers.get("x-gateway-error"),
      "policy_invalid",
      name,
    );
  // Opened, they would ask their server; that nothing arrives there is seen below.
  for (const name of ["tools", "api"]) await (await post(`/${name}`, initialize)).text();
  for (const name of ["socket", "process"]) assert.equal((await post(`/${name}`, initialize)).status, 500, name);
  assert.deepEqual(
    local.received.map(({ url }) => url),
    [],
    "nothing arrived",
  );
});

test("a policy for a Service applies to its requests from every rule, and a broken one closes only that Service", async (t) => {
  const seen: [unknown[], unknown[]] = [[], []];
  const servers = await Promise.all(
    seen.map((list) =>
      backendFor(t, (req, res) => {
        list.push(req.headers["x-policy"]);
        res.end("served");
      }),
    ),
  );
  const at = (name: string) => ({ name, namespace: "shop" });
  const policyFor = (name: string, traffic: object): KubernetesObject => ({
    apiVersion: "policy.gateway.internal/v1alpha1",
    kind: "GatewayPolicy",
    metadata: at(name),
    spec: { targetRefs: [{ group: "", kind: "Service", name }], traffic },
  });
  const service = (name: string): KubernetesObject => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: at(name),
    spec: { ports: [{ port: 80 }] },
  });
  const rule = (path: string, name: string) => ({
    matches: [{ path: { type: "PathPrefix", value: path } }],
    backendRefs: [{ name, port: 80 }],
  });
  const [gateway] = documents({});
  const objects: KubernetesObject[] = [
    gateway as KubernetesObject,
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "HTTPRoute",
      metadata: at("all"),
      spec: {
        parentRefs: [{ name: "edge" }],
        rules: [rule("/one", "web"), rule("/two", "web"), rule("/other", "other"), rule("/broken", "broken")],
      },
    },
    ...["web", "other", "broken"].map(service),
    policyFor("web", {
      headerModifiers: { request: { set: { "x-policy": "web" } } },
      authorization: { rules: ['request.headers["x-key"] == "a"'] },
    }),
    policyFor("broken", { authorization: { rules: ["request.headers["] } }),
  ];
  const { port } = await dataPlane(t, objects, {
    "shop/web:80": [servers[0]?.host ?? ""],
    "shop/other:80": [servers[1]?.host ?? ""],
    "shop/broken:80": [servers[1]?.host ?? ""],
  });
  const status = async (path: string, key: string): Promise<number> =>
    (await fetch(`http://127.0.0.1:${port}${path}`, { headers: { "x-key": key } })).status;
  assert.deepEqual(
    [await status("/one", "a"), await status("/two", "a"), await status("/one", "b"), await status("/other", "b")],
    [200, 200, 403, 200],
  );
  assert.equal(await status("/broken", "a"), 500);
  assert.deepEqual(seen, [["web", "web"], [undefined]]);
});
