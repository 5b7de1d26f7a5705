/**
 * The configuration with which a version before owners wrote `test/golden/store/before-owners.json`: everything that
 * the store keeps for a standalone configuration, and budgets and keys of documents in files.
 */
import { stringify } from "yaml";
import { type Clock, systemClock } from "../../../src/base/clock.ts";
import { DEMO_TARGET } from "../identity/protected-gateway.ts";

export const BEFORE_MS = Date.UTC(2026, 10, 15, 12);

/** Runs from the moment of the recording. */
export function clockFrom(ms: number): Clock {
  const startedMs = systemClock.now();
  return { ...systemClock, now: () => ms + systemClock.now() - startedMs };
}

const budget = (name: string): object => ({ limits: [{ name, tokens: 1_000, per: "month", key: '"alice"' }] });
const ai = { ai: { provider: { demo: {} } } };

export function configBeforeOwners(jwks: object, tokenEndpoint: string, store: object): string {
  const standalone = {
    config: { store },
    gateways: { edge: { port: 0 } },
    routes: [
      { name: "llm", hostnames: ["llm.test"], policies: { budgets: budget("monthly") }, backends: [ai] },
      { name: "keys", hostnames: ["keys.test"], policies: { apiKey: { stored: true } }, backends: [ai] },
      {
        name: "pages",
        hostnames: ["pages.test"],
        policies: {
          oidc: {
            issuer: new URL(tokenEndpoint).origin,
            clientId: "c",
            redirectUri: "http://pages.test/cb",
            authorizationEndpoint: `${new URL(tokenEndpoint).origin}/authorize`,
            tokenEndpoint,
            jwks,
          },
          directResponse: { status: 200, body: "page" },
        },
      },
    ],
  };
  const documents = ["a", "b"].flatMap((namespace) => [
    {
      apiVersion: "gateway.networking.k8s.io/v1",
      kind: "HTTPRoute",
      metadata: { name: "web", namespace },
      spec: {
        hostnames: [`${namespace}.test`],
        parentRefs: [{ name: "edge", namespace: "default" }],
        rules: [{ backendRefs: [{ group: "policy.gateway.internal", kind: "Backend", name: "web" }] }],
      },
    },
    { apiVersion: "policy.gateway.internal/v1alpha1", kind: "Backend", metadata: { name: "web", namespace }, spec: ai },
    {
      apiVersion: "policy.gateway.internal/v1alpha1",
      kind: "GatewayPolicy",
      metadata: { name: "policy", namespace },
      spec: {
        targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: "web" }],
        traffic: { budgets: budget("team"), apiKeyAuthentication: { stored: true } },
      },
    },
  ]);
  const mcp = `mcp: { port: 0, targets: [${DEMO_TARGET}] }\n`;
  return [`${stringify(standalone)}${mcp}`, ...documents.map((document) => stringify(document))].join("\n---\n");
}
