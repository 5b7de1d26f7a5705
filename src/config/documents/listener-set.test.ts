/** ListenerSets in files. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LIMIT, policy, translate } from "../../../test/support/resources/translate.ts";

const API = "apiVersion: gateway.networking.k8s.io/v1";
const GATEWAY = `---
${API}
kind: Gateway
metadata: { name: edge }
spec:
  allowedListeners: { namespaces: { from: Same } }
  listeners: [{ name: http, port: 8080, protocol: HTTP, hostname: own.test }]
`;
const set = (name: string, more: string, parent = "{ name: edge }"): string => `---
${API}
kind: ListenerSet
metadata: { name: ${name} }
spec: { parentRef: ${parent}, listeners: [${more}] }
`;
const ROUTE = `---
${API}
kind: HTTPRoute
metadata: { name: shop }
spec: { parentRefs: [{ kind: ListenerSet, name: more }], rules: [{ backendRefs: [{ name: web, port: 8080 }] }] }
`;
const LISTENERS =
  "{ name: a, port: 8080, protocol: HTTP, hostname: a.test }, { name: b, port: 8081, protocol: HTTP, hostname: b.test }";
const TARGET = "targetRefs: [{ group: gateway.networking.k8s.io, kind: ListenerSet, name: more }]";

test("a set adds listeners to the ports of its Gateway and new ports, which keep the names of others", () => {
  const { gateways, routes, attachments, problems } = translate(
    GATEWAY + set("more", LISTENERS) + ROUTE + policy(`${TARGET}\n${LIMIT}`),
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(
    gateways.map(({ name, port }) => [name, port]),
    [
      ["edge", 8080],
      ["edge/default/more/b", 8081],
    ],
  );
  assert.deepEqual(
    routes.map(({ route }) => [route.gateways[0], route.hostnames?.[0]]),
    [
      ["edge", "a.test"],
      ["edge/default/more/b", "b.test"],
    ],
  );
  assert.deepEqual(
    attachments.map(({ target }) => target.name),
    ["edge#default/more/a", "edge/default/more/b"],
  );
});

const lines = (yaml: string): string[] => translate(yaml).problems.map((problem) => problem.toLine());

test("problems of a set are reported at the set", () => {
  const [missing] = lines(set("more", LISTENERS, "{ name: edgy }"));
  assert.match(missing ?? "", /ListenerSet default\/more: spec\.parentRef: the Gateway was not found/);
  const [twice] = lines(GATEWAY + set("more", LISTENERS) + set("more", LISTENERS));
  assert.match(twice ?? "", /ListenerSet default\/more: metadata\.name: another ListenerSet has this name/);
  const [refused] = lines(GATEWAY.replace("Same", "None") + set("more", LISTENERS));
  assert.match(refused ?? "", /ListenerSet default\/more: spec: The allowedListeners of the Gateway do not allow/);
  const [conflict] = lines(GATEWAY + set("more", "{ name: a, port: 8080, protocol: HTTP, hostname: own.test }"));
  assert.match(conflict ?? "", /spec\.listeners\[0\]: port 8080 is also that of another listener of the Gateway/);
});
