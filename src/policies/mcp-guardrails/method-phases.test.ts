import assert from "node:assert/strict";
import { test } from "node:test";
import { isMethodPattern, type Phase, phasesOf } from "./method-phases.ts";

const METHODS: Readonly<Record<string, Phase>> = {
  "tools/call": "full",
  "tools/*": "request",
  "*/list": "response",
  "*": "off",
};

const CASES: readonly (readonly [methods: Readonly<Record<string, Phase>>, method: string, phases: string])[] = [
  [METHODS, "tools/call", "request response"],
  [METHODS, "tools/list", "request"],
  [METHODS, "prompts/list", "response"],
  [METHODS, "prompts/get", ""],
  [{ "tools/call": "off", "*": "full" }, "tools/call", ""],
  [{ "tools/call": "off", "*": "full" }, "prompts/get", "request response"],
  [{ "notifications/*": "off", "notifications/tools/*": "full" }, "notifications/tools/x", "request response"],
  [{ "tools/call": "full" }, "tools/calls", ""],
  // Methods that carry the content of another method.
  [{ "tools/call": "response" }, "tasks/result", "response"],
  [{ "tools/call": "response", "*": "request" }, "tasks/get", "request response"],
  [{ "tools/call": "response", "tasks/*": "off" }, "tasks/get", ""],
  [{ "tools/call": "response", "tasks/get": "request" }, "tasks/get", "request"],
  [{ initialize: "response" }, "server/discover", "response"],
  [{ "resources/*": "request" }, "subscriptions/listen", "request"],
  [{ "tools/call": "full" }, "constructor", ""],
];

for (const [methods, method, phases] of CASES) {
  test(`${JSON.stringify(methods)} sends ${method} in the phases "${phases}"`, () => {
    const { request, response } = phasesOf(methods, method);
    assert.equal([...(request ? ["request"] : []), ...(response ? ["response"] : [])].join(" "), phases);
  });
}

test("a pattern has at most one wildcard, at its start or end", () => {
  for (const pattern of ["tools/call", "tools/*", "*/list", "*"]) assert.ok(isMethodPattern(pattern), pattern);
  for (const pattern of ["", "a*b", "**", "*a*"]) assert.ok(!isMethodPattern(pattern), pattern);
});
