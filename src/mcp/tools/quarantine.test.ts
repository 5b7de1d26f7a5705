import assert from "node:assert/strict";
import { test } from "node:test";
import type { Logger } from "../../record/log/logger.ts";
import { Quarantine } from "./quarantine.ts";
import { parseToolLocks } from "./tool-lock.ts";

function setUp(): { quarantine: Quarantine; warnings: unknown[] } {
  const warnings: unknown[] = [];
  const logger = { warn: (_: string, fields: unknown) => warnings.push(fields) } as unknown as Logger;
  return { quarantine: new Quarantine("files", logger), warnings };
}

const lock = parseToolLocks('{"version":1,"targets":{}}')("files");

for (const [name, schema] of [
  ["nested deeply", `${"[".repeat(30_000)}${"]".repeat(30_000)}`],
  ["of small values", `[${"1,".repeat(400_000)}1]`],
] as const) {
  test(`a huge definition ${name} is withheld, told once, and cannot be accepted`, () => {
    const { quarantine, warnings } = setUp();
    const text = `{"name":"a","inputSchema":${schema}}`;
    for (let time = 0; time < 3; time++) assert.equal(quarantine.passes("a", text, lock), false);
    assert.deepEqual(quarantine.tools, [
      {
        name: "a",
        difference: ["the definition has more than 20000 values and names"],
        markers: [],
        definition: undefined,
      },
    ]);
    assert.equal(warnings.length, 1);
  });
}

test("a long definition is logged again only if its difference changes", () => {
  const { quarantine, warnings } = setUp();
  const text = (letter: string): string => `{"name":"a","description":"${letter.repeat(70_000)}"}`;
  for (const letter of ["x", "x", "y"]) assert.equal(quarantine.passes("a", text(letter), lock), false);
  assert.equal(warnings.length, 1);
});
