import assert from "node:assert/strict";
import { test } from "node:test";
import { parseOpenApi } from "./document.ts";
import { convertOperations, type Operations } from "./operations.ts";

/**
 * The arguments of an operation with one header parameter of this name; the gateway sends its credential in `x-key`.
 */
function argumentsFor(name: string): string[] {
  const parameters = [{ name, in: "header", schema: { type: "string" } }];
  const document = parseOpenApi(
    JSON.stringify({
      openapi: "3.0.3",
      info: { title: "t", version: "1" },
      servers: [{ url: "http://api.test" }],
      paths: { "/a": { get: { operationId: "a", parameters, responses: {} } } },
    }),
  );
  const steps = convertOperations(document, { reserved: [{ in: "header", name: "x-key" }] });
  let step: IteratorResult<undefined, Operations>;
  do step = steps.next();
  while (step.done !== true);
  const operation = step.value.byName.get("a");
  assert.ok(operation);
  return operation.parameters.map(({ argument }) => argument);
}

for (const [name, isOffered] of [
  ["x-trace", true],
  ["x_trace", true],
  ["x-key", false],
  ["X-Key", false],
  ["x_key", false],
  ["x.key", false],
  ["content_length", false],
  ["Transfer_Encoding", false],
  ["proxy-connection", false],
  ["authorization", false],
] as const) {
  test(`a tool ${isOffered ? "offers" : "does not offer"} the header ${name} as an argument [L18]`, () => {
    assert.deepEqual(argumentsFor(name), isOffered ? [name] : []);
  });
}
