/**
 * GatewayPolicy documents: translating them never throws, every document gets a status, and a target that a document was
 * to protect is either protected by it or closed, however broken the document is.
 */
import type { ResourceDocument } from "../../../src/config/documents/documents.ts";
import { translateResources } from "../../../src/config/documents/translate.ts";
import { configSchema } from "../../../src/config/schema/schema.ts";
import { policies } from "../../../src/policies/index.ts";
import type { Random } from "../../support/random.ts";
import { isRecord, parsed, randomJson } from "../json.ts";
import { defineTarget, expect } from "../target.ts";

/** The documents, as JSON texts. */
type Input = { readonly documents: readonly string[] };

const routeSchema = configSchema.shape.routes.unwrap().element;
const SECURITY = new Set(policies.filter(({ role }) => role === "security").map(({ kind }) => kind));
const API = "policy.gateway.internal/v1alpha1";
const standalone = {
  gateways: [{ name: "default", policyKinds: [], port: 3000 }],
  routes: [{ name: "web", policyKinds: [], gateways: ["default"] }],
  services: {},
};

function documentOf(value: unknown): ResourceDocument {
  const position = () => ({ file: "p.yaml", line: 1, column: 1 });
  return { file: "p.yaml", value, position, fromEnvironment: () => undefined };
}

/** By the document alone: it names this target plainly, and a part of it speaks of authentication or authorization. */
function protectedTargets(value: unknown): string[] {
  if (!isRecord(value) || value.kind !== "GatewayPolicy" || !isRecord(value.spec)) return [];
  const { targetRefs, traffic, backend } = value.spec;
  const mcp = isRecord(backend) && isRecord(backend.mcp) ? Object.keys(backend.mcp) : [];
  const parts = [...(isRecord(traffic) ? Object.keys(traffic) : []), ...mcp];
  if (!parts.some((name) => /auth/i.test(name))) return [];
  const namespace =
    isRecord(value.metadata) && typeof value.metadata.namespace === "string" ? value.metadata.namespace : "default";
  return (Array.isArray(targetRefs) ? targetRefs.slice(0, 16) : []).filter(isRecord).flatMap((ref) => {
    const isPlain =
      ref.group === "gateway.networking.k8s.io" &&
      ref.sectionName === undefined &&
      (ref.namespace ?? namespace) === namespace &&
      namespace === "default";
    if (!isPlain) return [];
    if (ref.kind === "HTTPRoute" && ref.name === "web") return ["route web"];
    return ref.kind === "Gateway" && ref.name === "default" ? ["gateway default"] : [];
  });
}

const PARTS = [
  '"authorization":{"rules":["jwt.sub == \'a\'"]}', '"authorization":{"rules":["jwt.sub =="]}', '"authorization":{}', '"authorization":null', '"authorisation":{"rules":[]}',
  '"jwtAuthentication":{"issuer":"https://a.example","audiences":["x"],"jwks":{"inline":"{}"}}', '"jwtAuthentication":1', '"apiKeyAuthentication":{"keys":[{"key":"k"}]}',
  '"apiKeyAuthentication":[]', '"basicAuthentication":{"htpasswd":"x"}', '"cors":{"allowOrigins":["*"]}', '"rateLimit":{"local":[{"requests":1,"window":"1m"}]}', '"timeouts":{"request":"1s"}',
  '"headerModifiers":{"request":{"set":{"x":"y"}}}', '"x":1', '"Authorization":{"rules":["true"]}', '"jwt":{}',
]; // biome-ignore format: a table
const REFS = [
  '{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"web"}', '{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"default"}',
  '{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"nobody"}', '{"kind":"HTTPRoute","name":"web"}', '{"group":"x","kind":"Gateway","name":"default"}', "null", '"web"', "{}",
  '{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"web","sectionName":"x"}', '{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"web","namespace":"other"}',
]; // biome-ignore format: a table

function policyText(random: Random): string {
  const junk = (): string =>
    randomJson(random, {
      names: ["spec", "name", "kind", "targetRefs", "traffic", "x"],
      maxDepth: 2,
      brokenOneIn: 1_000,
    });
  const refs = random.oneIn(12) ? junk() : `[${random.list(3, () => random.pick(REFS)).join(",")}]`;
  const traffic = random.oneIn(15) ? junk() : `{${random.list(3, () => random.pick(PARTS)).join(",")}}`;
  const mcp = random.oneIn(4)
    ? `,"backend":{"mcp":{${random.pick(['"authentication":{}', '"authorization":{"rules":["true"]}', '"authorization":{"rules":["1 +"]}', '"x":1'])}}}`
    : "";
  const name = random.oneIn(15) ? junk() : JSON.stringify(random.pick(["a", "b", "c", ""]));
  return `{"apiVersion":${random.oneIn(12) ? '"v1"' : JSON.stringify(API)},"kind":"GatewayPolicy","metadata":{"name":${name}},"spec":{"targetRefs":${refs},"traffic":${traffic}${mcp}}}`;
}

/** An unknown kind of the policy group may be a misspelled protection, so it counts as an invalid policy. */
function countsAsPolicy({ apiVersion, kind }: Readonly<Record<string, unknown>>): boolean {
  const isOurs = typeof apiVersion === "string" && apiVersion.startsWith(API.replace(/[^/]*$/, ""));
  const known = ["Gateway", "HTTPRoute", "GRPCRoute", "Backend"];
  return kind === "GatewayPolicy" || (isOurs && !(typeof kind === "string" && known.includes(kind)));
}

export const gatewayPolicies = defineTarget<Input>({
  name: "gateway-policies",
  seeds: [
    {
      documents: [
        `{"apiVersion":"${API}","kind":"GatewayPolicy","metadata":{"name":"a"},"spec":{"targetRefs":[${REFS[0]}],"traffic":{${PARTS[0]}}}}`,
      ],
    },
  ],
  smokeCases: 50,
  generate: (random) => ({ documents: random.list(3, () => policyText(random)) }),
  run({ documents }) {
    const values = documents.flatMap((text) => {
      const json = parsed(text);
      return json !== undefined && isRecord(json.value) && "kind" in json.value ? [json.value] : [];
    });
    const result = translateResources({
      documents: values.map(documentOf),
      standalone,
      policies,
      routeSchema,
      nowMs: 0,
    });
    const count = values.filter(countsAsPolicy).length;
    expect(result.policies.length === count, "a policy without a status");
    JSON.stringify(result.policies);
    const guarded = new Set([
      ...result.closures.map(({ target }) => `${target.kind} ${target.name}`),
      ...result.attachments
        .filter(({ kind }) => SECURITY.has(kind))
        .map(({ target }) => `${target.kind} ${target.name}`),
    ]);
    for (const target of values.flatMap(protectedTargets)) expect(guarded.has(target), `${target} is left open`);
    const reasons = result.policies.flatMap(({ status }) =>
      status.ancestors.flatMap(({ conditions }) => conditions.map(({ reason }) => reason)),
    );
    return `${[...new Set(reasons)].sort().join()} ${result.closures.length} ${result.attachments.map(({ kind }) => kind).join()}`;
  },
});
