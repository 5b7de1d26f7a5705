/**
 * Every field of GatewayPolicy and Backend that holds a file, a process, a socket or a secret, found by walking the
 * schemas: none of them touches the machine from a cluster, and no secret of another namespace is read. A new field whose
 * name sounds like an address or a file fails here until somebody said what keeps it confined.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { getLocalUse, isSecretSchema, type LocalUse } from "../../core/schema.ts";
import { policies } from "../../policies/index.ts";
import { unwrap } from "../schema/schema-walk.ts";
import { pathText } from "../text/value-path.ts";
import { backendSpecSchema } from "./backend-document.ts";
import { createCluster } from "./cluster.ts";
import { confinedValues } from "./confined-values.ts";
import { specSchema } from "./policy-spec.ts";
import { clusterDocument } from "./snapshot.ts";

interface Field {
  /** With `[]` for elements and `{}` for entries. */
  readonly path: string;
  readonly local: LocalUse | undefined;
  readonly isSecret: boolean;
  readonly isText: boolean;
}

function fieldsOf(schema: z.ZodType, path = "", depth = 0): Field[] {
  if (depth > 16) return [];
  const marked = [schema, ...unwrap(schema)];
  const local = marked.map(getLocalUse).find((use) => use !== undefined);
  const own = { path, local, isSecret: marked.some(isSecretSchema), isText: unwrap(schema).some(isString) };
  const below = unwrap(schema).flatMap((one) => {
    if (one instanceof z.ZodObject)
      return Object.entries(one.shape).flatMap(([key, field]) =>
        fieldsOf(field as z.ZodType, path === "" ? key : `${path}.${key}`, depth + 1),
      );
    if (one instanceof z.ZodArray) return fieldsOf(one.element as z.ZodType, `${path}[]`, depth + 1);
    if (one instanceof z.ZodRecord) return fieldsOf(one.valueType as z.ZodType, `${path}{}`, depth + 1);
    return [];
  });
  return [own, ...below];
}

function isString(schema: z.ZodType): boolean {
  return schema._zod.def.type === "string";
}

const SCHEMAS = { GatewayPolicy: specSchema(policies), Backend: backendSpecSchema };
const ALL = Object.entries(SCHEMAS).flatMap(([kind, schema]) => fieldsOf(schema).map((field) => ({ kind, ...field })));

/** A document with one value at the path. */
function written(path: string, value: unknown): { spec: unknown; at: string } {
  const steps = path.match(/[^.[\]{}]+|\[\]|\{\}/g) ?? [];
  const keys = steps.map((step) => (step === "[]" ? 0 : step === "{}" ? "entry" : step));
  const spec = keys.reduceRight<unknown>((inner, key) => (key === 0 ? [inner] : { [key]: inner }), value);
  return { spec, at: pathText(keys) };
}

const text = (value: string): string => Buffer.from(value).toString("base64");
const cluster = createCluster([
  { apiVersion: "v1", kind: "Secret", metadata: { name: "ours", namespace: "shop" }, data: { key: text("sesame") } },
  { apiVersion: "v1", kind: "Secret", metadata: { name: "theirs", namespace: "other" }, data: { key: text("no") } },
]);

function confined(kind: keyof typeof SCHEMAS, path: string, value: unknown) {
  const { spec, at } = written(path, value);
  const document = clusterDocument({ apiVersion: "v1", kind, metadata: { name: "own", namespace: "shop" } });
  const referrer = { group: "policy.gateway.internal", kind, namespace: "shop" };
  const result = confinedValues(SCHEMAS[kind], spec, [], { cluster, document, referrer });
  const faults = result.faults.map((fault) => `${pathText(fault.path)}: ${fault.message}`);
  return { faults, at, shown: JSON.stringify(result.value) };
}

const VALUES: Readonly<Record<LocalUse["what"], readonly unknown[]>> = {
  "a file": ["/var/run/secrets/kubernetes.io/serviceaccount/token", "../x", "relative.json"],
  "a process": [{ cmd: "sh" }],
  "a unix socket": ["unix:/run/x.sock", "UNIX:/run/x.sock", "unix:relative"],
  "credentials of this machine": [{}, { profile: "default" }],
  "a Service by its name": [{ name: "other/web:80" }],
  "a host by its address": ["10.0.0.1:80", "example.com:80"],
};

test("no field of a cluster's document names a file, a process, a socket or the machine's credentials", () => {
  const local = ALL.filter((field) => field.local !== undefined);
  assert.ok(local.length > 20, String(local.length));
  for (const { kind, path, local: use } of local) {
    if (use === undefined) continue;
    // Key sets can be written in place of the file.
    for (const value of VALUES[use.what]) {
      const { faults } = confined(kind as keyof typeof SCHEMAS, path, value);
      assert.match(faults.join(), /cannot use/, `${kind} ${path} with ${JSON.stringify(value)}`);
    }
  }
});

test("every secret and every readable file can be a secretRef, and none of another namespace", () => {
  const secrets = ALL.filter(({ isSecret, local }) => isSecret || local?.isReadable);
  assert.ok(secrets.length > 30, String(secrets.length));
  for (const { kind, path, isSecret } of secrets) {
    const name = `${kind} ${path}`;
    // Without its key a session token would be one of the machine's own.
    if (isWithinProcess(path) || path.endsWith("aws.sessionToken")) continue;
    const own = confined(kind as keyof typeof SCHEMAS, path, { secretRef: { name: "ours", key: "key" } });
    assert.deepEqual(own.faults, [], name);
    assert.match(own.shown, isSecret ? /"sesame"/ : /"secretRef:shop\/ours\/key"/, name);
    for (const reference of [
      { name: "theirs", namespace: "other", key: "key" },
      { name: "theirs", key: "key" },
      { name: "../other/theirs", key: "key" },
      { name: "gone", namespace: "other", key: "key" },
    ]) {
      const theirs = confined(kind as keyof typeof SCHEMAS, path, { secretRef: reference });
      assert.equal(theirs.faults.length, 1, `${name} ${JSON.stringify(reference)}`);
      assert.ok(!theirs.shown.includes('"no"'), name);
      // Whether it exists there is not said.
      if ("namespace" in reference) assert.match(theirs.faults[0] ?? "", /is in another namespace/, name);
    }
  }
});

function isWithinProcess(path: string): boolean {
  return /\.stdio\./.test(path);
}

/**
 * Fields that sound like something to reach or to read, and what keeps each confined. `fetch` and `pool`: the connection
 * is refused when it leads to this machine (test/scenario/kubernetes-confined.test.ts asks for each). `name`: a name that
 * is compared or shown, nothing is opened.
 */
const SPOKEN_FOR: readonly [pattern: RegExp, by: "fetch" | "pool" | "gRPC" | "name"][] = [
  [/jwks\.url$/, "fetch"],
  [/(jwtAuthentication|providers\[\]|mcp\.authentication|issuers\[\]|oidc)\.issuer$/, "fetch"],
  [/oidc\.tokenEndpoint$/, "fetch"],
  [/jwks\.inline$/, "name"],
  [/extAuthz\.url$/, "fetch"],
  [/extAuthz\.host$/, "gRPC"],
  [/extProc\.host$/, "gRPC"],
  [/guardrails\.processors\[\]\.host$/, "gRPC"],
  [/rateLimit\.global\.host$/, "gRPC"],
  [/webhook\.url$/, "fetch"],
  [/clientMetadataHosts\[\]$/, "fetch"],
  [/targets\[\]\.(mcp|sse)\.url$/, "pool"],
  [/openapi\.(url|server)$/, "fetch"],
  [/oauth\.issuer$/, "fetch"],
  [/oauth\.(connectUrl|resource)$/, "name"],
  [/exchange\.tokenUrl$/, "fetch"],
  [/backendAuth\.(oauth|crossAppAccess\.(identityProvider|resourceServer))\.tokenUrl$/, "fetch"],
  [/backendAuth\.azure\.resource$/, "name"],
  [/azureContentSafety\.endpoint$/, "fetch"],
  [/^host$|hostOverride$|baseUrl$/, "pool"],
  // Parts of the names of a provider's own hosts.
  [/(region|Region|resourceName|azureResourceName|vertexProject|projectId|tenantId)$/, "pool"],
  [/(pathOverride|pathPrefix|path\.full|path\.prefix|extAuthz\.path|formats\[\]\.path)$/, "name"],
  [/(resourceMetadata\.(resource|authorizationServers\[\])|exchange\.resource)$/, "name"],
  [/(urlRewrite|requestRedirect)\.authority$/, "name"],
  [/oidc\.(redirectUri|logoutPath|authorizationEndpoint)$/, "name"],
  [/(backendTLS|processors\[\]\.tls)\.hostname$/, "name"],
  [/allowedHosts\[\]$/, "name"],
  [/requestMirror\[\]\.service\.name$/, "name"],
  // CEL sources, names of headers and of keys of a bucket.
  [/matchExpressions\[\]\.key$/, "name"],
  [/(local\[\]|limits\[\]|entries\[\]|cache)\.key$/, "name"],
  [/(accessKeyId|awsAccessKeyId|clientKeyId|keyHash)$/, "name"],
];
const SOUNDS =
  /(url|host|hosts\[\]|issuer|server|servers\[\]|address|endpoint|jwks|inline|authority|hostname|file|path|cmd|args|cwd|socket|profile|region|tenantid|projectid|resourcename|project|override|prefix|full|resource|key|keyid|keyhash|secret|token|password|webhook|uri|root|cert|service\.name)$/i;

test("a field that sounds like an address, a file or a secret has something that confines it", () => {
  const unknown = ALL.filter(
    ({ path, isText, local, isSecret }) =>
      isText &&
      SOUNDS.test(path) &&
      local === undefined &&
      !isSecret &&
      !isWithinProcess(path) &&
      !/(header|location\.header)\.prefix$/.test(path) &&
      !SPOKEN_FOR.some(([pattern]) => pattern.test(path)),
  );
  assert.deepEqual(
    unknown.map(({ kind, path }) => `${kind} ${path}`),
    [],
    "say in this table what confines it, and ask for it in test/scenario/kubernetes-confined.test.ts",
  );
});

test("each row of the table still stands for a field", () => {
  for (const [pattern] of SPOKEN_FOR)
    assert.ok(
      ALL.some(({ path }) => pattern.test(path)),
      String(pattern),
    );
});
