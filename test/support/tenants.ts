/**
 * Two tenants of one gateway whose documents have the same names, each on a host name of its own.
 */
import { type IncomingHttpHeaders, request } from "node:http";
import { stringify } from "yaml";
import type { TestGateway } from "./gateway.ts";

export const TENANTS = ["a", "b"] as const;
export type Tenant = (typeof TENANTS)[number];

export interface TenantAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** `fetch` cannot send a Host header of its own. */
export function ask(
  gateway: TestGateway,
  tenant: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body?: string,
): Promise<TenantAnswer> {
  const options = {
    port: gateway.port("edge"),
    path,
    method: body === undefined ? "GET" : "POST",
    headers: { host: `${tenant}.test`, ...headers },
    agent: false,
  };
  return new Promise((resolve, reject) => {
    request(options, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }));
    })
      .on("error", reject)
      .end(body);
  });
}

/**
 * A route, a Backend, and a policy of each tenant. `standalone` is the rest of the file. `policy` and `backend` return
 * the specs.
 */
export function tenantDocuments(
  policy: (tenant: Tenant) => object,
  backend: (tenant: Tenant) => object,
  standalone = "gateways: { edge: { port: 0 } }",
): string {
  const own = { group: "policy.gateway.internal", version: "policy.gateway.internal/v1alpha1" };
  const api = { group: "gateway.networking.k8s.io", version: "gateway.networking.k8s.io/v1" };
  const documents = TENANTS.flatMap((namespace) => [
    {
      apiVersion: api.version,
      kind: "HTTPRoute",
      metadata: { name: "web", namespace },
      spec: {
        hostnames: [`${namespace}.test`],
        parentRefs: [{ name: "edge", namespace: "default" }],
        rules: [{ backendRefs: [{ group: own.group, kind: "Backend", name: "web" }] }],
      },
    },
    { apiVersion: own.version, kind: "Backend", metadata: { name: "web", namespace }, spec: backend(namespace) },
    {
      apiVersion: own.version,
      kind: "GatewayPolicy",
      metadata: { name: "policy", namespace },
      spec: { targetRefs: [{ group: api.group, kind: "HTTPRoute", name: "web" }], ...policy(namespace) },
    },
  ]);
  return [standalone, ...documents.map((document) => stringify(document))].join("\n---\n");
}
