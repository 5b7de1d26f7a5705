/** A GatewayPolicy with valid and invalid limits: the valid ones apply, and the status names the others. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../../../test/support/random.ts";
import { conditions } from "../../../test/support/resources/translate.ts";
import { finish } from "../../base/sliced-work.ts";
import { policies } from "../../policies/index.ts";
import { configSchema } from "../schema/schema.ts";
import { parseSource } from "../text/yaml-source.ts";
import { createCluster } from "./cluster.ts";
import { clusterDocument } from "./snapshot.ts";
import { translateResources } from "./translate.ts";

type Entry = Readonly<Record<string, unknown>>;

const VALID: Readonly<Record<string, (n: number) => Entry>> = {
  local: (n) => ({ requests: n, unit: "Hours" }),
  descriptors: (n) => ({ entries: [{ key: `k${n}`, value: "client.address" }], type: "requests" }),
  limits: (n) => ({ name: `b${n}`, tokens: n, per: "day" }),
};

const INVALID: Readonly<Record<string, readonly unknown[]>> = {
  local: [
    { requests: 5 },
    { requests: 5, unit: "Hours", key: "user.id" },
    { requests: 5, unit: "Hours", key: "jwt.sub +" },
    { requests: 5, tokens: 5, unit: "Hours" },
    { tokens: 5, unit: "Hours", burst: 1 },
    { requests: 0, unit: "Hours" },
    { requests: 5, unit: "Hours", brust: 1 },
    { unit: "Hours" },
    null,
    "5/h",
  ],
  descriptors: [{ entries: [] }, { entries: [{ key: "k", value: "user.id" }] }, { entry: [] }, 7, null],
  limits: [
    { name: "x", tokens: 5 },
    { name: "x", tokens: 5, cost: 1, per: "day" },
    { name: "no spaces", tokens: 5, per: "day" },
    { name: "x", tokens: 5, per: "day", key: "user.id" },
    { name: "x", tokens: 5, per: "day", soft: true },
    [],
  ],
};

const GLOBAL = { host: "limits.example.com:8081", domain: "d" };

function partOf(list: string, entries: readonly unknown[]): { readonly kind: string; readonly written: object } {
  if (list === "limits") return { kind: "budgets", written: { limits: entries } };
  return {
    kind: "rateLimit",
    written: list === "local" ? { local: entries } : { global: { ...GLOBAL, descriptors: entries } },
  };
}

const where = (list: string, i: number): string =>
  ({
    local: `rateLimit.local[${i}]`,
    descriptors: `rateLimit.global.descriptors[${i}]`,
    limits: `budgets.limits[${i}]`,
  })[list] ?? "";

function listIn(config: unknown, list: string): readonly Entry[] | undefined {
  const { global = {}, ...own } = config as Record<string, Record<string, unknown>>;
  return ({ ...own, ...global } as unknown as Record<string, readonly Entry[]>)[list];
}

const GATEWAY = {
  apiVersion: "gateway.networking.k8s.io/v1",
  kind: "Gateway",
  metadata: { name: "edge", namespace: "default" },
  spec: { gatewayClassName: "gateway", listeners: [{ name: "http", port: 80, protocol: "HTTP" }] },
};

function translated(traffic: object, isCluster: boolean) {
  const object = {
    apiVersion: "policy.gateway.internal/v1alpha1",
    kind: "GatewayPolicy",
    metadata: { name: "limits", namespace: "default" },
    spec: { targetRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", name: "edge" }], traffic },
  };
  const objects = [GATEWAY, object];
  const yaml = objects.map((one) => JSON.stringify(one)).join("\n---\n");
  return translateResources({
    documents: isCluster ? objects.map(clusterDocument) : finish(parseSource("test.yaml", yaml, {})).documents,
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema: configSchema.shape.routes.unwrap().element,
    ...(isCluster ? { cluster: createCluster(objects) } : {}),
    nowMs: 0,
  });
}

for (const isCluster of [false, true]) {
  test(`any mix of limits ${isCluster ? "from a cluster" : "in a file"}: the valid ones apply, the status names the others`, () => {
    const random = new Random(53);
    for (let round = 0; round < 150; round++) {
      const list = ["local", "descriptors", "limits"][random.int(3)] as string;
      const invalid = INVALID[list] ?? [];
      const isBad = Array.from({ length: 1 + random.int(6) }, () => random.int(2) === 0);
      const entries = isBad.map((bad, i) => (bad ? invalid[random.int(invalid.length)] : VALID[list]?.(i + 1)));
      const { kind, written } = partOf(list, entries);
      const result = translated({ [kind]: written }, isCluster);
      const text = `${isCluster} ${JSON.stringify(entries)}`;

      const good = entries.filter((_, i) => !isBad[i]) as Entry[];
      const applied = result.attachments.flatMap(({ config }) => listIn(config, list) ?? []);
      assert.equal(applied.length, good.length, text);
      good.forEach((entry, i) => {
        for (const [field, value] of Object.entries(entry)) assert.deepEqual(applied[i]?.[field], value, text);
      });
      const [accepted = "", attached = ""] = conditions(result.policies[0]);
      const verdict = !isBad.includes(true)
        ? "True Valid"
        : good.length > 0
          ? "True PartiallyInvalid"
          : "False Invalid";
      assert.ok(accepted.includes(`: Accepted ${verdict}: `), `${text} ${accepted}`);
      assert.ok(attached.includes(`: Attached ${good.length > 0 ? "True" : "False"} `), `${text} ${attached}`);
      isBad.forEach((bad, i) => {
        assert.equal(accepted.includes(`spec.traffic.${where(list, i)}`), bad, `${text} ${accepted}`);
      });
      assert.deepEqual(result.closures, []);
    }
  });
}

test("an invalid setting beside the entries, a repeated name, and an address that a cluster refuses", () => {
  const budget = (name: string) => ({ name, tokens: 5, per: "day" });
  const cases: [traffic: object, isCluster: boolean, kept: object, status: RegExp][] = [
    [
      { budgets: { limits: [budget("a")], failureMode: "opne", webhook: { url: "ftp://x" } } },
      false,
      { failureMode: "closed", names: ["a"] },
      /True PartiallyInvalid: .*budgets\.failureMode.*budgets\.webhook/,
    ],
    [
      { budgets: { limits: [budget("a"), budget("a"), budget("b")] } },
      false,
      { failureMode: "closed", names: ["a", "b"] },
      /True PartiallyInvalid: .*unique name.*budgets\.limits\[1\]: is not valid/,
    ],
    [
      { budgets: { limits: [budget("a")], webhook: { url: "http://127.0.0.1:9/alert" } } },
      true,
      { failureMode: "closed", names: ["a"] },
      /True PartiallyInvalid: .*budgets\.webhook\.url/,
    ],
  ];
  for (const [traffic, isCluster, kept, status] of cases) {
    const result = translated(traffic, isCluster);
    const config = result.attachments[0]?.config as
      | { failureMode: string; limits: { name: string }[]; webhook?: object }
      | undefined;
    assert.deepEqual(
      { failureMode: config?.failureMode, names: config?.limits.map(({ name }) => name) },
      kept,
      JSON.stringify(traffic),
    );
    assert.equal(config?.webhook, undefined);
    assert.match(conditions(result.policies[0])[0] ?? "", status);
  }
  const both = translated(
    {
      rateLimit: {
        local: [{ requests: 1, unit: "Hours" }],
        global: { ...GLOBAL, host: "nowhere", descriptors: [VALID.descriptors?.(1)] },
      },
    },
    false,
  );
  assert.deepEqual(
    both.attachments.map(({ config }) => Object.keys(config as object).sort()),
    [["local", "unpriced"]],
  );
  assert.match(conditions(both.policies[0])[0] ?? "", /True PartiallyInvalid: .*rateLimit\.global\.host/);
});

test("thousands of invalid entries beside a valid one cost little", () => {
  const entries = [{ requests: 1, unit: "Hours" }, ...Array.from({ length: 5000 }, () => ({ requests: 0 }))];
  const result = translated({ rateLimit: { local: entries } }, false);
  assert.deepEqual(
    result.attachments.map(({ config }) => listIn(config, "local")?.length),
    [1],
  );
});
