import assert from "node:assert/strict";
import { test } from "node:test";
import { accessProblem } from "./access.ts";
import type { ClientRequest } from "./json-rpc.ts";
import { NAMED_BY, REFERENCES } from "./message-rules.ts";

/** Every way in which a request can name an item. */
const NAMING: readonly (readonly [method: string, params: object, kind: string])[] = [
  ["tools/call", { name: "x" }, "tool"],
  ["prompts/get", { name: "x" }, "prompt"],
  ["resources/read", { uri: "x" }, "resource"],
  ["resources/subscribe", { uri: "x" }, "resource"],
  ["resources/unsubscribe", { uri: "x" }, "resource"],
  ["completion/complete", { ref: { type: "ref/prompt", name: "x" } }, "prompt"],
  ["completion/complete", { ref: { type: "ref/resource", uri: "x" } }, "resource"],
  ["completion/complete", { ref: { type: "ref/resource", uri: "x", name: "y" } }, "resource"],
  ["completion/complete", { ref: { type: "ref/unknown", uri: "x" } }, "resource"],
];

const requestOf = (method: string, params: object): ClientRequest => ({ method, params }) as unknown as ClientRequest;

test("there is an example of every request and reference that names an item", () => {
  const methods = new Set(NAMING.map(([method]) => method));
  for (const method of Object.keys(NAMED_BY)) assert.ok(methods.has(method), method);
  for (const type of Object.keys(REFERENCES)) assert.ok(JSON.stringify(NAMING).includes(`"${type}"`), type);
});

test("rules judge every request that names an item, by its kind and name", () => {
  for (const [method, params, kind] of NAMING) {
    const judged: string[] = [];
    const problem = (isAllowed: boolean) =>
      accessProblem(
        requestOf(method, params),
        {
          allows(...about: readonly unknown[]) {
            judged.push(about.slice(0, 3).join(" "));
            return isAllowed;
          },
        } as never,
        "t",
      );
    assert.equal(problem(false)?.error, "authorization_denied", `${method} ${JSON.stringify(params)}`);
    assert.equal(problem(true), undefined);
    assert.deepEqual(judged, [`${kind} x t`, `${kind} x t`]);
  }
});
